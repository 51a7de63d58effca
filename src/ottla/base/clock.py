"""Where time comes from. Everything that needs the time takes a Clock (or `now_ms`), so tests can own it."""

from __future__ import annotations

import time
from typing import Protocol

_ADJUST_MS = 1_000


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


class SteadyClock:
    """A clock without the jumps of another one's wall clock, which it follows by running up to 5 % faster or slower.

    For time-outs that are counted from a stored time: somebody who sets the clock must not make them all expire.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wall_ms = clock.wall_ms()
        self._at_ms = clock.monotonic_ms()

    def wall_ms(self) -> int:
        passed_ms = self._clock.monotonic_ms() - self._at_ms
        now_ms = self._wall_ms + passed_ms
        if passed_ms >= _ADJUST_MS:
            change_ms = min(max(self._clock.wall_ms() - now_ms, -passed_ms // 20), passed_ms // 20)
            self._wall_ms, self._at_ms = now_ms + change_ms, self._at_ms + passed_ms
            return self._wall_ms
        return now_ms

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()


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
