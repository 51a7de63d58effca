"""The sparse map from timestamps to offsets of a segment (`.timeindex`).

An entry (timestamp, offset - base) says that nothing up to `offset` is younger than `timestamp`, and that the batch
ending with `offset` is the first to reach it. Both fields only grow.
"""

from __future__ import annotations

from struct import Struct
from typing import ClassVar, NamedTuple

from ottla.log.index_file import CorruptIndexError, IndexFile

_ENTRY = Struct(">qi")
_unpack = _ENTRY.unpack_from


class TimeEntry(NamedTuple):
    timestamp: int
    offset: int


class TimeIndex(IndexFile):
    entry_size: ClassVar[int] = _ENTRY.size

    @property
    def is_full(self) -> bool:
        """One slot is kept for the entry that is written when the segment is sealed."""
        return self.entry_count >= self.max_entries - 1

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if it says something new: a timestamp above the last one's."""
        last = self.last()
        if timestamp > (last.timestamp if last else -1):
            self._append_packed(_ENTRY.pack(timestamp, offset - self.base_offset))

    def entry(self, number: int) -> TimeEntry:
        timestamp, relative = _unpack(self.entries(), number * 12)
        return TimeEntry(timestamp, self.base_offset + relative)

    def last(self) -> TimeEntry | None:
        return self.entry(self.entry_count - 1) if self.entry_count else None

    def lookup(self, timestamp: int) -> TimeEntry | None:
        """The greatest entry not above `timestamp`; None means: start at the beginning of the segment."""
        entries = self.entries()
        low, high = 0, self.entry_count
        while low < high:
            middle = (low + high) // 2
            if _unpack(entries, middle * 12)[0] <= timestamp:
                low = middle + 1
            else:
                high = middle
        return self.entry(low - 1) if low else None

    def truncate_to(self, offset: int) -> None:
        """Forget every entry at or above `offset`."""
        entries = self.entries()
        relative = offset - self.base_offset
        low, high = 0, self.entry_count
        while low < high:
            middle = (low + high) // 2
            if _unpack(entries, middle * 12)[1] < relative:
                low = middle + 1
            else:
                high = middle
        self._keep_first(low)

    def check(self) -> None:
        """Cheap sanity on opening; the segment compares the last entry with its log."""
        if not self.entry_count:
            return
        first, last = self.entry(0), self.entry(self.entry_count - 1)
        if first.timestamp < 0 or first.offset < self.base_offset:
            raise CorruptIndexError(f"{self.path} holds an impossible entry")
        if self.entry_count > 1 and not (first.offset < last.offset and first.timestamp < last.timestamp):
            raise CorruptIndexError(f"{self.path} is out of order")
