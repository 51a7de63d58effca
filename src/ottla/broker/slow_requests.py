"""What took long: requests, and moments in which the whole broker stood still. A few lines of it per period.

Requests that take the short ways are not timed. If one of them is slow, because a disk is, all others wait for it, and
the watch on the event loop sees that.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.net.limits import ComplaintBudget
from ottla.wire.api_keys import ApiKey

if TYPE_CHECKING:
    from ottla.broker.handler import RequestContext

log = logging.getLogger(__name__)

WORTH_A_LOOK_NS = 1_000_000
"""No threshold is shorter, so most requests need not ask for it."""
_WAITS_ON_PURPOSE = frozenset({ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
_WATCH_INTERVAL_S = 0.5


class SlowRequests:
    """`threshold_ms` is asked each time, because it can change while the broker runs; 0 turns everything off."""

    def __init__(self, threshold_ms: Callable[[], int]) -> None:
        self._threshold_ms = threshold_ms
        self._complaints = ComplaintBudget()

    def answered(self, context: RequestContext, elapsed_ns: int) -> None:
        if context.api_key not in _WAITS_ON_PURPOSE and self._is_slow(elapsed_ns / 1e6):
            self._say(
                "%s version %d of client %s at %s took %d ms",
                ApiKey(context.api_key).name,
                context.version,
                context.client_id,
                context.connection.peer_host,
                round(elapsed_ns / 1e6),
            )

    async def watch_event_loop(self) -> None:
        while True:
            due_s = time.monotonic() + _WATCH_INTERVAL_S
            await asyncio.sleep(_WATCH_INTERVAL_S)
            late_ms = (time.monotonic() - due_s) * 1000
            if self._is_slow(late_ms):
                self._say("the broker stood still for %d ms and answered nobody", round(late_ms))

    def _is_slow(self, elapsed_ms: float) -> bool:
        threshold_ms = self._threshold_ms()
        return 0 < threshold_ms <= elapsed_ms

    def _say(self, message: str, *arguments: object) -> None:
        if self._complaints.allow(time.monotonic()):
            held_back = self._complaints.take_suppressed()
            log.warning(message + (f" ({held_back} like it not shown)" if held_back else ""), *arguments)
