"""Which logs are worth a cleaning, and how far each may be cleaned.

Looked at every few seconds for every log of a broker, so what is not compacted costs one look. Imports no NumPy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.log.config import INT64_MAX
from ottla.log.segment import Segment
from ottla.log.segmented_log import SegmentedLog


class Candidate(NamedTuple):
    """A part of a log that was not cleaned yet and may be."""

    log: SegmentedLog
    first_dirty_offset: int
    end_offset: int
    """Exclusive; the base of the first segment that must not be touched."""
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    """It has a record that has waited for longer than max.compaction.lag.ms."""

    @property
    def dirty_ratio(self) -> float:
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes)

    @property
    def is_due(self) -> bool:
        return self.is_overdue or self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


def find_candidate(log: SegmentedLog, now_ms: int) -> Candidate | None:
    """What could be cleaned now; None if there is nothing, however little it takes."""
    config = log.config
    if not config.is_compacted or log.is_deleted:
        return None
    segments = log.segments
    first_dirty_offset = max(log.clean_offset, log.log_start_offset)
    if first_dirty_offset >= segments.active.base_offset:
        return None
    dirty = segments.from_offset(first_dirty_offset)[:-1]
    # An open transaction may still be aborted, and what is not replicated may still be cut.
    limit = min(log.last_stable_offset, segments.active.base_offset)
    if config.min_compaction_lag_ms > 0:
        newest_ms = now_ms - config.min_compaction_lag_ms
        limit = min([limit, *(segment.base_offset for segment in dirty if segment.max_timestamp > newest_ms)])
    end_offset = segments.all()[segments.number_of(limit)].base_offset
    cleanable = [segment for segment in dirty if segment.base_offset < end_offset]
    dirty_bytes = sum(segment.size for segment in cleanable)
    if not dirty_bytes:
        return None
    clean_bytes = sum(segment.size for segment in segments.all() if segment.base_offset < first_dirty_offset)
    is_overdue = _is_overdue(cleanable, config.max_compaction_lag_ms, now_ms)
    return Candidate(log, first_dirty_offset, end_offset, clean_bytes, dirty_bytes, is_overdue)


def choose(candidates: Iterable[Candidate]) -> Candidate | None:
    """What is to be cleaned next: of the logs that are due, the one of which the largest part is dirty."""
    due = [candidate for candidate in candidates if candidate.is_due]
    return max(due, key=lambda candidate: candidate.dirty_ratio, default=None)


def _is_overdue(segments: list[Segment], max_lag_ms: int, now_ms: int) -> bool:
    if max_lag_ms == INT64_MAX:
        return False
    return any(0 < segment.first_timestamp < now_ms - max_lag_ms for segment in segments if segment.size)
