"""Where time comes from. Everything that needs the time takes a Clock (or `now_ms`), so tests can own it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Milliseconds since the epoch: for timestamps that are stored or shown."""

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back: for time-outs."""


class SystemClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = now_ms
        self._monotonic_ms = 0

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, ms: int) -> None:
        given: object = ms
        if not isinstance(given, int) or given < 0:
            raise ValueError(f"a clock goes forward by whole milliseconds, but was told to by {ms!r}")
        self._wall_ms += ms
        self._monotonic_ms += ms
