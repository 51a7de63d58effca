"""Varints of many rows joined into an Arrow array."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla.records.arrays.varint import LOW_BITS, Int64s, Octets, VarintColumn

_MIN_ROWS_PER_RUN = 64


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
            rows[:, at] = ((raw >> np.uint64(7 * index)) & LOW_BITS | np.uint64(more)).astype(np.uint8)
            at += 1


def binary_array(offsets: npt.NDArray[Any], data: Any) -> Any:
    """An Arrow binary array over `data`, not copied: row i is `data[offsets[i]:offsets[i + 1]]`."""
    return pa.Array.from_buffers(
        pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets.astype(np.int32, copy=False)), pa.py_buffer(data)]
    )
