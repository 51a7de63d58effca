"""For each key the newest offset it was seen at, in memory that was agreed before: 24 bytes a slot.

Keys are known by their hashes, and found, entered and looked up by the thousand.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from ottla.log.cleaning.key_hashes import UInt64s
from ottla.records.arrays.varint import Int64s

Flags: TypeAlias = npt.NDArray[np.bool_]

_SLOT_BYTES: Final = 24
_FIELDS, _OFFSET = 3, 2
"""A slot has the two halves of a hash, and the entry."""
_SORTED_BYTES: Final = 8
_MIN_SLOTS: Final = 16
_ONE: Final = np.uint64(1)
_EMPTY: Final = np.uint64(0)


class OffsetMap:
    """Entries are twice the offset, plus one for a tombstone. They must be put in their order."""

    def __init__(self, memory_bytes: int, load_factor: float, keys_max: int) -> None:
        """With room for `keys_max` keys, if the memory allows for so many."""
        slots = _MIN_SLOTS
        while slots * load_factor < keys_max and _bytes_of(2 * slots, load_factor) <= memory_bytes:
            slots *= 2
        self._table = np.zeros((slots, _FIELDS), np.uint64)
        self._mask = np.uint64(slots - 1)
        self._keys_max = max(int(slots * load_factor), 1)
        self.key_count = 0

    @property
    def room(self) -> int:
        """How many more keys may be entered."""
        return self._keys_max - self.key_count

    def put(self, left: UInt64s, right: UInt64s, entries: UInt64s) -> None:
        """Enter keys, of which no more may be new than there is room for."""
        table = self._table
        offsets = table.ravel()[_OFFSET:]
        stored = entries + _ONE
        slots = (left & self._mask).view(np.int64)
        while len(slots):
            found = table.take(slots, axis=0)
            is_here = found[:, 0] == left
            is_here &= found[:, 1] == right
            here = np.flatnonzero(is_here)
            offsets[slots[here] * _FIELDS] = stored[here]
            if len(here) == len(slots):
                return
            waits = np.flatnonzero(~is_here)
            is_free = found[waits, _OFFSET] == _EMPTY
            left, right, stored, slots = left[waits], right[waits], stored[waits], slots[waits]
            if is_free.any():
                waits = np.flatnonzero(~self._take(np.flatnonzero(is_free), left, right, stored, slots))
                left, right, stored, slots = left[waits], right[waits], stored[waits], slots[waits]
            slots = ((slots.view(np.uint64) + (right | _ONE)) & self._mask).view(np.int64)

    def _take(self, rows: Int64s, left: UInt64s, right: UInt64s, stored: UInt64s, slots: Int64s) -> Flags:
        """Enter the keys of `rows`, whose slots are free. Returns which of all rows are done with."""
        mine, others, own, at = left[rows], right[rows], stored[rows], slots[rows]
        # Of several that want the same slot the last one gets it, and with it all rows of the same key.
        self._table[at] = np.stack((mine, others, own), axis=1)
        taken = self._table.take(at, axis=0)
        self.key_count += int(np.count_nonzero(taken[:, _OFFSET] == own))
        is_done = np.zeros(len(slots), np.bool_)
        is_done[rows] = (taken[:, 0] == mine) & (taken[:, 1] == others)
        return is_done

    def get(self, left: UInt64s, right: UInt64s) -> tuple[UInt64s, Flags]:
        """The entry of each key, and whether it has one."""
        table = self._table
        result = np.zeros(len(left), np.uint64)
        rows = np.arange(len(left))
        slots = (left & self._mask).view(np.int64)
        while len(rows):
            found = table.take(slots, axis=0)
            is_here = (found[:, 0] == left) & (found[:, 1] == right)
            result[rows[is_here]] = found[is_here, 2]
            waits = np.flatnonzero(~is_here & (found[:, 2] != _EMPTY))
            rows, left, right = rows[waits], left[waits], right[waits]
            slots = ((slots[waits].view(np.uint64) + (right | _ONE)) & self._mask).view(np.int64)
        is_known = result != _EMPTY
        return result - is_known.astype(np.uint64), is_known

    def sorted_entries(self) -> UInt64s:
        """The entries of all keys: the records that stay, of those that were put."""
        entries = self._table[:, 2]
        return np.sort(entries[entries != _EMPTY]) - _ONE


def _bytes_of(slots: int, load_factor: float) -> int:
    return int(slots * (_SLOT_BYTES + load_factor * _SORTED_BYTES))
