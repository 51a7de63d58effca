"""The cluster as its controller knows it: live brokers, topics, who leads which partition.

It is what the metadata store holds. Changes are values: a decision names them, whoever runs the controller commits them
to the store, and only then `note` makes them part of the state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from ottla.base.types import NIL_UUID, Endpoint, TopicPartition, Uuid
from ottla.machines.cluster.image import NO_LEADER

NO_VERSION = -1
"""The version of a node that is not there."""

Assignment = Mapping[int, tuple[int, ...]]
"""Replicas by partition; the first of each is its preferred leader."""


class LiveBroker(NamedTuple):
    epoch: int
    """Grows with every registration: a broker with a new one has lost its roles."""
    endpoints: tuple[tuple[Endpoint, str], ...]
    """Each with the security protocol of its listener."""
    rack: str | None
    first_epoch: int | None = None
    """The epoch this process had first, if it has lost a session since. Such a broker has its whole log."""
    was_stopped_cleanly: bool = False
    """Before its process was started: a log that was not closed may have lost its tail."""

    def may_lack_records_of(self, commit_id: int) -> bool:
        """Whether its process was started after this commit, and did not find its log as it had left it."""
        began = self.epoch if self.first_epoch is None else self.first_epoch
        return began > commit_id and not self.was_stopped_cleanly

    @property
    def may_have_lost_its_tail(self) -> bool:
        """Since it was last registered."""
        return self.first_epoch is None and not self.was_stopped_cleanly


class PartitionState(NamedTuple):
    replicas: tuple[int, ...]
    leader: int = NO_LEADER
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    partition_epoch: int = NO_VERSION
    """Grows with every change of leader or in-sync set; it is the version of the partition's node."""
    adding: tuple[int, ...] = ()
    """Replicas that a reassignment brings, and `removing` those it is going to take away. Both are among `replicas`,
    the wanted ones first (KIP-455)."""
    removing: tuple[int, ...] = ()

    @property
    def is_being_reassigned(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas it will have, or has if nothing is going on."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas it had before."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)


_UNKNOWN = PartitionState(())


@dataclass
class TopicState:
    topic_id: Uuid
    partitions: dict[int, PartitionState]
    node_version: int = 0

    @property
    def is_unfinished(self) -> bool:
        """Whether somebody has written only its node: it has no id, or partitions that nobody has ever led."""
        return self.topic_id == NIL_UUID or any(p.partition_epoch == NO_VERSION for p in self.partitions.values())


class WriteTopic(NamedTuple):
    """A new topic, more partitions of an old one, or other replicas. Leaders are written by `WritePartition`."""

    name: str
    topic_id: Uuid
    assignment: Assignment
    expected_version: int = NO_VERSION
    configs: Mapping[str, str] | None = None
    """Of a new topic."""
    adding: Assignment = MappingProxyType({})
    """Of partitions that are being reassigned, and so is `removing`."""
    removing: Assignment = MappingProxyType({})


class WritePartition(NamedTuple):
    tp: TopicPartition
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    expected_epoch: int


class MarkForDeletion(NamedTuple):
    """From here on the topic is going to go, whatever happens to this controller."""

    topic: str
    is_stored: bool = False
    """Somebody else has marked it."""


class NoteTopic(NamedTuple):
    """A topic as somebody else has stored it."""

    name: str
    topic: TopicState


class RemoveTopic(NamedTuple):
    """The topic and its mark; its replicas are gone."""

    topic: str
    partitions: tuple[int, ...]


class RemoveMark(NamedTuple):
    topic: str


class NoteBrokers(NamedTuple):
    """Who is alive: the store knows it first, from the brokers themselves."""

    brokers: Mapping[int, LiveBroker]


class NoteDeletedReplicas(NamedTuple):
    """Not stored: a controller that takes over has all replicas deleted again."""

    broker_id: int
    partitions: tuple[TopicPartition, ...]


class NoteOffline(NamedTuple):
    """Replicas whose directory has failed. Not stored: a new controller finds out when it gives them roles."""

    broker_id: int
    partitions: tuple[TopicPartition, ...]


class NoteStopping(NamedTuple):
    """The broker is about to stop: nobody elects it or takes it in. Not stored: a new controller is asked again."""

    broker_id: int


Change = (
    WriteTopic
    | WritePartition
    | NoteTopic
    | MarkForDeletion
    | RemoveTopic
    | RemoveMark
    | NoteBrokers
    | NoteDeletedReplicas
    | NoteOffline
    | NoteStopping
)


class ClusterState:
    def __init__(self) -> None:
        self.brokers: Mapping[int, LiveBroker] = {}
        self.topics: dict[str, TopicState] = {}
        self.pending_deletions: set[str] = set()
        self.deleted_replicas: set[tuple[int, TopicPartition]] = set()
        self.offline: dict[int, frozenset[TopicPartition]] = {}
        """Replicas that cannot be used until their broker registers again."""
        self.stopping: dict[int, int] = {}
        """Brokers that asked to be relieved, with the epoch they have until they are gone."""

    def partition(self, tp: TopicPartition) -> PartitionState | None:
        topic = self.topics.get(tp.topic)
        return None if topic is None else topic.partitions.get(tp.partition)

    def known(self, tp: TopicPartition) -> PartitionState | None:
        """The partition, unless its topic is going to go."""
        return None if tp.topic in self.pending_deletions else self.partition(tp)

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionState]]:
        """All partitions but those of topics that are going to go."""
        for name, topic in sorted(self.topics.items()):
            if name not in self.pending_deletions:
                for index, partition in topic.partitions.items():
                    yield TopicPartition(name, index), partition

    def topic_partitions(self, name: str) -> list[TopicPartition]:
        return [TopicPartition(name, index) for index in self.topics[name].partitions]

    def is_offline(self, tp: TopicPartition, broker_id: int) -> bool:
        return broker_id in self.offline and tp in self.offline[broker_id]

    def usable(self, tp: TopicPartition, brokers: Collection[int]) -> set[int]:
        """Those of `brokers` that can use their replica of the partition, if they have one."""
        return {broker_id for broker_id in brokers if not self.is_offline(tp, broker_id)}

    @property
    def eligible(self) -> Mapping[int, LiveBroker]:
        """Brokers that may lead and be in sync: alive, and not about to stop."""
        return {broker_id: broker for broker_id, broker in self.brokers.items() if broker_id not in self.stopping}

    @property
    def racks(self) -> dict[int, str | None]:
        return {broker_id: broker.rack for broker_id, broker in self.brokers.items()}

    def note(self, change: Change, version: int = NO_VERSION) -> None:
        """`version` is what the store has given the node that was written."""
        match change:
            case WriteTopic():
                self._note_topic(change, version)
            case WritePartition(tp, leader, leader_epoch, isr, _):
                partitions = self.topics[tp.topic].partitions
                partitions[tp.partition] = partitions[tp.partition]._replace(
                    leader=leader, leader_epoch=leader_epoch, isr=isr, partition_epoch=version
                )
            case NoteTopic(name, stored):
                self.topics[name] = stored
            case MarkForDeletion(topic):
                self.pending_deletions.add(topic)
            case RemoveTopic(topic):
                del self.topics[topic]
                self.pending_deletions.discard(topic)
                self.deleted_replicas = {(broker, tp) for broker, tp in self.deleted_replicas if tp.topic != topic}
            case RemoveMark(topic):
                self.pending_deletions.discard(topic)
            case NoteBrokers(brokers):
                self.offline = {
                    broker_id: partitions
                    for broker_id, partitions in self.offline.items()
                    if broker_id in brokers and brokers[broker_id] == self.brokers.get(broker_id)
                }
                self.brokers = brokers
                self.stopping = {
                    broker_id: epoch
                    for broker_id, epoch in self.stopping.items()
                    if broker_id in brokers and brokers[broker_id].epoch == epoch
                }
            case NoteOffline(broker_id, failed):
                self.offline[broker_id] = self.offline.get(broker_id, frozenset()) | frozenset(failed)
            case NoteStopping(broker_id):
                self.stopping[broker_id] = self.brokers[broker_id].epoch
            case NoteDeletedReplicas(broker_id, deleted):
                self.deleted_replicas |= {(broker_id, tp) for tp in deleted}

    def _note_topic(self, change: WriteTopic, version: int) -> None:
        topic = self.topics.setdefault(change.name, TopicState(change.topic_id, {}))
        topic.topic_id, topic.node_version = change.topic_id, version
        for index, replicas in change.assignment.items():
            known = topic.partitions.get(index, _UNKNOWN)
            topic.partitions[index] = known._replace(
                replicas=replicas, adding=change.adding.get(index, ()), removing=change.removing.get(index, ())
            )
