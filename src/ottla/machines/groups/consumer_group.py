"""A group of the new protocol (KIP-848): the coordinator assigns, and each member walks to its target on its own.

Three epochs: the group's grows when members, subscriptions or topics change; the target's says for which of them the
assignment was made; each member's, how far it has come. Every method decides and returns; `replay` alone changes the
durable state (consumer_state.py). There is no soft state but timers, which the runner keeps.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode, KafkaError
from ottla.machines.coordinator import CancelTimer, CoordinatorRecord, Decision, SetTimer, TimerKey, Token
from ottla.machines.groups import consumer_identity as identity
from ottla.machines.groups import consumer_requests as requests
from ottla.machines.groups.config import GroupConfig, TopicView
from ottla.machines.groups.consumer_describe import describe_group
from ottla.machines.groups.consumer_member import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    CurrentAssignment,
    MemberState,
    Partitions,
)
from ottla.machines.groups.consumer_records import by_topic
from ottla.machines.groups.consumer_state import ConsumerGroupPhase, ConsumerGroupState, Draft
from ottla.machines.groups.consumer_target import (
    chosen_assignor,
    compute_targets,
    is_subscribed,
    subscribed_topics,
)
from ottla.machines.groups.reconciliation import reconcile
from ottla.wire.apis.consumer_group_describe import DescribedGroup
from ottla.wire.apis.consumer_group_heartbeat import (
    AssignedTopicPartitions,
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.wire.message import StoredRecord

SESSION_TIMER = "consumer-session"
REBALANCE_TIMER = "consumer-rebalance"


class ConsumerGroup:
    def __init__(self, group_id: str, config: GroupConfig, topics: TopicView) -> None:
        self.group_id = group_id
        self._config = config
        self._topics = topics
        self.durable = ConsumerGroupState()
        self._unproven: dict[str, Partitions] = {}
        """What members with something to give up listed in a full heartbeat, until a later one proves it."""

    @property
    def state(self) -> ConsumerGroupPhase:
        return self.durable.phase

    @property
    def is_empty(self) -> bool:
        return not self.durable.members

    @property
    def exists(self) -> bool:
        """False for one that was only made to answer a request, and for one whose tombstones have been replayed."""
        return self.durable.exists

    def replay(self, key: StoredRecord, value: StoredRecord | None) -> None:
        self.durable.replay(key, value)

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        token: Token,
        *,
        version: int,
        client_id: str,
        client_host: str,
        new_member_id: str,
        now_ms: int,
    ) -> Decision:
        """Joins, keeps or ends a membership. What the rules forbid is answered with their error."""
        try:
            requests.validate(request, version, self._config.consumer_assignors)
            if request.member_epoch < JOIN_EPOCH:
                return self._leave(request, token)
            return self._join_or_stay(request, token, request.member_id or new_member_id, client_id, client_host)
        except KafkaError as error:
            return Decision().reply(
                token, ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
            )

    def timer_fired(self, key: TimerKey, now_ms: int) -> Decision:
        """A silent member, or one that does not give up what it was told to, loses its place."""
        kind, _, member_id = key
        member = self.durable.members.get(member_id)
        if member is None or (kind == REBALANCE_TIMER and member.current.state is not MemberState.UNREVOKED):
            return Decision()
        return self._remove(member)

    def topics_changed(self, now_ms: int) -> Decision:
        """Topics came, went or grew. The next heartbeat of any member finds the target out of date and renews it."""
        draft = Draft(self.group_id, self.durable)
        if self.durable.members and self._update_topics(draft):
            draft.put_epoch(draft.state.epoch + 1)
        return Decision(draft.records)

    def loaded(self, now_ms: int) -> Decision:
        """After the log was read: everybody gets a full session, and a full time for what they still have to revoke."""
        decision = Decision()
        for member_id, member in sorted(self.durable.members.items()):
            decision.timers.append(self._session_timer(member_id))
            if member.current.state is MemberState.UNREVOKED:
                decision.timers.append(self._rebalance_timer(member))
        return decision.extend(self.topics_changed(now_ms))

    def check_commit(self, member_id: str, member_epoch: int) -> None:
        """Raises unless the member may commit offsets. Without members anybody may who does not claim to be one."""
        if member_epoch < 0 and self.is_empty:
            return
        self._check_member_epoch(member_id, member_epoch)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raises unless the offsets may be read by who asks: a member of the right epoch, or no member at all."""
        if not member_id and member_epoch < 0:
            return
        self._check_member_epoch(member_id or "", member_epoch)

    def is_subscribed_to(self, topic: str) -> bool:
        return any(is_subscribed(member.subscription, topic) for member in self.durable.members.values())

    def describe(self) -> DescribedGroup:
        return describe_group(
            self.group_id, self.durable, chosen_assignor(self.durable, self._config.consumer_assignors), self._topics
        )

    def tombstones(self) -> list[CoordinatorRecord]:
        """What deletes the group. Only a group without members can be deleted, or turn into a classic one."""
        if not self.is_empty:
            raise KafkaError(code=ErrorCode.NON_EMPTY_GROUP)
        draft = Draft(self.group_id, self.durable)
        draft.remove_group()
        return draft.records

    def _check_member_epoch(self, member_id: str, member_epoch: int) -> None:
        member = identity.find(self.durable, member_id)
        if member.current.epoch != member_epoch:
            raise KafkaError(
                f"member {member_id} is in epoch {member.current.epoch}, not in {member_epoch}",
                code=ErrorCode.STALE_MEMBER_EPOCH,
            )

    def _join_or_stay(
        self,
        request: ConsumerGroupHeartbeatRequest,
        token: Token,
        member_id: str,
        client_id: str,
        client_host: str,
    ) -> Decision:
        draft = Draft(self.group_id, self.durable)
        timers: list[SetTimer | CancelTimer] = [self._session_timer(member_id)]
        if request.member_epoch == JOIN_EPOCH:
            member, former = identity.admit(draft, request, member_id, self._config.consumer_max_size)
            if former is not None:
                timers.append(CancelTimer((SESSION_TIMER, self.group_id, former.member_id)))
        else:
            member = identity.recognise(draft.state, request)
        self._update_subscription(draft, member, request, client_id, client_host)
        self._update_targets(draft)
        current = self._walk_to_target(draft, member, request, timers)

        response = ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=current.epoch,
            heartbeat_interval_ms=self._config.consumer_heartbeat_interval_ms,
        )
        # A member that is an epoch behind has not seen the reply that took it further, nor the assignment in it.
        if (
            requests.is_full(request)
            or current.assigned != member.current.assigned
            or request.member_epoch != member.current.epoch
        ):
            response.assignment = _assignment(current.assigned)
        return Decision(draft.records, timers=timers).reply(token, response)

    def _update_subscription(
        self,
        draft: Draft,
        member: ConsumerMember,
        request: ConsumerGroupHeartbeatRequest,
        client_id: str,
        client_host: str,
    ) -> None:
        """Stores what the member says of itself, and grows the group's epoch if that changes who should read what."""
        is_new = member.member_id not in draft.state.members
        subscription = member.subscription.updated(request, client_id, client_host)
        if not is_new and subscription == member.subscription:
            return
        assignor_before = chosen_assignor(draft.state, self._config.consumer_assignors)
        draft.put_subscription(member.member_id, subscription)
        wants_other_topics = is_new or subscription.wants_other_topics_than(member.subscription)
        if wants_other_topics:
            self._update_topics(draft)
        if wants_other_topics or chosen_assignor(draft.state, self._config.consumer_assignors) != assignor_before:
            draft.put_epoch(draft.state.epoch + 1)

    def _update_topics(self, draft: Draft) -> bool:
        topics = subscribed_topics(draft.state, self._topics)
        if topics == draft.state.topics:
            return False
        draft.put_topics(topics)
        return True

    def _update_targets(self, draft: Draft) -> None:
        if draft.state.target_epoch >= draft.state.epoch:
            return
        assignor = chosen_assignor(draft.state, self._config.consumer_assignors)
        for member_id, target in sorted(compute_targets(draft.state, assignor).items()):
            if draft.state.targets.get(member_id) != target:
                draft.put_target(member_id, target)
        draft.put_target_epoch(draft.state.epoch)

    def _walk_to_target(
        self,
        draft: Draft,
        member: ConsumerMember,
        request: ConsumerGroupHeartbeatRequest,
        timers: list[SetTimer | CancelTimer],
    ) -> CurrentAssignment:
        member_id, state = member.member_id, draft.state
        current = reconcile(
            member.current,
            target_epoch=state.target_epoch,
            target=state.target_of(member_id),
            owned=self._owned_by_now(member, request),
            is_free=lambda partition: not state.is_held_by_another(partition, member_id),
            is_joining=request.member_epoch == JOIN_EPOCH,
        )
        if current != state.members[member_id].current:
            draft.put_current(member_id, current)
            if current.state is MemberState.UNREVOKED:
                timers.append(self._rebalance_timer(draft.state.members[member_id]))
            else:
                timers.append(CancelTimer((REBALANCE_TIMER, self.group_id, member_id)))
        return current

    def _owned_by_now(self, member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
        """What the member holds after it has read our last reply; None if that cannot be told from this heartbeat.

        A full heartbeat may come from a member that missed the reply which told it what to give up. What it lists then
        proves nothing yet, for it may be taking up a partition this moment. The next heartbeat that is not full does.
        """
        reported = requests.owned_partitions(request)
        earlier = self._unproven.pop(member.member_id, None)
        if member.current.state is MemberState.UNREVOKED and requests.is_full(request) and reported is not None:
            self._unproven[member.member_id] = reported
            return None
        return earlier if reported is None else reported

    def _leave(self, request: ConsumerGroupHeartbeatRequest, token: Token) -> Decision:
        member = identity.find(self.durable, request.member_id, request.instance_id)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            # The session's time keeps running: who is not back by then has left for good.
            draft = Draft(self.group_id, self.durable)
            draft.put_current(member.member_id, member.current.left_for_a_while())
            decision = Decision(draft.records)
            decision.timers.append(CancelTimer((REBALANCE_TIMER, self.group_id, member.member_id)))
        else:
            decision = self._remove(member)
        return decision.reply(
            token,
            ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch),
        )

    def _remove(self, member: ConsumerMember) -> Decision:
        """What the others do not read any more and what they get instead is left to their heartbeats."""
        self._unproven.pop(member.member_id, None)
        draft = Draft(self.group_id, self.durable)
        draft.remove_member(member.member_id)
        self._update_topics(draft)
        draft.put_epoch(draft.state.epoch + 1)
        if not draft.state.members:
            draft.put_target_epoch(draft.state.epoch)
        keys = [(kind, self.group_id, member.member_id) for kind in (SESSION_TIMER, REBALANCE_TIMER)]
        return Decision(draft.records, timers=[CancelTimer(key) for key in keys])

    def _session_timer(self, member_id: str) -> SetTimer:
        return SetTimer((SESSION_TIMER, self.group_id, member_id), self._config.consumer_session_timeout_ms)

    def _rebalance_timer(self, member: ConsumerMember) -> SetTimer:
        return SetTimer(
            (REBALANCE_TIMER, self.group_id, member.member_id), max(0, member.subscription.rebalance_timeout_ms)
        )


def _assignment(partitions: Partitions) -> Assignment:
    return Assignment(
        topic_partitions=[
            AssignedTopicPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in by_topic(partitions)
        ]
    )
