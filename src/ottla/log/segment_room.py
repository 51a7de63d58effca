"""What a segment still takes: the rule that says when a log goes on in a new one, by size, index, offsets and time."""

from __future__ import annotations

from ottla.log.config import INT64_MAX, LogConfig
from ottla.log.segment import MAX_RELATIVE_OFFSET, Segment


class SegmentRoom:
    """Limits that hold from the moment they were measured on, whatever is appended meanwhile.

    They are exact for the batch that comes next, and careful about those after it: the segment may take what they
    refuse, so whoever is refused measures again before a new segment is begun.
    """

    __slots__ = ("_end_position_max", "_last_offset_max", "_position_max", "_timestamp_max", "lasts")

    def __init__(
        self,
        position_max: int,
        end_position_max: int,
        last_offset_max: int,
        timestamp_max: int,
        *,
        lasts: bool = True,
    ) -> None:
        self.lasts = lasts
        """False if the clock decides: then nothing is certain for longer than a moment."""
        self._position_max = position_max
        self._end_position_max = end_position_max
        self._last_offset_max = last_offset_max
        self._timestamp_max = timestamp_max

    def takes(self, position: int, end_position: int, last_offset: int, max_timestamp: int) -> bool:
        """Whether batches that would lie between the two positions belong into this segment."""
        return (
            end_position <= self._end_position_max
            and max_timestamp <= self._timestamp_max
            and last_offset <= self._last_offset_max
            and position <= self._position_max
        )


NO_ROOM = SegmentRoom(-1, -1, -1, -1)
"""Not measured yet."""


def measure_room(segment: Segment, config: LogConfig, now_ms: int) -> SegmentRoom:
    size = segment.size
    age_max_ms = config.roll_ms - segment.roll_jitter_ms
    timestamp_max = INT64_MAX
    lasts = True
    if segment.is_index_full:
        position_max = -1
    elif size == 0:
        # The first batch is taken however old it is; it is the one from which the age of the segment is counted.
        position_max = 0
    elif segment.first_timestamp >= 0:
        position_max = max(size, segment.indexed_up_to)
        timestamp_max = segment.first_timestamp + age_max_ms
    else:
        # Records without a timestamp leave the age to the clock.
        position_max = size if now_ms - segment.created_ms <= age_max_ms else -1
        lasts = False
    last_offset_max = segment.base_offset + MAX_RELATIVE_OFFSET
    return SegmentRoom(position_max, config.segment_bytes, last_offset_max, timestamp_max, lasts=lasts)
