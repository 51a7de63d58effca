"""The fields of many records as columns: numbers in arrays, and keys and values as Arrow arrays.

Checks what `reader` checks of a record, a column at a time. Which batches are read is `decode`'s business.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ottla.base.errors import CorruptBatchError
from ottla.base.types import ReadBuffer
from ottla.records.batch import LOG_APPEND_TIME_BIT, BatchHeader
from ottla.records.columns.headers import read_header_columns
from ottla.records.columns.hop import check_lengths, find_starts
from ottla.records.columns.runs import Run, keys_of, read_runs, values_of
from ottla.records.columns.slices import slices
from ottla.records.columns.varint import Int64s, Octets, read_varints
from ottla.records.faults import raise_negative_length

_MAX_INT64: Final = (1 << 63) - 1
_FAR_FROM_OVERFLOW: Final = 1 << 62


class Payload(NamedTuple):
    """The records of one batch: `start` and `end` are positions in the buffer all payloads share."""

    header: BatchHeader
    start: int
    end: int


class _Numbers:
    """The numbers of all records as arrays."""

    offsets: Int64s
    timestamps: Int64s
    timestamp_types: npt.NDArray[np.int32]
    first_offset: int
    """The lowest; so the last is the highest."""
    last_offset: int

    def take(self, offset_deltas: Int64s, timestamp_deltas: Int64s, payloads: list[Payload], counts: Int64s) -> None:
        # A batch that compaction has emptied is still a batch, but has no rows to repeat anything for.
        headers = [payload.header for payload in payloads if payload.header.record_count]
        counts = counts[counts > 0]
        _check_offsets(offset_deltas, headers, counts)
        self.offsets = _repeat([header.base_offset for header in headers], counts) + offset_deltas
        self.timestamps = _timestamps(timestamp_deltas, headers, counts)
        self.timestamp_types = np.repeat(np.array([int(header.timestamp_type) for header in headers], np.int32), counts)

        self.first_offset = int(self.offsets.min()) if self.offsets.size else 0
        self.last_offset = int(self.offsets.max()) if self.offsets.size else -1

    def are_within(self, start_offset: int, end_offset: int | None) -> bool:
        return not len(self.offsets) or (
            self.first_offset >= start_offset and (end_offset is None or self.last_offset < end_offset)
        )


class RunFields(_Numbers):
    """The fields of batches that are nothing but long runs of records of one shape, without headers."""

    def __init__(self, octets: Octets, runs: list[Run]) -> None:
        self._octets = octets
        self._runs = runs

    def take_as_they_come(self, offset_deltas: Int64s, timestamp_deltas: Int64s, headers: list[BatchHeader]) -> None:
        """The numbers of batches without gaps, which need no further check. Made of the given arrays in place."""
        self.offsets = offset_deltas
        self.timestamps = timestamp_deltas
        types = np.empty(len(offset_deltas), np.int32)
        done = 0
        for header in headers:
            own = slice(done, done + header.record_count)
            offset_deltas[own] += header.base_offset
            if header.attributes & LOG_APPEND_TIME_BIT:
                timestamp_deltas[own] = header.max_timestamp
            else:
                timestamp_deltas[own] += header.base_timestamp
            types[own] = header.timestamp_type
            done = own.stop
        self.timestamp_types = types
        self.first_offset = min((header.base_offset for header in headers), default=0)
        self.last_offset = max((header.base_offset + header.record_count - 1 for header in headers), default=-1)

    def keys(self) -> Any:
        return keys_of(self._octets, self._runs)

    def values(self) -> Any:
        return values_of(self._octets, self._runs)


class Fields(_Numbers):
    """The fields of any records: for keys and values, arrays of where they start and how long they are."""

    def __init__(self, buf: ReadBuffer, octets: Octets, payloads: list[Payload]) -> None:
        self.buf = buf
        self.octets = octets
        counts = _counts(payloads)
        lasts = np.cumsum(counts)
        starts = np.empty(int(lasts[-1]) if payloads else 0, np.int64)
        for payload, last in zip(payloads, lasts.tolist(), strict=True):
            own = starts[last - payload.header.record_count : last]
            find_starts(buf, self.octets, payload.start, payload.end, own)
        lengths, at = read_varints(octets, starts, 32)
        check_lengths(lengths)
        self.ends = at + lengths
        timestamp_deltas, at = read_varints(octets, at + 1, 64)
        offset_deltas, at = read_varints(octets, at, 32)
        self.key_lengths, self.key_starts = read_varints(octets, at, 32)
        at = _after(self.key_starts, self.key_lengths, "key")
        self.value_lengths, self.value_starts = read_varints(octets, at, 32)
        self.header_starts = _after(self.value_starts, self.value_lengths, "value")
        self._check_ends()
        self.take(offset_deltas, timestamp_deltas, payloads, counts)

    def keys(self) -> Any:
        return slices(self.buf, self.key_starts, self.key_lengths)

    def values(self) -> Any:
        return slices(self.buf, self.value_starts, self.value_lengths)

    def headers(self) -> Any:
        return read_header_columns(self.buf, self.octets, self.header_starts, self.ends)

    def _check_ends(self) -> None:
        """A record without headers ends with their count, a zero; the others have room for their headers at least."""
        gaps = self.ends - self.header_starts
        if not gaps.size or (int(gaps.min()) == 1 == int(gaps.max()) and not self.octets[self.header_starts].any()):
            return
        if int(gaps.min()) < 1:
            raise CorruptBatchError("a record does not end where its length says")
        has_none = self.octets[self.header_starts] == 0
        if (gaps[has_none] != 1).any() or (gaps[~has_none] == 1).any():
            raise CorruptBatchError("a record does not end where its length says")

    def cut(self, start_offset: int, end_offset: int | None) -> None:
        """Drops the records outside the range: a fetch starts at the batch that holds the offset, not at the offset."""
        inside = self.offsets >= start_offset
        if end_offset is not None:
            inside &= self.offsets < end_offset
        for name, values in list(vars(self).items()):
            if isinstance(values, np.ndarray) and name != "octets":
                setattr(self, name, values[inside])


def read_fields(
    buf: ReadBuffer,
    octets: Octets,
    payloads: list[Payload],
    start_offset: int,
    end_offset: int | None,
    *,
    has_headers: bool,
) -> RunFields | Fields:
    """The fields of the records from `start_offset` up to and without `end_offset`; headers only if asked for."""
    found = None if has_headers else _read_run_fields(buf, octets, payloads)
    if found is not None and found.are_within(start_offset, end_offset):
        return found
    fields = Fields(buf, octets, payloads)
    if not fields.are_within(start_offset, end_offset):
        fields.cut(start_offset, end_offset)
    return fields


def _read_run_fields(buf: ReadBuffer, octets: Octets, payloads: list[Payload]) -> RunFields | None:
    """None if there are other records than those of long runs."""
    rows = sum(payload.header.record_count for payload in payloads)
    offset_deltas: Int64s = np.empty(rows, np.int64)
    timestamp_deltas: Int64s = np.empty(rows, np.int64)
    runs: list[Run] = []
    done = 0
    has_no_gaps = True
    for payload in payloads:
        own = slice(done, done + payload.header.record_count)
        found = read_runs(buf, octets, payload.start, payload.end, timestamp_deltas[own], offset_deltas[own])
        if found is None:
            return None
        has_no_gaps = has_no_gaps and _has_no_gaps(payload.header, found)
        runs += found
        done = own.stop
    fields = RunFields(octets, runs)
    if has_no_gaps:
        fields.take_as_they_come(offset_deltas, timestamp_deltas, [payload.header for payload in payloads])
    else:
        fields.take(offset_deltas, timestamp_deltas, payloads, _counts(payloads))
    return fields


def _has_no_gaps(header: BatchHeader, runs: list[Run]) -> bool:
    """Whether the offset deltas are known to be 0, 1, 2 and so on, and all numbers to be within 64 bits."""
    expected = 0
    for run in runs:
        if not run.is_even or run.first_delta != expected:
            return False
        expected += run.rows
    return (
        expected <= header.last_offset_delta + 1
        and header.last_offset <= _MAX_INT64
        # The timestamps of a run take four bytes at most.
        and abs(header.base_timestamp) < _FAR_FROM_OVERFLOW
    )


def _counts(payloads: list[Payload]) -> Int64s:
    return np.array([payload.header.record_count for payload in payloads], np.int64)


def _after(starts: Int64s, lengths: Int64s, what: str) -> Int64s:
    smallest = int(lengths.min()) if lengths.size else 0
    if smallest < -1:
        raise_negative_length(what)
    return starts + (lengths if smallest >= 0 else np.maximum(lengths, 0))


def _repeat(values: list[int], counts: Int64s) -> Int64s:
    return np.repeat(np.array(values, np.int64), counts)


def _check_offsets(deltas: Int64s, headers: list[BatchHeader], counts: Int64s) -> None:
    if not deltas.size:
        return
    lasts = np.cumsum(counts) - 1
    firsts = lasts - counts + 1
    steps = np.empty_like(deltas)
    steps[1:] = deltas[1:] - deltas[:-1]
    steps[firsts] = deltas[firsts] + 1
    if int(steps.min()) < 1:
        raise CorruptBatchError("the offset deltas of a batch do not rise from record to record")
    if any(header.last_offset > _MAX_INT64 for header in headers):
        raise CorruptBatchError("a batch has offsets beyond 64 bits")
    if (deltas[lasts] > np.array([header.last_offset_delta for header in headers], np.int64)).any():
        raise CorruptBatchError("a record has an offset beyond the last one of its batch")


def _timestamps(deltas: Int64s, headers: list[BatchHeader], counts: Int64s) -> Int64s:
    bases = _repeat([header.base_timestamp for header in headers], counts)
    timestamps = bases + deltas
    # Both terms have the sign the sum has not: it went round.
    overflows = ((bases ^ timestamps) & (deltas ^ timestamps)) < 0
    appended = [bool(header.attributes & LOG_APPEND_TIME_BIT) for header in headers]
    if any(appended):
        by_broker = np.repeat(np.array(appended), counts)
        timestamps = np.where(by_broker, _repeat([header.max_timestamp for header in headers], counts), timestamps)
        overflows &= ~by_broker
    if overflows.any():
        raise CorruptBatchError("the timestamp of a record does not fit 64 bits")
    return timestamps
