"""The cluster as one broker knows it: live brokers, topics, partition leaders. Replies to Metadata come from here.

The controller's UpdateMetadata changes it, and nothing else, but that a broker without a session leaves itself out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.base.types import NIL_UUID, Endpoint, TopicPartition, Uuid

NO_LEADER = -1
LEADER_DURING_DELETE = -2
"""The leader a partition is announced with while its topic is being deleted."""


class BrokerImage(NamedTuple):
    broker_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((e for e in self.endpoints if e.listener == listener), None)


class PartitionImage(NamedTuple):
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass
class TopicImage:
    name: str
    topic_id: Uuid
    partitions: dict[int, PartitionImage] = field(default_factory=dict)


class ClusterImage:
    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.controller_id = -1
        self.controller_epoch = -1
        self.brokers: dict[int, BrokerImage] = {}
        self.topics: dict[str, TopicImage] = {}
        self._names_by_id: dict[Uuid, str] = {}
        self.generation = 0
        """Grows with every change, so that encoded replies can be kept until it does."""

    def topic_name(self, topic_id: Uuid) -> str | None:
        return self._names_by_id.get(topic_id)

    def topic_id(self, name: str) -> Uuid | None:
        topic = self.topics.get(name)
        return None if topic is None or topic.topic_id == NIL_UUID else topic.topic_id

    def partition(self, tp: TopicPartition) -> PartitionImage | None:
        topic = self.topics.get(tp.topic)
        return topic.partitions.get(tp.partition) if topic is not None else None

    def live_leader(self, tp: TopicPartition) -> BrokerImage | None:
        partition = self.partition(tp)
        return self.brokers.get(partition.leader) if partition is not None else None

    def all_partitions(self) -> Iterator[tuple[TopicPartition, PartitionImage]]:
        for topic in self.topics.values():
            for index, partition in topic.partitions.items():
                yield TopicPartition(topic.name, index), partition

    def set_brokers(self, controller_id: int, controller_epoch: int, brokers: list[BrokerImage]) -> None:
        self.controller_id = controller_id
        self.controller_epoch = controller_epoch
        self.brokers = {broker.broker_id: broker for broker in brokers}
        self.generation += 1

    def remove_broker(self, broker_id: int) -> None:
        """Until the controller speaks again, nobody is told that it leads anything."""
        self.brokers = {known: broker for known, broker in self.brokers.items() if known != broker_id}
        self.generation += 1

    def set_partition(self, tp: TopicPartition, topic_id: Uuid, state: PartitionImage) -> None:
        self.generation += 1
        if state.leader == LEADER_DURING_DELETE:
            self._remove(tp)
            return
        topic = self.topics.get(tp.topic)
        if topic is None or topic.topic_id != topic_id:
            topic = self.topics[tp.topic] = TopicImage(tp.topic, topic_id)
            if topic_id != NIL_UUID:
                self._names_by_id[topic_id] = tp.topic
        topic.partitions[tp.partition] = state

    def _remove(self, tp: TopicPartition) -> None:
        topic = self.topics.get(tp.topic)
        if topic is None:
            return
        topic.partitions.pop(tp.partition, None)
        if not topic.partitions:
            del self.topics[tp.topic]
            self._names_by_id.pop(topic.topic_id, None)
