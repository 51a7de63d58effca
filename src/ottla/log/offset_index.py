"""The sparse map from offsets to positions in a segment's log file (`.index`).

An entry (offset - base, position) says that the batch at `position` ends with `offset` or earlier. To find an offset,
start at the greatest entry that is not above it and walk batches from there.
"""

from __future__ import annotations

from struct import Struct
from typing import ClassVar, NamedTuple

from ottla.log.index_file import CorruptIndexError, IndexFile

_ENTRY = Struct(">ii")
_unpack = _ENTRY.unpack_from


class OffsetPosition(NamedTuple):
    offset: int
    position: int


class OffsetIndex(IndexFile):
    entry_size: ClassVar[int] = _ENTRY.size

    @property
    def is_full(self) -> bool:
        return self.entry_count >= self.max_entries

    def append(self, offset: int, position: int) -> None:
        """`offset` is the last one of the batch at `position`; both must be above those of every earlier entry."""
        self._append_packed(_ENTRY.pack(offset - self.base_offset, position))

    def entry(self, number: int) -> OffsetPosition:
        relative, position = _unpack(self.entries(), number * 8)
        return OffsetPosition(self.base_offset + relative, position)

    def last(self) -> OffsetPosition | None:
        return self.entry(self.entry_count - 1) if self.entry_count else None

    def lookup(self, offset: int) -> OffsetPosition:
        """The greatest entry not above `offset`, or the start of the segment."""
        found = self._count_up_to(offset)
        return self.entry(found - 1) if found else OffsetPosition(self.base_offset, 0)

    def first_at_or_after(self, position: int) -> OffsetPosition | None:
        """The first entry of a batch that does not begin before `position`."""
        found = self._count_before(position)
        return self.entry(found) if found < self.entry_count else None

    def last_before(self, position: int) -> OffsetPosition:
        """The last entry of a batch that begins before `position`, or the start of the segment."""
        found = self._count_before(position)
        return self.entry(found - 1) if found else OffsetPosition(self.base_offset, 0)

    def truncate_to(self, offset: int) -> None:
        """Forget every entry at or above `offset`."""
        self._keep_first(self._count_up_to(offset - 1))

    def check(self, log_size: int) -> None:
        """Cheap sanity on opening: the ends must be in order and inside the log. Lookups check what they land on."""
        if not self.entry_count:
            return
        first, last = self.entry(0), self.entry(self.entry_count - 1)
        # No entry is ever written for the first batch, so a zeroed file shows itself by its positions.
        if first.position <= 0 or first.offset < self.base_offset or last.position >= log_size:
            raise CorruptIndexError(f"{self.path} points outside its log")
        if self.entry_count > 1 and not (first.offset < last.offset and first.position < last.position):
            raise CorruptIndexError(f"{self.path} is out of order")

    def _count_before(self, position: int) -> int:
        """How many entries are of batches that begin before `position`."""
        entries = self.entries()
        low, high = 0, self.entry_count
        while low < high:
            middle = (low + high) // 2
            if _unpack(entries, middle * 8)[1] < position:
                low = middle + 1
            else:
                high = middle
        return low

    def _count_up_to(self, offset: int) -> int:
        """How many entries are not above `offset`."""
        entries = self.entries()
        relative = offset - self.base_offset
        low, high = 0, self.entry_count
        while low < high:
            middle = (low + high) // 2
            if _unpack(entries, middle * 8)[0] <= relative:
                low = middle + 1
            else:
                high = middle
        return low
