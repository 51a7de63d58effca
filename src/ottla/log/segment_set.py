"""The segments of one partition in order of their base offset.

Changes replace the lists instead of editing them, so a thread that has taken `all()` keeps a consistent picture while
another rolls or deletes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from ottla.log.segment import Segment


class SegmentSet:
    def __init__(self, segments: Iterable[Segment]) -> None:
        self._replace(sorted(segments, key=lambda segment: segment.base_offset))

    def _replace(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._base_offsets = [segment.base_offset for segment in segments]
        if segments:
            self.active = segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def all(self) -> list[Segment]:
        """Oldest first. The list is never changed afterwards; do not change it either."""
        return self._segments

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    def from_offset(self, offset: int) -> list[Segment]:
        """The segment that may hold `offset` and all later ones; all, if `offset` is below the first."""
        return self._segments[max(0, bisect_right(self._base_offsets, offset) - 1) :]

    def number_of(self, offset: int) -> int:
        """The place in `all()` of the segment that may hold `offset`."""
        return max(0, bisect_right(self._base_offsets, offset) - 1)

    def end_of(self, number: int, log_end_offset: int) -> int:
        """The exclusive upper bound of the offsets in segment `number`."""
        number += 1
        return self._base_offsets[number] if number < len(self._base_offsets) else log_end_offset

    def add(self, segment: Segment) -> None:
        self._replace([*self._segments, segment])

    def remove(self, doomed: Iterable[Segment]) -> None:
        gone = set(map(id, doomed))
        self._replace([segment for segment in self._segments if id(segment) not in gone])
