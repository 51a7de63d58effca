"""Zigzag varints by the column: one NumPy operation per byte of a varint instead of one loop per row."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ottla.base.errors import CorruptBatchError

Octets: TypeAlias = npt.NDArray[np.uint8]
Int64s: TypeAlias = npt.NDArray[np.int64]

LOW_BITS = np.uint64(0x7F)
_MORE = np.uint64(0x80)
_1, _2, _7, _15, _23 = (np.uint32(bits) for bits in (1, 2, 7, 15, 23))
_FIRST, _SECOND, _THIRD = np.uint32(0x7F), np.uint32(0x3F80), np.uint32(0x1FC000)


def read_varints(octets: Octets, positions: Int64s, max_bits: int) -> tuple[Int64s, Int64s]:
    """The numbers that start at `positions`, and the positions after them.

    Raises CorruptBatchError if one does not fit `max_bits`, IndexError if the octets end within one.
    """
    short = _read_short(octets, positions)
    if short is not None:
        return short
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


def _read_short(octets: Octets, positions: Int64s) -> tuple[Int64s, Int64s] | None:
    """The same with one look at four bytes each, where none takes more than three of them."""
    if not len(positions) or int(positions.max()) > len(octets) - 4:
        return None
    words: npt.NDArray[np.uint32] = np.ndarray((len(octets) - 3,), "<u4", octets, strides=(1,))[positions]
    raw = words & _FIRST
    has_second = words >> _7 & _1
    after = positions + 1
    if has_second.any():
        has_third = words >> _15 & has_second
        raw |= words >> _1 & _SECOND & -has_second
        after += has_second
        if has_third.any():
            if (words >> _23 & has_third).any():
                return None
            raw |= words >> _2 & _THIRD & -has_third
            after += has_third
    return ((raw >> _1) ^ -(raw & _1)).view(np.int32).astype(np.int64), after


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

    def take(self, rows: Int64s) -> VarintColumn:
        taken = VarintColumn.__new__(VarintColumn)
        taken.raw, taken.sizes = self.raw[rows], self.sizes[rows]
        return taken

    def write(self, out: Octets, positions: Int64s) -> None:
        raw, sizes = self.raw, self.sizes
        longest = int(sizes.max()) if len(sizes) else 0
        if longest <= 1:
            out[positions] = raw.astype(np.uint8)
            return
        out[positions] = (raw & LOW_BITS | np.where(sizes > 1, _MORE, np.uint64(0))).astype(np.uint8)
        for index in range(1, longest):
            rows = np.flatnonzero(sizes > index)
            rest = raw[rows] >> np.uint64(7 * index)
            more = np.where(sizes[rows] > index + 1, _MORE, np.uint64(0))
            out[positions[rows] + index] = (rest & LOW_BITS | more).astype(np.uint8)
