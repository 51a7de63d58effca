"""A clock for code that waits by `time.sleep`: it moves only when somebody sleeps."""

from __future__ import annotations


class SleepingClock:
    """Takes the place of a module's `time`."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.sleeps: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.sleeps.append(seconds)
