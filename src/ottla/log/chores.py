"""Which logs have to be seen to: a broker has thousands, and all but a few want nothing for hours."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.log.config import INT64_MAX

if TYPE_CHECKING:
    from ottla.log.segmented_log import SegmentedLog


class LogChores:
    """Logs enter themselves, from any thread, and are seen to in that order."""

    __slots__ = ("flush", "removal")

    def __init__(self) -> None:
        self.flush: dict[SegmentedLog, None] = {}
        """Those that are due for a flush, or will be if nothing more is appended."""
        self.removal: dict[SegmentedLog, None] = {}
        """Those with segments whose files are to go."""

    def take_due_flushes(self, now_ms: int, failed: Container[Path]) -> list[SegmentedLog]:
        """Leaves those that only time makes due. For the thread that appends."""
        due: list[SegmentedLog] = []
        for log in list(self.flush):
            is_due = log.is_flush_due(now_ms)
            if is_due or log.config.flush_ms == INT64_MAX or _is_gone(log, failed):
                self.flush.pop(log, None)
            if is_due and not _is_gone(log, failed):
                due.append(log)
        return due

    def remove_files(self, now_ms: int, failed: Container[Path]) -> None:
        for log in list(self.removal):
            if _is_gone(log, failed):
                self.removal.pop(log, None)
            else:
                log.remove_deleted(now_ms)


def _is_gone(log: SegmentedLog, failed: Container[Path]) -> bool:
    return log.is_deleted or log.directory.parent in failed
