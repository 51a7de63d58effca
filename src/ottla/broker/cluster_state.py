"""The controller's own picture of the cluster, as it stands in the metadata store.

Loaded whole when a broker becomes controller; after that each change is committed first and noted here second.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.base.types import TopicPartition, Uuid
from ottla.machines.cluster.image import NO_LEADER
from ottla.metadata import paths
from ottla.metadata.store import MetadataStore


@dataclass
class PartitionState:
    replicas: list[int]
    leader: int = NO_LEADER
    leader_epoch: int = -1
    isr: list[int] = field(default_factory=list)
    partition_epoch: int = -1
    """The version of the state node; -1 while there is none."""


@dataclass
class TopicState:
    topic_id: Uuid
    partitions: dict[int, PartitionState]
    node_version: int = 0


class ClusterState:
    def __init__(self) -> None:
        self.brokers: dict[int, paths.BrokerNode] = {}
        self.topics: dict[str, TopicState] = {}
        self.pending_deletions: set[str] = set()

    @classmethod
    async def load(cls, store: MetadataStore) -> ClusterState:
        state = cls()
        for path, node in (await store.tree(paths.BROKER_IDS)).items():
            if path != paths.BROKER_IDS:
                state.brokers[int(path.rsplit("/", 1)[1])] = paths.BrokerNode.decode(node.data)
        nodes = await store.tree(paths.TOPICS)
        for path, node in nodes.items():
            if path.count("/") == paths.TOPICS.count("/") + 1:
                name = path.rsplit("/", 1)[1]
                topic = paths.TopicNode.decode(node.data)
                partitions = {index: PartitionState(replicas) for index, replicas in topic.partitions.items()}
                state.topics[name] = TopicState(topic.topic_id, partitions, node.version)
        for name, topic_state in state.topics.items():
            for index, partition in topic_state.partitions.items():
                found = nodes.get(paths.partition_state(name, index))
                if found is not None:
                    stored = paths.PartitionStateNode.decode(found.data)
                    partition.leader, partition.leader_epoch = stored.leader, stored.leader_epoch
                    partition.isr, partition.partition_epoch = stored.isr, found.version
        state.pending_deletions = set(await store.children(paths.DELETE_TOPICS))
        return state

    def partition(self, tp: TopicPartition) -> PartitionState:
        return self.topics[tp.topic].partitions[tp.partition]

    def all_partitions(self) -> list[TopicPartition]:
        return [
            TopicPartition(name, index) for name, topic in sorted(self.topics.items()) for index in topic.partitions
        ]

    @property
    def racks(self) -> dict[int, str | None]:
        return {broker_id: broker.rack for broker_id, broker in self.brokers.items()}
