"""Many values read at once: one position per value, moved on a field at a time by NumPy.

What is wrong with a value is noted for it alone. Its position then stays at its end, where nothing more can be read,
and the others go on.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ottla.records.arrays.varint import Int64s, Octets
from ottla.records.columns.slices import slices

_ROOM: Final = 16
"""Zeros after the last value, so that a number may be read there before it is found not to be there."""
_MAX_SHIFT: Final = 63
_LOW: Final = np.uint8(0x7F)
ENDS_EARLY: Final = "the value ends too early"


class Lanes(NamedTuple):
    """Where some of the values are being read. A value may have several lanes one after the other, but not at once."""

    values: Int64s
    """Which value each lane is of, rising."""
    at: Int64s

    def of(self, which: Any) -> Lanes:
        return Lanes(self.values[which], self.at[which])

    def moved(self, at: Int64s) -> Lanes:
        return Lanes(self.values, at)


class Batch:
    """The bytes of an Arrow array of values, and what is wrong with some of them."""

    def __init__(self, values: Any) -> None:
        _, offsets, data = values.buffers()
        count = len(values)
        if offsets is None or data is None:
            bounds: Int64s = np.zeros(count + 1, np.int64)
        else:
            bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + count + 1].astype(np.int64)
        size = int(bounds[-1] - bounds[0])
        self._octets: Octets = np.zeros(size + _ROOM, np.uint8)
        if size:
            self._octets[:size] = np.frombuffer(data, np.uint8)[int(bounds[0]) : int(bounds[-1])]
        self.starts: Int64s = bounds[:-1] - bounds[0]
        self.ends: Int64s = bounds[1:] - bounds[0]
        self.errors: dict[int, str] = {}
        self.is_bad: npt.NDArray[np.bool_] = np.zeros(count, np.bool_)

    def fail(self, lanes: Lanes, is_wrong: npt.NDArray[np.bool_], sentence: str) -> Int64s:
        """Notes the first thing that is wrong with a value. The positions are those after it: bad ones at their end."""
        for value in lanes.values[is_wrong].tolist():
            self.errors.setdefault(value, sentence)
        self.is_bad[lanes.values[is_wrong]] = True
        return np.where(is_wrong, self.ends[lanes.values], lanes.at)

    def check_ends(self, lanes: Lanes) -> None:
        """Nothing may be left when all has been read."""
        left = self.ends[lanes.values] - lanes.at
        for value, count in zip(lanes.values[left > 0].tolist(), left[left > 0].tolist(), strict=True):
            self.errors.setdefault(value, f"{count} bytes are left after what the schema describes")
            self.is_bad[value] = True

    def head(self, width: int) -> Octets:
        """The first bytes of every value, whether or not it has so many."""
        heads: Octets = self._octets[self.starts[:, None] + np.arange(width)]
        return heads

    # Each of these gives what was read, and the lanes after it

    def longs(self, lanes: Lanes, where: str) -> tuple[Int64s, Lanes]:
        octet = self._octets[lanes.at]
        after = lanes.at + 1
        raw = (octet & _LOW).astype(np.uint64)
        going_on = np.flatnonzero(octet > _LOW)
        shift = 7
        is_long: npt.NDArray[np.bool_] | None = None
        while going_on.size:
            octet = self._octets[after[going_on]]
            if shift == _MAX_SHIFT:
                # Nine bytes have given 63 bits: there is one more.
                is_long = np.zeros(len(raw), np.bool_)
                is_long[going_on[octet > 1]] = True
                octet = octet & np.uint8(1)
            raw[going_on] |= (octet & _LOW).astype(np.uint64) << np.uint64(shift)
            after[going_on] += 1
            going_on = going_on[octet > _LOW]
            shift += 7
        lanes = self._within(lanes.moved(after), where)
        if is_long is not None and is_long.any():
            lanes = lanes.moved(self.fail(lanes, is_long, f"{where}: a number has more than 64 bits"))
        return (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64), lanes

    def octets(self, lanes: Lanes, where: str) -> tuple[Octets, Lanes]:
        return self._octets[lanes.at], self._within(lanes.moved(lanes.at + 1), where)

    def matrix(self, lanes: Lanes, width: int, where: str) -> tuple[Octets, Lanes]:
        """Rows of so many bytes, at most `_ROOM`."""
        return self._octets[lanes.at[:, None] + np.arange(width)], self._within(lanes.moved(lanes.at + width), where)

    def lengths(self, lanes: Lanes, where: str) -> tuple[Int64s, Lanes]:
        """Lengths of what follows; the lanes are before it."""
        return self.bounded(*self.longs(lanes, where), where)

    def bounded(self, lengths: Int64s, lanes: Lanes, where: str) -> tuple[Int64s, Lanes]:
        """Lengths that are within the values, 0 for those that were not."""
        left = self.ends[lanes.values] - lanes.at
        is_wrong = (lengths < 0) | (lengths > left)
        if is_wrong.any():
            lanes = lanes.moved(self.fail(lanes, lengths < 0, f"{where}: a length is below zero"))
            lanes = lanes.moved(self.fail(lanes, lengths > left, f"{where}: {ENDS_EARLY}"))
            lengths = np.where(is_wrong, 0, lengths)
        return lengths, lanes

    def several(self, lanes: Lanes, counts: Int64s, width: int | None, where: str) -> tuple[Lanes, Lanes]:
        """A lane for each of so many items that follow one another, and the lanes after them; the counts must be within
        the values. Items have a width in bytes, or are numbers, which end with the first byte below 128."""
        first_items = np.cumsum(counts) - counts
        numbers = np.arange(int(counts.sum())) - np.repeat(first_items, counts)
        if width is not None:
            starts = np.repeat(lanes.at, counts) + numbers * width
            return Lanes(np.repeat(lanes.values, counts), starts), lanes.moved(lanes.at + counts * width)
        ends = self._number_ends
        first_ends = np.searchsorted(ends, lanes.at)
        places = np.repeat(first_ends, counts) + numbers
        # An item starts where the one before it ends; a bad value may have fewer ends than items.
        starts = ends[np.minimum(places, len(ends) - 1) - 1] + 1
        starts[first_items] = lanes.at
        starts = np.minimum(starts, np.repeat(self.ends[lanes.values], counts))
        after = ends[np.minimum(first_ends + counts, len(ends)) - 1] + 1
        return Lanes(np.repeat(lanes.values, counts), starts), self._within(lanes.moved(after), where)

    @cached_property
    def _number_ends(self) -> Int64s:
        return np.flatnonzero(self._octets <= _LOW)

    def slices(self, lanes: Lanes, lengths: Int64s) -> Any:
        """An Arrow array of bytes; the lengths must be within the values."""
        return slices(self._octets.data, lanes.at, lengths)

    def signed(self, lanes: Lanes, lengths: Int64s) -> Octets:
        """Numbers of up to 16 bytes, the most significant first, as rows of 16 bytes, the least significant first."""
        last = lanes.at + lengths - 1
        places = last[:, None] - np.arange(16)
        is_there = np.arange(16) < lengths[:, None]
        found = self._octets[np.where(is_there, places, 0)]
        is_negative = (self._octets[lanes.at] > _LOW) & (lengths > 0)
        fill = np.where(is_negative, 0xFF, 0).astype(np.uint8)
        return np.where(is_there, found, fill[:, None])

    def _within(self, lanes: Lanes, where: str) -> Lanes:
        is_past = lanes.at > self.ends[lanes.values]
        return lanes.moved(self.fail(lanes, is_past, f"{where}: {ENDS_EARLY}")) if is_past.any() else lanes


class Reader(Protocol):
    """Reads one value of a type in each lane."""

    def read(self, batch: Batch, lanes: Lanes) -> tuple[Any, Lanes]:
        """The values as an Arrow array, and the lanes after them."""
        ...
