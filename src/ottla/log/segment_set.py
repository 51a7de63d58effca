"""The segments of one partition in order of their base offset, as one value that never changes.

A log that rolls, drops or exchanges segments makes another set and puts it in place of the old one with a single
assignment. Whoever works with several parts of a set takes it once (`segments = log.segments`) and sees segments, base
offsets and the active one that belong together, whatever the log does meanwhile. Only the thread that appends may
replace the set of a log: two that did so at once would each undo the other's change.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

from ottla.log.segment import Segment


class SegmentSet:
    """A log always has a segment; only while it is being loaded it may have none, and then there is no active one."""

    __slots__ = ("_base_offsets", "_segments", "active")

    active: Segment
    """The last one, which is appended to."""

    def __init__(self, segments: Iterable[Segment]) -> None:
        self._segments = tuple(segments)
        self._base_offsets = [segment.base_offset for segment in self._segments]
        if not all(base_offset < following for base_offset, following in pairwise(self._base_offsets)):
            raise ValueError(f"segments must be given in order of their base offsets, not as {self._base_offsets}")
        if self._segments:
            self.active = self._segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def all(self) -> tuple[Segment, ...]:
        """Oldest first."""
        return self._segments

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    def from_offset(self, offset: int) -> tuple[Segment, ...]:
        """The segment that may hold `offset` and all later ones; all, if `offset` is below the first."""
        return self._segments[self.number_of(offset) :]

    def number_of(self, offset: int) -> int:
        """The place in `all()` of the segment that may hold `offset`."""
        return max(0, bisect_right(self._base_offsets, offset) - 1)

    def end_of(self, number: int, log_end_offset: int) -> int:
        """The exclusive upper bound of the offsets in segment `number`."""
        number += 1
        return self._base_offsets[number] if number < len(self._base_offsets) else log_end_offset

    # -- other sets made of this one -----------------------------------------------------------------------------

    def add(self, segment: Segment) -> SegmentSet:
        """With another one behind the last, to be appended to from now on."""
        return SegmentSet((*self._segments, segment))

    def up_to(self, number: int) -> SegmentSet:
        """With segment `number` as the last one."""
        return SegmentSet(self._segments[: number + 1])

    def replace(self, old: Sequence[Segment], new: Sequence[Segment]) -> SegmentSet:
        """With `new` in the place of `old`, for what rewrites or drops a part of the log.

        `old` is a run of adjacent segments of this set. `new` covers the same offsets: it begins where `old` does and
        ends before the next segment. Only the beginning of the log may be replaced by less, or by nothing. The active
        segment is not replaced: somebody may be appending to it.
        """
        if not old:
            raise ValueError("there is nothing to be replaced")
        start = self.number_of(old[0].base_offset)
        end = start + len(old)
        if tuple(old) != self._segments[start:end]:
            raise ValueError("what is to be replaced is no run of segments of this log")
        if end == len(self._segments):
            raise ValueError("the active segment cannot be replaced")
        begins_in_place = bool(new) and new[0].base_offset == old[0].base_offset
        if start > 0 and not begins_in_place:
            raise ValueError(f"offset {old[0].base_offset} would belong to an earlier segment")
        if new and new[0].base_offset < old[0].base_offset:
            raise ValueError(f"a segment at offset {new[0].base_offset} would precede the log")
        return SegmentSet((*self._segments[:start], *new, *self._segments[end:]))
