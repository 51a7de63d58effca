"""The KIP-848 protocol at work: heartbeats, and reconciling what is held with what the coordinator wants held."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ottla.base.errors import KafkaError
from ottla.base.types import TopicPartition
from ottla.client.core.consumer.offset_requests import Membership
from ottla.client.core.group.classic_member import Verdict
from ottla.client.core.group.consumer_member import ConsumerGroupMember
from ottla.client.core.group.rebalance import Change, difference
from ottla.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from ottla.client.aio.group.runner import GroupRunner

log = logging.getLogger(__name__)


class ConsumerProtocolGroup:
    is_joining = False
    """The group goes on while a member joins."""

    def __init__(self, runner: GroupRunner) -> None:
        self._runner = runner
        self._engine = runner.engine
        self._settings = runner.settings
        self._member = ConsumerGroupMember(self._settings, str(uuid.uuid4()))
        self._owned: frozenset[TopicPartition] = frozenset()
        """What the coordinator is told: partitions stay owned until the application has let go of them."""
        self._changed = asyncio.Event()
        self._reconciling: asyncio.Task[None] | None = None

    def membership(self) -> Membership:
        return self._member.membership()

    def held(self) -> frozenset[TopicPartition]:
        return self._owned

    def subscription_changed(self) -> None:
        self._changed.set()

    def metadata_changed(self) -> None:
        self._changed.set()

    async def run(self) -> None:
        while True:
            self._changed.clear()
            try:
                await self._turn()
            except KafkaError as e:
                if not e.retriable:
                    await self._runner.refused(e)
                self._engine.coordinator.lose()
                self._member.resend(self._engine.now_ms() + self._settings.client.retry_backoff_ms)
            await self._pause()

    async def _pause(self) -> None:
        now_ms = self._engine.now_ms()
        topics = self._engine.subscription.topics
        if not topics and not self._member.is_member:
            due_ms = now_ms + 60_000
        elif self._runner.poll_timer.has_expired(now_ms):
            due_ms = now_ms + 100
        elif self._is_giving_up:
            due_ms = now_ms + 1000
        else:
            due_ms = min(self._member.heartbeat_due_ms(topics, self._owned), now_ms + 1000)
        try:
            async with asyncio.timeout(max(0, due_ms - now_ms) / 1000):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _turn(self) -> None:
        now_ms = self._engine.now_ms()
        topics = self._engine.subscription.topics
        if self._runner.poll_timer.has_expired(now_ms):
            if self._member.is_member:
                log.warning(
                    "poll was not called for %d ms (max.poll.interval.ms): leaving the group",
                    self._settings.max_poll_interval_ms,
                )
                farewell = self.leave("poll was not called for max.poll.interval.ms")
                self._lose()
                await farewell
            return
        if self._is_giving_up:
            return
        # A pattern may match nothing any more, which a member has to tell; but nobody joins with that.
        if (topics or self._member.is_member) and now_ms >= self._member.heartbeat_due_ms(topics, self._owned):
            await self._beat(topics, now_ms)
        self._reconcile_if_needed()

    async def _beat(self, topics: frozenset[str], now_ms: int) -> None:
        node_id = await self._engine.coordinator.node_id()
        ids = {name: topic.topic_id for name, topic in self._engine.metadata.topics.items()}
        request = self._member.heartbeat_request(topics, self._owned, ids, now_ms)
        verdict = self._member.answered(await self._ask(node_id, request), self._engine.now_ms())
        if verdict is Verdict.LOST:
            self._lose()
        elif verdict is Verdict.FIND_COORDINATOR:
            self._engine.coordinator.forget()

    async def _ask(self, node_id: int, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        return await self._engine.group_link.request(node_id, request, ConsumerGroupHeartbeatResponse)

    # Reconciliation

    def _wanted(self) -> frozenset[TopicPartition] | None:
        names = {topic.topic_id: name for name, topic in self._engine.metadata.topics.items()}
        wanted = self._member.wanted(names)
        if wanted is None and self._member.target:
            self._engine.metadata.request_update()
            self._engine.wake()
        return wanted

    def _reconcile_if_needed(self) -> None:
        if self._reconciling is not None and not self._reconciling.done():
            return
        wanted = self._wanted()
        if wanted is not None and wanted != self._owned:
            self._reconciling = self._engine.spawn(self._reconcile(wanted))

    async def _reconcile(self, wanted: frozenset[TopicPartition]) -> None:
        epoch = self._member.epoch
        change = difference(self._owned, wanted)
        if change.revoked:
            await self._runner.step(Change.REVOKED, change.revoked)
            self._owned -= change.revoked
            self._changed.set()
            # The coordinator hands out more once it has heard of this, maybe other than it now seems.
            if self._member.epoch < epoch or self._wanted() != wanted:
                return
        if change.added:
            self._owned |= change.added
            await self._runner.step(Change.ASSIGNED, change.added)
        self._changed.set()

    def _lose(self) -> None:
        self._forget()
        self._reconciling = self._engine.spawn(self._give_up(self._runner.partitions_lost()))

    async def _give_up(self, lost: frozenset[TopicPartition]) -> None:
        await self._runner.step(Change.LOST, lost)
        self._changed.set()

    @property
    def _is_giving_up(self) -> bool:
        """The group is joined again when the application knows what it has lost: as a member it could commit it."""
        return not self._member.is_member and self._reconciling is not None and not self._reconciling.done()

    def leave(self, reason: str) -> Coroutine[Any, Any, None]:
        """Is no member from now on; what this returns is to be awaited, and tells the coordinator."""
        request = self._member.leave_request()
        self._forget()
        return self._say_good_bye(request, reason)

    def _forget(self) -> None:
        if self._reconciling is not None:
            self._reconciling.cancel()
            self._reconciling = None
        self._member.forget()
        self._owned = frozenset()

    async def _say_good_bye(self, request: ConsumerGroupHeartbeatRequest | None, reason: str) -> None:
        if request is not None:
            log.debug("leaving the group: %s", reason)
            # On the same connection as heartbeats: it must not come after one that joins again under the same id.
            await self._ask(await self._engine.coordinator.node_id(), request)
