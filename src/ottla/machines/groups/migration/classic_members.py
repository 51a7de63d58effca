"""Members of the classic protocol in a KIP-848 group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

A member's generation is its epoch. Nobody leads: the coordinator assigns, and each member joins again on its own when
its heartbeat says so, to tell what it holds and to learn what it gets. Two timers watch over that: one from the call
to join again until the join, one from the join until the sync.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ottla.base.errors import DecodeError, ErrorCode, InvalidRequestError, KafkaError
from ottla.machines.coordinator import CancelTimer, Decision, SetTimer, Token
from ottla.machines.groups.classic.group import CONSUMER_PROTOCOL_TYPE
from ottla.machines.groups.classic.joining import MEMBER_ID_HANDSHAKE_VERSION, JoinCall
from ottla.machines.groups.classic.rebalance import join_refused
from ottla.machines.groups.consumer import identity
from ottla.machines.groups.consumer.group import JOIN_TIMER, SYNC_TIMER, ConsumerGroup
from ottla.machines.groups.consumer.member import ClassicMetadata, ConsumerMember, MemberState, Subscription
from ottla.machines.groups.consumer.state import ConsumerGroupState, Draft
from ottla.machines.groups.migration import embedded
from ottla.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.apis.join_group import JoinGroupResponse
from ottla.wire.apis.leave_group import MemberIdentity, MemberResponse
from ottla.wire.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.wire.stored.consumer_protocol import ConsumerProtocolSubscription


def join(group: ConsumerGroup, call: JoinCall, now_ms: int) -> Decision:
    """Answered at once: there is nobody to wait for."""
    request = call.request
    instance_id = request.group_instance_id
    if instance_id == "":
        raise InvalidRequestError("the group instance id is empty")
    _check_protocols(group.durable, call)
    member_id = request.member_id or f"{call.client_id if instance_id is None else instance_id}-{call.unique}"
    if not request.member_id and instance_id is None and call.version >= MEMBER_ID_HANDSHAKE_VERSION:
        # Unlike a classic group, this one does not have to know later that it has handed out the id.
        return Decision().reply(call.token, join_refused(member_id, ErrorCode.MEMBER_ID_REQUIRED))
    subscription = _read_subscription(call)
    draft = Draft(group.group_id, group.durable)
    member, former = _admit(draft, call, member_id, group.config.consumer_max_size)
    group.update_member(draft, member, _updated(member.subscription, call, subscription))
    group.update_targets(draft)
    # A consumer that joins has stopped taking partitions up, so what it lists is all it holds; nothing, if its assignor
    # makes it give up everything before each rebalance.
    owned = embedded.partitions_of(subscription.owned_partitions, group.topics)
    timers: list[SetTimer | CancelTimer] = []
    current = group.walk_to_target(draft, member, owned, timers, owned_is_all=True)
    response = JoinGroupResponse(
        generation_id=current.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=request.protocols[0].name,
        member_id=member_id,
    )
    if former is not None and not former.is_classic:
        downgraded = group.downgrade(draft, None, now_ms)
        if downgraded is not None:
            downgraded.timers[:0] = group.no_timers([former.member_id])
            return downgraded.reply(call.token, response)
    gone = [member_id] if former is None else [member_id, former.member_id]
    group.asked_to_rejoin.difference_update(gone)
    timers += group.no_timers(gone)
    timers.append(group.session_timer(draft.state.members[member_id]))
    timers.append(SetTimer((SYNC_TIMER, group.group_id, member_id), call.rebalance_timeout_ms))
    decision = draft.decision()
    decision.timers = timers
    return decision.reply(call.token, response)


def _check_protocols(state: ConsumerGroupState, call: JoinCall) -> None:
    """The classic members must be able to agree on a protocol in case they are all that is left one day."""
    others = [
        member.subscription.classic for member in state.members.values() if member.member_id != call.request.member_id
    ]
    supporters = Counter(name for classic in others if classic is not None for name in dict(classic.protocols))
    classic_count = sum(classic is not None for classic in others)
    is_consumer = call.request.protocol_type == CONSUMER_PROTOCOL_TYPE
    if not is_consumer or not any(supporters[name] == classic_count for name, _ in call.protocols):
        raise KafkaError(code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _read_subscription(call: JoinCall) -> ConsumerProtocolSubscription:
    try:
        return embedded.read_subscription(call.protocols)
    except DecodeError as e:
        raise KafkaError(
            f"the protocol metadata is not a consumer's subscription: {e}", code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        ) from e


def _admit(draft: Draft, call: JoinCall, member_id: str, max_size: int) -> tuple[ConsumerMember, ConsumerMember | None]:
    """The member that joins, and the static member whose place it takes, if any.

    A dynamic member may bring an id that the group does not know: it was handed out, here or in the classic group that
    this one was before.
    """
    instance_id = call.request.group_instance_id
    if instance_id is not None:
        former = draft.state.static_member(instance_id)
        if call.request.member_id:
            return identity.find(draft.state, member_id, instance_id), None
        if former is not None:
            return identity.take_the_place_of(draft, former, member_id), former
    known = draft.state.members.get(member_id)
    if known is not None:
        return known, None
    if len(draft.state.members) >= max_size:
        raise KafkaError(code=ErrorCode.GROUP_MAX_SIZE_REACHED)
    return ConsumerMember(member_id), None


def _updated(before: Subscription, call: JoinCall, subscription: ConsumerProtocolSubscription) -> Subscription:
    return replace(
        before,
        topic_names=frozenset(subscription.topics),
        instance_id=call.request.group_instance_id or before.instance_id,
        rack_id=subscription.rack_id or before.rack_id,
        client_id=call.client_id,
        client_host=call.client_host,
        rebalance_timeout_ms=call.rebalance_timeout_ms,
        classic=ClassicMetadata(call.request.session_timeout_ms, call.protocols),
    )


def sync(group: ConsumerGroup, request: SyncGroupRequest, token: Token) -> Decision:
    member, classic = _find(group, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation_id)
    protocol, metadata = classic.protocols[0]
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in (None, protocol):
        raise KafkaError(code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    # A member that has something to give up must learn first what it keeps; its heartbeat calls it again.
    if group.durable.epoch > member.current.epoch and member.current.state is not MemberState.UNREVOKED:
        timers = _call_to_rejoin(group, member)
        return Decision(timers=timers).reply(token, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    timers = [CancelTimer((SYNC_TIMER, group.group_id, member.member_id)), group.session_timer(member)]
    response = SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=embedded.write_assignment(member.current.assigned, group.topics, metadata),
    )
    return Decision(timers=timers).reply(token, response)


def heartbeat(group: ConsumerGroup, request: HeartbeatRequest, token: Token) -> Decision:
    member, _ = _find(group, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation_id)
    decision = Decision(timers=[group.session_timer(member)])
    error = ErrorCode.NONE
    if _must_rejoin(group.durable, member):
        error = ErrorCode.REBALANCE_IN_PROGRESS
        decision.timers += _call_to_rejoin(group, member)
    return decision.reply(token, HeartbeatResponse(error_code=error))


def _must_rejoin(state: ConsumerGroupState, member: ConsumerMember) -> bool:
    """To catch up with the group, to confirm what it gave up, or because all it waits for has become free."""
    current = member.current
    if current.epoch < state.epoch or current.state is MemberState.UNREVOKED:
        return True
    if current.state is not MemberState.UNRELEASED:
        return False
    wanted = state.target_of(member.member_id) - current.assigned
    return not any(state.is_held_by_another(partition, member.member_id) for partition in wanted)


def _call_to_rejoin(group: ConsumerGroup, member: ConsumerMember) -> list[SetTimer | CancelTimer]:
    """Its time starts with the first call, however often it is repeated."""
    if member.member_id in group.asked_to_rejoin:
        return []
    group.asked_to_rejoin.add(member.member_id)
    key = (JOIN_TIMER, group.group_id, member.member_id)
    return [SetTimer(key, max(0, member.subscription.rebalance_timeout_ms))]


def leave(group: ConsumerGroup, identities: list[MemberIdentity]) -> tuple[Decision, list[MemberResponse]]:
    """Takes members out, and says of each what came of it. The caller adds the reply."""
    leaving = []
    results = []
    for who in identities:
        result = MemberResponse(member_id=who.member_id, group_instance_id=who.group_instance_id)
        try:
            member_id = who.member_id
            if not member_id and who.group_instance_id is not None:
                # An administrator removes a static member by its instance id alone.
                static = group.durable.static_member(who.group_instance_id)
                member_id = "" if static is None else static.member_id
            member, _ = _find(group, member_id, who.group_instance_id)
            result.member_id = member.member_id
            leaving.append(member.member_id)
        except KafkaError as e:
            result.error_code = e.code
        results.append(result)
    return group.remove_all(dict.fromkeys(leaving), "left") if leaving else Decision(), results


def _find(group: ConsumerGroup, member_id: str, instance_id: str | None) -> tuple[ConsumerMember, ClassicMetadata]:
    member = identity.find(group.durable, member_id, instance_id)
    if member.subscription.classic is None:
        raise KafkaError(f"member {member_id} does not speak the classic protocol", code=ErrorCode.UNKNOWN_MEMBER_ID)
    return member, member.subscription.classic


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.current.epoch:
        raise KafkaError(code=ErrorCode.ILLEGAL_GENERATION)
