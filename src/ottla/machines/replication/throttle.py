"""How fast throttled replicas are copied (KIP-73): how many bytes may pass now, and after how long more may."""

from __future__ import annotations

_PORTION_MS = 100
"""What may pass is given out in portions of so much time, or every few bytes would be a request of their own."""


class CopyRate:
    """Bytes are earned with time and spent by copying. After a rest there is at most `burst_ms` worth of them: who did
    not copy for a while may not catch up on it. A fetch may spend more than there is, and the next waits for it."""

    def __init__(self, burst_ms: int) -> None:
        self._burst_ms = burst_ms
        self._spent = 0.0
        """What is missing to the burst."""
        self._at_ms = 0

    def record(self, count: int, limit: int, now_ms: int) -> None:
        self._earn(limit, now_ms)
        self._spent += count

    def room(self, limit: int, now_ms: int) -> int:
        """How many bytes may pass now: none, or a portion that is worth a request."""
        self._earn(limit, now_ms)
        free = int(limit * self._burst_ms / 1000 - self._spent)
        return free if free >= _portion(limit) else 0

    def wait_ms(self, limit: int, now_ms: int) -> int:
        """After how long there is room again."""
        self._earn(limit, now_ms)
        missing = _portion(limit) - (limit * self._burst_ms / 1000 - self._spent)
        return max(int(missing * 1000 / max(limit, 1)) + 1, 1)

    def _earn(self, limit: int, now_ms: int) -> None:
        self._spent = max(self._spent - limit * (now_ms - self._at_ms) / 1000, 0.0)
        self._at_ms = now_ms


def _portion(limit: int) -> int:
    return max(limit * _PORTION_MS // 1000, 1)
