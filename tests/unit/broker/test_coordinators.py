"""What the group coordinator knows of the cluster."""

from __future__ import annotations

from ottla.base.types import TopicPartition, Uuid
from ottla.broker.coordinators.groups import ImageTopics
from ottla.machines.cluster.image import ClusterImage, PartitionImage

T_ID, OTHER_ID = Uuid(bytes(range(16))), Uuid(bytes(range(1, 17)))


def test_topics_are_those_of_the_image_as_it_is_now() -> None:
    image = ClusterImage("cluster")
    topics = ImageTopics(image)
    assert (topics.names(), topics.partition_count("t"), topics.topic_id("t")) == ([], None, None)
    for index in range(3):
        image.set_partition(TopicPartition("t", index), T_ID, PartitionImage(1, 0, 0, (1,), (1,), ()))
    image.set_partition(TopicPartition("other", 0), OTHER_ID, PartitionImage(1, 0, 0, (1,), (1,), ()))
    assert topics.names() == ["t", "other"]
    assert [topics.partition_count(name) for name in ("t", "other", "none")] == [3, 1, None]
    assert [topics.topic_id(name) for name in ("t", "other", "none")] == [T_ID, OTHER_ID, None]
    assert [topics.name_of(topic_id) for topic_id in (T_ID, OTHER_ID, Uuid(bytes(16)))] == ["t", "other", None]
