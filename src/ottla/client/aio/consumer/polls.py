"""What happens in a poll: rebalances first, then what was fetched, as records or as it came.

For both kinds of shells: a step of a rebalance is handed back, because the listener is told in another way by each.
Every method is for the thread of the event loop, except where it says otherwise.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Iterator, Sequence
from typing import Generic, cast

from ottla.client.aio.consumer.commits import Commits
from ottla.client.aio.consumer.engine import ConsumerEngine
from ottla.client.aio.group.runner import GroupRunner, RebalanceStep
from ottla.client.core.consumer.fetched_data import AwaitedRecord
from ottla.client.core.consumer.handout import ClaimedData
from ottla.client.core.consumer.record import AnyRecord, ConsumerRecord, K, V
from ottla.client.core.group.rebalance import Change, ConsumerInterceptor, RebalanceListener
from ottla.client.errors import ConcurrentUseError

log = logging.getLogger(__name__)

_COMMIT_PAUSE_S = 0.05
"""How often at most a poll that waits looks whether a commit is due: auto.commit.interval.ms may be 0."""


class Polls(Generic[K, V]):
    def __init__(
        self,
        engine: ConsumerEngine,
        group: GroupRunner,
        commits: Commits,
        interceptors: Sequence[ConsumerInterceptor],
    ) -> None:
        self.listener: RebalanceListener | None = None
        self._engine = engine
        self._group = group
        self._commits = commits
        self._interceptors = interceptors

    async def next_records(self, timeout_s: float, records_max: int) -> list[ConsumerRecord[K, V]] | RebalanceStep:
        """The records of a poll, or something the listener has to be told before it can go on."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while True:
            step = await self._wait(deadline_s - loop.time())
            if step is not None:
                return step
            records = [] if self._group.steps else self._take(records_max)
            # What came may all have been hidden: markers, and what was aborted.
            if records or loop.time() >= deadline_s:
                return self._intercepted(records)
            if self._is_awaiting():
                with self._group.polling():
                    await self._engine.wait_for_news(deadline_s - loop.time())

    async def next_claim(self, timeout_s: float, bytes_max: int) -> list[ClaimedData] | RebalanceStep:
        """The same for whoever decodes columns: what was fetched, or nothing if nothing came in time."""
        step = await self._wait(timeout_s)
        if step is not None:
            return step
        claimed = [] if self._group.steps else self._engine.handout.claim(bytes_max)
        self._engine.taken()
        return claimed

    # Without the event loop

    def take_if_quiet(self, records_max: int) -> list[ConsumerRecord[K, V]]:
        """What is decoded already, unless a poll has something else to do first. For the thread that polls."""
        if not self._is_quiet():
            return []
        return self._intercepted(self._engine.handout.take_decoded(records_max))

    def receive_records(self, records_max: int, deadline_s: float) -> list[ConsumerRecord[K, V]]:
        """What has come, or comes before the deadline, unless a poll has something else to do first."""
        if not self._has_received(deadline_s):
            return []
        return self._intercepted(self._take(records_max))

    def receive_claim(self, bytes_max: int, deadline_s: float) -> list[ClaimedData]:
        if not self._has_received(deadline_s):
            return []
        claimed = self._engine.handout.claim(bytes_max)
        self._engine.taken()
        return claimed

    def _has_received(self, deadline_s: float) -> bool:
        handout = self._engine.handout
        while self._is_quiet():
            if handout.has_records():
                return True
            if not self._engine.receive_now(deadline_s - time.monotonic()):
                return False
        return False

    def _is_quiet(self) -> bool:
        engine = self._engine
        now_ms = engine.now_ms()
        if self._group.steps or engine.failure or engine.has_refusal or now_ms >= self._commits.due_ms:
            return False
        self._group.poll_timer.touch(now_ms)
        return True

    # Deserializers that have to ask somebody

    def _take(self, records_max: int) -> list[AnyRecord]:
        try:
            return self._engine.take(records_max)
        finally:
            awaited = self._engine.convert.awaited
            if awaited is not None and not awaited.is_begun:
                awaited.is_begun = True
                self._engine.spawn(self._run(awaited))
            self._engine.taken()

    async def _run(self, awaited: AwaitedRecord) -> None:
        await asyncio.to_thread(awaited.run)
        self._engine.notify()

    def _is_awaiting(self) -> bool:
        awaited = self._engine.convert.awaited
        return awaited is not None and not awaited.is_done

    # A poll that somebody interrupts

    def begin(self) -> bool:
        """True if `give_back_unread` has to be called first. For the thread that polls."""
        return self._engine.handout.begin_poll()

    def one_by_one(self, records: list[ConsumerRecord[K, V]]) -> Iterator[ConsumerRecord[K, V]]:
        """Of the poll that has just ended, for whoever may stop in the middle. For the thread that polls."""
        return cast("Iterator[ConsumerRecord[K, V]]", self._engine.handout.one_by_one(records))

    def give_back_unread(self) -> None:
        """What was left when somebody stopped comes again."""
        self._engine.handout.give_back_unread()
        self._engine.wake()

    def give_back(self) -> None:
        """What was taken since `begin` did not reach the application, so it is read again."""
        self._engine.handout.give_back()
        self._engine.wake()

    async def _wait(self, timeout_s: float) -> RebalanceStep | None:
        """Until there are records to take, or nothing has come in time; a step has to be told to the listener first.

        While there are steps nothing may be taken: partitions that are about to go have been committed as they are.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        with self._group.polling():
            while True:
                if self._engine.failure is not None:
                    raise self._engine.failure.with_traceback(None)
                self._engine.check_open()
                if (refusal := self._engine.take_refusal()) is not None:
                    raise refusal
                if self._group.steps:
                    # It stays first in line until it is finished: this poll may be cancelled before that.
                    step = self._group.steps[0]
                    is_committed = await self._commit_before(step, deadline_s - loop.time())
                    if not is_committed:
                        return None
                    self._group.before_step(step)
                    return step
                self._commits.begin_if_due()
                if self._engine.handout.has_records():
                    return None
                left_s = deadline_s - loop.time()
                if left_s <= 0:
                    # With no time to wait, others in the loop still have to get their turn.
                    await asyncio.sleep(0)
                    return None
                await self._engine.wait_for_news(min(left_s, max(self._commits.due_s(), _COMMIT_PAUSE_S)))

    async def _commit_before(self, step: RebalanceStep, timeout_s: float) -> bool:
        """Whether the listener may be told; if not, the commit goes on, and the next poll looks again."""
        if step.change is not Change.REVOKED:
            return True
        if step.commit is None:
            # The others wait for these partitions, and whoever is too late has lost them all.
            settings = self._engine.settings
            timeout_ms = min(settings.api_timeout_ms, settings.max_poll_interval_ms)
            step.commit = self._commits.begin_last(timeout_ms, step.partitions)
        if step.commit is not None:
            await asyncio.wait({step.commit}, timeout=max(0.0, timeout_s))
        return step.commit is None or step.commit.done()

    def _intercepted(self, records: list[AnyRecord]) -> list[ConsumerRecord[K, V]]:
        if records:
            for interceptor in self._interceptors:
                try:
                    # It may have changed the list before it fails, or have forgotten to return it.
                    records = list(interceptor.on_consume(list(records)))
                except Exception:
                    log.exception("the interceptor %r failed, and the records pass it by", interceptor)
        return cast("list[ConsumerRecord[K, V]]", records)

    # Listeners

    async def tell_listener_in_poll(self, step: RebalanceStep) -> None:
        """A poll may be cancelled at any time, but the listener is not: the next poll waits for it to come to its end.

        What it was to do, such as to seek where reading shall begin, would otherwise be left undone.
        """
        if step.telling is None:
            try:
                called = self.call_listener(step)
            except BaseException:
                step.finish()
                raise
            if not inspect.isawaitable(called):
                step.finish()
                return
            step.telling = asyncio.ensure_future(called)
        if step.telling is asyncio.current_task():
            raise ConcurrentUseError("a listener must not poll the consumer that it is told of")
        step.is_awaited = True
        try:
            await asyncio.shield(step.telling)
        finally:
            step.is_awaited = False
            if step.telling.done():
                step.finish()

    async def tell_listener(self, step: RebalanceStep, listener: RebalanceListener | None = None) -> None:
        try:
            called = self.call_listener(step, listener)
            if inspect.isawaitable(called):
                await called
        finally:
            step.finish()

    def call_listener(self, step: RebalanceStep, listener: RebalanceListener | None = None) -> object:
        """What the listener returns: an awaitable if it is one for asyncio. In the thread that polls."""
        listener = listener or self.listener
        step.is_told = True
        if listener is None or (step.change is not Change.ASSIGNED and not step.partitions):
            return None
        call = {
            Change.REVOKED: listener.on_revoked,
            Change.ASSIGNED: listener.on_assigned,
            Change.LOST: listener.on_lost,
        }[step.change]
        return call(step.partitions)
