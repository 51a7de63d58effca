"""In-sync sets that leaders ask for (KIP-497): which of them the controller agrees to."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.machines.cluster.decision import Decision, tell_metadata
from ottla.machines.cluster.reassignment import check_progress
from ottla.machines.cluster.state import ClusterState, LiveBroker, PartitionState, WritePartition

UNKNOWN_EPOCH = -1


class ProposedIsr(NamedTuple):
    tp: TopicPartition
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    broker_epochs: Mapping[int, int] = MappingProxyType({})
    """Under which registrations the leader has seen members, where it says so (KIP-903)."""


class IsrAsked(NamedTuple):
    """A leader wants to change in-sync sets (KIP-497). Answered per partition, with an error code or its new state."""

    broker_id: int
    broker_epoch: int
    proposals: tuple[ProposedIsr, ...]


def check_broker_epoch(state: ClusterState, broker_id: int, epoch: int) -> None:
    broker = state.brokers.get(broker_id)
    if broker is None or broker.epoch != epoch:
        raise KafkaError(code=ErrorCode.STALE_BROKER_EPOCH)


def alter_isr(state: ClusterState, asked: IsrAsked) -> Decision:
    check_broker_epoch(state, asked.broker_id, asked.broker_epoch)
    decision = Decision()
    outcome: dict[TopicPartition, ErrorCode] = {}
    for proposal in asked.proposals:
        partition = state.known(proposal.tp)
        outcome[proposal.tp] = _why_refused(partition, proposal, asked.broker_id, state.eligible)
        # What is so already is answered with: the answer to the first request was lost.
        if partition is not None and outcome[proposal.tp] == ErrorCode.NONE and proposal.isr != partition.isr:
            decision.changes.append(
                WritePartition(
                    proposal.tp, partition.leader, partition.leader_epoch, proposal.isr, partition.partition_epoch
                )
            )
    decision.result = outcome
    changed = [change.tp for change in decision.changes if isinstance(change, WritePartition)]
    if changed:
        # The leader learns of it by the answer, its followers do not need to.
        decision.messages = tell_metadata(changed, state.brokers)
        decision.next_event = check_progress(state, changed)
    return decision


def _why_refused(
    partition: PartitionState | None, proposal: ProposedIsr, broker_id: int, live: Mapping[int, LiveBroker]
) -> ErrorCode:
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if proposal.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if proposal.leader_epoch > partition.leader_epoch or proposal.partition_epoch > partition.partition_epoch:
        # It knows of a change that this controller has not made: there is a newer one.
        return ErrorCode.NOT_CONTROLLER
    if broker_id != partition.leader or broker_id not in proposal.isr or not set(proposal.isr) <= {*partition.replicas}:
        return ErrorCode.INVALID_REQUEST
    if proposal.isr == partition.isr:
        return ErrorCode.NONE
    if proposal.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    joining = set(proposal.isr) - set(partition.isr)
    if not live.keys() >= joining or any(_was_restarted(each, proposal, live) for each in proposal.isr):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _was_restarted(member: int, proposal: ProposedIsr, live: Mapping[int, LiveBroker]) -> bool:
    """Since the leader has seen it: it may lack records that the leader thinks it has."""
    epoch, broker = proposal.broker_epochs.get(member, UNKNOWN_EPOCH), live.get(member)
    return broker is not None and UNKNOWN_EPOCH != epoch != broker.epoch
