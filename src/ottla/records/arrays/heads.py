"""The heads of many records: all that stands before their keys.

As a rule a head takes eight bytes at most, so one look at memory fetches it, and its numbers are taken out of that.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ottla.records.arrays.varint import Int64s, Octets, read_varints

_ATTRIBUTES_SIZE: Final = 1
_WORD: Final = 8
_1, _2, _3, _7, _8, _15, _23 = (np.uint64(bits) for bits in (1, 2, 3, 7, 8, 15, 23))
_FIRST, _SECOND, _THIRD = np.uint64(0x7F), np.uint64(0x3F80), np.uint64(0x1FC000)

_Words = npt.NDArray[np.uint64]


class Heads(NamedTuple):
    lengths: Int64s
    body_starts: Int64s
    """Where that begins of which the lengths tell."""
    timestamp_deltas: Int64s
    offset_deltas: Int64s
    key_lengths: Int64s
    key_starts: Int64s


def read_heads(octets: Octets, starts: Int64s) -> Heads:
    """Of the records at `starts`. Raises as `read_varints` does."""
    short = _read_short(octets, starts)
    if short is not None:
        return short
    lengths, body_starts = read_varints(octets, starts, 32)
    timestamp_deltas, at = read_varints(octets, body_starts + _ATTRIBUTES_SIZE, 64)
    offset_deltas, at = read_varints(octets, at, 32)
    key_lengths, key_starts = read_varints(octets, at, 32)
    return Heads(lengths, body_starts, timestamp_deltas, offset_deltas, key_lengths, key_starts)


def _read_short(octets: Octets, starts: Int64s) -> Heads | None:
    """The same where no head takes more than eight bytes, and none of its numbers more than three."""
    if not len(starts) or int(starts.max()) > len(octets) - _WORD:
        return None
    words: _Words = np.ndarray((len(octets) - _WORD + 1,), "<u8", octets, strides=(1,))[starts]
    taken = _Taken(words, starts)
    lengths = taken.number()
    body_starts = taken.at
    taken.skip_attributes()
    timestamp_deltas, offset_deltas, key_lengths = taken.number(), taken.number(), taken.number()
    if taken.is_too_long or int((taken.at - starts).max()) > _WORD:
        return None
    return Heads(lengths, body_starts, timestamp_deltas, offset_deltas, key_lengths, taken.at)


class _Taken:
    """Words of which one number after the other is taken off; `at` is where the rest of each begins."""

    def __init__(self, words: _Words, at: Int64s) -> None:
        self._words = words
        self.at = at
        self.is_too_long = False

    def skip_attributes(self) -> None:
        self._words = self._words >> _8
        self.at = self.at + _ATTRIBUTES_SIZE

    def number(self) -> Int64s:
        words = self._words
        raw = words & _FIRST
        has_second = words >> _7 & _1
        if not int(has_second.max()):
            self._words, self.at = words >> _8, self.at + 1
        else:
            raw |= words >> _1 & _SECOND & -has_second
            sizes = has_second + _1
            has_third = words >> _15 & has_second
            if int(has_third.max()):
                raw |= words >> _2 & _THIRD & -has_third
                sizes += has_third
                self.is_too_long |= bool(int((words >> _23 & has_third).max()))
            self._words, self.at = words >> (sizes << _3), self.at + sizes.view(np.int64)
        return ((raw >> _1) ^ -(raw & _1)).view(np.int64)
