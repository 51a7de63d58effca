"""A consumer's life in its group: what both protocols share.

Joining and heartbeats go on in the background. Partitions change hands only in steps that a poll carries out, between
two batches of records, where the application can commit what it has done. Every method is for the thread of the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ottla.base.errors import InvalidConfigError, KafkaError
from ottla.base.types import TopicPartition
from ottla.client.aio.consumer.commits import CommitTask
from ottla.client.aio.consumer.engine import ConsumerEngine
from ottla.client.aio.group.classic import ClassicGroup
from ottla.client.aio.group.consumer import ConsumerProtocolGroup
from ottla.client.core.consumer.offset_requests import Membership
from ottla.client.core.group.classic_member import PollTimer
from ottla.client.core.group.protocol import GroupAssignor
from ottla.client.core.group.rebalance import Change
from ottla.client.errors import is_fatal

log = logging.getLogger(__name__)


class RebalanceStep:
    """Something the listener is told; partitions that go are gone when it is finished."""

    commit: CommitTask | None = None
    """Of partitions that go: what has to be done before the listener is told."""
    is_told = False
    """The listener has been called, and maybe not returned yet."""
    telling: asyncio.Future[object] | None = None
    """What a listener for asyncio does."""
    is_awaited = False
    """A poll waits for it."""

    def __init__(
        self, change: Change, partitions: Collection[TopicPartition], on_finish: Callable[[], None] | None = None
    ) -> None:
        self.change = change
        self.partitions = frozenset(partitions)
        self._on_finish = on_finish
        self._finished = asyncio.Event()

    async def wait_finished(self) -> None:
        await self._finished.wait()

    def finish(self) -> None:
        if self.commit is not None:
            self.commit.cancel()
        self.break_off()
        if self._on_finish is not None:
            self._on_finish()
        self._finished.set()

    def break_off(self) -> None:
        """Nobody will poll any more: the listener is not waited for, unless it is the one who says so."""
        if self.telling is not None and not self.is_awaited and self.telling is not asyncio.current_task():
            self.telling.cancel()


class GroupRunner:
    def __init__(self, engine: ConsumerEngine, assignors: Sequence[GroupAssignor]) -> None:
        self.engine = engine
        self.settings = engine.settings
        self.steps: deque[RebalanceStep] = deque()
        self.poll_timer = PollTimer(self.settings.max_poll_interval_ms, engine.now_ms())
        self._task: asyncio.Task[None] | None = None
        self._farewell: asyncio.Task[None] | None = None
        """Tells the coordinator that this consumer has unsubscribed."""
        self._last_step: RebalanceStep | None = None
        """The one that no poll carries out, but whoever leaves the group."""
        self._last_words: asyncio.Task[None] | None = None
        """What is done before the group is left, while this consumer has unsubscribed already."""
        self._is_started = False
        self._protocol: ClassicGroup | ConsumerProtocolGroup | None = None
        uses_new = self.settings.uses_consumer_protocol
        if uses_new and assignors:
            raise InvalidConfigError(
                "assignors",
                "assignors are of no use with group.protocol=consumer, where the broker assigns; leave them out, or set"
                " group.protocol=classic. The broker's own are chosen with group.remote.assignor",
            )
        if self.settings.group_id is not None:
            self._protocol = ConsumerProtocolGroup(self) if uses_new else ClassicGroup(self, assignors)
        engine.on_metadata = self._metadata_changed

    # Life

    def start(self) -> None:
        self._is_started = True
        self._run_if_needed()

    def _run_if_needed(self) -> None:
        may_run = self._is_started and self._task is None and self._last_words is None
        if may_run and self._protocol and self.engine.subscription.uses_group:
            self._task = self.engine.spawn(self._protocol.run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        while self.steps:
            self.steps[0].finish()

    def subscription_changed(self) -> None:
        self._match_pattern()
        if self._protocol is not None:
            self._protocol.subscription_changed()
        self._run_if_needed()

    def unsubscribed(self) -> None:
        self.stop()
        if self._protocol is not None and self._is_started:
            farewell = self._protocol.leave("the consumer has unsubscribed")
            self._farewell = self.engine.spawn(self._say_quietly(farewell))

    def unsubscribed_after(self, last_words: Coroutine[Any, Any, None]) -> None:
        """The same when `last_words` are done, until which this consumer is the member it was, and joins no group."""
        self.stop()
        self._last_words = self.engine.spawn(self._leave_after(last_words))

    async def _leave_after(self, last_words: Coroutine[Any, Any, None]) -> None:
        await last_words
        self._last_words = None
        if not self.engine.is_closed:
            self.unsubscribed()
            self._run_if_needed()

    @property
    def is_leaving(self) -> bool:
        return self._last_words is not None

    async def wait_unsubscribed(self, timeout_s: float) -> None:
        if self._last_words is not None and self._last_words is not asyncio.current_task():
            await asyncio.wait({self._last_words}, timeout=timeout_s)

    async def _say_quietly(self, farewell: Awaitable[None]) -> None:
        try:
            await farewell
        except KafkaError as e:
            log.info("the group was left without saying so: %s", e)

    async def leave(self) -> None:
        self.stop()
        if self._farewell is not None:
            await self._farewell
        if self._protocol is not None:
            await self._protocol.leave("the consumer is being closed")

    def membership(self) -> Membership:
        if self._protocol is None or not (self.engine.subscription.uses_group or self._last_words):
            return Membership(self.engine.coordinator.group_id())
        return self._protocol.membership()

    def held(self) -> frozenset[TopicPartition]:
        """What this member may commit."""
        return self._protocol.held() if self._protocol is not None else frozenset()

    def is_joining(self) -> bool:
        return self._protocol is not None and self._protocol.is_joining

    async def refused(self, error: KafkaError) -> None:
        """The coordinator will have nothing of this member. A poll tells why; whoever polls on has it asked again.

        What no other answer can follow is raised, and ends the consumer.
        """
        if is_fatal(error):
            raise error
        await self.engine.refuse(error)
        await asyncio.sleep(self.settings.client.retry_backoff_ms / 1000)

    # Metadata

    def _match_pattern(self) -> bool:
        existing = [
            (topic.name, topic.is_internal)
            for topic in self.engine.metadata.topics.values()
            if not topic.error_code and topic.partitions
        ]
        return self.engine.subscription.match(existing, exclude_internal=self.settings.exclude_internal_topics)

    def _metadata_changed(self) -> None:
        changed = self._match_pattern()
        if self._protocol is not None and self.engine.subscription.uses_group:
            if changed:
                self._protocol.subscription_changed()
            self._protocol.metadata_changed()

    # Steps

    @contextmanager
    def polling(self) -> Iterator[None]:
        self.poll_timer.begin(self.engine.now_ms())
        try:
            yield
        finally:
            self.poll_timer.end(self.engine.now_ms())

    async def step(self, change: Change, partitions: Collection[TopicPartition]) -> None:
        """Waits until a poll has made the change and told the listener."""
        if change is not Change.ASSIGNED and not partitions:
            return
        step = RebalanceStep(change, partitions, lambda: self._finished(step))
        self.steps.append(step)
        self.engine.notify()
        await step.wait_finished()

    def _finished(self, step: RebalanceStep) -> None:
        if step in self.steps:
            self.steps.remove(step)
        if step is self._last_step:
            self._last_step = None
        if step.change is not Change.ASSIGNED:
            self.engine.cursors.remove(step.partitions)

    def partitions_lost(self) -> frozenset[TopicPartition]:
        """What waits for a poll is already gone; returns what the listener is still to be told of."""
        for step in list(self.steps):
            if step.change is Change.REVOKED:
                step.change = Change.LOST
            elif step.change is Change.ASSIGNED and step.partitions.isdisjoint(self.engine.cursors.partitions):
                # No poll has begun with it, so the application has never had them.
                step.finish()
        going = [step.partitions for step in self.steps if step.change is Change.LOST]
        return self.engine.cursors.partitions.difference(*going)

    def before_step(self, step: RebalanceStep) -> None:
        """In the poll that carries the step out."""
        if step.change is Change.ASSIGNED:
            self.engine.cursors.add(step.partitions)
            self.engine.wake()

    def step_before_leaving(self) -> RebalanceStep | None:
        steps = [*self.steps, self._last_step] if self._last_step is not None else self.steps
        # A listener may call for this while it is told of some of them.
        told = [step.partitions for step in steps if step.is_told and step.change is not Change.ASSIGNED]
        held = self.engine.cursors.partitions.difference(*told)
        if not held or not self.engine.subscription.uses_group:
            return None
        change = Change.REVOKED if self.membership().is_member else Change.LOST
        step = RebalanceStep(change, held, lambda: self._finished(step))
        self._last_step = step
        return step
