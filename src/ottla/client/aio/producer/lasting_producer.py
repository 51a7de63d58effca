"""A producer that outlives its failures, for those who cannot ask anybody to make another one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ottla.client.aio.producer.producer import Producer
from ottla.client.core.settings import backoff_ms
from ottla.client.errors import ClientClosedError

log = logging.getLogger(__name__)

_FIRST_PAUSE_MS = 500
_LONGEST_PAUSE_MS = 30_000


class LastingProducer:
    """Makes a producer when it is first needed, and another one when that has failed for good."""

    def __init__(self, make: Callable[[], Producer]) -> None:
        self._make = make
        self._producer: Producer | None = None
        self._changes = asyncio.Lock()
        self._replacements = 0
        self._replaced_ms = 0
        self._is_closed = False

    async def get(self) -> Producer:
        """The one to use now. Where one after the other fails, it is the last, which answers with its error."""
        if self._producer is None or self._producer._has_failed:
            async with self._changes:
                if self._is_closed:
                    raise ClientClosedError("the producer is closed")
                if self._producer is None:
                    self._producer = await self._make().start()
                elif self._producer._has_failed and self._may_replace():
                    self._producer = await self._successor(self._producer)
        return self._producer

    def _may_replace(self) -> bool:
        """The first time at once; if that did not help, after pauses: every record would make a producer otherwise."""
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        past_ms = now_ms - self._replaced_ms
        if past_ms > _LONGEST_PAUSE_MS:
            self._replacements = 0
        if past_ms < backoff_ms(self._replacements, _FIRST_PAUSE_MS, _LONGEST_PAUSE_MS):
            return False
        self._replacements += 1
        self._replaced_ms = now_ms
        return True

    async def _successor(self, failed: Producer) -> Producer:
        producer = await self._make().start()
        log.warning("a producer that had failed for good has been replaced")
        await failed.close()
        return producer

    async def close(self, timeout: float | None = None) -> None:
        """Sends what is left, for up to `timeout` seconds. Closing twice is harmless."""
        self._is_closed = True
        async with self._changes:
            if self._producer is not None:
                await self._producer.close(timeout)
