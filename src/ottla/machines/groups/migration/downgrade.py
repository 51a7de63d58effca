"""A KIP-848 group becomes a classic one when its last member of the new protocol goes, and classic ones remain.

The stored group has no leader, which nothing else leaves behind: whoever replays it knows that a rebalance is due.
(Kafka names one of the members, so that after a change of coordinator nobody reads what the last member left behind.)
"""

from __future__ import annotations

from ottla.machines.coordinator import CancelTimer, Decision, SetTimer
from ottla.machines.groups.classic.group import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from ottla.machines.groups.classic.members import Member
from ottla.machines.groups.config import GroupConfig, TopicView
from ottla.machines.groups.consumer.group import TIMERS
from ottla.machines.groups.consumer.member import ConsumerMember
from ottla.machines.groups.consumer.state import ConsumerGroupState, Draft
from ottla.machines.groups.migration import embedded
from ottla.machines.groups.notes import listed


def is_due(state: ConsumerGroupState, leaving_id: str | None, config: GroupConfig) -> bool:
    """Whether only classic members are left once the member that leaves, if any, is gone."""
    left = [member for member_id, member in state.members.items() if member_id != leaving_id]
    leaving = None if leaving_id is None else state.members[leaving_id]
    return (
        bool(left)
        and all(member.is_classic for member in left)
        and not (leaving is not None and leaving.is_classic)
        and config.migration_policy.allows_downgrade
        and len(left) <= config.max_size
    )


def downgrade(
    draft: Draft, leaving_id: str | None, config: GroupConfig, topics: TopicView, now_ms: int
) -> tuple[ClassicGroup, Decision]:
    """The classic group, which the decision's records fill and send into a rebalance."""
    state = draft.state
    group = ClassicGroup(draft.group_id, config)
    group.protocol_type = CONSUMER_PROTOCOL_TYPE
    group.generation = state.epoch
    for member_id, member in sorted(state.members.items()):
        if member_id != leaving_id:
            group.members.add(_in_old_words(member))
    group.protocol = group.members.vote()
    assignments = {
        member.member_id: embedded.write_assignment(
            state.target_of(member.member_id), topics, member.metadata(group.protocol)
        )
        for member in group.members
    }
    decision = Decision(notes=draft.notes)
    members = listed([member.member_id for member in group.members])
    decision.notes.append(f"group {draft.group_id}: downgraded to the classic protocol with {members}")
    decision.timers += [
        CancelTimer((kind, draft.group_id, member_id)) for member_id in sorted(state.members) for kind in TIMERS
    ]
    draft.remove_group()
    decision.records = [*draft.records, group.record(now_ms, assignments)]
    decision.timers += [group.session_starts(member) for member in group.members]
    decision.timers.append(SetTimer(group.join_timer, group.members.rebalance_timeout_ms_max()))
    return group, decision


def _in_old_words(member: ConsumerMember) -> Member:
    subscription = member.subscription
    assert subscription.classic is not None, "only classic members can be left"
    return Member(
        member_id=member.member_id,
        instance_id=subscription.instance_id,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        session_timeout_ms=subscription.classic.session_timeout_ms,
        rebalance_timeout_ms=subscription.rebalance_timeout_ms,
        protocols=subscription.classic.protocols,
        is_new=False,
    )
