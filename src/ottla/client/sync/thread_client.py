"""Clients whose event loop has a thread of its own: how calls get there, and how all of it begins and ends."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from ottla.client.sync.client_life import ClientLife
from ottla.client.sync.loop_thread import LoopThread

T = TypeVar("T")


class InThread:
    _thread: LoopThread

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.call(work)


class _Startable(Protocol):
    async def start(self) -> object: ...

    async def close(self) -> None: ...


class ThreadClient(InThread, ClientLife):
    """A client with another one inside, which is made first. Any thread may use it."""

    _inner: _Startable

    def _begin(self) -> None:
        self._thread = LoopThread(f"ottla-{self._what.split()[0]}", self._forked)
        try:
            self._thread.call(self._inner.start())
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        if self._is_closed or self._is_forked:
            return
        self._is_closed = True
        try:
            self._thread.call(self._inner.close())
        finally:
            self._thread.stop()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.call(self._if_usable(work))
