"""What every family of administrative calls has: the client for asyncio, in a thread of its own."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, Self, TypeVar

from ottla.client.aio.admin import Admin as AsyncAdmin
from ottla.client.errors import ClientClosedError, ForkedError
from ottla.client.sync.loop_thread import LoopThread

T = TypeVar("T")


class AdminCalls:
    def __init__(self, config: Mapping[str, object] | None = None, **settings: object) -> None:
        self._inner = AsyncAdmin(config, **settings)
        self.settings = self._inner.settings
        self._is_forked = False
        self._is_closed = False
        self._thread = LoopThread("ottla-admin", self._forked)
        try:
            self._thread.call(self._inner.start())
        except BaseException:
            self._is_closed = True
            self._thread.stop()
            raise

    def _forked(self) -> None:
        self._is_forked = True

    # Life

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections. Closing twice is harmless."""
        if self._is_closed or self._is_forked:
            return
        self._is_closed = True
        try:
            self._thread.call(self._inner.close())
        finally:
            self._thread.stop()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        if self._is_forked or self._is_closed:
            work.close()
            if self._is_forked:
                raise ForkedError("this admin client was made before the process forked; make a new one in the child")
            raise ClientClosedError("this admin client is closed; make another one")
        return self._thread.call(work)
