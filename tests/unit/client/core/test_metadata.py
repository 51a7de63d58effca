from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import NIL_UUID, TopicPartition, Uuid
from ottla.client.core.metadata import NO_LEADER, BrokerAddress, MetadataCache, PartitionLeader, least_loaded
from ottla.client.errors import ClientError, client_error
from ottla.wire.apis.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic
from tests.unit.client.core.producer.model_broker import TOPIC, metadata_response


def known(leaders: list[int], epochs: list[int]) -> MetadataCache:
    cache = MetadataCache(max_age_ms=1000, max_idle_ms=5000, backoff_ms=10, backoff_max_ms=100)
    cache.use(TOPIC, 0)
    cache.update(metadata_response(leaders, epochs), 0)
    return cache


def test_it_is_asked_at_once_then_when_old_or_when_wrong() -> None:
    cache = MetadataCache(max_age_ms=1000, backoff_ms=10)
    assert cache.next_refresh_ms() == 0
    cache.use(TOPIC, 5)
    cache.update(metadata_response([0], [0]), 5)
    assert cache.next_refresh_ms() == 1005
    cache.request_update()
    assert cache.next_refresh_ms() == 15


def test_failures_are_followed_by_longer_pauses() -> None:
    cache = known([0], [0])
    waits = []
    for _ in range(6):
        cache.update_failed(0)
        waits.append(cache.next_refresh_ms())
    assert waits == [10, 20, 40, 80, 100, 100]


def test_a_new_topic_does_not_wait() -> None:
    cache = known([0], [0])
    cache.update_failed(50)
    assert cache.use("other", 55) is None
    assert cache.next_refresh_ms() == 55
    assert cache.topics_to_ask(60) == ["other", TOPIC]


def test_a_topic_without_use_is_forgotten() -> None:
    cache = known([0], [0])
    assert cache.topics_to_ask(5000) == [TOPIC]
    assert cache.topics_to_ask(5001) == []
    assert cache.leader_of(TOPIC, 0) == NO_LEADER


def test_who_asks_about_all_topics_learns_of_those_that_are_gone() -> None:
    cache = known([0], [0])
    cache.update(MetadataResponse(), 10)
    assert TOPIC in cache.topics
    cache.update(MetadataResponse(), 20, is_about_all=True)
    assert TOPIC not in cache.topics
    # That was the answer: there is no need to ask again.
    assert cache.next_refresh_ms() == 1020


def test_an_older_leader_epoch_is_not_believed() -> None:
    cache = known([1, 0], [4, 2])
    cache.update(metadata_response([0, 1], [3, 3]), 1)
    assert (cache.leader_of(TOPIC, 0), cache.leader_of(TOPIC, 1)) == (1, 1)


def test_a_reply_teaches_the_leader() -> None:
    cache = known([0], [4])
    assert not cache.learn_leader(TOPIC, 0, PartitionLeader(1, 4))
    assert not cache.learn_leader(TOPIC, 0, PartitionLeader(9, 5)), "nobody knows where 9 is"
    assert cache.learn_leader(TOPIC, 0, PartitionLeader(9, 5), [BrokerAddress(9, "h", 9)])
    assert cache.leader_of(TOPIC, 0) == 9
    assert cache.knows(TopicPartition(TOPIC, 0)) and not cache.knows(TopicPartition(TOPIC, 1))


def test_partitions_without_a_leader_are_asked_for_again() -> None:
    cache = known([0, -1], [0, 0])
    topic = cache.use(TOPIC, 1)
    assert topic is not None and topic.available == (0,) and topic.partition_count == 2
    assert cache.next_refresh_ms() == 10
    assert cache.leader_of(TOPIC, 1) == NO_LEADER


def test_a_topic_with_an_error_is_not_usable() -> None:
    cache = known([0], [0])
    error = MetadataResponseTopic(name=TOPIC, topic_id=NIL_UUID, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    cache.update(MetadataResponse(topics=[error]), 1)
    assert cache.use(TOPIC, 2) is None


def test_the_least_loaded_node() -> None:
    assert least_loaded([1, 2, 3], {1: 5, 2: 1, 3: 1}, {1, 3}) == 3
    assert least_loaded([1, 2], {}, set()) == 1
    assert least_loaded([], {}, set()) is None


def test_a_name_that_is_refused_for_good_is_not_asked_about_without_end() -> None:
    cache = known([0], [0])
    cache.use("refused", 20)
    response = metadata_response([0], [0])
    response.topics.append(MetadataResponseTopic(error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, name="refused"))
    cache.update(response, 20)
    assert cache.use(TOPIC, 20) is not None and cache.use("refused", 20) is None
    assert cache.next_refresh_ms() == 1020
    assert cache.use("new", 30) is None
    assert cache.next_refresh_ms() == 30
    assert cache.topics_to_ask(30) == ["new", "refused", TOPIC]


def test_only_names_that_can_be_are_looked_for() -> None:
    cache = known([0], [0])
    for name, code in {"a b": ErrorCode.INVALID_TOPIC_EXCEPTION, 5: ErrorCode.INVALID_RECORD}.items():
        with pytest.raises(ClientError) as refusal:
            cache.find(name, 1)  # type: ignore[arg-type]
        assert refusal.value.code == code
    assert cache.topics_to_ask(1) == [TOPIC]


def test_a_partition_that_is_not_known_is_asked_about() -> None:
    cache = known([0], [0])
    assert cache.find(TOPIC, 1, 0) is not None
    assert cache.next_refresh_ms() == 1000
    assert cache.find(TOPIC, 2, 1) is None
    assert cache.next_refresh_ms() == 10


def test_what_is_said_of_a_topic_that_was_waited_for_in_vain() -> None:
    cache = known([0, 0], [0, 0])
    missing = cache.why_unknown(TOPIC, 2, 500, otherwise="silence")
    assert missing == f"topic {TOPIC} has the partitions 0 to 1, and no partition 2 has been added within 500 ms"
    assert ": silence. Does the topic exist" in cache.why_unknown(TOPIC, None, 500, otherwise="silence")
    assert ": silence. Does the topic exist" in cache.why_unknown("other", 0, 500, otherwise="silence")
    refused = MetadataResponseTopic(name=TOPIC, topic_id=NIL_UUID, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    cache.update(MetadataResponse(topics=[refused]), 1)
    reason = client_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED).message
    for partition in (None, 0, 2):
        assert f"within 500 ms: {reason}. " in cache.why_unknown(TOPIC, partition, 500, otherwise="silence")


def test_the_partitions_of_a_topic_that_has_no_leaders_now_are_remembered() -> None:
    for code, remembered in ((ErrorCode.LEADER_NOT_AVAILABLE, True), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False)):
        cache = known([0], [3])
        cache.update(
            MetadataResponse(topics=[MetadataResponseTopic(name=TOPIC, topic_id=NIL_UUID, error_code=code)]), 1
        )
        assert cache.knows(TopicPartition(TOPIC, 0)) is remembered


def test_a_topic_made_anew_begins_with_epochs_of_its_own() -> None:
    cache = known([1], [4])
    response = metadata_response([0], [0])
    response.topics[0].topic_id = Uuid(bytes(15) + b"\x07")
    cache.update(response, 1)
    assert cache.leader_of(TOPIC, 0) == 0


def test_what_is_not_said_otherwise_is_as_in_kafka() -> None:
    cache = MetadataCache()
    assert (cache.brokers, cache.topics, cache.cluster_id, cache.controller_id) == ({}, {}, None, -1)
    assert cache.next_refresh_ms() == 0, "nothing is known yet"
    cache.use(TOPIC, 0)
    cache.update(metadata_response([0], [0]), 0)
    assert cache.next_refresh_ms() == 300_000
    assert cache.topics_to_ask(300_000) == [TOPIC] and cache.topics_to_ask(300_001) == []
    waits = []
    for _ in range(5):
        cache.update_failed(0)
        waits.append(cache.next_refresh_ms())
    assert waits == [100, 200, 400, 800, 1000]


def test_whoever_uses_a_topic_again_keeps_it_known() -> None:
    cache = known([0], [0])
    assert cache.use(TOPIC, 4000) is not None
    assert cache.topics_to_ask(9000) == [TOPIC] and cache.topics_to_ask(9001) == []
    assert TOPIC not in cache.topics


def test_an_answer_replaces_what_was_known_of_the_cluster() -> None:
    cache = known([0], [0])
    broker = MetadataResponseBroker(node_id=7, host="h7", port=97, rack="r")
    cache.update(MetadataResponse(brokers=[broker], cluster_id="c", controller_id=7), 1)
    assert cache.brokers == {7: BrokerAddress(7, "h7", 97, "r")}
    assert (cache.cluster_id, cache.controller_id) == ("c", 7)
    assert cache.leader_of(TOPIC, 0) == NO_LEADER, "nobody knows where broker 0 is now"


def test_a_topic_that_has_no_name_in_an_answer_is_passed_over() -> None:
    cache = known([0], [0])
    cache.update(MetadataResponse(topics=[MetadataResponseTopic(name=None, topic_id=NIL_UUID)]), 1)
    assert list(cache.topics) == [TOPIC] and cache.next_refresh_ms() == 1001


def test_what_an_answer_leaves_open_is_asked_again_after_pauses_that_grow_until_it_is_known() -> None:
    cache = known([0, -1], [0, 0])
    assert cache.next_refresh_ms() == 10
    cache.update(metadata_response([0, -1], [0, 0]), 10)
    assert cache.next_refresh_ms() == 30
    cache.update(metadata_response([0, 1], [0, 0]), 30)
    assert cache.next_refresh_ms() == 1030
    cache.request_update()
    assert cache.next_refresh_ms() == 40, "also after a success there is a pause"
    cache.use("other", 35)
    cache.update(metadata_response([0, 1], [0, 0]), 50)
    assert cache.next_refresh_ms() == 60, "the answer said nothing of a topic in use"


def test_a_topic_whose_error_may_pass_is_asked_about_again() -> None:
    cache = known([0], [0])
    error = MetadataResponseTopic(name=TOPIC, topic_id=NIL_UUID, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    cache.update(MetadataResponse(topics=[error]), 1)
    assert cache.next_refresh_ms() == 11


def test_metadata_that_is_never_new_enough_is_not_asked_for_without_a_pause() -> None:
    cache = MetadataCache(max_age_ms=0, backoff_ms=10)
    cache.update(metadata_response([0], [0]), 5)
    assert cache.next_refresh_ms() == 15


def test_a_failure_makes_the_next_question_due_after_a_pause() -> None:
    cache = known([0], [0])
    cache.update_failed(50)
    assert cache.next_refresh_ms() == 60


def test_of_two_answers_of_one_epoch_the_later_counts_and_partitions_are_in_order() -> None:
    cache = known([1], [4])
    response = metadata_response([0, 0, -1, 1], [4, 1, 1, 1])
    response.topics[0].partitions.reverse()
    cache.update(response, 1)
    assert cache.leader_of(TOPIC, 0) == 0
    topic = cache.use(TOPIC, 1)
    assert topic is not None and topic.available == (0, 1, 3) and list(topic.partitions) == [0, 1, 2, 3]


def test_a_leader_is_learnt_only_of_partitions_that_are_known() -> None:
    cache = known([-1, 0], [4, 4])
    leader = PartitionLeader(1, 5)
    assert not cache.learn_leader("other", 0, leader) and not cache.learn_leader(TOPIC, 2, leader)
    assert not cache.learn_leader(TOPIC, 0, PartitionLeader(1, 3))
    assert cache.learn_leader(TOPIC, 0, leader)
    topic = cache.use(TOPIC, 1)
    assert topic is not None and topic.available == (0, 1)
    assert topic.partitions == {0: leader, 1: PartitionLeader(0, 4)}
    assert cache.leader_of("other", 0) == cache.leader_of(TOPIC, 2) == NO_LEADER


def test_a_partition_of_a_topic_of_which_nothing_is_known_is_waited_for() -> None:
    cache = known([0], [0])
    assert cache.find("other", 5, 3) is None
    assert cache.topics_to_ask(5) == ["other", TOPIC] and cache.next_refresh_ms() == 5
    assert not cache.knows(TopicPartition("other", 0))


def test_a_node_of_which_nothing_is_awaited_is_asked_first() -> None:
    assert least_loaded([1, 2], {1: 1}, {1}) == 2
    assert least_loaded([2, 1], {1: 1, 2: 1}, set()) == 1


def test_the_first_failure_of_all_is_followed_by_the_first_pause() -> None:
    cache = MetadataCache(backoff_ms=10, backoff_max_ms=100)
    waits = []
    for _ in range(3):
        cache.update_failed(0)
        waits.append(cache.next_refresh_ms())
    assert waits == [10, 20, 40]


def test_partitions_that_are_named_count_whatever_is_wrong_with_their_topic() -> None:
    cache = known([0], [3])
    response = metadata_response([1, 1], [3, 3])
    response.topics[0].error_code = ErrorCode.LEADER_NOT_AVAILABLE
    cache.update(response, 1)
    assert cache.leader_of(TOPIC, 0) == cache.leader_of(TOPIC, 1) == 1
    assert cache.next_refresh_ms() == 11


def test_no_broker_has_the_number_of_a_leader_that_is_missing() -> None:
    cache = known([0, -1], [0, 0])
    assert [cache.leader_of(TOPIC, partition) for partition in range(3)] == [0, -1, -1]
    assert cache.leader_of("other", 0) == -1
