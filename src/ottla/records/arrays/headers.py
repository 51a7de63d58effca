"""The headers of many batches as NumPy arrays, and where the batches lie in a buffer."""

from __future__ import annotations

from functools import cached_property
from struct import Struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ottla.base.types import ReadBuffer
from ottla.records.arrays.varint import Int64s, Octets
from ottla.records.batch import (
    HEADER_SIZE,
    MAGIC_POSITION,
    MAGIC_V2,
    OFFSET_AND_LENGTH_SIZE,
    BatchHeader,
    iter_headers,
)

RAW_HEADER: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("partition_leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
_LENGTH_POSITION: Final = 8
_MIN_BATCH_LENGTH: Final = HEADER_SIZE - OFFSET_AND_LENGTH_SIZE
_FEW: Final = 16
"""So few batches are quicker found one by one."""
_unpack_length = Struct(">i4xb").unpack_from


class HeaderColumns:
    """The headers of the batches at `positions`, a column for each field."""

    def __init__(self, raw: npt.NDArray[Any], positions: Int64s) -> None:
        self.raw = raw
        self.positions = positions

    @classmethod
    def read(cls, octets: Octets, positions: Int64s) -> HeaderColumns:
        return cls(raw_headers(octets)[positions], positions)

    def take(self, numbers: Int64s) -> HeaderColumns:
        return HeaderColumns(self.raw[numbers], self.positions[numbers])

    def __len__(self) -> int:
        return len(self.positions)

    def header(self, number: int) -> BatchHeader:
        return BatchHeader(*self.raw[number].item())

    @cached_property
    def sizes(self) -> Int64s:
        return self._column("batch_length") + OFFSET_AND_LENGTH_SIZE

    @cached_property
    def base_offsets(self) -> Int64s:
        return self._column("base_offset")

    @cached_property
    def last_offset_deltas(self) -> Int64s:
        return self._column("last_offset_delta")

    @cached_property
    def last_offsets(self) -> Int64s:
        return self.base_offsets + self.last_offset_deltas

    @cached_property
    def attributes(self) -> Int64s:
        return self._column("attributes")

    @cached_property
    def base_timestamps(self) -> Int64s:
        return self._column("base_timestamp")

    @cached_property
    def max_timestamps(self) -> Int64s:
        return self._column("max_timestamp")

    @cached_property
    def record_counts(self) -> Int64s:
        return self._column("record_count")

    def _column(self, name: str) -> Int64s:
        column: Int64s = self.raw[name].astype(np.int64)
        return column


def raw_headers(octets: Octets) -> npt.NDArray[Any]:
    """What would be the header at any position of a buffer."""
    return np.ndarray((max(len(octets) - HEADER_SIZE + 1, 0),), RAW_HEADER, octets, strides=(1,))


def find_batches(view: ReadBuffer, octets: Octets, hints: Int64s) -> Int64s:
    """Where the whole batches lie that `view` begins with; `octets` is the same memory and may go on behind it.

    `hints` are places where batches are thought to begin, in their order. A batch tells where the next one is, so the
    way through them is long; from many places at once it is short. A hint that was wrong does no harm: the way from the
    place before it does not lead there. Raises CorruptBatchError for what is no batch of magic 2.
    """
    end = len(view)
    if len(hints) >= _FEW and end >= HEADER_SIZE:
        found = _find_in_step(octets, np.concatenate((np.zeros(1, np.int64), hints)), end)
        if found is not None:
            return found
    return np.array(_walk(view, 0, end), np.int64)


def _find_in_step(octets: Octets, lanes: Int64s, end: int) -> Int64s | None:
    """From all lanes at once, each up to where the next begins. None if one does not get there."""
    lengths: npt.NDArray[np.int32] = np.ndarray((len(octets) - 3,), ">i4", octets, strides=(1,))
    at, goals = lanes, np.append(lanes[1:], end)
    found: list[Int64s] = []
    while len(at):
        # Only the last lane may end within a batch, and leaves it out.
        if at[-1] + HEADER_SIZE > end:
            if goals[-1] != end:
                return None
            at, goals = at[:-1], goals[:-1]
            continue
        length = lengths[at + _LENGTH_POSITION].astype(np.int64)
        if (length < _MIN_BATCH_LENGTH).any() or (octets[at + MAGIC_POSITION] != MAGIC_V2).any():
            return None
        after = at + length + OFFSET_AND_LENGTH_SIZE
        too_far = after > goals
        if too_far.any():
            if goals[-1] != end or too_far[:-1].any():
                return None
            at, after, goals = at[:-1], after[:-1], goals[:-1]
        found.append(at)
        goes_on = after < goals
        at, goals = after[goes_on], goals[goes_on]
    return np.sort(np.concatenate(found)) if found else np.zeros(0, np.int64)


def _walk(view: ReadBuffer, at: int, end: int) -> list[int]:
    found: list[int] = []
    while at + HEADER_SIZE <= end:
        length, magic = _unpack_length(view, at + _LENGTH_POSITION)
        if length < _MIN_BATCH_LENGTH or magic != MAGIC_V2:
            break
        after = at + OFFSET_AND_LENGTH_SIZE + length
        if after > end:
            return found
        found.append(at)
        at = after
    # What is left is the beginning of a batch, or says what is wrong with it.
    found += [position for position, _ in iter_headers(view, at, end)]
    return found
