"""SyncGroup and Heartbeat for one classic group, and the timers that watch over its members."""

from __future__ import annotations

from ottla.base.errors import ErrorCode, KafkaError
from ottla.machines.coordinator import CancelTimer, Decision, SetTimer, TimerKey, Token
from ottla.machines.groups.classic import rebalance
from ottla.machines.groups.classic.group import ClassicGroup
from ottla.machines.groups.classic.states import GroupState
from ottla.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.apis.sync_group import SyncGroupRequest, SyncGroupResponse


def sync(group: ClassicGroup, request: SyncGroupRequest, token: Token, now_ms: int) -> Decision:
    group.check_alive()
    member = group.check_member(request.member_id, request.group_instance_id)
    group.check_generation(request.generation_id)
    _check_same_protocol(group, request)
    if group.state is GroupState.PREPARING_REBALANCE:
        raise KafkaError(code=ErrorCode.REBALANCE_IN_PROGRESS)
    decision = Decision(timers=[group.session_starts(member)])
    if member.member_id in group.awaited_syncs:
        group.awaited_syncs.remove(member.member_id)
        if not group.awaited_syncs:
            decision.timers.append(CancelTimer(group.sync_timer))
    if group.state is GroupState.STABLE:
        return decision.reply(token, _assignment(group, member.assignment))
    rebalance.answer_parked(group, member.member_id, ErrorCode.REBALANCE_IN_PROGRESS, decision)
    group.syncing[member.member_id] = token
    if member.member_id == group.leader:
        _distribute(group, request, decision, now_ms)
    return decision


def _check_same_protocol(group: ClassicGroup, request: SyncGroupRequest) -> None:
    """From version 5 on a member says what it believes was agreed (KIP-559)."""
    if request.protocol_type not in (None, group.protocol_type) or request.protocol_name not in (None, group.protocol):
        raise KafkaError(code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _distribute(group: ClassicGroup, request: SyncGroupRequest, decision: Decision, now_ms: int) -> None:
    """The leader has assigned: whoever waits gets its share once the record is safe, and the group is stable."""
    assignments = {item.member_id: item.assignment for item in request.assignments}
    group.move_to(GroupState.STABLE)
    decision.records.append(group.record(now_ms, assignments))
    for member_id, token in group.syncing.items():
        decision.timers.append(group.session_starts(group.members[member_id]))
        decision.reply(token, _assignment(group, assignments.get(member_id, b"")))
    group.syncing.clear()


def _assignment(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=assignment)


def heartbeat(group: ClassicGroup, request: HeartbeatRequest, token: Token) -> Decision:
    group.check_alive()
    member = group.check_member(request.member_id, request.group_instance_id)
    group.check_generation(request.generation_id)
    error = ErrorCode.NONE
    if group.state is GroupState.PREPARING_REBALANCE:
        error = ErrorCode.REBALANCE_IN_PROGRESS
    # A new member keeps its longer first time-out: it has no session before its first generation.
    decision = Decision(timers=[] if member.is_new else [group.session_starts(member)])
    return decision.reply(token, HeartbeatResponse(error_code=error))


def timer_fired(group: ClassicGroup, key: TimerKey, now_ms: int) -> Decision:
    """A timer that was overtaken by events finds nothing to do."""
    decision = Decision()
    if group.state is GroupState.DEAD:
        return decision
    match key:
        case ("session", _, member_id):
            rebalance.session_is_over(group, member_id, decision, now_ms)
        case ("pending", _, member_id):
            rebalance.issued_id_is_over(group, member_id, decision, now_ms)
        case ("join", _):
            rebalance.join_time_is_up(group, decision, now_ms)
        case ("sync", _):
            rebalance.sync_time_is_up(group, decision, now_ms)
        case _:
            raise ValueError(f"a classic group has no timer {key!r}")
    return decision


def loaded(group: ClassicGroup) -> Decision:
    """After a change of coordinator every member gets a full session to find the new one."""
    decision = Decision(timers=[group.session_starts(member) for member in group.members])
    if group.state is GroupState.PREPARING_REBALANCE:
        decision.timers.append(SetTimer(group.join_timer, group.members.rebalance_timeout_ms_max()))
    elif len(group.members) > group.config.max_size:
        rebalance.prepare_rebalance(group, decision, "it has more members than group.max.size")
    return decision
