"""The classic group protocol at work: joins, syncs and heartbeats, as `ClassicMember` says."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.base.errors import KafkaError
from ottla.base.types import TopicPartition
from ottla.client.core.consumer.offset_requests import Membership
from ottla.client.core.group.classic_member import ClassicMember, Verdict
from ottla.client.core.group.protocol import GroupAssignor, choose_assignors
from ottla.client.core.group.rebalance import Change, difference
from ottla.wire.apis.heartbeat import HeartbeatResponse
from ottla.wire.apis.join_group import JoinGroupResponse
from ottla.wire.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.wire.apis.sync_group import SyncGroupResponse
from ottla.wire.message import Request, Response

if TYPE_CHECKING:
    from ottla.client.aio.group.runner import GroupRunner

log = logging.getLogger(__name__)
R = TypeVar("R", bound=Response)

_JOIN_GRACE_MS = 5_000
"""How much longer than a rebalance may take an answer to a join is waited for."""


class ClassicGroup:
    def __init__(self, runner: GroupRunner, assignors: Sequence[GroupAssignor]) -> None:
        self._runner = runner
        self._engine = runner.engine
        self._settings = runner.settings
        self._member = ClassicMember(self._settings, choose_assignors(self._settings.assignors, assignors))
        self._must_join = True
        self._is_lost = False
        self.is_joining = False
        self._changed = asyncio.Event()
        self._joined_topics: frozenset[str] = frozenset()
        self._granted: frozenset[TopicPartition] = frozenset()
        """What the generation this member is in has given it."""
        self._counted: dict[str, int] = {}
        """Of the leader: the partition counts its last assignment was made from."""

    def membership(self) -> Membership:
        return self._member.membership()

    def held(self) -> frozenset[TopicPartition]:
        # Until the next generation begins, nobody else gets what was given up in order to join it.
        return self._granted | self._engine.cursors.partitions

    def subscription_changed(self) -> None:
        if self._must_join or self._engine.subscription.topics != self._joined_topics:
            self._rejoin()

    def metadata_changed(self) -> None:
        if self._member.is_leader and self._counted and self._counts(set(self._counted)) != self._counted:
            self._rejoin()

    def _counts(self, topics: Collection[str]) -> dict[str, int]:
        known = self._engine.metadata.topics
        return {topic: known[topic].partition_count if topic in known else 0 for topic in topics}

    def _rejoin(self) -> None:
        self._must_join = True
        self._changed.set()

    # The life of a member

    async def run(self) -> None:
        heartbeats = self._engine.spawn(self._keep_beating())
        try:
            while True:
                await self._wait_until_joining()
                await self._give_up_before_joining()
                try:
                    assigned = await self._join()
                except KafkaError as e:
                    self._must_join = True
                    await self._runner.refused(e)
                    continue
                if assigned is not None:
                    await self._apply(assigned)
        finally:
            heartbeats.cancel()
            self._engine.group_topics = frozenset()

    async def _wait_until_joining(self) -> None:
        while True:
            self._changed.clear()
            # A member whose application has stopped polling would only be thrown out again.
            may_join = not self._runner.poll_timer.has_expired(self._engine.now_ms())
            # Of a pattern that matches nothing any more, what is held has to be given up all the same.
            has_cause = self._engine.subscription.topics or self._engine.cursors.partitions
            if self._is_lost or (self._must_join and has_cause and may_join):
                return
            try:
                async with asyncio.timeout(0.1 if self._must_join and not may_join else None):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _give_up_before_joining(self) -> None:
        if not self._is_lost:
            held = self._engine.cursors.partitions
            kept = self._engine.subscription.topics if self._member.is_cooperative else ()
            await self._runner.step(Change.REVOKED, [p for p in held if p.topic not in kept])
        # While they waited for a poll to give them up, they may have been lost.
        if self._is_lost:
            await self._runner.step(Change.LOST, self._runner.partitions_lost())
            self._is_lost = False
            self._must_join = True

    async def _join(self) -> list[TopicPartition] | None:
        """One attempt; None if it has to be begun again."""
        topics = self._engine.subscription.topics
        if not topics or self._runner.poll_timer.has_expired(self._engine.now_ms()):
            return None
        self._must_join = False
        self._joined_topics = topics
        self.is_joining = True
        try:
            request = self._member.join_request(topics, self._engine.cursors.partitions)
            wait_ms = self._settings.max_poll_interval_ms + _JOIN_GRACE_MS
            response = await self._ask(request, JoinGroupResponse, wait_ms)
            if not await self._go_on(self._member.joined(response)):
                return None
            self._granted = frozenset()
            assignments: dict[str, bytes] = {}
            self._engine.group_topics = frozenset(self._member.group_topics() if self._member.is_leader else ())
            if self._member.is_leader:
                counts = await self._partition_counts()
                if self._member.must_assign:
                    assignments = self._member.assign(counts)
            answer = await self._ask(self._member.sync_request(assignments), SyncGroupResponse, wait_ms)
            verdict, partitions = self._member.synced(answer, self._engine.now_ms())
            if not await self._go_on(verdict):
                return None
            self._granted = frozenset(partitions)
            return partitions
        except KafkaError as e:
            if not e.retriable:
                raise
            await self._go_on(Verdict.FIND_COORDINATOR)
            return None
        finally:
            self.is_joining = False
            self._changed.set()

    async def _go_on(self, verdict: Verdict) -> bool:
        if verdict is Verdict.FINE:
            return True
        self._must_join = True
        if verdict in (Verdict.LOST, Verdict.OUTDATED):
            self._forget(verdict)
        elif verdict is Verdict.FIND_COORDINATOR:
            self._engine.coordinator.forget()
        if verdict in (Verdict.FIND_COORDINATOR, Verdict.AGAIN):
            await asyncio.sleep(self._settings.client.retry_backoff_ms / 1000)
        return False

    async def _partition_counts(self) -> dict[str, int]:
        topics = self._engine.group_topics
        if any(topic not in self._engine.metadata.topics for topic in topics):
            now_ms = self._engine.now_ms()
            for topic in topics:
                self._engine.metadata.use(topic, now_ms)
            await self._engine.wait_for_metadata()
        self._counted = self._counts(topics)
        return {topic: count for topic, count in self._counted.items() if count}

    async def _apply(self, assigned: list[TopicPartition]) -> None:
        held = self._engine.cursors.partitions
        change = difference(held, assigned)
        if change.revoked:
            await self._runner.step(Change.REVOKED, change.revoked)
            # Whoever is to get these waits for this member to join without them (KIP-429).
            self._rejoin()
        if self._member.is_member:
            await self._runner.step(Change.ASSIGNED, change.added)

    # Heartbeats

    async def _keep_beating(self) -> None:
        while True:
            try:
                await self._beat()
            except KafkaError as e:
                if not e.retriable:
                    await self._runner.refused(e)
                else:
                    self._engine.coordinator.lose()
                    await asyncio.sleep(self._settings.client.retry_backoff_ms / 1000)

    async def _beat(self) -> None:
        now_ms = self._engine.now_ms()
        timer = self._runner.poll_timer
        due_ms = min(self._member.heartbeat_due_ms(), timer.due_ms() if not timer.is_polling else 2**62)
        if not self._may_beat():
            await asyncio.sleep(0.02)
            return
        if now_ms < due_ms:
            await asyncio.sleep(min(due_ms - now_ms, 1000) / 1000)
            return
        if timer.has_expired(now_ms):
            log.warning(
                "poll was not called for %d ms (max.poll.interval.ms): leaving the group", timer.max_poll_interval_ms
            )
            farewell = self.leave("poll was not called for max.poll.interval.ms")
            self._lose(Verdict.LOST)
            await farewell
            return
        request = self._member.heartbeat_request(now_ms)
        response = await self._ask(request, HeartbeatResponse, self._settings.client.request_timeout_ms)
        verdict = self._member.heartbeat_answered(request, response.error_code)
        if not self._may_beat():
            return
        if verdict is Verdict.REJOIN:
            self._rejoin()
        elif verdict in (Verdict.LOST, Verdict.OUTDATED):
            self._lose(verdict)
        elif verdict is Verdict.FIND_COORDINATOR:
            self._engine.coordinator.forget()

    def _may_beat(self) -> bool:
        # A join or sync that waits at the coordinator is a sign of life itself.
        return self._member.is_member and not self.is_joining

    def _lose(self, verdict: Verdict) -> None:
        self._forget(verdict)
        self._runner.partitions_lost()
        self._rejoin()

    def _forget(self, verdict: Verdict) -> None:
        if verdict is Verdict.OUTDATED:
            self._member.forget_generation()
        else:
            self._member.forget()
        self._is_lost = bool(self._engine.cursors.partitions)

    def leave(self, reason: str) -> Coroutine[Any, Any, None]:
        """Is no member from now on; what this returns is to be awaited, and tells the coordinator."""
        member_id = self._member.member_id if self._member.must_say_good_bye else None
        self._member.forget()
        self._must_join = True
        return self._say_good_bye(member_id, reason)

    async def _say_good_bye(self, member_id: str | None, reason: str) -> None:
        if member_id is not None:
            node_id = await self._engine.coordinator.node_id()
            connection = await self._engine.link.connection_to(node_id)
            request = self._member.leave_request(member_id, connection.version_for(LeaveGroupRequest), reason)
            await self._engine.link.request(node_id, request, LeaveGroupResponse)

    async def _ask(self, request: Request, response_class: type[R], timeout_ms: int) -> R:
        node_id = await self._engine.coordinator.node_id()
        connection = await self._engine.group_link.connection_to(node_id)
        return await connection.request(request, response_class, timeout_ms=timeout_ms)
