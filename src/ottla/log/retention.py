"""Which of the oldest segments of a log may go: by age, by size, and because the log begins behind them.

Decides only; the log drops what lies below its new start. Nothing at or above the high watermark ever goes: followers
may not have it yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.log.segment import Segment
from ottla.log.segmented_log import SegmentedLog


class Expired(NamedTuple):
    """Segments at the beginning of a log that no rule keeps."""

    segments: tuple[Segment, ...]
    start_offset: int
    """Where the log begins without them."""
    reason: str

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)


def find_expired(log: SegmentedLog, now_ms: int) -> Expired | None:
    """What is to be dropped now, the active segment included; None if there is nothing.

    A log of thousands is nearly always idle: then this is a look at its first segment.
    """
    config = log.config
    if not config.deletes_old_segments:
        return None
    segments = log.segments.all()
    by_age = by_size = 0
    if config.retention_ms >= 0:
        limit_ms = config.retention_ms
        by_age = _count_while(log, segments, lambda segment: now_ms - _newest_ms(segment) > limit_ms)
    if config.retention_bytes >= 0:
        excess = log.size_bytes - config.retention_bytes

        def is_too_much(segment: Segment) -> bool:
            nonlocal excess
            excess -= segment.size
            return excess >= 0

        by_size = _count_while(log, segments, is_too_much)
    count = max(by_age, by_size)
    if not count:
        return None
    start_offset = segments[count].base_offset if count < len(segments) else log.log_end_offset
    if by_age >= by_size:
        reason = f"their newest record is older than retention.ms={config.retention_ms}"
    else:
        reason = f"the log is larger than retention.bytes={config.retention_bytes}"
    return Expired(segments[:count], start_offset, reason)


def drop_expired(log: SegmentedLog, expired: Expired, now_ms: int) -> None:
    """Let the log begin behind what has expired. On the thread that appends to it."""
    if expired.segments[-1] is log.segments.active:
        log.roll(now_ms=now_ms)
    log.advance_log_start_offset(expired.start_offset)


def _count_while(log: SegmentedLog, segments: tuple[Segment, ...], is_due: Callable[[Segment], bool]) -> int:
    """How many of the oldest segments are due, up to the first one that is not."""
    for number, segment in enumerate(segments):
        is_last = number + 1 == len(segments)
        end_offset = log.log_end_offset if is_last else segments[number + 1].base_offset
        if end_offset > log.high_watermark or (is_last and not segment.size) or not is_due(segment):
            return number
    return len(segments)


def _newest_ms(segment: Segment) -> int:
    """When the youngest record was written; the file's time where records have none."""
    return segment.max_timestamp if segment.max_timestamp >= 0 else segment.log.modified_ms()
