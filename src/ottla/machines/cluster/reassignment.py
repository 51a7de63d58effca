"""Moving partitions to other replicas while they are used (KIP-455): pure functions of the controller's state.

A reassignment lives in the topic's node, so it survives any controller. It begins with the union of old and new
replicas; once all that are wanted are in sync, one that stays leads, the others leave the in-sync set and are deleted.
A partition's in-sync set never goes below what is left of it by that: what would need more is refused, or waits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.machines.cluster.decision import Decision, DeleteReplicas, tell_metadata, tell_roles
from ottla.machines.cluster.image import NO_LEADER
from ottla.machines.cluster.state import NO_VERSION, ClusterState, PartitionState, WritePartition, WriteTopic


class ReassignmentAsked(NamedTuple):
    """The partitions are to have these replicas; None ends what is under way. Answered with an error per partition, or
    None where it was begun."""

    wanted: Mapping[TopicPartition, tuple[int, ...] | None]


class ReassignmentsAdvanced(NamedTuple):
    """These partitions may have all their wanted replicas in sync by now."""

    partitions: tuple[TopicPartition, ...]


ReassignmentEvent = ReassignmentAsked | ReassignmentsAdvanced


def decide_reassignments(state: ClusterState, event: ReassignmentEvent) -> Decision:
    match event:
        case ReassignmentAsked(wanted):
            return _begin(state, wanted)
        case ReassignmentsAdvanced(partitions):
            return _finish(state, partitions)


def check_progress(state: ClusterState, partitions: Iterable[TopicPartition]) -> ReassignmentsAdvanced | None:
    """What has to be looked at once these partitions have changed."""
    moving = tuple(tp for tp in partitions if (found := state.known(tp)) is not None and found.is_being_reassigned)
    return ReassignmentsAdvanced(moving) if moving else None


def _begin(state: ClusterState, wanted: Mapping[TopicPartition, tuple[int, ...] | None]) -> Decision:
    outcome: dict[TopicPartition, KafkaError | None] = {}
    moves: dict[TopicPartition, PartitionState] = {}
    for tp, replicas in wanted.items():
        try:
            moves[tp] = _as_wanted(state, tp, replicas)
            outcome[tp] = None
        except KafkaError as e:
            outcome[tp] = e
    changed = {tp: partition for tp, partition in moves.items() if partition != state.partition(tp)}
    decision = _carry_out(state, changed)
    decision.result = outcome
    return decision


def _finish(state: ClusterState, partitions: Iterable[TopicPartition]) -> Decision:
    moving = {tp: found for tp in partitions if (found := state.known(tp)) is not None and found.is_being_reassigned}
    return _carry_out(state, {tp: partition for tp, partition in moving.items() if _is_complete(state, tp, partition)})


def _as_wanted(state: ClusterState, tp: TopicPartition, replicas: tuple[int, ...] | None) -> PartitionState:
    """The partition with the replicas, and with those it had before until they can go. The texts are Kafka's, which
    operators and their scripts know."""
    partition = state.known(tp)
    if partition is None:
        raise KafkaError("The partition does not exist.", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if replicas is None:
        if not partition.is_being_reassigned:
            raise KafkaError("No partition reassignment is in progress.", code=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        replicas = partition.origin
    else:
        _check_list(replicas)
    origin = partition.origin
    everybody = tuple(dict.fromkeys((*replicas, *origin)))
    adding = tuple(replica for replica in everybody if replica not in origin)
    if not state.brokers.keys() >= set(adding):
        raise _invalid(
            "Replica assignment has brokers that are not alive. "
            f"Replica list: {_listed(adding)}, live broker list: {_listed(sorted(state.brokers))}"
        )
    wanted = partition._replace(
        replicas=everybody,
        adding=adding,
        removing=tuple(replica for replica in everybody if replica not in replicas),
    )
    _check_keeps_records(state, tp, partition, wanted)
    return wanted


def _check_list(replicas: tuple[int, ...]) -> None:
    if not replicas:
        raise _invalid("Empty replica list specified in partition reassignment.")
    if len(set(replicas)) != len(replicas):
        raise _invalid(f"Duplicate replica ids in partition reassignment replica list: {_listed(replicas)}")
    if min(replicas) < 0:
        raise _invalid(f"Invalid broker id in replica list: {_listed(replicas)}")


def _check_keeps_records(
    state: ClusterState, tp: TopicPartition, before: PartitionState, after: PartitionState
) -> None:
    """A replica that was on its way may be the only one left that is in sync: it cannot be called off then."""
    gone = set(before.replicas) - set(after.replicas)
    loses_all = bool(before.isr) and set(before.isr) <= gone
    if loses_all or (before.leader in gone and _candidate(state, tp, after, gone) is None):
        raise _invalid(
            f"Unable to revert partition assignment for {tp} because it would require an unclean leader election."
        )


def _listed(brokers: Iterable[int]) -> str:
    return f"[{', '.join(map(str, brokers))}]"


def _invalid(message: str) -> KafkaError:
    return KafkaError(message, code=ErrorCode.INVALID_REPLICA_ASSIGNMENT)


def _is_complete(state: ClusterState, tp: TopicPartition, partition: PartitionState) -> bool:
    has_all = set(partition.target) <= set(partition.isr)
    return has_all and _candidate(state, tp, partition, partition.removing) is not None


def _candidate(
    state: ClusterState, tp: TopicPartition, partition: PartitionState, leaving: Collection[int]
) -> int | None:
    """Who leads when `leaving` are gone: whoever does now if it stays, else the first that is alive and in sync."""
    able = [
        replica
        for replica in (partition.leader, *partition.replicas)
        if replica in partition.isr and replica not in leaving and replica in state.usable(tp, state.brokers)
    ]
    return next((replica for replica in able if replica in state.eligible), able[0] if able else None)


def _carry_out(state: ClusterState, moves: Mapping[TopicPartition, PartitionState]) -> Decision:
    """Writes each partition as far as it has come, and tells everybody concerned."""
    writes: list[WritePartition] = []
    after: dict[TopicPartition, PartitionState] = {}
    deletions: dict[int, list[TopicPartition]] = {broker_id: [] for broker_id in sorted(state.brokers)}
    for tp, partition in moves.items():
        before = state.partition(tp)
        assert before is not None
        leaving = [replica for replica in before.replicas if replica not in partition.replicas]
        if _is_complete(state, tp, partition):
            leaving += partition.removing
            partition = partition._replace(replicas=partition.target, adding=(), removing=())
        if partition.partition_epoch != NO_VERSION:
            writes += _leave(tp, before, _candidate(state, tp, partition, leaving), leaving)
        after[tp] = partition
        for replica in leaving:
            if replica in deletions:
                deletions[replica].append(tp)
    assignment = [(tp, partition.replicas) for tp, partition in after.items()]
    return Decision(
        # The topic comes last, as in Kafka: if only some of it is stored when a controller dies, the next one finds
        # the move unfinished and ends it. A move that has begun too early is none yet.
        [*writes, *_write_topics(state, after)],
        [
            *tell_roles(assignment, state.brokers),
            *(tell_metadata(after, state.brokers) if after else ()),
            *(DeleteReplicas(broker_id, tuple(mine)) for broker_id, mine in deletions.items() if mine),
        ],
    )


def _leave(
    tp: TopicPartition, partition: PartitionState, candidate: int | None, leaving: Collection[int]
) -> list[WritePartition]:
    """The writes Kafka makes: one that says who leads, one for each replica that leaves the in-sync set. Every one of
    them raises the leader epoch."""
    isr, leader = partition.isr, partition.leader
    if leader in leaving or (leader == NO_LEADER and candidate is not None):
        leader = NO_LEADER if candidate is None else candidate
    sets = [isr]
    for replica in leaving:
        if replica in isr:
            isr = tuple(member for member in isr if member != replica)
            sets.append(isr)
    return [
        WritePartition(tp, leader, partition.leader_epoch + step, members, partition.partition_epoch + step - 1)
        for step, members in enumerate(sets, 1)
    ]


def _write_topics(state: ClusterState, changed: Mapping[TopicPartition, PartitionState]) -> list[WriteTopic]:
    writes = []
    for name in sorted({tp.topic for tp in changed}):
        topic = state.topics[name]
        partitions = {
            index: changed.get(TopicPartition(name, index), partition) for index, partition in topic.partitions.items()
        }
        writes.append(
            WriteTopic(
                name,
                topic.topic_id,
                {index: partition.replicas for index, partition in partitions.items()},
                topic.node_version,
                adding={index: partition.adding for index, partition in partitions.items() if partition.adding},
                removing={index: partition.removing for index, partition in partitions.items() if partition.removing},
            )
        )
    return writes
