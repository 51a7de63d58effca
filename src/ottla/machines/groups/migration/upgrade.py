"""A classic group with members becomes a KIP-848 group, because a member of the new protocol joins it.

The members keep their ids, generation and partitions, and go on in the classic protocol (`classic_members`). The join
grows the group's epoch, so their next heartbeats send them into a rebalance.
"""

from __future__ import annotations

from ottla.base.errors import DecodeError, ErrorCode, KafkaError
from ottla.machines.coordinator import CancelTimer, Decision, SetTimer
from ottla.machines.groups.classic.group import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from ottla.machines.groups.classic.members import Member
from ottla.machines.groups.classic.rebalance import join_refused, sync_refused
from ottla.machines.groups.config import GroupConfig, TopicView
from ottla.machines.groups.consumer.group import SESSION_TIMER, ConsumerGroup
from ottla.machines.groups.consumer.member import ClassicMetadata, CurrentAssignment, Partitions, Subscription
from ottla.machines.groups.consumer.state import Draft
from ottla.machines.groups.migration import embedded
from ottla.machines.groups.notes import listed


def begin(group: ClassicGroup, upgraded: ConsumerGroup) -> Draft:
    """The records that make the new group of the old one. Raises KafkaError if the group has to stay as it is."""
    _check_allowed(group, upgraded.config)
    draft = Draft(group.group_id, upgraded.durable)
    try:
        members = [(member, *_in_new_words(member, upgraded.topics)) for member in group.members]
    except DecodeError as e:
        raise _not_a_consumer_group(f"the consumers' metadata in group {group.group_id} is malformed: {e}") from e
    for member, subscription, _ in members:
        draft.put_subscription(member.member_id, subscription)
    draft.put_epoch(group.generation)
    for member, _, assigned in members:
        draft.put_target(member.member_id, assigned)
    draft.put_target_epoch(group.generation)
    for member, _, assigned in members:
        current = CurrentAssignment(group.generation, group.generation, assigned=assigned)
        draft.put_current(member.member_id, current)
    return draft


def _check_allowed(group: ClassicGroup, config: GroupConfig) -> None:
    if not config.migration_policy.allows_upgrade:
        raise _not_a_consumer_group(f"group {group.group_id} has members of the classic protocol")
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise _not_a_consumer_group(f"the members of group {group.group_id} are not consumers")
    if len(group.members) > config.consumer_max_size:
        raise _not_a_consumer_group(f"group {group.group_id} is too large for the new protocol")


def _not_a_consumer_group(reason: str) -> KafkaError:
    return KafkaError(reason, code=ErrorCode.GROUP_ID_NOT_FOUND)


def _in_new_words(member: Member, topics: TopicView) -> tuple[Subscription, Partitions]:
    subscription = embedded.read_subscription(member.protocols)
    return (
        Subscription(
            topic_names=frozenset(subscription.topics),
            instance_id=member.instance_id,
            rack_id=subscription.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
        ),
        embedded.read_assignment(member.assignment, topics),
    )


def take_leave(group: ClassicGroup) -> Decision:
    """Comes first: removes the classic group, answers what waits in it, and hands its members to the new timers."""
    decision = Decision(group.tombstones())
    if group.members:
        members = listed([member.member_id for member in group.members])
        decision.notes.append(f"group {group.group_id}: upgraded to the protocol of KIP-848 with {members}")
    for member_id, token in group.joining.items():
        decision.reply(token, join_refused(member_id, ErrorCode.REBALANCE_IN_PROGRESS))
    for token in group.syncing.values():
        decision.reply(token, sync_refused(ErrorCode.REBALANCE_IN_PROGRESS))
    keys = [group.join_timer, group.sync_timer]
    keys += [group.session_timer(member.member_id) for member in group.members]
    keys += [group.issued_id_timer(member_id) for member_id in sorted(group.issued_ids)]
    decision.timers += [CancelTimer(key) for key in keys]
    decision.timers += [
        SetTimer((SESSION_TIMER, group.group_id, member.member_id), member.session_timeout_ms)
        for member in group.members
    ]
    return decision
