"""Threads for the handlers that are no coroutines.

They are daemons: a process waits for all others before it ends, also for those of a ThreadPoolExecutor, and a handler
that hangs would keep it alive for ever.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")


_Call: TypeAlias = tuple[Callable[[], Any], Future[Any]]


class HandlerThreads:
    """At most `count` of them, each made when a call finds no other that is free."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._threads: list[threading.Thread] = []
        self._free = threading.Semaphore(0)
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()

    def run(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Calls it in one of the threads. Cancelling the future does not end a call that has begun."""
        future: Future[T] = Future()
        self._calls.put((function, future))
        if not self._free.acquire(blocking=False) and len(self._threads) < self._count:
            thread = threading.Thread(target=self._work, name=f"ottla-handler-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return asyncio.wrap_future(future)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            _make(*call)
            # Its record must not stay in memory while this thread waits for another.
            del call
            self._free.release()

    def close(self) -> None:
        """Ends those that are free now, and the others once their calls have ended."""
        for _ in self._threads:
            self._calls.put(None)


def _make(function: Callable[[], Any], future: Future[Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(function())
    except BaseException as e:
        future.set_exception(_as_result(e))
        # The traceback holds this frame, which must not hold the error in turn: its record would stay in memory.
        del future


def _as_result(error: BaseException) -> BaseException:
    """An asyncio future does not take StopIteration, and whoever waits would never hear of the end. Python itself does
    the same with one that leaves a coroutine (PEP 479)."""
    if not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError("the handler raised StopIteration")
    wrapped.__cause__ = error
    return wrapped
