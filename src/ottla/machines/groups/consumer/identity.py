"""Who a heartbeat of a KIP-848 group is from, and whether that member may speak: new, known, static, fenced."""

from __future__ import annotations

from ottla.base.errors import ErrorCode, InvalidRequestError, KafkaError
from ottla.machines.groups.consumer.member import ConsumerMember
from ottla.machines.groups.consumer.requests import owned_partitions
from ottla.machines.groups.consumer.state import ConsumerGroupState, Draft
from ottla.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


def find(state: ConsumerGroupState, member_id: str, instance_id: str | None = None) -> ConsumerMember:
    if instance_id is not None:
        holder = state.static_member(instance_id)
        if holder is None:
            raise KafkaError(f"there is no instance {instance_id}", code=ErrorCode.UNKNOWN_MEMBER_ID)
        if holder.member_id != member_id:
            raise KafkaError(
                f"instance {instance_id} now belongs to member {holder.member_id}", code=ErrorCode.FENCED_INSTANCE_ID
            )
    member = state.members.get(member_id)
    if member is None:
        raise KafkaError(f"there is no member {member_id}", code=ErrorCode.UNKNOWN_MEMBER_ID)
    return member


def recognise(state: ConsumerGroupState, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
    """The member that stays. Raises if it is not one, or has missed more than the last reply."""
    member = find(state, request.member_id, request.instance_id)
    current, received_epoch = member.current, request.member_epoch
    if received_epoch == current.epoch:
        return member
    owned = owned_partitions(request)
    if received_epoch == current.previous_epoch < current.epoch and owned is not None and owned <= current.assigned:
        return member
    raise KafkaError(
        f"member {request.member_id} says it is in epoch {received_epoch}, and the group knows {current.epoch}: "
        "it has to give up all its partitions and join again",
        code=ErrorCode.FENCED_MEMBER_EPOCH,
    )


def admit(
    draft: Draft, request: ConsumerGroupHeartbeatRequest, member_id: str, max_size: int
) -> tuple[ConsumerMember, ConsumerMember | None]:
    """The member that joins, and the member whose place it takes, if any.

    It may be new, a static one that is back under another id, or one that is known already: it was fenced, or never
    saw the reply to its first heartbeat, and must not wait for its own session to run out (KAFKA-19233).
    """
    state = draft.state
    known = state.members.get(member_id)
    former = None if request.instance_id is None else state.static_member(request.instance_id)
    if former is not None and former is not known:
        # A member that moves to the new protocol cannot have said in the old one that it leaves for a while.
        if not former.has_left_for_a_while and not former.is_classic:
            raise KafkaError(
                f"instance {request.instance_id} belongs to member {former.member_id}",
                code=ErrorCode.UNRELEASED_INSTANCE_ID,
            )
        if known is not None:
            raise InvalidRequestError(f"member {member_id} is in the group without instance {request.instance_id}")
        return take_the_place_of(draft, former, member_id), former
    if known is not None:
        if request.instance_id != known.subscription.instance_id:
            raise InvalidRequestError(f"member {member_id} cannot change its instance id while it is in the group")
        current = known.current.back_again() if known.has_left_for_a_while else known.current
        return ConsumerMember(member_id, known.subscription, current), None
    if len(state.members) >= max_size:
        raise KafkaError(code=ErrorCode.GROUP_MAX_SIZE_REACHED)
    return ConsumerMember(member_id), None


def take_the_place_of(draft: Draft, former: ConsumerMember, member_id: str) -> ConsumerMember:
    """The new id inherits subscription, target and partitions, so nobody else notices the restart (KIP-345)."""
    target = draft.state.target_of(former.member_id)
    member = ConsumerMember(member_id, former.subscription, former.current.back_again())
    draft.remove_member(former.member_id)
    draft.put_subscription(member_id, member.subscription)
    draft.put_target(member_id, target)
    return member
