"""Slows down whoever reads and writes for compaction, to so many bytes per second."""

from __future__ import annotations

import time
from collections.abc import Callable

_NO_LIMIT = 2.0**63
_SLEEP_S_MAX = 0.5


class Throttle:
    """May be shared by threads: then they are slowed down together."""

    def __init__(
        self, bytes_per_second: Callable[[], float], is_called_off: Callable[[], bool] = lambda: False
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._is_called_off = is_called_off
        self._used_until_s = 0.0

    def __call__(self, byte_count: int) -> None:
        rate = self._bytes_per_second()
        if rate >= _NO_LIMIT:
            return
        self._used_until_s = max(self._used_until_s, time.monotonic()) + byte_count / max(rate, 1.0)
        while (wait_s := self._used_until_s - time.monotonic()) > 0 and not self._is_called_off():
            time.sleep(min(wait_s, _SLEEP_S_MAX))
