"""What of a log is on disk for good: the recovery point, and the flush that raises it.

`SegmentedLog` builds on this; which records come, and when segments do, is its business.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import NamedTuple

from ottla.base.errors import LogDirError
from ottla.base.types import TopicPartition
from ottla.log.config import LogConfig
from ottla.log.file import sync_directory
from ottla.log.leader_epochs import LeaderEpochs
from ottla.log.producer_state import ProducerStates
from ottla.log.segment_set import SegmentSet


class LogParts(NamedTuple):
    """What a log consists of. All of it describes the same records, as `create` and recovery take care of."""

    segments: SegmentSet
    epochs: LeaderEpochs
    producers: ProducerStates
    log_start_offset: int
    log_end_offset: int
    recovery_point: int


class DurableLog:
    def __init__(self, directory: Path, topic_partition: TopicPartition, config: LogConfig, parts: LogParts) -> None:
        self.directory = directory
        self.topic_partition = topic_partition
        self.config = config
        self.segments = parts.segments
        self.epochs = parts.epochs
        self.log_end_offset = parts.log_end_offset
        self.recovery_point = parts.recovery_point
        self.is_deleted = False
        self.flush_due = False
        """Set when flush.messages or flush.ms is reached or a segment was sealed; the broker then calls `flush`."""
        self._unflushed_records = 0
        self._last_flush_ms = 0
        self._flush_lock = threading.Lock()
        self._state_lock = threading.Lock()
        self._truncations = 0
        # How often files came or went, and how much of that the last flush has seen.
        self._file_changes = 1
        self._synced_file_changes = 0
        self._sync_has_failed = False

    def failed_to(self, what: str, error: OSError) -> LogDirError:
        return LogDirError(f"cannot {what} {self.topic_partition} in {self.directory}: {error.strerror or error}")

    def flush(self, up_to: int | None = None) -> int:
        """Make everything below `up_to` (default: the end) durable; returns the new recovery point.

        Safe to call from another thread while appends go on. A failed sync is never tried again: the kernel may
        have dropped the pages it could not write, and a second attempt would report them as safe.
        """
        with self._flush_lock:
            if self._sync_has_failed:
                raise LogDirError(f"an earlier sync of {self.topic_partition} in {self.directory} has failed")
            # The order matters. A truncation that comes after this line is noticed at the end, and the segments are
            # looked at last: what is appended or created from here on is left to the next flush.
            truncations = self._truncations
            is_due, self.flush_due = self.flush_due, False
            file_changes = self._file_changes
            target = self.log_end_offset if up_to is None else min(up_to, self.log_end_offset)
            self._unflushed_records = 0
            if is_due or target > self.recovery_point:
                try:
                    self._sync(target, truncations)
                    if file_changes != self._synced_file_changes:
                        self._sync_directory()
                except OSError as e:
                    self._sync_has_failed = True
                    raise self.failed_to("sync", e) from e
                self._synced_file_changes = file_changes
            with self._state_lock:
                if self._truncations == truncations:
                    self.recovery_point = max(self.recovery_point, target)
                return self.recovery_point

    def _sync(self, target: int, truncations: int) -> None:
        segments = self.segments
        # A segment that ends at the recovery point may have been sealed since, and then has indexes to be synced.
        for segment in segments.from_offset(self.recovery_point - 1):
            if segment.base_offset >= target or segment.is_synced:
                continue
            try:
                if segment is segments.active:
                    # Its indexes are rebuilt after a crash in any case, because the recovery point lies inside it.
                    segment.log.sync()
                else:
                    segment.sync()
                    with self._state_lock:
                        # A truncation may have made it the active one again.
                        segment.is_synced = self._truncations == truncations
            except FileNotFoundError:
                if not (segment.is_deleted or self.is_deleted):
                    raise
        self.epochs.sync()

    def _sync_directory(self) -> None:
        try:
            sync_directory(self.directory)
        except FileNotFoundError:
            if not self.is_deleted:
                raise

    def is_flush_due(self, now_ms: int) -> bool:
        """Whether a setting asks for a flush. Appends notice it by themselves; a log that is idle has to be asked."""
        return self.flush_due or (self._unflushed_records > 0 and now_ms - self._last_flush_ms >= self.config.flush_ms)

    def note_flush_time(self, now_ms: int) -> None:
        """flush.ms counts from here. The caller of `flush` knows the time; the flush itself may run in a thread."""
        self._last_flush_ms = now_ms
