"""Fetch: how far who may read, how much of it, when it is worth a reply, and what is said if there is none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import Endpoint, Uuid
from ottla.broker.handlers.fetch import divergence
from ottla.broker.partition import Partition
from ottla.machines.cluster.image import BrokerImage
from ottla.records.builder import NewRecord, build_batch
from ottla.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from ottla.wire.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.apis.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.unit.broker.replica_world import change_isr
from tests.unit.broker.running_broker import RunningBroker, running_broker

FOLLOWER = 999
BY_NAME, BY_ID = 12, 14
CAP = 1024
MANY = 1_000_000
LONG_MS = 600_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    settings: dict[str, Any] = {
        "fetch_max_bytes": CAP,
        "transaction_partition_verification_enable": "false",
        "replica_selector_class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "broker_rack": "here",
    }
    with running_broker(tmp_path_factory.mktemp("broker") / "data", **settings) as running:
        running.takes_short_ways = False
        yield running


@pytest.fixture
def topic(broker: RunningBroker) -> str:
    return broker.new_topic()


def led(broker: RunningBroker, topic: str, index: int = 0) -> Partition:
    return broker.broker.replicas.led(topic, index)


def produce(broker: RunningBroker, topic: str, index: int = 0, value: bytes = b"x" * 100, **fields: Any) -> int:
    """The size of the batch."""
    records = build_batch([NewRecord(None, value, (), 1_700_000_000_000)], **fields)
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=records)])]
    transactional_id = "tx" if fields.get("transactional") else None
    request = ProduceRequest(transactional_id=transactional_id, acks=1, timeout_ms=1000, topic_data=data)
    (answer,) = broker.ask(request, 11).responses
    assert answer.partition_responses[0].error_code == 0
    return len(records)


def asked(index: int = 0, offset: int = 0, **fields: Any) -> FetchPartition:
    return FetchPartition(partition=index, fetch_offset=offset, **{"partition_max_bytes": MANY, **fields})


def request_for(topic: str | Uuid, *partitions: FetchPartition, **fields: Any) -> FetchRequest:
    one = FetchTopic(topic=topic) if isinstance(topic, str) else FetchTopic(topic_id=topic)
    one.partitions = list(partitions) or [asked()]
    return FetchRequest(**{"max_wait_ms": 0, "session_epoch": -1, "max_bytes": MANY, "topics": [one], **fields})


def fetched(
    broker: RunningBroker, topic: str | Uuid, *partitions: FetchPartition, version: int = BY_NAME, **fields: Any
) -> Any:
    """The answer about one partition, or those about several."""
    response = broker.ask(request_for(topic, *partitions, **fields), version)
    assert response.error_code == 0
    answers = [answer for found in response.responses for answer in found.partitions]
    return answers if len(partitions) > 1 else answers[0]


def size_of(answer: Any) -> int:
    return len(answer.records or b"")


# How far


def test_consumers_read_what_is_committed_and_followers_everything(broker: RunningBroker, topic: str) -> None:
    size = produce(broker, topic)
    partition = led(broker, topic)
    change_isr(broker.broker.replicas, partition, broker.broker.broker_id, FOLLOWER)
    produce(broker, topic)
    consumer = fetched(broker, topic)
    assert (consumer.high_watermark, consumer.last_stable_offset, size_of(consumer)) == (1, 1, size)
    follower = fetched(broker, topic, replica_id=FOLLOWER)
    assert (follower.high_watermark, size_of(follower)) == (1, 2 * size)


def test_readers_of_what_is_stable_are_told_what_was_aborted(broker: RunningBroker, topic: str) -> None:
    fields: dict[str, Any] = {"producer_epoch": 0, "base_sequence": 0, "transactional": True}
    size = produce(broker, topic, producer_id=7001, **fields)
    produce(broker, topic, producer_id=7002, **fields)
    assert [size_of(fetched(broker, topic, isolation_level=level)) for level in (0, 1)] == [
        2 * size,
        0,
    ]
    for producer_id, is_committed in ((7001, False), (7002, True)):
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=0,
            transaction_result=is_committed,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
            coordinator_epoch=0,
        )
        (answer,) = broker.ask(WriteTxnMarkersRequest(markers=[marker])).markers
        assert answer.topics[0].partitions[0].error_code == 0
    stable = fetched(broker, topic, isolation_level=1)
    assert (stable.high_watermark, stable.last_stable_offset) == (4, 4)
    assert [(each.producer_id, each.first_offset) for each in stable.aborted_transactions] == [(7001, 0)]
    assert fetched(broker, topic, isolation_level=0).aborted_transactions is None


# How much


@pytest.mark.parametrize(("room", "batches"), [(1, 1), (0, 1), (-1, 0)])
def test_what_one_partition_takes_the_others_do_not_get(
    broker: RunningBroker, topic: str, room: int, batches: int
) -> None:
    """The first batch comes whole in any case."""
    size = produce(broker, topic, 0)
    assert produce(broker, topic, 1) == size
    first, second = fetched(broker, topic, asked(0), asked(1), max_bytes=2 * size + room)
    assert (size_of(first), size_of(second)) == (size, batches * size)
    first, second = fetched(broker, topic, asked(0), asked(1), max_bytes=1)
    assert (size_of(first), size_of(second)) == (size, 0)


def test_the_broker_has_a_limit_of_its_own(broker: RunningBroker, topic: str) -> None:
    size = produce(broker, topic)
    for _ in range(CAP // size):
        produce(broker, topic)
    assert size_of(fetched(broker, topic)) == CAP
    assert size_of(fetched(broker, topic, max_bytes=CAP - 1)) == CAP - 1
    assert size_of(fetched(broker, topic, asked(partition_max_bytes=2 * size))) == 2 * size


# When


def test_a_reply_is_worth_it_from_so_many_bytes_on(broker: RunningBroker, topic: str) -> None:
    size = produce(broker, topic, 0) + produce(broker, topic, 1)
    both = asked(0), asked(1)
    for missing, is_enough in ((-1, True), (0, True), (1, False)):
        request = request_for(topic, *both, max_wait_ms=LONG_MS, min_bytes=size + missing)
        assert broker.answers_at_once(request, BY_NAME) is is_enough
    assert broker.answers_at_once(request_for(topic, *both, min_bytes=MANY), BY_NAME)


def test_who_asks_for_nothing_or_makes_a_mistake_need_not_wait(broker: RunningBroker, topic: str) -> None:
    waits: dict[str, Any] = {"max_wait_ms": LONG_MS, "min_bytes": 1}
    assert broker.answers_at_once(request_for(topic, topics=[], **waits), BY_NAME)
    assert broker.answers_at_once(request_for(topic, asked(0), asked(9), **waits), BY_NAME)
    assert not broker.answers_at_once(request_for(topic, asked(0), asked(1), **waits), BY_NAME)


def test_a_reader_of_an_older_segment_does_not_wait_for_more(broker: RunningBroker) -> None:
    topic = broker.new_topic(segment_bytes="1048576")
    for _ in range(2):
        produce(broker, topic, value=b"x" * 600_000)
    waits: dict[str, Any] = {"max_wait_ms": LONG_MS, "min_bytes": MANY}
    assert broker.answers_at_once(request_for(topic, asked(offset=0), **waits), BY_NAME)
    assert not broker.answers_at_once(request_for(topic, asked(offset=1), **waits), BY_NAME)


def test_a_reader_with_another_history_is_told_at_once_where_they_part(broker: RunningBroker, topic: str) -> None:
    produce(broker, topic)
    elsewhere = asked(offset=1, last_fetched_epoch=0)
    request = request_for(topic, elsewhere, max_wait_ms=LONG_MS, min_bytes=1)
    assert not broker.answers_at_once(request, BY_NAME)
    elsewhere.fetch_offset = 5
    assert broker.answers_at_once(request, BY_NAME)
    answer = fetched(broker, topic, elsewhere)
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 1)
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (1, 1, 0)
    assert answer.records == b""


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ((4, 10), None),
        ((4, 9), (4, 9)),
        ((3, 10), (3, 10)),
        ((3, 12), (3, 12)),
        ((-1, -1), ErrorCode.OFFSET_OUT_OF_RANGE),
        ((4, -1), ErrorCode.OFFSET_OUT_OF_RANGE),
        ((-1, 10), ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_where_two_histories_part(found: tuple[int, int], told: tuple[int, int] | ErrorCode | None) -> None:
    def end_offset_for(epoch: int, log_end_offset: int) -> tuple[int, int]:
        assert (epoch, log_end_offset) == (4, 20)
        return found

    log: Any = SimpleNamespace(epochs=SimpleNamespace(end_offset_for=end_offset_for), log_end_offset=20)
    wanted: Any = SimpleNamespace(last_fetched_epoch=4, fetch_offset=10)
    if isinstance(told, ErrorCode):
        with pytest.raises(KafkaError) as refused:
            divergence(log, wanted)
        assert refused.value.code is told
    else:
        assert divergence(log, wanted) == told


def test_epoch_0_has_a_history_too() -> None:
    log: Any = SimpleNamespace(epochs=SimpleNamespace(end_offset_for=lambda *_: (0, 0)), log_end_offset=0)
    wanted: Any = SimpleNamespace(last_fetched_epoch=0, fetch_offset=0)
    assert divergence(log, wanted) is None


# What is said instead


@contextmanager
def following(partition: Partition, leader: int) -> Iterator[None]:
    """Somebody else leads for a while."""
    before = partition.leader, partition.leader_id
    partition.leader, partition.leader_id = None, leader
    try:
        yield
    finally:
        partition.leader, partition.leader_id = before


@pytest.mark.parametrize(
    ("version", "replica", "is_offline", "code"),
    [
        (10, -1, False, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (11, -1, False, ErrorCode.NONE),
        (12, -1, False, ErrorCode.NONE),
        (12, 0, False, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (12, -1, True, ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_a_follower_serves_consumers_that_know_how_to_find_it(
    broker: RunningBroker, topic: str, version: int, replica: int, is_offline: bool, code: ErrorCode
) -> None:
    size = produce(broker, topic)
    partition = led(broker, topic)
    with following(partition, 2):
        partition.is_offline = is_offline
        answer = fetched(broker, topic, version=version, replica_id=replica)
        partition.is_offline = False
    assert (answer.error_code, size_of(answer)) == (code, 0 if code else size)
    if version == BY_NAME:
        told = answer.current_leader.leader_id, answer.current_leader.leader_epoch
        assert told == ((2, 0) if code == ErrorCode.NOT_LEADER_OR_FOLLOWER else (-1, -1))


def test_without_a_leader_nobody_reads(broker: RunningBroker, topic: str) -> None:
    with following(led(broker, topic), -1):
        assert fetched(broker, topic).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_leader_of_another_epoch_is_told_who_leads(broker: RunningBroker, topic: str) -> None:
    partition = led(broker, topic)
    partition.leader_epoch = 5
    old = fetched(broker, topic, asked(current_leader_epoch=4))
    assert old.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (old.current_leader.leader_id, old.current_leader.leader_epoch) == (broker.broker.broker_id, 5)
    assert (old.high_watermark, old.last_stable_offset, old.log_start_offset) == (-1, -1, 0)
    new = fetched(broker, topic, asked(current_leader_epoch=6))
    assert (new.error_code, new.current_leader.leader_id) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1)


def test_what_is_not_here_has_no_first_offset(broker: RunningBroker, topic: str) -> None:
    assert fetched(broker, topic, asked(9)).log_start_offset == -1
    topic_id = broker.broker.image.topics[topic].topic_id
    for unknown in (Uuid(b"?" * 16), topic_id):
        assert fetched(broker, unknown, asked(9), version=BY_ID).log_start_offset == -1
    log = led(broker, topic).log
    produce(broker, topic)
    log.advance_log_start_offset(1)
    for name, version in ((topic, BY_NAME), (topic_id, BY_ID)):
        answer = fetched(broker, name, asked(offset=7), version=version)
        assert (answer.error_code, answer.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 1)


def test_a_topic_that_was_made_again_is_another_one(broker: RunningBroker, topic: str) -> None:
    topic_id = broker.broker.image.topics[topic].topic_id
    led(broker, topic).topic_id = Uuid(b"o" * 16)
    assert fetched(broker, topic_id, version=BY_ID).error_code == ErrorCode.INCONSISTENT_TOPIC_ID
    assert fetched(broker, topic).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("epoch", "code"), [(0, ErrorCode.UNKNOWN_LEADER_EPOCH), (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
)
def test_a_follower_that_the_leader_does_not_know_asks_again(
    broker: RunningBroker, topic: str, epoch: int, code: ErrorCode
) -> None:
    assert fetched(broker, topic, asked(current_leader_epoch=epoch), replica_id=FOLLOWER).error_code == code
    assert fetched(broker, topic, asked(current_leader_epoch=epoch), replica_id=0).error_code == code


def test_a_follower_may_have_the_id_0(broker: RunningBroker, topic: str) -> None:
    size = produce(broker, topic)
    partition = led(broker, topic)
    assert partition.leader is not None and broker.broker.broker_id != 0
    change_isr(broker.broker.replicas, partition, broker.broker.broker_id, 0)
    produce(broker, topic)
    assert size_of(fetched(broker, topic, asked(0), replica_id=0)) == 2 * size
    fetched(broker, topic, asked(0, 2), replica_id=0)
    assert fetched(broker, topic).high_watermark == 2, "what it asks for, it has all before"


def test_a_follower_that_was_started_again_since_is_told_to_wait(broker: RunningBroker, topic: str) -> None:
    partition = led(broker, topic)
    change_isr(broker.broker.replicas, partition, broker.broker.broker_id, FOLLOWER)
    leader = partition.leader
    assert leader is not None
    leader.followers[FOLLOWER].broker_epoch = 7
    topic_id = broker.broker.image.topics[topic].topic_id
    states = [ReplicaState(replica_id=FOLLOWER, replica_epoch=epoch) for epoch in (6, 7)]
    codes = [fetched(broker, topic_id, version=15, replica_state=state).error_code for state in states]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]


def test_results_stand_in_the_order_of_the_request(broker: RunningBroker, topic: str) -> None:
    other = broker.new_topic()
    order = [(topic, 1), (other, 0), (topic, 0), (other, 1)]
    topics = [FetchTopic(topic=name, partitions=[asked(index)]) for name, index in order]
    responses = broker.ask(request_for(topic, topics=topics), BY_NAME).responses
    assert [(found.topic, part.partition_index) for found in responses for part in found.partitions] == order
    topics = [FetchTopic(topic=name, partitions=[asked(1), asked(0)]) for name in (topic, other)]
    responses = broker.ask(request_for(topic, topics=topics), BY_NAME).responses
    assert [(found.topic, [part.partition_index for part in found.partitions]) for found in responses] == [
        (topic, [1, 0]),
        (other, [1, 0]),
    ]


# The closest replica


@pytest.fixture
def neighbour(broker: RunningBroker) -> Iterator[int]:
    """Another broker, in another rack."""
    brokers = broker.broker.image.brokers
    own = brokers[broker.broker.broker_id].endpoints
    brokers[FOLLOWER] = BrokerImage(FOLLOWER, own, "there")
    yield FOLLOWER
    del brokers[FOLLOWER]


def test_a_consumer_is_sent_to_the_replica_in_its_rack(broker: RunningBroker, topic: str, neighbour: int) -> None:
    size = produce(broker, topic)
    change_isr(broker.broker.replicas, led(broker, topic), broker.broker.broker_id, neighbour)
    produce(broker, topic)
    fetched(broker, topic, asked(offset=1), replica_id=neighbour)
    request = request_for(topic, rack_id="there", max_wait_ms=LONG_MS, min_bytes=MANY)
    assert broker.answers_at_once(request, BY_NAME)
    answer = fetched(broker, topic, rack_id="there")
    assert (answer.preferred_read_replica, size_of(answer)) == (neighbour, 0)
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (1, 1, 0)
    for rack in ("here", "nowhere", ""):
        stays = fetched(broker, topic, rack_id=rack)
        assert (stays.preferred_read_replica, size_of(stays)) == (-1, size)
    follower = fetched(broker, topic, rack_id="there", replica_id=neighbour)
    assert (follower.preferred_read_replica, size_of(follower)) == (-1, 2 * size)


def test_a_consumer_is_not_sent_where_it_cannot_go(broker: RunningBroker, topic: str, neighbour: int) -> None:
    brokers = broker.broker.image.brokers
    change_isr(broker.broker.replicas, led(broker, topic), broker.broker.broker_id, neighbour)
    fetched(broker, topic, asked(offset=0), replica_id=neighbour)
    assert fetched(broker, topic, rack_id="there").preferred_read_replica == neighbour
    elsewhere = brokers[neighbour].endpoints[0]._replace(listener="INSIDE")
    brokers[neighbour] = BrokerImage(neighbour, (elsewhere,), "there")
    assert isinstance(elsewhere, Endpoint)
    assert fetched(broker, topic, rack_id="there").preferred_read_replica == -1


# Sessions of followers


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
def test_what_a_follower_does_not_fetch_any_more_is_not_watched(
    broker: RunningBroker, topic: str, version: int
) -> None:
    partitions = [led(broker, topic, index) for index in (0, 1)]
    for partition in partitions:
        change_isr(broker.broker.replicas, partition, broker.broker.broker_id, FOLLOWER)
    topic_id = broker.broker.image.topics[topic].topic_id
    name = topic if version == BY_NAME else topic_id
    begun = broker.ask(request_for(name, asked(0), asked(1), replica_id=FOLLOWER, session_epoch=0), version)
    assert begun.session_id > 0

    def watched() -> list[bool]:
        leaders = [partition.leader for partition in partitions]
        return [leader is not None and leader.followers[FOLLOWER].watch is not None for leader in leaders]

    def forget(epoch: int, *indexes: int, **other: Any) -> None:
        names = {"topic": topic} if version == BY_NAME else {"topic_id": topic_id}
        forgotten = [ForgottenTopic(**{**names, **other}, partitions=list(indexes))]
        answer = broker.ask(
            request_for(
                name,
                topics=[],
                forgotten_topics_data=forgotten,
                replica_id=FOLLOWER,
                session_id=begun.session_id,
                session_epoch=epoch,
            ),
            version,
        )
        assert answer.error_code == 0

    assert watched() == [True, True]
    unknown = {"topic": "nowhere"} if version == BY_NAME else {"topic_id": Uuid(b"?" * 16)}
    forget(1, 1, **unknown)
    assert watched() == [True, True]
    forget(2, 1, 9)
    assert watched() == [True, False]
    with following(partitions[0], 2):
        forget(3, 0)
    assert watched() == [True, False]
