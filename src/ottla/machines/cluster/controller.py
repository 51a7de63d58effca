"""What the controller does about leaders and in-sync sets: pure functions of the state and what has happened.

Nothing here changes the state. Every leader that is elected, and every replica that is taken out of an in-sync set by
the controller, raises the leader epoch; a change a leader asked for does not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.machines.cluster.balance import BalanceDue, unbalanced
from ottla.machines.cluster.decision import Decision, introduce, tell_everything, tell_metadata, tell_roles
from ottla.machines.cluster.election import Elected, elect, first_leader
from ottla.machines.cluster.image import NO_LEADER
from ottla.machines.cluster.isr_changes import IsrAsked, alter_isr, check_broker_epoch
from ottla.machines.cluster.reassignment import (
    ReassignmentAsked,
    ReassignmentEvent,
    ReassignmentsAdvanced,
    check_progress,
    decide_reassignments,
)
from ottla.machines.cluster.state import (
    NO_VERSION,
    ClusterState,
    LiveBroker,
    NoteBrokers,
    NoteOffline,
    NoteStopping,
    PartitionState,
    RemoveMark,
    WritePartition,
)
from ottla.machines.cluster.topics import TopicEvent, decide_topics

UncleanAllowed = Callable[[str], bool]
"""Whether a topic prefers a leader that lacks records to none."""


class TakenOver(NamedTuple):
    """This controller was elected, and the state was loaded."""

    restarted: Mapping[TopicPartition, frozenset[int]] = MappingProxyType({})
    """Which of its in-sync set were started again since a partition was last written, after an unclean stop."""
    returned: Mapping[TopicPartition, frozenset[int]] = MappingProxyType({})
    """Which were not, but have lost their session and with it their roles."""


class BrokersChanged(NamedTuple):
    brokers: Mapping[int, LiveBroker]


class ElectionKind(Enum):
    PREFERRED = "preferred"
    UNCLEAN = "unclean"
    ANEW = "anew"
    """As if every leader had been restarted."""


class ElectionAsked(NamedTuple):
    """Answered with an error code per partition."""

    partitions: tuple[TopicPartition, ...]
    kind: ElectionKind


class DemotionAsked(NamedTuple):
    """The partition is to have no leader until an election is asked for."""

    tp: TopicPartition


class LeaderAsked(NamedTuple):
    """A certain member of the in-sync set is to lead."""

    tp: TopicPartition
    broker_id: int


class ShutdownAsked(NamedTuple):
    """A broker is about to stop and wants its leaderships taken over. Answered with the partitions it still leads,
    because nobody else may."""

    broker_id: int
    broker_epoch: int


class ReplicasFailed(NamedTuple):
    """A broker cannot use these replicas: their directory has failed."""

    broker_id: int
    partitions: tuple[TopicPartition, ...]


Event = (
    TakenOver
    | BrokersChanged
    | ElectionAsked
    | DemotionAsked
    | LeaderAsked
    | ShutdownAsked
    | ReplicasFailed
    | IsrAsked
    | BalanceDue
    | ReassignmentEvent
    | TopicEvent
)


def decide(state: ClusterState, event: Event, unclean_allowed: UncleanAllowed) -> Decision:
    match event:
        case TakenOver():
            return _take_over(state, event, unclean_allowed)
        case BrokersChanged(brokers):
            return _brokers_changed(state, brokers, unclean_allowed)
        case ElectionAsked(partitions, kind):
            return _elect_as_asked(state, partitions, kind, unclean_allowed)
        case DemotionAsked(tp):
            return _demote(state, tp)
        case LeaderAsked(tp, broker_id):
            return _give_leader(state, tp, broker_id)
        case ShutdownAsked():
            return _relieve(state, event)
        case ReplicasFailed():
            return _do_without(state, event, unclean_allowed)
        case IsrAsked():
            return alter_isr(state, event)
        case BalanceDue(percentage):
            return _elect_as_asked(state, unbalanced(state, percentage), ElectionKind.PREFERRED, unclean_allowed)
        case ReassignmentAsked() | ReassignmentsAdvanced():
            return decide_reassignments(state, event)
        case _:
            return decide_topics(state, event)


def _take_over(state: ClusterState, event: TakenOver, unclean_allowed: UncleanAllowed) -> Decision:
    """Elects where the leader is gone or has lost its role; tells every broker everything."""
    decision = Decision()
    live = state.brokers
    for tp, partition in state.partitions():
        whole = live.keys() - event.restarted.get(tp, frozenset())
        if partition.leader in whole - event.returned.get(tp, frozenset()):
            _shrink(decision, tp, partition, whole)
        else:
            _replace_leader(decision, tp, partition, whole, live, unclean_allowed)
    _warn_of_lost_tails(decision, state, event.restarted)
    decision.changes += [RemoveMark(name) for name in sorted(state.pending_deletions) if name not in state.topics]
    # Without partitions: clients are sent to new leaders only when those know that they lead.
    decision.messages = [*introduce((), live, to=live), *tell_everything(state, live, live)]
    decision.next_event = check_progress(state, (tp for tp, _ in state.partitions()))
    return decision


def _brokers_changed(
    state: ClusterState, brokers: Mapping[int, LiveBroker], unclean_allowed: UncleanAllowed
) -> Decision:
    before = state.brokers
    if brokers == before:
        return Decision()
    bounced = {b for b in brokers if b in before and brokers[b].epoch != before[b].epoch}
    failed = (before.keys() - brokers.keys()) | bounced
    come = (brokers.keys() - before.keys()) | bounced
    restarted = frozenset(b for b in come if brokers[b].may_have_lost_its_tail)
    whole = brokers.keys() - restarted
    decision = Decision([NoteBrokers(brokers)])
    touched: list[TopicPartition] = []
    for tp, partition in state.partitions():
        is_awaited = partition.leader == NO_LEADER and not come.isdisjoint(partition.replicas)
        if partition.leader in failed or is_awaited:
            usable = state.usable(tp, brokers)
            _replace_leader(decision, tp, partition, usable & whole, usable | bounced, unclean_allowed)
        else:
            _shrink(decision, tp, partition, brokers.keys() - bounced)
        if not (failed | come).isdisjoint(partition.replicas):
            touched.append(tp)
    moved = {change.tp for change in decision.changes if isinstance(change, WritePartition)}
    _warn_of_lost_tails(decision, state, dict.fromkeys(moved, restarted))
    assignment = [(tp, partition.replicas) for tp, partition in state.partitions() if tp in moved]
    decision.messages = [
        *introduce((tp for tp, _ in state.partitions()), brokers, to=come),
        *tell_everything(state, brokers, sorted(come)),
        *tell_roles(assignment, brokers.keys() - come),
        *tell_metadata(touched, brokers.keys() - come),
    ]
    decision.next_event = check_progress(state, touched)
    return decision


def _replace_leader(
    decision: Decision,
    tp: TopicPartition,
    partition: PartitionState,
    whole: Collection[int],
    live: Collection[int],
    unclean_allowed: UncleanAllowed,
) -> None:
    """A replica whose process lived on or was stopped cleanly has all that was committed; another may have lost its
    tail (KIP-966)."""
    safe = elect(partition.replicas, partition.isr, whole, unclean_allowed=False)
    if safe is not None:
        decision.changes.append(_write(tp, partition, safe))
    else:
        _elect(decision, tp, partition, live, unclean_allowed)


def _warn_of_lost_tails(
    decision: Decision, state: ClusterState, restarted: Mapping[TopicPartition, frozenset[int]]
) -> None:
    """Says where somebody leads who was in sync, but may have lost since what nobody else alive has (KIP-966)."""
    doubtful: dict[int, list[TopicPartition]] = {}
    for change in decision.changes:
        if isinstance(change, WritePartition) and change.leader in restarted.get(change.tp, ()):
            before = state.partition(change.tp)
            if before is not None and change.leader in before.isr:
                doubtful.setdefault(change.leader, []).append(change.tp)
    for leader, led in doubtful.items():
        decision.warnings.append(
            f"broker {leader} was not stopped cleanly and leads {len(led)} partitions, such as {led[0]}, because no "
            "other that was in sync is alive; if it lost power, their last records may be lost"
        )


def _elect_as_asked(
    state: ClusterState,
    partitions: Collection[TopicPartition],
    kind: ElectionKind,
    unclean_allowed: UncleanAllowed,
) -> Decision:
    decision = Decision()
    codes: dict[TopicPartition, ErrorCode] = {}
    for tp in partitions:
        partition = state.known(tp)
        if partition is None:
            codes[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif kind is ElectionKind.PREFERRED:
            codes[tp] = _prefer(decision, tp, partition, state.usable(tp, state.brokers))
        elif kind is ElectionKind.UNCLEAN and partition.leader in state.brokers:
            codes[tp] = ErrorCode.ELECTION_NOT_NEEDED
        else:
            allowed = _always if kind is ElectionKind.UNCLEAN else unclean_allowed
            has_leader = _elect(decision, tp, partition, state.usable(tp, state.brokers), allowed)
            codes[tp] = ErrorCode.NONE if has_leader else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    decision.result = codes
    _tell_of_moves(decision, state)
    return decision


def _prefer(decision: Decision, tp: TopicPartition, partition: PartitionState, live: Collection[int]) -> ErrorCode:
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        return ErrorCode.ELECTION_NOT_NEEDED
    if preferred not in live or preferred not in partition.isr:
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    isr = [member for member in partition.isr if member in live]
    decision.changes.append(_write(tp, partition, Elected(preferred, isr)))
    return ErrorCode.NONE


def _demote(state: ClusterState, tp: TopicPartition) -> Decision:
    partition = _required(state, tp)
    decision = Decision([_write(tp, partition, Elected(NO_LEADER, list(partition.isr)))])
    _tell_of_moves(decision, state)
    return decision


def _give_leader(state: ClusterState, tp: TopicPartition, broker_id: int) -> Decision:
    partition = _required(state, tp)
    in_sync = [member for member in partition.isr if member in state.brokers]
    if broker_id not in in_sync:
        raise KafkaError(
            f"broker {broker_id} cannot lead {tp}: only {in_sync} are alive and in sync",
            code=ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        )
    decision = Decision()
    if partition.leader != broker_id:
        decision.changes.append(_write(tp, partition, Elected(broker_id, in_sync)))
    _tell_of_moves(decision, state)
    return decision


def _relieve(state: ClusterState, asked: ShutdownAsked) -> Decision:
    """Another member of the in-sync set leads what the broker has led, and it leaves every set it is not alone in."""
    if asked.broker_id not in state.brokers:
        raise KafkaError(code=ErrorCode.BROKER_NOT_AVAILABLE)
    check_broker_epoch(state, asked.broker_id, asked.broker_epoch)
    decision = Decision([NoteStopping(asked.broker_id)])
    others = state.eligible.keys() - {asked.broker_id}
    remaining: list[TopicPartition] = []
    for tp, partition in state.partitions():
        if asked.broker_id not in partition.isr:
            continue
        if partition.leader != asked.broker_id:
            _shrink(decision, tp, partition, state.brokers.keys() - {asked.broker_id})
        elif (
            elected := elect(partition.replicas, partition.isr, state.usable(tp, others), unclean_allowed=False)
        ) is not None:
            decision.changes.append(_write(tp, partition, elected))
        elif len(partition.replicas) > 1:
            remaining.append(tp)
    decision.result = tuple(remaining)
    _tell_of_moves(decision, state)
    return decision


def _do_without(state: ClusterState, failed: ReplicasFailed, unclean_allowed: UncleanAllowed) -> Decision:
    """Others lead what the broker has led of these partitions, and it leaves their in-sync sets."""
    news = [
        tp for tp in failed.partitions if state.known(tp) is not None and not state.is_offline(tp, failed.broker_id)
    ]
    decision = Decision()
    if not news:
        return decision
    decision.changes.append(NoteOffline(failed.broker_id, tuple(news)))
    for tp in news:
        partition = state.partition(tp)
        assert partition is not None
        others = state.usable(tp, state.brokers) - {failed.broker_id}
        if partition.leader == failed.broker_id:
            _replace_leader(decision, tp, partition, others, others, unclean_allowed)
        else:
            _shrink(decision, tp, partition, others)
    decision.warnings.append(
        f"broker {failed.broker_id} cannot use its replicas of {len(news)} partitions, such as {news[0]}"
    )
    _tell_of_moves(decision, state)
    decision.messages += tell_metadata(news, state.brokers)
    return decision


def _always(topic: str) -> bool:
    return True


def _required(state: ClusterState, tp: TopicPartition) -> PartitionState:
    partition = state.known(tp)
    if partition is None:
        raise KafkaError(f"there is no partition {tp}", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return partition


def _elect(
    decision: Decision,
    tp: TopicPartition,
    partition: PartitionState,
    live: Collection[int],
    unclean_allowed: UncleanAllowed,
) -> bool:
    """Adds an election to the decision; says whether the partition has a leader by it."""
    elected: Elected | None
    if partition.partition_epoch == NO_VERSION:
        # Nobody has ever led it, so nobody lacks anything.
        elected = first_leader(partition.replicas, live)
        elected = None if elected.leader == NO_LEADER else elected
    else:
        elected = elect(partition.replicas, partition.isr, live, unclean_allowed=unclean_allowed(tp.topic))
    if elected is None:
        # The in-sync set stays, so that its members can lead again when they are back.
        if partition.leader != NO_LEADER:
            decision.changes.append(_write(tp, partition, Elected(NO_LEADER, list(partition.isr))))
        return False
    if elected.is_unclean:
        decision.warnings.append(
            f"{tp}: broker {elected.leader} leads although it was not in sync; records may be lost"
        )
    decision.changes.append(_write(tp, partition, elected))
    return True


def _shrink(decision: Decision, tp: TopicPartition, partition: PartitionState, live: Collection[int]) -> None:
    """Takes dead replicas out of the in-sync set of a partition whose leader lives."""
    left = [member for member in partition.isr if member in live]
    if partition.leader in left and len(left) < len(partition.isr):
        decision.changes.append(_write(tp, partition, Elected(partition.leader, left)))


def _write(tp: TopicPartition, partition: PartitionState, elected: Elected) -> WritePartition:
    return WritePartition(tp, elected.leader, partition.leader_epoch + 1, tuple(elected.isr), partition.partition_epoch)


def _tell_of_moves(decision: Decision, state: ClusterState) -> None:
    """Tells the replicas of every partition that is written their roles, and all brokers who leads."""
    moved = {change.tp for change in decision.changes if isinstance(change, WritePartition)}
    if moved:
        assignment = [(tp, partition.replicas) for tp, partition in state.partitions() if tp in moved]
        decision.messages += tell_roles(assignment, state.brokers)
        decision.messages += tell_metadata((tp for tp, _ in assignment), state.brokers)
