"""A group of the new protocol (KIP-848): the coordinator assigns, and each member walks to its target on its own.

Three epochs: the group's grows when members, subscriptions or topics change; the target's says for which of them the
assignment was made; each member's, how far it has come. Every method decides and returns; `replay` alone changes the
durable state (`state`). Soft are only the timers, which the runner keeps, `confirmations`, and who was asked to rejoin.

Members that speak the classic protocol may be among the others (`migration.classic_members`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.base.errors import ErrorCode, KafkaError
from ottla.machines.coordinator import CancelTimer, CoordinatorRecord, Decision, SetTimer, TimerKey, Token
from ottla.machines.groups.config import GroupConfig, TopicView
from ottla.machines.groups.consumer import identity, requests
from ottla.machines.groups.consumer.confirmations import Confirmations, Connection
from ottla.machines.groups.consumer.describe import describe_group
from ottla.machines.groups.consumer.member import (
    JOIN_EPOCH,
    NO_PARTITIONS,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    CurrentAssignment,
    MemberState,
    Partitions,
    Subscription,
)
from ottla.machines.groups.consumer.reconciliation import reconcile
from ottla.machines.groups.consumer.records import by_topic
from ottla.machines.groups.consumer.state import ConsumerGroupPhase, ConsumerGroupState, Draft
from ottla.machines.groups.consumer.target import (
    chosen_assignor,
    compute_targets,
    is_subscribed,
    subscribed_topics,
)
from ottla.machines.groups.notes import listed
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
JOIN_TIMER = "consumer-join"
SYNC_TIMER = "consumer-sync"
"""The last two watch over members that speak the classic protocol, instead of the rebalance timer."""

_TIMED_OUT = {
    SESSION_TIMER: "timed out",
    REBALANCE_TIMER: "did not give up its partitions in time",
    JOIN_TIMER: "did not join again in time",
    SYNC_TIMER: "did not ask for its assignment in time",
}
TIMERS = (SESSION_TIMER, REBALANCE_TIMER, JOIN_TIMER, SYNC_TIMER)

Downgrade = Callable[[Draft, str | None, int], Decision | None]
"""(the group, the member that leaves it, now) -> what turns it into a classic group; None if it stays what it is."""


class ConsumerGroup:
    def __init__(
        self, group_id: str, config: GroupConfig, topics: TopicView, downgrade: Downgrade = lambda *_: None
    ) -> None:
        self.group_id = group_id
        self.config = config
        self.topics = topics
        self.downgrade = downgrade
        self.durable = ConsumerGroupState()
        self.asked_to_rejoin: set[str] = set()
        """Classic members that were told of a rebalance and have not joined again yet."""
        self._confirmations = Confirmations()

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
        connection: Connection = None,
        begun: Draft | None = None,
    ) -> Decision:
        """Joins, keeps or ends a membership. What the rules forbid is answered with their error.

        `begun` holds what has to be written before a join: the records that make this group of a classic one.
        """
        try:
            requests.validate(request, version, self.config.consumer_assignors)
            if request.member_epoch < JOIN_EPOCH:
                return self._leave(request, token, now_ms)
            member_id = request.member_id or new_member_id
            draft = begun or Draft(self.group_id, self.durable)
            return self._join_or_stay(draft, request, token, member_id, client_id, client_host, connection)
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
        return self._remove(member, _TIMED_OUT[kind], now_ms)

    def topics_changed(self, now_ms: int) -> Decision:
        """Topics came, went or grew. The next heartbeat of any member finds the target out of date and renews it."""
        draft = Draft(self.group_id, self.durable)
        if self.durable.members and self._update_topics(draft):
            draft.next_epoch("topics changed")
        return draft.decision()

    def loaded(self, now_ms: int) -> Decision:
        """After the log was read: everybody gets a full session, and a full time for what they still have to revoke."""
        decision = Decision()
        for _, member in sorted(self.durable.members.items()):
            decision.timers.append(self.session_timer(member))
            if member.current.state is MemberState.UNREVOKED and not member.is_classic:
                decision.timers.append(self._rebalance_timer(member))
        return decision.extend(self.topics_changed(now_ms))

    def check_commit(self, member_id: str, member_epoch: int, *, knows_epochs: bool = True) -> None:
        """Raises unless the member may commit offsets. Without members anybody may who does not claim to be one.

        A client that does not know epochs would not understand that its own is stale; classic members need not.
        """
        if member_epoch < 0 and self.is_empty:
            return
        if not knows_epochs and not identity.find(self.durable, member_id).is_classic:
            raise KafkaError(code=ErrorCode.UNSUPPORTED_VERSION)
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
            self.group_id, self.durable, chosen_assignor(self.durable, self.config.consumer_assignors), self.topics
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
                code=ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH,
            )

    def _join_or_stay(
        self,
        draft: Draft,
        request: ConsumerGroupHeartbeatRequest,
        token: Token,
        member_id: str,
        client_id: str,
        client_host: str,
        connection: Connection,
    ) -> Decision:
        timers: list[SetTimer | CancelTimer] = []
        is_joining = request.member_epoch == JOIN_EPOCH
        if is_joining:
            member, former = identity.admit(draft, request, member_id, self.config.consumer_max_size)
            # Also if it is its own former self: it may have spoken the classic protocol.
            timers += self.no_timers([member_id] if former is None else [former.member_id])
        else:
            member = identity.recognise(draft.state, request)
        self.update_member(draft, member, member.subscription.updated(request, client_id, client_host))
        self.update_targets(draft)
        # A member that is joining holds nothing.
        owned = NO_PARTITIONS if is_joining else self._confirmations.owned_by_now(member, request, connection)
        current = self.walk_to_target(draft, member, owned, timers, owned_is_all=is_joining)
        self._confirmations.answered(member_id, current, request, connection)
        timers.append(self.session_timer(draft.state.members[member_id]))

        response = ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=current.epoch,
            heartbeat_interval_ms=self.config.consumer_timeouts(self.group_id).heartbeat_interval_ms,
        )
        # A member that is an epoch behind has not seen the reply that took it further, nor the assignment in it.
        if (
            requests.is_full(request)
            or current.assigned != member.current.assigned
            or request.member_epoch != member.current.epoch
        ):
            response.assignment = _assignment(current.assigned)
        decision = draft.decision()
        decision.timers = timers
        return decision.reply(token, response)

    def update_member(self, draft: Draft, member: ConsumerMember, subscription: Subscription) -> None:
        """Stores what the member says of itself, and grows the group's epoch if that changes who should read what."""
        is_new = member.member_id not in draft.state.members
        if not is_new and subscription == member.subscription:
            return
        assignor_before = chosen_assignor(draft.state, self.config.consumer_assignors)
        draft.put_subscription(member.member_id, subscription)
        wants_other_topics = is_new or subscription.wants_other_topics_than(member.subscription)
        if wants_other_topics:
            self._update_topics(draft)
        if wants_other_topics or chosen_assignor(draft.state, self.config.consumer_assignors) != assignor_before:
            what = "joined" if is_new else "has changed its subscription"
            draft.next_epoch(f"member {member.member_id} {what}")

    def _update_topics(self, draft: Draft) -> bool:
        topics = subscribed_topics(draft.state, self.topics)
        if topics == draft.state.topics:
            return False
        draft.put_topics(topics)
        return True

    def update_targets(self, draft: Draft) -> None:
        if draft.state.target_epoch >= draft.state.epoch:
            return
        assignor = chosen_assignor(draft.state, self.config.consumer_assignors)
        for member_id, target in sorted(compute_targets(draft.state, assignor).items()):
            if draft.state.targets.get(member_id) != target:
                draft.put_target(member_id, target)
        draft.put_target_epoch(draft.state.epoch)

    def walk_to_target(
        self,
        draft: Draft,
        member: ConsumerMember,
        owned: Partitions | None,
        timers: list[SetTimer | CancelTimer],
        *,
        owned_is_all: bool,
    ) -> CurrentAssignment:
        member_id, state = member.member_id, draft.state
        current = reconcile(
            member.current,
            target_epoch=state.target_epoch,
            target=state.target_of(member_id),
            owned=owned,
            is_free=lambda partition: not state.is_held_by_another(partition, member_id),
            owned_is_all=owned_is_all,
        )
        if current != state.members[member_id].current:
            draft.put_current(member_id, current)
            updated = draft.state.members[member_id]
            if updated.is_classic:
                return current
            if current.state is MemberState.UNREVOKED:
                timers.append(self._rebalance_timer(updated))
            else:
                timers.append(CancelTimer((REBALANCE_TIMER, self.group_id, member_id)))
        return current

    def _leave(self, request: ConsumerGroupHeartbeatRequest, token: Token, now_ms: int) -> Decision:
        member = identity.find(self.durable, request.member_id, request.instance_id)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            # The session's time keeps running: who is not back by then has left for good.
            draft = Draft(self.group_id, self.durable)
            draft.put_current(member.member_id, member.current.left_for_a_while())
            decision = Decision(draft.records)
            decision.timers.append(CancelTimer((REBALANCE_TIMER, self.group_id, member.member_id)))
        else:
            decision = self._remove(member, "left", now_ms)
        return decision.reply(
            token,
            ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch),
        )

    def _remove(self, member: ConsumerMember, what: str, now_ms: int) -> Decision:
        downgraded = self.downgrade(Draft(self.group_id, self.durable), member.member_id, now_ms)
        if downgraded is None:
            return self.remove_all([member.member_id], what)
        downgraded.notes.insert(0, f"group {self.group_id}: member {member.member_id} {what}")
        return downgraded

    def remove_all(self, member_ids: Iterable[str], what: str) -> Decision:
        """What the others do not read any more and what they get instead is left to their heartbeats."""
        removed = list(member_ids)
        draft = Draft(self.group_id, self.durable)
        for member_id in removed:
            self._confirmations.forget(member_id)
            self.asked_to_rejoin.discard(member_id)
            draft.remove_member(member_id)
        self._update_topics(draft)
        draft.next_epoch(f"{listed(removed)} {what}")
        decision = draft.decision()
        decision.timers = self.no_timers(removed)
        return decision

    def no_timers(self, member_ids: Iterable[str]) -> list[SetTimer | CancelTimer]:
        return [CancelTimer((kind, self.group_id, member_id)) for member_id in member_ids for kind in TIMERS]

    def session_timer(self, member: ConsumerMember) -> SetTimer:
        """A classic member chooses its session timeout, within limits; the others are told how often to beat."""
        classic = member.subscription.classic
        timeouts = self.config.consumer_timeouts(self.group_id) if classic is None else classic
        return SetTimer((SESSION_TIMER, self.group_id, member.member_id), timeouts.session_timeout_ms)

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
