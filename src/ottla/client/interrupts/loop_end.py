"""A producer that nobody has closed when its event loop ends, or the interpreter: what it holds is sent, or said to be
lost."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection

from ottla.client.core.producer.batch import Batch

log = logging.getLogger(__name__)

LAST_S = 5.0
"""For how long the end is held up for what is left."""


class LoopEnd:
    """Calls `close` at the end of the event loop, unless it was forgotten before.

    It is an asynchronous generator, for those are ended when all tasks are over, and nobody can send or close any more.
    A task would be cancelled together with those that still want to.
    """

    def __init__(self, close: Callable[[], Awaitable[None]]) -> None:
        self._close = close
        self._waiting: AsyncGenerator[None, None] | None = None

    async def watch(self) -> None:
        self._waiting = self._wait()
        await anext(self._waiting)

    async def _wait(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            waiting, self._waiting = self._waiting, None
            if waiting is not None:
                await self._close()

    async def forget(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            await waiting.aclose()


def warn_of_lost(left: Collection[Batch], what_ended: str) -> None:
    """`left` is what was not stored yet when the end began."""
    lost = sum(batch.record_count for batch in left if not batch.done or batch.error is not None)
    if lost:
        log.warning("records not sent, because %s ended before the producer was closed: %d", what_ended, lost)
