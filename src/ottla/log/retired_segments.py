"""Segments that are no longer part of their log, until their files may go: somebody may still be reading them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from ottla.log.segment import Segment


class RetiredSegments:
    """Segments are added by the thread that appends to the log, and removed by any."""

    def __init__(self, on_added: Callable[[], None]) -> None:
        self._on_added = on_added
        self._lock = threading.Lock()
        self._waiting: list[tuple[Segment, int | None]] = []
        """Each with the time from which its delay is counted, once that has begun."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, segments: Iterable[Segment]) -> None:
        """Give the files another name; whoever holds them can go on reading."""
        for segment in segments:
            segment.mark_deleted()
            with self._lock:
                self._waiting.append((segment, None))
        self._on_added()

    def remove_files(self, now_ms: int, delay_ms: int, *, at_once: bool = False) -> None:
        """Remove what has waited for `delay_ms`, counted from the first call."""
        with self._lock:
            found, self._waiting = self._waiting, []
        for segment, noticed_ms in found:
            if at_once or (noticed_ms is not None and now_ms - noticed_ms >= delay_ms):
                segment.remove_files()
            else:
                with self._lock:
                    self._waiting.append((segment, now_ms if noticed_ms is None else noticed_ms))
