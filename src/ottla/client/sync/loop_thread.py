"""An event loop in a thread of its own, which other threads hand work to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

import uvloop

from ottla.client.aio.exits import KeptExit, keep_exit
from ottla.client.errors import ClientClosedError
from ottla.client.sync.forks import forget_forks, watch_forks

T = TypeVar("T")


class LoopThread:
    """`on_fork` is called in a child process, where the thread does not exist: the owner must become unusable there."""

    def __init__(self, name: str, on_fork: Callable[[], None]) -> None:
        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._on_fork = on_fork
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        watch_forks(self)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    @property
    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Runs `work` in the loop and waits for it. An exit that it ends with is the caller's, and not the loop's."""
        future: Future[T] = asyncio.run_coroutine_threadsafe(keep_exit(work), self.loop)
        try:
            return future.result(timeout_s)
        except CancelledError:
            raise ClientClosedError("the client was closed while this call waited") from None
        except KeptExit as e:
            raise e.exit from None
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
        if not self.is_current:
            self._thread.join()
        forget_forks(self)

    def forked(self) -> None:
        self._on_fork()
