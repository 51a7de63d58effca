"""Where the records of many batches start.

A record tells where the next one is. Batches of a topic often look alike, so the way through one is tried on all
others at once: where the same lengths stand at the same distances, it is the right one. Short batches are gone through
side by side, and what is left one after the other (`hop`).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from ottla.base.errors import CorruptBatchError
from ottla.base.types import ReadBuffer
from ottla.records.arrays.hop import check_lengths, find_starts
from ottla.records.arrays.varint import Int64s, Octets, read_varints

_LONG: Final = 16
"""From so many records on a batch is worth a comparison with others."""
_TRIES: Final = 3
_FEW: Final = 32
"""So few batches are quicker gone through one by one."""
_ENDS: Final = (np.uint32(0x80), np.uint32(0x8000), np.uint32(0x800000))
_MASKS: Final = (np.uint32(0xFF), np.uint32(0xFFFF), np.uint32(0xFFFFFF))


class Places:
    """Of batches: where their records lie in a buffer, how many they are, and which row of all rows is their first."""

    __slots__ = ("counts", "ends", "first_rows", "starts")

    def __init__(self, starts: Int64s, ends: Int64s, counts: Int64s) -> None:
        self.starts = starts
        self.ends = ends
        self.counts = counts
        self.first_rows = np.cumsum(counts) - counts


def find_all_starts(buf: ReadBuffer, octets: Octets, starts: Int64s, ends: Int64s, counts: Int64s) -> Int64s:
    """The positions of all records of batches whose payloads are `buf[start:end]`, and hold as many as `counts` says.

    A single record is not looked at: whether it ends with its batch is for the caller to see.
    """
    is_empty = counts <= 0
    if is_empty.any() and ((counts < 0) | (is_empty & (starts != ends))).any():
        raise CorruptBatchError("the records of a batch do not end where it does")
    places = Places(starts, ends, counts)
    found: Int64s = np.empty(int(counts.sum()), np.int64)
    alone = counts == 1
    found[places.first_rows[alone]] = starts[alone]
    left = np.flatnonzero(counts > 1)
    for _ in range(_TRIES):
        long = counts[left] >= _LONG
        if np.count_nonzero(long) < 2:
            break
        others = _find_alike(buf, octets, places, left[long], found)
        left = np.concatenate((left[~long], others))
    if len(left) >= _FEW:
        _find_in_step(buf, octets, places, left, found)
    else:
        for number in left.tolist():
            _find_one(buf, octets, int(starts[number]), int(ends[number]), places, number, found)
    return found


def _find_one(
    buf: ReadBuffer, octets: Octets, start: int, end: int, places: Places, number: int, found: Int64s
) -> Int64s:
    first = int(places.first_rows[number])
    own = found[first : first + int(places.counts[number])]
    find_starts(buf, octets, start, end, own)
    return own


def _find_alike(buf: ReadBuffer, octets: Octets, places: Places, numbers: Int64s, found: Int64s) -> Int64s:
    """Those of the batches that look like the longest of them. Returns the others."""
    longest = int(numbers[places.counts[numbers].argmax()])
    start, end = int(places.starts[longest]), int(places.ends[longest])
    own = _find_one(buf, octets, start, end, places, longest, found)
    words: npt.NDArray[np.uint32] = np.ndarray((max(len(octets) - 3, 0),), "<u4", octets, strides=(1,))
    if int(own[-1]) >= len(words) or (masks := _length_masks(heads := words[own])) is None:
        others: Int64s = numbers[numbers != longest]
        return others
    distances = np.append(own - start, end - start)
    counts = places.counts[numbers]
    fits = distances[counts] == places.ends[numbers] - places.starts[numbers]
    left = [numbers[~fits]]
    for count in np.unique(counts[fits]).tolist():
        tried = numbers[fits & (counts == count)]
        if int(places.starts[tried].max() + distances[count - 1]) >= len(words):
            left.append(tried[tried != longest])
            continue
        guessed = places.starts[tried][:, None] + distances[:count]
        differs = ((words[guessed] ^ heads[:count]) & masks[:count]).any(axis=1)
        if differs.any():
            left.append(tried[differs])
            tried, guessed = tried[~differs], guessed[~differs]
        _enter(guessed, places.first_rows[tried], found)
    return np.concatenate(left)


def _enter(rows: Int64s, first_rows: Int64s, found: Int64s) -> None:
    """Batches of the same number of records, which are neighbours as a rule: then they are one piece of all rows."""
    batches, count = rows.shape
    first = int(first_rows[0]) if batches else 0
    if batches and int(first_rows[-1]) - first == (batches - 1) * count:
        found[first : first + batches * count] = rows.reshape(-1)
    else:
        found[first_rows[:, None] + np.arange(count)] = rows


def _length_masks(heads: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32] | None:
    """Which bits of the first four bytes of each record are its length; None if one takes more."""
    masks = np.full(len(heads), _MASKS[2])
    masks[heads & _ENDS[1] == 0] = _MASKS[1]
    masks[heads & _ENDS[0] == 0] = _MASKS[0]
    return None if ((masks == _MASKS[2]) & (heads & _ENDS[2] != 0)).any() else masks


def _find_in_step(buf: ReadBuffer, octets: Octets, places: Places, numbers: Int64s, found: Int64s) -> None:
    at, ends, rows = places.starts[numbers], places.ends[numbers], places.first_rows[numbers]
    left = places.counts[numbers]
    while len(at) >= _FEW:
        found[rows] = at
        lengths, after = read_varints(octets, at, 32)
        check_lengths(lengths)
        at = after + lengths
        rows = rows + 1
        left = left - 1
        is_done = left == 0
        if (at > ends).any() or (at[is_done] != ends[is_done]).any():
            raise CorruptBatchError("the records of a batch do not end where it does")
        if is_done.any():
            more = ~is_done
            at, ends, rows, left = at[more], ends[more], rows[more], left[more]
    for start, end, row, count in zip(at.tolist(), ends.tolist(), rows.tolist(), left.tolist(), strict=True):
        find_starts(buf, octets, start, end, found[row : row + count])
