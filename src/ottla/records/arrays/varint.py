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
        out[positions] = (raw & LOW_BITS | np.where(sizes > 1, _MORE, np.uint64(0))).astype(np.uint8)
        for index in range(1, longest):
            rows = np.flatnonzero(sizes > index)
            rest = raw[rows] >> np.uint64(7 * index)
            more = np.where(sizes[rows] > index + 1, _MORE, np.uint64(0))
            out[positions[rows] + index] = (rest & LOW_BITS | more).astype(np.uint8)
