"""An event loop that is run by the thread that waits for something in it, and by a thread of its own while none does.

A thread that decodes records and another that receives them would only take the interpreter from each other, and pass
what one has just touched to the other's processor. So a call does its own input and output. Between calls the loop
rests for a moment, because the next call is usually near; then its own thread takes over, which fetches ahead and
sends heartbeats.
"""

from __future__ import annotations

import asyncio
import os
import select
import selectors
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from contextlib import suppress
from enum import Enum
from typing import Any, TypeVar

from ottla.client.errors import ClientClosedError, ConcurrentUseError
from ottla.client.interrupts.forks import forget_forks, watch_forks
from ottla.client.interrupts.held_signals import HeldSignals

T = TypeVar("T")

_REST_S = 0.02
"""How long the loop's own thread leaves the loop to the callers after the last call."""

_UNRUN_S = 0.005
"""For how long calls may do without running the loop, which has more to do than they know of."""


class _Runner(Enum):
    NOBODY = "the loop rests"
    CALLER = "a thread that waits for its call"
    KEEPER = "the thread of the loop"


class SharedLoop:
    """`on_fork` is called in a child process, where the thread does not exist: the owner must become unusable there."""

    def __init__(self, name: str, on_fork: Callable[[], None]) -> None:
        # Not uvloop: it would watch for signals anew in each call, and receives large replies in smaller pieces.
        self._selector = selectors.DefaultSelector()
        self.loop: asyncio.AbstractEventLoop = asyncio.SelectorEventLoop(self._selector)
        self._on_fork = on_fork
        self._changed = threading.Condition()
        self._runner = _Runner.NOBODY
        self._holder: int | None = None
        """The caller that has the loop, running or not."""
        self._calls = 0
        """How often a caller has begun to run the loop."""
        self._waiting = 0
        """Callers that cannot run the loop themselves, and for whom somebody has to."""
        self._keeper_waits_for_news = False
        self._is_stopping = False
        self._run_before_s = 0.0
        """When the loop has to be run again at the latest."""
        self._keeper = threading.Thread(target=self._keep, name=name, daemon=True)
        self._keeper.start()
        watch_forks(self)

    def forked(self) -> None:
        if isinstance(self._selector, selectors.EpollSelector):
            # What parent and child both have is one and the same. The loop's end in the child would take descriptors
            # out of it that the parent waits for.
            with select.epoll() as own:
                os.dup2(own.fileno(), self._selector.fileno(), inheritable=False)
        self._on_fork()

    # Calls

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs `work` in the loop and waits for it."""
        try:
            self.check_outside()
        except ConcurrentUseError:
            work.close()
            raise
        # A thread can run one loop only: in a coroutine or a notebook there is one already.
        if asyncio._get_running_loop() is not None or not self._take():
            return self._wait_for(work)
        task: asyncio.Task[T] | None = None
        held = HeldSignals(self._stop_running)
        try:
            while True:
                try:
                    with held:
                        task = task or self._begin(work)
                        self._run_until_done(task)
                finally:
                    self._leave()
                # With the loop left: a handler may close the client.
                held.deliver()
                if task.done():
                    return _result(task)
                if not self._take():
                    return self._wait_for(_outcome(task))
        except BaseException:
            if task is not None and not task.done():
                # If the loop has been closed meanwhile, everything in it was cancelled before.
                with suppress(RuntimeError):
                    self.loop.call_soon_threadsafe(task.cancel)
            raise

    def check_outside(self) -> None:
        """Refuses what waits for the loop in the thread that has it, where it would wait for itself."""
        if asyncio._get_running_loop() is self.loop or self._holder == threading.get_ident():
            raise ConcurrentUseError("a callback of the consumer must not wait for the consumer; use its result later")

    def try_without_running(self, work: Callable[[float], T]) -> T | None:
        """What `work` gives, with the loop held and not running; None if somebody runs it, or if its turn has come.

        For what takes less time than the loop's own rounds would, and can be had in the loop if not here. `work` is
        told until when it may wait.
        """
        if asyncio._get_running_loop() is not None or time.monotonic() >= self._run_before_s:
            return None
        held = HeldSignals()
        try:
            with held:
                if not self._take_at_rest():
                    return None
                try:
                    return work(self._run_before_s)
                finally:
                    self._leave()
        finally:
            held.deliver()

    def _begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = self.loop.create_task(work)
        task.add_done_callback(lambda _: self.loop.stop())
        return task

    def _run_until_done(self, task: asyncio.Task[T]) -> None:
        if not task.done():
            self.loop.run_forever()
        self._run_before_s = time.monotonic() + _UNRUN_S

    def _stop_running(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        with self._changed:
            if self._is_stopping:
                work.close()
                raise closed_meanwhile()
            self._waiting += 1
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
            self._changed.notify_all()
        try:
            return future.result()
        except CancelledError:
            raise closed_meanwhile() from None
        except BaseException:
            future.cancel()
            raise
        finally:
            with self._changed:
                self._waiting -= 1

    # Whose turn it is

    def _take(self) -> bool:
        """Whether this thread may run the loop now. Its own thread gives it up, another caller does not."""
        with self._changed:
            while self._runner is _Runner.KEEPER:
                self._stop_running()
                self._changed.wait()
            if self._runner is _Runner.CALLER or self._is_stopping:
                return False
            return self._taken()

    def _take_at_rest(self) -> bool:
        with self._changed:
            if self._runner is not _Runner.NOBODY or self._is_stopping:
                return False
            return self._taken()

    def _taken(self) -> bool:
        self._runner = _Runner.CALLER
        self._holder = threading.get_ident()
        self._calls += 1
        return True

    def _leave(self) -> None:
        with self._changed:
            self._runner = _Runner.NOBODY
            self._holder = None
            # To wake it after every call would cost more than the call.
            if self._waiting or self._keeper_waits_for_news:
                self._changed.notify_all()

    def _keep(self) -> None:
        with self._changed:
            while not self._is_stopping:
                if not self._is_due():
                    continue
                self._runner = _Runner.KEEPER
                self._changed.release()
                try:
                    self.loop.run_forever()
                finally:
                    self._changed.acquire()
                    self._runner = _Runner.NOBODY
                    self._changed.notify_all()
            self._keeper_waits_for_news = True
            while self._runner is _Runner.CALLER:
                self._changed.wait()
        for last in (cancel_the_rest(), self.loop.shutdown_asyncgens()):
            task = self._begin(last)
            while not task.done():
                # Calls that were broken off, and end only now, stop the loop as well.
                self.loop.run_forever()
        self.loop.close()

    def _is_due(self) -> bool:
        """Waits a moment; whether the loop has rested for all of it, or somebody waits who cannot run it."""
        calls = self._calls
        if not self._waiting:
            self._changed.wait(_REST_S)
        if self._runner is _Runner.CALLER:
            if self._calls == calls and not self._is_stopping:
                # A long call: the loop is being run until it ends.
                self._keeper_waits_for_news = True
                self._changed.wait()
                self._keeper_waits_for_news = False
            return False
        return not self._is_stopping and (self._waiting > 0 or self._calls == calls)

    # The end

    def stop(self) -> None:
        """Whatever is still at work in the loop is cancelled; whoever waits for it is told so."""
        with self._changed:
            self._is_stopping = True
            if self._runner is not _Runner.NOBODY:
                self._stop_running()
            self._changed.notify_all()
        if threading.current_thread() is not self._keeper:
            self._keeper.join()
        forget_forks(self)


def _result(task: asyncio.Task[T]) -> T:
    try:
        return task.result()
    except asyncio.CancelledError:
        raise closed_meanwhile() from None


async def _outcome(task: asyncio.Task[T]) -> T:
    return await task


async def cancel_the_rest() -> None:
    """For a loop that ends: whoever waits for something in it is told, and not left waiting."""
    # What was handed over last has no task yet.
    await asyncio.sleep(0)
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


def closed_meanwhile() -> ClientClosedError:
    return ClientClosedError("the client was closed while this call waited")
