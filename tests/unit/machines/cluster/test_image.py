"""The cluster as one broker knows it: what updates change, and what replies are made of."""

from __future__ import annotations

from ottla.base.types import NIL_UUID, Endpoint, TopicPartition, Uuid
from ottla.machines.cluster.image import LEADER_DURING_DELETE, BrokerImage, ClusterImage, PartitionImage

OLD_ID, NEW_ID = Uuid(bytes(range(16))), Uuid(bytes(range(1, 17)))
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def led_by(leader: int, epoch: int = 0) -> PartitionImage:
    return PartitionImage(leader, epoch, 0, (1, 2), (1, 2), ())


def test_nothing_is_known_before_the_controller_has_spoken() -> None:
    image = ClusterImage("cluster")
    assert (image.cluster_id, image.controller_id, image.controller_epoch) == ("cluster", -1, -1)
    assert (image.brokers, image.topics, image.generation) == ({}, {}, 0)


def test_a_topic_is_known_by_name_and_by_id() -> None:
    image = ClusterImage("cluster")
    image.set_partition(T0, OLD_ID, led_by(1))
    image.set_partition(T1, OLD_ID, led_by(2))
    assert image.topic_name(OLD_ID) == "t"
    assert image.topics["t"].partitions == {0: led_by(1), 1: led_by(2)}
    assert dict(image.all_partitions()) == {T0: led_by(1), T1: led_by(2)}
    image.set_partition(T0, OLD_ID, led_by(2, 1))
    assert image.partition(T0) == led_by(2, 1)
    assert image.partition(T1) == led_by(2)
    assert image.partition(TopicPartition("t", 2)) is None
    assert image.partition(TopicPartition("other", 0)) is None


def test_another_topic_of_the_same_name_takes_nothing_over() -> None:
    image = ClusterImage("cluster")
    image.set_partition(T0, OLD_ID, led_by(1))
    image.set_partition(T1, OLD_ID, led_by(1))
    image.set_partition(T0, NEW_ID, led_by(2))
    assert image.topics["t"].partitions == {0: led_by(2)}
    assert image.topic_name(NEW_ID) == "t"


def test_a_topic_goes_with_its_last_partition() -> None:
    image = ClusterImage("cluster")
    image.set_partition(T0, OLD_ID, led_by(1))
    image.set_partition(T1, OLD_ID, led_by(1))
    image.set_partition(T1, OLD_ID, led_by(LEADER_DURING_DELETE))
    assert image.topics["t"].partitions == {0: led_by(1)}
    assert image.topic_name(OLD_ID) == "t"
    image.set_partition(T0, OLD_ID, led_by(LEADER_DURING_DELETE))
    image.set_partition(T0, OLD_ID, led_by(LEADER_DURING_DELETE))
    assert image.topics == {}
    assert image.topic_name(OLD_ID) is None


def test_topics_without_an_id_have_none() -> None:
    image = ClusterImage("cluster")
    image.set_partition(T0, NIL_UUID, led_by(1))
    assert image.topic_name(NIL_UUID) is None
    assert image.topic_id("t") is None


def test_the_id_of_a_topic_is_found_by_its_name() -> None:
    image = ClusterImage("cluster")
    assert image.topic_id("t") is None
    image.set_partition(T0, OLD_ID, led_by(1))
    assert image.topic_id("t") == OLD_ID


def test_a_broker_that_leaves_itself_out_leads_nothing_for_anybody() -> None:
    image = ClusterImage("cluster")
    image.set_partition(T0, OLD_ID, led_by(1))
    image.set_partition(T1, OLD_ID, led_by(2))
    brokers = [BrokerImage(broker_id, (), None) for broker_id in (1, 2)]
    image.set_brokers(7, 3, brokers)
    before, generation = image.brokers, image.generation
    image.remove_broker(1)
    assert (image.live_leader(T0), image.live_leader(T1)) == (None, brokers[1])
    assert (image.controller_id, image.controller_epoch) == (7, 3)
    assert image.generation > generation
    assert set(before) == {1, 2}, "who has the brokers of before in hand keeps them"


def test_a_leader_is_only_as_good_as_its_broker() -> None:
    endpoint = Endpoint("PLAINTEXT", "host", 9092)
    image = ClusterImage("cluster")
    image.set_partition(T0, OLD_ID, led_by(1))
    assert image.live_leader(T0) is None
    image.set_brokers(7, 3, [BrokerImage(1, (endpoint,), None)])
    assert (image.controller_id, image.controller_epoch) == (7, 3)
    leader = image.live_leader(T0)
    assert leader is not None and leader.endpoint("PLAINTEXT") == endpoint
    assert leader.endpoint("OTHER") is None
    assert image.live_leader(T1) is None
    image.set_brokers(7, 3, [])
    assert image.live_leader(T0) is None


def test_every_change_is_seen_by_the_generation() -> None:
    image = ClusterImage("cluster")
    seen = [image.generation]
    image.set_brokers(1, 1, [])
    seen.append(image.generation)
    image.set_partition(T0, OLD_ID, led_by(1))
    seen.append(image.generation)
    image.set_partition(T0, OLD_ID, led_by(LEADER_DURING_DELETE))
    seen.append(image.generation)
    assert seen == sorted(set(seen))
