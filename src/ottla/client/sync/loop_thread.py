"""An event loop in a thread of its own, which other threads hand work to."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, wait
from typing import Any, TypeVar

import uvloop

from ottla.client.errors import ConcurrentUseError
from ottla.client.interrupts.exits import EXITS, KeptExit, keep_exit
from ottla.client.interrupts.forks import forget_forks, watch_forks
from ottla.client.sync.shared_loop import cancel_the_rest, closed_meanwhile

T = TypeVar("T")

log = logging.getLogger(__name__)

_UNWIND_S = 5.0
"""How long a call that is given up waits until its work has stopped: at once, unless a callback blocks the loop."""


class LoopThread:
    """`on_fork` is called in a child process, where the thread does not exist: the owner must become unusable there."""

    def __init__(self, name: str, on_fork: Callable[[], None]) -> None:
        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._on_fork = on_fork
        self._handing_over = threading.Lock()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        watch_forks(self)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            while not self._is_stopping:
                try:
                    self.loop.run_forever()
                except EXITS:
                    # Of a callback. As in any thread it does not end the process; and others need this one.
                    log.exception("a callback wanted to end the process, which only the main thread can")
        finally:
            self.loop.run_until_complete(cancel_the_rest())
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    @property
    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Runs `work` in the loop and waits for it. An exit that it ends with is the caller's, and not the loop's.

        If it is not waited for to its end, `work` is cancelled, and over when this raises: what comes next finds the
        state that it left behind.
        """
        if self.is_current:
            work.close()
            raise ConcurrentUseError(
                "a callback must not wait for the client that calls it, whose thread it runs in; use another thread"
            )
        outcome: Future[T] = Future()
        tasks: list[asyncio.Task[T]] = []

        def begin() -> None:
            tasks.append(self.loop.create_task(keep_exit(work)))
            tasks[0].add_done_callback(end)

        def end(task: asyncio.Task[T]) -> None:
            # If it was cancelled before it began, nobody has waited for it.
            work.close()
            _tell(task, outcome)

        with self._handing_over:
            if self._is_stopping:
                work.close()
                raise closed_meanwhile()
            self.loop.call_soon_threadsafe(begin)
        try:
            return outcome.result(timeout_s)
        except CancelledError:
            raise closed_meanwhile() from None
        except KeptExit as e:
            raise e.exit from None
        except BaseException:
            if not outcome.done() and self._hand_over(lambda: tasks[0].cancel()):
                wait([outcome], _UNWIND_S)
            raise

    def _hand_over(self, step: Callable[[], object]) -> bool:
        with self._handing_over:
            if not self._is_stopping:
                self.loop.call_soon_threadsafe(step)
            return not self._is_stopping

    def stop(self) -> None:
        """Whatever is still at work in the loop is cancelled; whoever waits for it is told so."""
        with self._handing_over:
            if not self._is_stopping:
                self._is_stopping = True
                self.loop.call_soon_threadsafe(self.loop.stop)
        if not self.is_current:
            self._thread.join()
        forget_forks(self)

    def forked(self) -> None:
        self._on_fork()


def _tell(task: asyncio.Task[T], outcome: Future[T]) -> None:
    if task.cancelled():
        outcome.set_exception(CancelledError())
    elif (error := task.exception()) is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(task.result())
