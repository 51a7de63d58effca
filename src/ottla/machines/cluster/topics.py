"""What the controller does about topics that are wanted, grown or deleted: pure functions of its state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import NIL_UUID, TopicPartition, Uuid
from ottla.machines.cluster.decision import Decision, delete_replicas, of_topic, tell_metadata, tell_roles
from ottla.machines.cluster.election import first_leader
from ottla.machines.cluster.image import NO_LEADER
from ottla.machines.cluster.placement import check_assignment, place_replicas
from ottla.machines.cluster.reassignment import ReassignmentsAdvanced
from ottla.machines.cluster.state import (
    NO_VERSION,
    Assignment,
    Change,
    ClusterState,
    MarkForDeletion,
    NoteDeletedReplicas,
    NoteTopic,
    RemoveTopic,
    TopicState,
    WritePartition,
    WriteTopic,
)
from ottla.machines.cluster.topic_names import colliding_name, validate_name

MAX_PARTITIONS_PER_REQUEST = 10_000
"""As many new partitions as one request may ask for: a typing error must not make a million directories."""


@dataclass
class NewTopic:
    name: str
    partitions: int
    replication_factor: int
    assignment: dict[int, list[int]] = field(default_factory=dict)
    """Replicas by partition, if the caller chose them; then `partitions` and `replication_factor` are -1."""
    configs: dict[str, str] = field(default_factory=dict)


class CreatedTopic(NamedTuple):
    topic_id: Uuid
    partitions: int
    replication_factor: int


class TopicWanted(NamedTuple):
    """Answered with a CreatedTopic."""

    new: NewTopic
    topic_id: Uuid
    start: int
    shift: int
    """Random numbers that spread topics over the brokers; any size."""
    validate_only: bool = False


class PartitionsWanted(NamedTuple):
    """The topic is to have `total` partitions; `assignment` holds the new ones' replicas if the caller chose them.

    Answered with how many it had.
    """

    name: str
    total: int
    assignment: list[list[int]] | None = None
    validate_only: bool = False


class TopicFound(NamedTuple):
    """Somebody else has written the topic, or more partitions of it, or in-sync sets."""

    name: str
    stored: TopicState
    topic_id: Uuid
    """For a topic that is stored without one: old tools know nothing of ids."""


class DeletionWanted(NamedTuple):
    """Answered with whether all replicas can be deleted now; if not, the topic waits for their brokers."""

    name: str
    is_marked: bool = False
    """Somebody else has marked it in the store."""


class ReplicasDeleted(NamedTuple):
    """A broker has done as it was told."""

    broker_id: int
    partitions: tuple[TopicPartition, ...]


TopicEvent = TopicWanted | TopicFound | PartitionsWanted | DeletionWanted | ReplicasDeleted


def decide_topics(state: ClusterState, event: TopicEvent) -> Decision:
    match event:
        case TopicWanted():
            return _create(state, event)
        case PartitionsWanted():
            return _grow(state, event)
        case TopicFound():
            return _take_in(state, event)
        case DeletionWanted(name, is_marked):
            return _delete(state, name, is_marked=is_marked)
        case ReplicasDeleted():
            return _finish_deletions(state, event)


def _create(state: ClusterState, wanted: TopicWanted) -> Decision:
    new = wanted.new
    check_name_is_free(state, new.name)
    assignment = _as_tuples(_assignment(state, wanted))
    result = CreatedTopic(wanted.topic_id, len(assignment), len(assignment[0]))
    if wanted.validate_only:
        return Decision(result=result)
    topic = WriteTopic(new.name, wanted.topic_id, assignment, configs=new.configs)
    return _with_new_partitions(state, topic, assignment, result)


def _with_new_partitions(
    state: ClusterState, topic: WriteTopic, added: Assignment, result: CreatedTopic | int
) -> Decision:
    changes: list[Change] = [topic]
    for tp, replicas in of_topic(topic.name, added):
        elected = first_leader(replicas, state.brokers)
        changes.append(WritePartition(tp, elected.leader, 0, tuple(elected.isr), NO_VERSION))
    told = of_topic(topic.name, added)
    messages = [
        *tell_roles(told, state.brokers, are_new=True),
        *tell_metadata((tp for tp, _ in told), state.brokers),
    ]
    return Decision(changes, messages, result)


def check_name_is_free(state: ClusterState, name: str) -> None:
    validate_name(name)
    if name in state.topics or name in state.pending_deletions:
        raise KafkaError(f"topic '{name}' already exists", code=ErrorCode.TOPIC_ALREADY_EXISTS)
    other = colliding_name(name, state.topics)
    if other is not None:
        raise KafkaError(
            f"topic '{name}' collides with existing topic '{other}': metrics cannot tell '.' from '_'",
            code=ErrorCode.INVALID_TOPIC_EXCEPTION,
        )


def _assignment(state: ClusterState, wanted: TopicWanted) -> dict[int, list[int]]:
    new, racks = wanted.new, state.racks
    if new.assignment:
        if new.partitions != -1 or new.replication_factor != -1:
            raise KafkaError(
                "give either a replica assignment or the numbers of partitions and replicas, not both",
                code=ErrorCode.INVALID_REQUEST,
            )
        check_assignment(new.assignment, first_partition=0, live=racks)
        return new.assignment
    _check_count(new.partitions)
    return place_replicas(
        racks,
        partitions=new.partitions,
        replication_factor=new.replication_factor,
        start=wanted.start,
        shift=wanted.shift % max(len(racks), 1),
    )


def _check_count(partitions: int) -> None:
    if partitions < 1:
        raise KafkaError(
            f"the number of partitions must be at least 1, not {partitions}", code=ErrorCode.INVALID_PARTITIONS
        )
    if partitions > MAX_PARTITIONS_PER_REQUEST:
        raise KafkaError(
            f"{partitions} partitions are more than one request may create ({MAX_PARTITIONS_PER_REQUEST})",
            code=ErrorCode.INVALID_PARTITIONS,
        )


def _grow(state: ClusterState, wanted: PartitionsWanted) -> Decision:
    topic = _existing(state, wanted.name)
    if any(partition.is_being_reassigned for partition in topic.partitions.values()):
        raise KafkaError(
            f"A partition reassignment is in progress for the topic '{wanted.name}'.",
            code=ErrorCode.REASSIGNMENT_IN_PROGRESS,
        )
    added = _as_tuples(_added_partitions(state, topic, wanted))
    if wanted.validate_only:
        return Decision(result=len(topic.partitions))
    everything = {index: partition.replicas for index, partition in topic.partitions.items()} | added
    grown = WriteTopic(wanted.name, topic.topic_id, everything, topic.node_version)
    return _with_new_partitions(state, grown, added, len(topic.partitions))


def _added_partitions(state: ClusterState, topic: TopicState, wanted: PartitionsWanted) -> dict[int, list[int]]:
    current, count = len(topic.partitions), wanted.total
    if count <= current:
        # Kafka's words, which operators and their scripts know.
        reason = (
            f"Topic already has {current} partitions."
            if count == current
            else f"The topic {wanted.name} currently has {current} partition(s); {count} would not be an increase."
        )
        raise KafkaError(reason, code=ErrorCode.INVALID_PARTITIONS)
    added = count - current
    _check_count(added)
    racks = state.racks
    factor = len(topic.partitions[0].replicas)
    if wanted.assignment is not None:
        return _checked_by_hand(wanted.assignment, current, added, factor, racks)
    # The pattern goes on where it stopped, so that the new leaders land on the brokers that follow.
    brokers = sorted(racks)
    first = topic.partitions[0].replicas[0]
    start = brokers.index(first) if first in brokers else 0
    return place_replicas(
        racks, partitions=added, replication_factor=factor, start=start, shift=start, first_partition=current
    )


def _checked_by_hand(
    assignment: list[list[int]], current: int, added: int, factor: int, racks: Mapping[int, str | None]
) -> dict[int, list[int]]:
    if len(assignment) != added:
        raise KafkaError(
            f"{added} partitions are to be added, but replicas are given for {len(assignment)}",
            code=ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        )
    chosen = dict(enumerate(assignment, current))
    check_assignment(chosen, first_partition=current, live=racks)
    if len(assignment[0]) != factor:
        raise KafkaError(
            f"new partitions need {factor} replicas, as the existing ones have",
            code=ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        )
    return chosen


def _take_in(state: ClusterState, found: TopicFound) -> Decision:
    name, stored = found.name, found.stored
    changes: list[Change] = [NoteTopic(name, stored)]
    if stored.topic_id == NIL_UUID:
        changes.append(
            WriteTopic(
                name,
                found.topic_id,
                {index: partition.replicas for index, partition in stored.partitions.items()},
                stored.node_version,
                adding={index: partition.adding for index, partition in stored.partitions.items() if partition.adding},
                removing={i: partition.removing for i, partition in stored.partitions.items() if partition.removing},
            )
        )
    unled = {i: partition.replicas for i, partition in stored.partitions.items() if partition.leader_epoch < 0}
    for tp, replicas in of_topic(name, unled):
        elected = first_leader(replicas, state.brokers)
        # Without a live replica it waits for one: its first leader will be the first that comes.
        if elected.leader != NO_LEADER:
            changes.append(WritePartition(tp, elected.leader, 0, tuple(elected.isr), NO_VERSION))
    partitions = [TopicPartition(name, index) for index in stored.partitions]
    messages = [
        *tell_roles(of_topic(name, unled), state.brokers, are_new=True),
        *tell_metadata(partitions, state.brokers),
    ]
    moving = [tp for tp in partitions if stored.partitions[tp.partition].is_being_reassigned]
    return Decision(changes, messages, next_event=ReassignmentsAdvanced(tuple(moving)) if moving else None)


def _delete(state: ClusterState, name: str, *, is_marked: bool) -> Decision:
    """Marks the topic and has its replicas deleted; the last of them takes the topic itself along."""
    topic = _existing(state, name)
    holders = {replica for partition in topic.partitions.values() for replica in partition.replicas}
    messages = [
        *tell_metadata(state.topic_partitions(name), state.brokers),
        *delete_replicas(state, [name], state.brokers),
    ]
    return Decision([MarkForDeletion(name, is_marked)], messages, result=holders <= state.brokers.keys())


def _finish_deletions(state: ClusterState, event: ReplicasDeleted) -> Decision:
    # Others were moved away, and may come back.
    partitions = tuple(tp for tp in event.partitions if tp.topic in state.pending_deletions)
    changes: list[Change] = [NoteDeletedReplicas(event.broker_id, partitions)]
    deleted = state.deleted_replicas | {(event.broker_id, tp) for tp in partitions}
    for name in sorted({tp.topic for tp in partitions}):
        topic = state.topics.get(name)
        if topic is not None and all(
            (replica, TopicPartition(name, index)) in deleted
            for index, partition in topic.partitions.items()
            for replica in partition.replicas
        ):
            changes.append(RemoveTopic(name, tuple(topic.partitions)))
    return Decision(changes)


def _existing(state: ClusterState, name: str) -> TopicState:
    topic = state.topics.get(name)
    if topic is None or name in state.pending_deletions:
        raise KafkaError(f"topic '{name}' does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic


def _as_tuples(assignment: Mapping[int, list[int]]) -> dict[int, tuple[int, ...]]:
    return {index: tuple(replicas) for index, replicas in sorted(assignment.items())}
