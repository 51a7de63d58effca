"""Zigzag varints by the column: one NumPy operation per byte of a varint instead of one loop per row."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla.base.errors import CorruptBatchError

Octets: TypeAlias = npt.NDArray[np.uint8]
Int64s: TypeAlias = npt.NDArray[np.int64]

_MIN_ROWS_PER_RUN = 64
_LOW = np.uint64(0x7F)
_MORE = np.uint64(0x80)


def read_varints(octets: Octets, positions: Int64s, max_bits: int) -> tuple[Int64s, Int64s]:
    """The numbers that start at `positions`, and the positions after them.

    Raises CorruptBatchError if one does not fit `max_bits`, IndexError if the octets end within one.
    """
    octet = octets[positions]
    after = positions + 1
    going_on = np.flatnonzero(octet > 0x7F)
    if not going_on.size:
        # Signed arithmetic on one byte: its zigzag cannot leave the range.
        small = octet.view(np.int8)
        return ((small >> 1) ^ -(small & 1)).astype(np.int64), after
    raw = (octet & 0x7F).astype(np.uint64)
    shift = 7
    while going_on.size:
        if shift >= max_bits:
            raise CorruptBatchError(f"a varint does not end within {max_bits} bits")
        everybody = going_on.size == positions.size
        at = after if everybody else after[going_on]
        octet = octets[at]
        if shift + 7 > max_bits and ((octet & 0x7F) >> (max_bits - shift)).any():
            raise CorruptBatchError(f"a varint does not fit {max_bits} bits")
        part = (octet & 0x7F).astype(np.uint64) << np.uint64(shift)
        if everybody:
            raw |= part
            after = at + 1
            going_on = np.flatnonzero(octet > 0x7F)
        else:
            raw[going_on] |= part
            after[going_on] = at + 1
            going_on = going_on[octet > 0x7F]
        shift += 7
    return (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64), after


def zigzag(values: Int64s) -> npt.NDArray[np.uint64]:
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def varint_sizes(raw: npt.NDArray[np.uint64]) -> Int64s:
    """How many bytes each number takes; `raw` is after zigzag."""
    sizes = np.ones(len(raw), np.int64)
    largest = int(raw.max()) if len(raw) else 0
    bound = 128
    while largest >= bound:
        sizes += raw >= np.uint64(bound)
        bound <<= 7
    return sizes


class VarintColumn:
    """A column of numbers and the room they take."""

    __slots__ = ("raw", "sizes")

    def __init__(self, values: Int64s) -> None:
        self.raw = zigzag(values)
        self.sizes = varint_sizes(self.raw)

    def write(self, out: Octets, positions: Int64s) -> None:
        raw, sizes = self.raw, self.sizes
        longest = int(sizes.max()) if len(sizes) else 0
        if longest <= 1:
            out[positions] = raw.astype(np.uint8)
            return
        out[positions] = (raw & _LOW | np.where(sizes > 1, _MORE, np.uint64(0))).astype(np.uint8)
        for index in range(1, longest):
            rows = np.flatnonzero(sizes > index)
            rest = raw[rows] >> np.uint64(7 * index)
            more = np.where(sizes[rows] > index + 1, _MORE, np.uint64(0))
            out[positions[rows] + index] = (rest & _LOW | more).astype(np.uint8)


def join_varints(columns: Sequence[VarintColumn | int], room: Int64s | None = None) -> Any:
    """An Arrow binary array with the varints of each row one after the other; an int is one byte, the same in all.

    `room` says how many bytes are left free before each row's.
    """
    count = next(len(column.raw) for column in columns if isinstance(column, VarintColumn))
    widths = np.zeros(count, np.int64)
    for column in columns:
        widths += 1 if isinstance(column, int) else column.sizes
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(widths if room is None else widths + room, out=offsets[1:])
    out: Octets = np.empty(int(offsets[-1]), np.uint8)
    positions = offsets[:-1].copy() if room is None else offsets[:-1] + room
    cuts = (np.flatnonzero(np.diff(widths) if room is None else np.diff(widths) | room[1:]) + 1).tolist()
    if count >= _MIN_ROWS_PER_RUN * (len(cuts) + 1) and _are_even(columns, [0, *cuts]):
        for first, last in pairwise([0, *cuts, count]):
            at = int(positions[first])
            rows = out[at : at + (last - first) * int(widths[first])].reshape(last - first, -1)
            _write_evenly(columns, first, last, rows)
        return binary_array(offsets, out)
    for column in columns:
        if isinstance(column, int):
            out[positions] = column
            positions += 1
        else:
            column.write(out, positions)
            positions += column.sizes
    return binary_array(offsets, out)


def _are_even(columns: Sequence[VarintColumn | int], firsts: list[int]) -> bool:
    """Whether each column has varints of one size from each of the rows `firsts` to the next."""
    for column in columns:
        if (
            not isinstance(column, int)
            and (np.minimum.reduceat(column.sizes, firsts) != np.maximum.reduceat(column.sizes, firsts)).any()
        ):
            return False
    return True


def _write_evenly(columns: Sequence[VarintColumn | int], first: int, last: int, rows: Octets) -> None:
    """Writes the rows from `first` on, which all take the same bytes for the same columns."""
    at = 0
    for column in columns:
        if isinstance(column, int):
            rows[:, at] = column
            at += 1
            continue
        raw = column.raw[first:last]
        size = int(column.sizes[first])
        for index in range(size):
            more = 0x80 if index < size - 1 else 0
            rows[:, at] = ((raw >> np.uint64(7 * index)) & _LOW | np.uint64(more)).astype(np.uint8)
            at += 1


def binary_array(offsets: npt.NDArray[Any], data: Any) -> Any:
    """An Arrow binary array over `data`, not copied: row i is `data[offsets[i]:offsets[i + 1]]`."""
    return pa.Array.from_buffers(
        pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets.astype(np.int32, copy=False)), pa.py_buffer(data)]
    )
