"""How a classic group gets from one generation to the next: who is waited for, who is dropped, who leads.

Every function adds to the decision it is given. A member that is removed, and every request that waits for it, gets
its answer here, so that nobody waits for a rebalance that does not concern it any more.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.machines.coordinator import CancelTimer, Decision, SetTimer
from ottla.machines.groups.classic.group import ClassicGroup, InitialDelay
from ottla.machines.groups.classic.members import Member
from ottla.machines.groups.classic.states import GroupState
from ottla.machines.groups.notes import listed
from ottla.wire.apis.join_group import JoinGroupResponse, JoinGroupResponseMember
from ottla.wire.apis.sync_group import SyncGroupResponse


def join_refused(member_id: str, error: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error, member_id=member_id)


def sync_refused(error: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error)


def join_accepted(group: ClassicGroup, member_id: str, *, to_leader: bool) -> JoinGroupResponse:
    """The generation as it is; only the leader learns the members, because it has to assign to them."""
    members = []
    if to_leader:
        members = [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(group.protocol),
            )
            for member in group.members
        ]
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol or "",
        leader=group.leader or "",
        member_id=member_id,
        members=members,
    )


def rebalance(group: ClassicGroup, decision: Decision, now_ms: int, reason: str) -> None:
    """Something about the members has changed: starts a rebalance, or sees whether the one under way can complete."""
    if group.state is not GroupState.PREPARING_REBALANCE:
        prepare_rebalance(group, decision, reason)
    complete_join_if_all_came(group, decision, now_ms)


def prepare_rebalance(group: ClassicGroup, decision: Decision, reason: str) -> None:
    """All members have to join again. Those that wait for an assignment of the old generation are told so."""
    group.rebalance_reason = reason
    for member_id, token in group.syncing.items():
        decision.reply(token, sync_refused(ErrorCode.REBALANCE_IN_PROGRESS))
        decision.timers.append(group.session_starts(group.members[member_id]))
    group.syncing.clear()
    if group.awaited_syncs:
        group.awaited_syncs.clear()
        decision.timers.append(CancelTimer(group.sync_timer))
    delay_ms = group.members.rebalance_timeout_ms_max()
    initial_delay_ms = group.config.initial_rebalance_delay_ms
    if group.is_empty and initial_delay_ms > 0:
        group.initial_delay = InitialDelay(remaining_ms=max(delay_ms - initial_delay_ms, 0))
        delay_ms = initial_delay_ms
    group.move_to(GroupState.PREPARING_REBALANCE)
    decision.timers.append(SetTimer(group.join_timer, delay_ms))


def complete_join_if_all_came(group: ClassicGroup, decision: Decision, now_ms: int) -> None:
    if group.state is not GroupState.PREPARING_REBALANCE or group.issued_ids:
        return
    # The initial delay is there to gather members that nobody knows of yet, so it ends early only if all have left.
    if len(group.joining) == len(group.members) and (group.initial_delay is None or not group.members):
        complete_join(group, decision, now_ms)


def join_time_is_up(group: ClassicGroup, decision: Decision, now_ms: int) -> None:
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    delay = group.initial_delay
    if delay is not None and delay.somebody_came and delay.remaining_ms > 0:
        longer_ms = min(group.config.initial_rebalance_delay_ms, delay.remaining_ms)
        group.initial_delay = InitialDelay(remaining_ms=delay.remaining_ms - longer_ms)
        decision.timers.append(SetTimer(group.join_timer, longer_ms))
        return
    complete_join(group, decision, now_ms)


def complete_join(group: ClassicGroup, decision: Decision, now_ms: int) -> None:
    """Begins the next generation with the members that joined, and the static ones whose session still runs."""
    for member in list(group.members):
        if member.member_id not in group.joining and member.instance_id is None:
            decision.notes.append(f"group {group.group_id}: member {member.member_id} did not join again in time")
            forget_member(group, member, decision)
    group.initial_delay = None
    if group.members and not group.joining:
        # Nobody is there to lead. Sessions end sooner or later, so this cannot go on for ever.
        decision.timers.append(SetTimer(group.join_timer, group.members.rebalance_timeout_ms_max()))
        return
    decision.timers.append(CancelTimer(group.join_timer))
    group.generation += 1
    if not group.members:
        _become_empty(group, decision, now_ms)
        return
    _begin_generation(group, decision)


def _begin_generation(group: ClassicGroup, decision: Decision) -> None:
    group.protocol = group.members.vote()
    if group.leader not in group.joining:
        group.leader = next(iter(group.joining))
    group.find_subscribed_topics()
    group.move_to(GroupState.COMPLETING_REBALANCE)
    for member_id, token in group.joining.items():
        member = group.members[member_id]
        member.is_new = False
        decision.timers.append(group.session_starts(member))
        decision.reply(token, join_accepted(group, member_id, to_leader=member_id == group.leader))
    # A static member that is away has no reply to act on; its session alone decides about it.
    group.awaited_syncs = set(group.joining)
    group.joining.clear()
    decision.timers.append(SetTimer(group.sync_timer, group.members.rebalance_timeout_ms_max()))
    members = listed([member.member_id for member in group.members])
    decision.notes.append(
        f"group {group.group_id}: generation {group.generation} with {members}, because {group.rebalance_reason}"
    )


def _become_empty(group: ClassicGroup, decision: Decision, now_ms: int) -> None:
    group.protocol = None
    group.move_to(GroupState.EMPTY)
    decision.records.append(group.record(now_ms))
    decision.notes.append(
        f"group {group.group_id}: generation {group.generation} has no members, because {group.rebalance_reason}"
    )


def sync_time_is_up(group: ClassicGroup, decision: Decision, now_ms: int) -> None:
    """Members that joined the generation but never asked for their assignment hold up everybody's work."""
    if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE) or not group.awaited_syncs:
        return
    late = sorted(group.awaited_syncs)
    for member_id in late:
        forget_member(group, group.members[member_id], decision)
    rebalance(group, decision, now_ms, f"{listed(late)} did not ask for an assignment in time")


def forget_member(group: ClassicGroup, member: Member, decision: Decision) -> None:
    """Takes a member out, with all that waits for it. The caller sees to the rebalance that this needs."""
    member_id = member.member_id
    group.members.remove(member_id)
    answer_parked(group, member_id, ErrorCode.UNKNOWN_MEMBER_ID, decision)
    decision.timers.append(CancelTimer(group.session_timer(member_id)))
    if group.leader == member_id:
        group.leader = None


def answer_parked(group: ClassicGroup, member_id: str, error: ErrorCode, decision: Decision) -> None:
    join_token = group.joining.pop(member_id, None)
    if join_token is not None:
        # A new member may still be waiting for its first generation; it starts over with no id.
        decision.reply(join_token, join_refused(member_id, error))
    sync_token = group.syncing.pop(member_id, None)
    if sync_token is not None:
        decision.reply(sync_token, sync_refused(error))


def session_is_over(group: ClassicGroup, member_id: str, decision: Decision, now_ms: int) -> None:
    member = group.members.get(member_id)
    if member is None:
        return
    if not member.is_new and (member_id in group.joining or member_id in group.syncing):
        # A client cannot send heartbeats while the broker keeps its request waiting.
        decision.timers.append(group.session_starts(member))
        return
    silent_ms = group.session_starts(member).delay_ms
    decision.notes.append(f"group {group.group_id}: member {member_id} timed out after {silent_ms} ms of silence")
    forget_member(group, member, decision)
    rebalance(group, decision, now_ms, f"member {member_id} timed out")


def issued_id_is_over(group: ClassicGroup, member_id: str, decision: Decision, now_ms: int) -> None:
    group.issued_ids.discard(member_id)
    complete_join_if_all_came(group, decision, now_ms)
