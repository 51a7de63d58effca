"""Rows whose keys and values all have the same length: their records are cells of one size, filled column by column.

Such tables are common, and can be written at the speed of memory. Only the offset and the timestamp of a record take a
different number of bytes from row to row, and both change seldom: between two changes, records are equally long.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ottla.records.arrays.varint import Int64s, Octets, VarintColumn
from ottla.records.batch import HEADER_SIZE
from ottla.records.columns.input import RecordColumns
from ottla.records.varint import encode_varint

Cells: TypeAlias = npt.NDArray[np.void]

_MIN_ROWS_PER_RUN = 64
_NO_HEADERS = b"\x00"
_ATTRIBUTES = b"\x00"
_OFFSET_BOUNDS = (1 << 6, 1 << 13, 1 << 20, 1 << 27)
"""The offset deltas from which on one more byte is needed."""
_KEPT_HEADS = _OFFSET_BOUNDS[1]


class _Run(NamedTuple):
    """Rows of a batch, counted from its first, whose records are equally long."""

    first: int
    last: int
    timestamp_size: int
    offset_size: int
    length: bytes
    """That of each record without these bytes themselves, as a varint."""
    record_size: int

    @property
    def size(self) -> int:
        return self.record_size * (self.last - self.first)


class RecordsOfBatch(NamedTuple):
    """The records of one batch, behind room for its header."""

    make: Callable[[], memoryview]
    size: int
    """Of all, with the room for the header."""
    first_row: int
    record_count: int
    is_made: bool = False
    """Whether it is the same memory each time, and nothing has to be done to get it."""

    @classmethod
    def made(cls, data: memoryview, first_row: int, record_count: int) -> RecordsOfBatch:
        return cls(lambda: data, len(data), first_row, record_count, is_made=True)


def encode_evenly(columns: RecordColumns, max_batch_size: int) -> Iterable[RecordsOfBatch] | None:
    """The records of all rows, in batches; None if rows are too uneven.

    Batches are about equally large, and no larger than `max_batch_size`, except one of a single row. If all rows have
    the same timestamp, nothing is made before it is asked for, and it is made anew each time.
    """
    count = len(columns)
    if not count or columns.headers is not None:
        return None
    key_length, value_length = _same_length(columns.key_lengths), _same_length(columns.value_lengths)
    if key_length is None or value_length is None:
        return None
    rows = _EvenRows(columns, key_length, value_length)
    batch_count = -(-count // rows.most_per_batch(max_batch_size))
    edges = [count * number // batch_count for number in range(batch_count + 1)]
    if not rows.span_ms:
        return (
            RecordsOfBatch(
                partial(rows.encode_moment, first, last), rows.size_of_moment(last - first), first, last - first
            )
            for first, last in pairwise(edges)
        )
    batches = []
    for first, last in pairwise(edges):
        data = rows.encode(first, last)
        if data is None:
            return None
        batches.append(RecordsOfBatch.made(data, first, last - first))
    return batches


def _same_length(lengths: Int64s) -> int | None:
    first = int(lengths[0])
    return first if bool((lengths == first).all()) else None


class _EvenRows:
    def __init__(self, columns: RecordColumns, key_length: int, value_length: int) -> None:
        self._keys = _cells(columns.keys, key_length)
        self._values = _cells(columns.values, value_length)
        self._key_length = encode_varint(key_length)
        self._value_length = encode_varint(value_length)
        self._timestamps = columns.timestamps
        self.span_ms = int(columns.timestamps.max()) - int(columns.timestamps.min())
        self._runs_by_count: dict[int, list[_Run]] = {}
        self._fixed_size = (
            len(_ATTRIBUTES)
            + len(self._key_length)
            + max(key_length, 0)
            + len(self._value_length)
            + max(value_length, 0)
            + len(_NO_HEADERS)
        )

    def most_per_batch(self, max_batch_size: int) -> int:
        """How many rows surely fit, if each needed as many bytes as the one that needs the most."""
        most = max_batch_size // self._fixed_size
        offset_size = bisect_left(_OFFSET_BOUNDS, most) + 1
        body_size = self._fixed_size + len(encode_varint(self.span_ms)) + offset_size
        return max(1, (max_batch_size - HEADER_SIZE) // (len(encode_varint(body_size)) + body_size))

    def encode(self, first: int, last: int) -> memoryview | None:
        """The batch of these rows; None if there are too many runs for this to be worth while."""
        deltas = self._timestamps[first:last] - self._timestamps[first]
        if not deltas.any():
            return self.encode_moment(first, last)
        timestamps = VarintColumn(deltas)
        cuts = np.flatnonzero(np.diff(timestamps.sizes)) + 1
        if len(cuts) * _MIN_ROWS_PER_RUN > last - first:
            return None
        return self._write_all(list(self._runs(last - first, cuts.tolist(), timestamps)), first, timestamps)

    def encode_moment(self, first: int, last: int) -> memoryview:
        """The batch of these rows, which all have the same timestamp."""
        return self._write_all(self._runs_of_moment(last - first), first, None)

    def size_of_moment(self, count: int) -> int:
        return _size_of(self._runs_of_moment(count))

    def _runs_of_moment(self, count: int) -> list[_Run]:
        runs = self._runs_by_count.get(count)
        if runs is None:
            runs = self._runs_by_count[count] = list(self._runs(count, (), None))
        return runs

    def _write_all(self, runs: list[_Run], first: int, timestamps: VarintColumn | None) -> memoryview:
        out: Octets = np.empty(_size_of(runs), np.uint8)
        at = HEADER_SIZE
        for run in runs:
            self._write(out, at, run, first, timestamps)
            at += run.size
        out[-1] = _NO_HEADERS[0]
        return out.data

    def _runs(self, count: int, cuts: Sequence[int], timestamps: VarintColumn | None) -> Iterator[_Run]:
        edges = sorted({0, count, *cuts, *(bound for bound in _OFFSET_BOUNDS if bound < count)})
        for offset, last in pairwise(edges):
            timestamp_size = 1 if timestamps is None else int(timestamps.sizes[offset])
            offset_size = bisect_right(_OFFSET_BOUNDS, offset) + 1
            body_size = self._fixed_size + timestamp_size + offset_size
            length = encode_varint(body_size)
            yield _Run(offset, last, timestamp_size, offset_size, length, len(length) + body_size)

    def _write(self, out: Octets, at: int, run: _Run, first: int, timestamps: VarintColumn | None) -> None:
        """What ends a record is written with what begins the next one: before the first there is always something."""
        before = _NO_HEADERS + run.length + _ATTRIBUTES
        after = self._key_length if self._keys is not None else self._key_length + self._value_length
        if timestamps is None:
            heads = _heads_by_offset(before + b"\x00", run.offset_size, after, run.first, run.last)
        else:
            offsets = VarintColumn(np.arange(run.first, run.last, dtype=np.int64))
            raw = timestamps.raw[run.first : run.last]
            heads = _heads(before, [(raw, run.timestamp_size), (offsets.raw, run.offset_size)], after)
        fields: list[Any] = [heads]
        rows = slice(first + run.first, first + run.last)
        if self._keys is not None:
            fields += [self._keys[rows], np.frombuffer(self._value_length, f"V{len(self._value_length)}")[0]]
        if self._values is not None:
            fields.append(self._values[rows])
        at -= len(_NO_HEADERS)
        for field in fields:
            # The field at its place in every record. Copying one to another costs one move of memory for each row.
            np.ndarray(run.last - run.first, field.dtype, out.data, at, (run.record_size,))[:] = field
            at += field.dtype.itemsize


def _size_of(runs: list[_Run]) -> int:
    return HEADER_SIZE + sum([run.size for run in runs])


def _cells(column: Any, length: int) -> Cells | None:
    """The bytes of an Arrow array whose rows all have this length; None if they have no bytes."""
    if column is None or length <= 0:
        return None
    _, offsets, data = column.buffers()
    start = int(np.frombuffer(offsets, np.int32)[column.offset])
    return np.frombuffer(data, f"V{length}", len(column), start)


def _heads_by_offset(before: bytes, offset_size: int, after: bytes, first: int, last: int) -> Cells:
    if last > _KEPT_HEADS:
        return _heads(before, [(_offsets(first, last), offset_size)], after)
    lowest = 0 if offset_size == 1 else _OFFSET_BOUNDS[offset_size - 2]
    return _kept_heads(before, offset_size, after)[first - lowest : last - lowest]


@lru_cache(maxsize=32)
def _kept_heads(before: bytes, offset_size: int, after: bytes) -> Cells:
    """How records with the offsets of this size begin. They are the same in every batch of rows of one length."""
    lowest = 0 if offset_size == 1 else _OFFSET_BOUNDS[offset_size - 2]
    return _heads(before, [(_offsets(lowest, _OFFSET_BOUNDS[offset_size - 1]), offset_size)], after)


def _offsets(first: int, last: int) -> npt.NDArray[np.uint64]:
    return VarintColumn(np.arange(first, last, dtype=np.int64)).raw


def _heads(before: bytes, numbers: Sequence[tuple[npt.NDArray[np.uint64], int]], after: bytes) -> Cells:
    """For each row the bytes before, its numbers as varints of these sizes, and the bytes after."""
    size = len(before) + sum(varint_size for _, varint_size in numbers) + len(after)
    rows: Octets = np.empty((len(numbers[0][0]), size), np.uint8)
    rows[:, : len(before)] = np.frombuffer(before, np.uint8)
    at = len(before)
    for raw, varint_size in numbers:
        for index in range(varint_size):
            more = 0x80 if index < varint_size - 1 else 0
            rows[:, at] = ((raw >> np.uint64(7 * index)) & np.uint64(0x7F) | np.uint64(more)).astype(np.uint8)
            at += 1
    rows[:, at:] = np.frombuffer(after, np.uint8)
    heads: Cells = rows.reshape(-1).view(f"V{size}")
    return heads
