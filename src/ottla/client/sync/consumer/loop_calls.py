"""How calls of a consumer for threads get into the loop that the calling thread runs; how it begins and ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar

from ottla.client.aio.consumer.consumer import Consumer as AsyncConsumer
from ottla.client.aio.group.runner import RebalanceStep
from ottla.client.core.consumer.record import K, V
from ottla.client.core.timeouts import seconds
from ottla.client.sync.client_life import ClientLife
from ottla.client.sync.shared_loop import SharedLoop

T = TypeVar("T")


class LoopCalls(ClientLife, Generic[K, V]):
    _what = "consumer"
    _inner: AsyncConsumer[K, V]

    # Life

    def _begin(self) -> None:
        self.settings = self._inner.settings
        self._polling = threading.Lock()
        self._is_closing = False
        """The listener may still commit then."""
        self._loop = SharedLoop("ottla-consumer", self._forked)
        try:
            self._loop.call(self._inner.start())
        except BaseException:
            self._is_closing = self._is_closed = True
            self._loop.call(self._inner.close(0))
            self._loop.stop()
            raise

    def _close(self, timeout: float | None) -> None:
        deadline_s = time.monotonic() + seconds(timeout)
        if self._is_closing or self._is_forked:
            return
        self._loop.check_outside()
        self._is_closing = True
        try:
            step = self._begin_closing(deadline_s)
            try:
                if step is not None:
                    self._tell_listener(step)
            finally:
                self._is_closed = True
                self._loop.call(self._inner._finish_closing(deadline_s))
        finally:
            self._is_closed = True
            self._loop.stop()

    def _begin_closing(self, deadline_s: float) -> RebalanceStep | None:
        try:
            return self._loop.call(self._inner._begin_closing(deadline_s))
        except BaseException:
            # Ctrl-C: nobody wants to wait any longer, but the group is to know, and connections are closed.
            self._is_closed = True
            self._loop.call(self._inner._finish_closing(0.0))
            raise

    # Calls

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.call(self._if_usable(work))

    def _do(self, work: Callable[[], T]) -> T:
        """Runs what does not wait in the loop, where nobody else touches what it does."""

        async def run() -> T:
            return work()

        return self._call(run())

    def _tell_listener(self, step: RebalanceStep) -> None:
        try:
            called = self._inner._polls.call_listener(step)
            if isinstance(called, Coroutine):
                called.close()
                raise TypeError("a listener of the sync consumer must not have coroutines; use ottla.aio.Consumer")
        finally:
            # The listener may have closed the consumer, which the next call says.
            with suppress(RuntimeError):
                self._loop.loop.call_soon_threadsafe(step.finish)
            # Partitions that go must be gone before the next records are taken.
            self._loop.call(step.wait_finished())
