"""The headers of records as a column of lists.

Records rarely have more than a few headers, so the first header of every record is read at once, then the second of
every record that has two, and so on. Records with very many are read one by one: rounds for them alone would cost more.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from ottla.base.errors import CorruptBatchError
from ottla.base.types import ReadBuffer
from ottla.records.arrays.varint import Int64s, Octets, read_varints
from ottla.records.columns.schema import HEADERS_TYPE
from ottla.records.columns.slices import slices
from ottla.records.faults import raise_negative_length
from ottla.records.varint import read_varint

_ROUNDS: Final = 32
_MIN_HEADER_SIZE: Final = 2


class _Found:
    """Where headers lie, in the order in which they were found: record, then start and length of key and of value."""

    def __init__(self) -> None:
        self._parts: list[tuple[Int64s, Int64s, Int64s, Int64s, Int64s]] = []

    def add(self, *part: Int64s) -> None:
        records, key_starts, key_lengths, value_starts, value_lengths = part
        self._parts.append((records, key_starts, key_lengths, value_starts, value_lengths))

    def by_record(self) -> list[Int64s]:
        """The four columns of positions, sorted by record; headers of one record stay in their order."""
        if not self._parts:
            return [np.empty(0, np.int64)] * 4
        records, *columns = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        order = np.argsort(records, kind="stable")
        return [column[order] for column in columns]


def read_header_columns(buf: ReadBuffer, octets: Octets, starts: Int64s, ends: Int64s) -> Any:
    """The headers that begin, with their count, at `starts` and must fill their records up to `ends`."""
    counts, at = read_varints(octets, starts, 32)
    if counts.size and (int(counts.min()) < 0 or (counts * _MIN_HEADER_SIZE > ends - at).any()):
        raise CorruptBatchError("a record claims headers that it has no room for")
    found = _Found()
    records = np.flatnonzero(counts)
    if not records.size:
        return pa.nulls(len(starts), HEADERS_TYPE)
    at, last = at[records], ends[records]
    rounds = 0
    while records.size and rounds < _ROUNDS:
        at = _read_round(octets, records, at, found)
        rounds += 1
        finished = counts[records] == rounds
        if (at[finished] != last[finished]).any() or (at > last).any():
            raise CorruptBatchError("the headers of a record do not end where the record does")
        records, at, last = records[~finished], at[~finished], last[~finished]
    for record, pos, end in zip(records.tolist(), at.tolist(), last.tolist(), strict=True):
        _read_alone(bytes(buf[pos:end]), pos, record, int(counts[record]) - rounds, found)
    return _lists(buf, counts, found)


def _read_round(octets: Octets, records: Int64s, at: Int64s, found: _Found) -> Int64s:
    key_lengths, key_starts = read_varints(octets, at, 32)
    if int(key_lengths.min()) < 0:
        raise_negative_length("header key")
    value_lengths, value_starts = read_varints(octets, key_starts + key_lengths, 32)
    if int(value_lengths.min()) < -1:
        raise_negative_length("header value")
    found.add(records, key_starts, key_lengths, value_starts, value_lengths)
    return value_starts + np.maximum(value_lengths, 0)


def _read_alone(rest: bytes, origin: int, record: int, count: int, found: _Found) -> None:
    """The last `count` headers of one record, whose bytes are `rest`; positions count from `origin` before it."""
    rows: list[tuple[int, int, int, int, int]] = []
    pos = 0
    for _ in range(count):
        key_length, key_start = read_varint(rest, pos)
        if key_length < 0:
            raise_negative_length("header key")
        value_length, value_start = read_varint(rest, key_start + key_length)
        if value_length < -1:
            raise_negative_length("header value")
        pos = value_start + max(0, value_length)
        rows.append((record, origin + key_start, key_length, origin + value_start, value_length))
    if pos != len(rest):
        raise CorruptBatchError("the headers of a record do not end where the record does")
    found.add(*np.array(rows, np.int64).T)


def _lists(buf: ReadBuffer, counts: Int64s, found: _Found) -> Any:
    key_starts, key_lengths, value_starts, value_lengths = found.by_record()
    keys = _as_text(slices(buf, key_starts, key_lengths))
    values = slices(buf, value_starts, value_lengths)
    entries = pa.StructArray.from_arrays([keys, values], fields=list(HEADERS_TYPE.value_type))
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    has_some = counts > 0
    validity = None if has_some.all() else pa.py_buffer(np.packbits(has_some, bitorder="little"))
    return pa.Array.from_buffers(HEADERS_TYPE, len(counts), [validity, pa.py_buffer(offsets)], children=[entries])


def _as_text(keys: Any) -> Any:
    """What is not UTF-8 is replaced, as `reader` does; Arrow cannot, so all keys are then decoded one by one."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode(errors="replace") for key in keys.to_pylist()], pa.string())
