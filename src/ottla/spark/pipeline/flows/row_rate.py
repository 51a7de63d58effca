"""How many rows a second a flow has handled of late: over a window of time, whatever its batches are like. Pure."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

WINDOW_MS = 10_000


class _Batch(NamedTuple):
    begin_ms: int
    end_ms: int
    rows: int

    def rows_since(self, since_ms: int) -> float:
        """The rows of a batch are spread evenly over the time it took."""
        if self.begin_ms >= since_ms:
            return self.rows
        return self.rows * max(self.end_ms - since_ms, 0) / max(self.end_ms - self.begin_ms, 1)


class RowRate:
    def __init__(self, window_ms: int = WINDOW_MS) -> None:
        self._window_ms = window_ms
        self._batches: deque[_Batch] = deque()
        self._first_ms: int | None = None

    def add(self, rows: int, *, begin_ms: int, end_ms: int) -> None:
        if self._first_ms is None:
            self._first_ms = begin_ms
        self._batches.append(_Batch(begin_ms, max(begin_ms, end_ms), rows))

    def per_second(self, now_ms: int) -> float:
        """Zero when nothing was handled in the window. At first the window is as long as there were batches."""
        since_ms = now_ms - self._window_ms
        while self._batches and self._batches[0].end_ms <= since_ms:
            self._batches.popleft()
        if self._first_ms is None:
            return 0.0
        length_ms = max(now_ms - max(since_ms, self._first_ms), 1)
        return sum(batch.rows_since(since_ms) for batch in self._batches) * 1000 / length_ms
