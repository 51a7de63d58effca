"""JoinGroup and LeaveGroup for one classic group.

Each function checks first and raises KafkaError before anything has changed; after that it only moves soft state and
says what to write.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.errors import ErrorCode, InvalidRequestError, KafkaError
from ottla.machines.coordinator import CancelTimer, Decision, SetTimer, Token
from ottla.machines.groups.classic.group import ClassicGroup
from ottla.machines.groups.classic.members import Member, Protocols
from ottla.machines.groups.classic.rebalance import (
    answer_parked,
    complete_join_if_all_came,
    forget_member,
    join_accepted,
    join_refused,
    rebalance,
)
from ottla.machines.groups.classic.states import GroupState
from ottla.machines.groups.notes import because, listed
from ottla.wire.apis.join_group import JoinGroupRequest
from ottla.wire.apis.leave_group import MemberIdentity, MemberResponse

MEMBER_ID_HANDSHAKE_VERSION = 4
SKIP_ASSIGNMENT_VERSION = 9


class JoinCall(NamedTuple):
    """A JoinGroup request with what its connection says of the client."""

    request: JoinGroupRequest
    version: int
    client_id: str
    client_host: str
    unique: str
    """Makes a new member id unique; chosen by the caller."""
    token: Token

    @property
    def protocols(self) -> Protocols:
        return tuple((protocol.name, protocol.metadata) for protocol in self.request.protocols)

    @property
    def rebalance_timeout_ms(self) -> int:
        # Version 0 has only one time-out.
        given = self.request.rebalance_timeout_ms
        return given if given >= 0 else self.request.session_timeout_ms


def join(group: ClassicGroup, call: JoinCall, now_ms: int) -> Decision:
    request = call.request
    if request.group_instance_id == "":
        raise InvalidRequestError("the group instance id is empty")
    if not _has_room(group, request):
        return _refuse_for_size(group, call, now_ms)
    group.check_alive()
    group.check_protocols(request.protocol_type, call.protocols)
    if request.member_id:
        return _join_known(group, call, now_ms)
    if request.group_instance_id is not None:
        return _join_static(group, call, request.group_instance_id, now_ms)
    member_id = f"{call.client_id}-{call.unique}"
    if call.version >= MEMBER_ID_HANDSHAKE_VERSION:
        return _issue_id(group, call, member_id)
    return _add_member(group, call, member_id, now_ms)


def _has_room(group: ClassicGroup, request: JoinGroupRequest) -> bool:
    if group.is_empty or group.state is GroupState.DEAD or len(group.members) < group.config.max_size:
        return True
    instance_id = request.group_instance_id
    is_known_static = instance_id is not None and group.members.id_of_instance(instance_id) is not None
    if group.state is not GroupState.PREPARING_REBALANCE:
        return is_known_static or request.member_id in group.members
    # Places go to those who come first, so a group that was larger under an older limit shrinks here. Static members
    # keep theirs while they are away.
    if request.member_id in group.joining:
        return True
    taken = len(group.joining)
    if not is_known_static:
        taken += sum(
            member.instance_id is not None and member.member_id not in group.joining for member in group.members
        )
    return taken < group.config.max_size


def _refuse_for_size(group: ClassicGroup, call: JoinCall, now_ms: int) -> Decision:
    decision = Decision()
    member_id = call.request.member_id
    member = group.members.get(member_id)
    if member is not None:
        forget_member(group, member, decision)
    if member_id in group.issued_ids:
        group.issued_ids.remove(member_id)
        decision.timers.append(CancelTimer(group.issued_id_timer(member_id)))
    complete_join_if_all_came(group, decision, now_ms)
    return decision.reply(call.token, join_refused("", ErrorCode.GROUP_MAX_SIZE_REACHED))


def _issue_id(group: ClassicGroup, call: JoinCall, member_id: str) -> Decision:
    """A client that gives up and retries must not leave a member behind each time: it has to show its id (KIP-394)."""
    group.issued_ids.add(member_id)
    timer = SetTimer(group.issued_id_timer(member_id), call.request.session_timeout_ms)
    return Decision(timers=[timer]).reply(call.token, join_refused(member_id, ErrorCode.MEMBER_ID_REQUIRED))


def _add_member(group: ClassicGroup, call: JoinCall, member_id: str, now_ms: int) -> Decision:
    request = call.request
    decision = Decision()
    member = Member(
        member_id=member_id,
        instance_id=request.group_instance_id,
        client_id=call.client_id,
        client_host=call.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=call.rebalance_timeout_ms,
        protocols=call.protocols,
    )
    if not group.members:
        group.protocol_type = request.protocol_type
    if group.initial_delay is not None:
        group.initial_delay.somebody_came = True
    group.members.add(member)
    _park(group, member, call.token, decision)
    rebalance(group, decision, now_ms, f"member {member_id} joined")
    return decision


def _park(group: ClassicGroup, member: Member, token: Token, decision: Decision) -> None:
    """Keeps a join until the rebalance completes. A client that joins twice has given up on its first request."""
    had_joined = member.member_id in group.joining
    answer_parked(group, member.member_id, ErrorCode.REBALANCE_IN_PROGRESS, decision)
    group.joining[member.member_id] = token
    if not (member.is_new and had_joined):
        # A new member's time must not start again with each retry.
        decision.timers.append(group.session_starts(member))


def _join_known(group: ClassicGroup, call: JoinCall, now_ms: int) -> Decision:
    request = call.request
    member_id = request.member_id
    if member_id in group.issued_ids:
        if request.group_instance_id is not None:
            raise KafkaError(code=ErrorCode.UNKNOWN_MEMBER_ID)
        group.issued_ids.remove(member_id)
        decision = _add_member(group, call, member_id, now_ms)
        decision.timers.append(CancelTimer(group.issued_id_timer(member_id)))
        return decision
    member = group.check_member(member_id, request.group_instance_id)
    is_leader = member_id == group.leader
    changed = member.protocols != call.protocols
    needs_rebalance = {
        GroupState.PREPARING_REBALANCE: True,
        GroupState.COMPLETING_REBALANCE: changed,  # otherwise the reply was lost on its way
        GroupState.STABLE: changed or is_leader,  # a leader joins again when it has seen topics change
    }[group.state]
    if not needs_rebalance:
        decision = Decision(timers=[group.session_starts(member)])
        return decision.reply(call.token, join_accepted(group, member_id, to_leader=is_leader))
    decision = Decision()
    _update(group, member, call)
    _park(group, member, call.token, decision)
    what = "has changed its subscription" if changed else "leads and joined again"
    rebalance(group, decision, now_ms, f"member {member_id} {what}{because(request.reason)}")
    return decision


def _update(group: ClassicGroup, member: Member, call: JoinCall) -> None:
    group.members.set_protocols(member, call.protocols)
    member.session_timeout_ms = call.request.session_timeout_ms
    member.rebalance_timeout_ms = call.rebalance_timeout_ms


def _join_static(group: ClassicGroup, call: JoinCall, instance_id: str, now_ms: int) -> Decision:
    member_id = f"{instance_id}-{call.unique}"
    old_id = group.members.id_of_instance(instance_id)
    if old_id is None:
        return _add_member(group, call, member_id, now_ms)
    return _replace_static(group, call, old_id, member_id, now_ms)


def _replace_static(group: ClassicGroup, call: JoinCall, old_id: str, new_id: str, now_ms: int) -> Decision:
    """A static member is back with no id: it takes over from its former self, which is fenced from now on (KIP-345)."""
    decision = Decision()
    former_leader = group.leader
    answer_parked(group, old_id, ErrorCode.FENCED_INSTANCE_ID, decision)
    group.awaited_syncs.discard(old_id)
    decision.timers.append(CancelTimer(group.session_timer(old_id)))
    member = group.members.rename(old_id, new_id)
    member.client_id = call.client_id
    member.client_host = call.client_host
    member.is_new = False
    _update(group, member, call)
    if former_leader == old_id:
        group.leader = new_id
    if group.state is not GroupState.STABLE or group.members.vote() != group.protocol:
        _park(group, member, call.token, decision)
        rebalance(group, decision, now_ms, f"static member {member.instance_id} came back")
        return decision
    decision.timers.append(group.session_starts(member))
    decision.records.append(group.record(group.state_timestamp_ms))
    skips = call.version >= SKIP_ASSIGNMENT_VERSION and group.leader == new_id
    response = join_accepted(group, new_id, to_leader=skips)
    response.skip_assignment = skips
    if call.version < SKIP_ASSIGNMENT_VERSION:
        # A returning leader must not assign, and older clients can only be kept from it by naming another leader
        # (KIP-814 says it outright).
        response.leader = former_leader or ""
    return decision.reply(call.token, response)


def leave(group: ClassicGroup, identities: list[MemberIdentity], now_ms: int) -> tuple[Decision, list[MemberResponse]]:
    """Takes members out, and says of each what came of it. The caller adds the reply."""
    group.check_alive()
    decision = Decision()
    results = []
    members_before = len(group.members)
    for identity in identities:
        result = MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id)
        try:
            _leave_one(group, identity, decision)
        except KafkaError as e:
            result.error_code = e.code
        results.append(result)
    if len(group.members) < members_before:
        gone = [identity for identity, result in zip(identities, results, strict=True) if not result.error_code]
        names = listed([identity.member_id or identity.group_instance_id or "" for identity in gone])
        rebalance(group, decision, now_ms, f"{names} left{because(gone[0].reason)}")
    else:
        complete_join_if_all_came(group, decision, now_ms)
    return decision, results


def _leave_one(group: ClassicGroup, identity: MemberIdentity, decision: Decision) -> None:
    member_id = identity.member_id
    if member_id in group.issued_ids and identity.group_instance_id is None:
        group.issued_ids.remove(member_id)
        decision.timers.append(CancelTimer(group.issued_id_timer(member_id)))
        return
    if not member_id and identity.group_instance_id is not None:
        # An administrator removes a static member by its instance id alone.
        member_id = group.members.id_of_instance(identity.group_instance_id) or ""
    forget_member(group, group.check_member(member_id, identity.group_instance_id), decision)
