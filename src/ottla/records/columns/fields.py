"""The fields of many records as columns: numbers in arrays, and keys and values as Arrow arrays.

Checks what `reader` checks of a record, a column at a time. Which batches are read is `decode`'s business.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ottla.base.types import ReadBuffer
from ottla.records.arrays.layout import MAX_INT64, Numbers, Payload, Payloads, RecordLayout
from ottla.records.arrays.varint import Int64s, Octets
from ottla.records.batch import LOG_APPEND_TIME_BIT, BatchHeader
from ottla.records.columns.headers import read_header_columns
from ottla.records.columns.runs import Run, keys_of, read_runs, values_of
from ottla.records.columns.slices import slices

_FAR_FROM_OVERFLOW: Final = 1 << 62


class RunFields(Numbers):
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


class Fields(RecordLayout):
    """The fields of any records, with keys and values as Arrow arrays."""

    def keys(self) -> Any:
        return slices(self.buf, self.key_starts, self.key_lengths)

    def values(self) -> Any:
        return slices(self.buf, self.value_starts, self.value_lengths)

    def headers(self) -> Any:
        return read_header_columns(self.buf, self.octets, self.header_starts, self.ends)

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
    fields = Fields(buf, octets, Payloads.of(payloads))
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
        fields.take(offset_deltas, timestamp_deltas, Payloads.of(payloads))
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
        and header.last_offset <= MAX_INT64
        # The timestamps of a run take four bytes at most.
        and abs(header.base_timestamp) < _FAR_FROM_OVERFLOW
    )
