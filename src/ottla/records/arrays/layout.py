"""Where the fields of many records lie in a buffer, and what their numbers are.

Checks what `reader` checks of a record, an array at a time.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ottla.base.errors import CorruptBatchError
from ottla.base.types import ReadBuffer
from ottla.records.arrays.headers import HeaderColumns
from ottla.records.arrays.heads import read_heads
from ottla.records.arrays.hop import check_lengths
from ottla.records.arrays.starts import find_all_starts
from ottla.records.arrays.varint import Int64s, Octets, read_varints
from ottla.records.batch import LOG_APPEND_TIME_BIT, BatchHeader
from ottla.records.faults import raise_negative_length

MAX_INT64: Final = (1 << 63) - 1


class Payload(NamedTuple):
    """The records of one batch: `start` and `end` are positions in the buffer all payloads share."""

    header: BatchHeader
    start: int
    end: int


class Payloads(NamedTuple):
    """The same for many batches, a column for each field that their records need."""

    starts: Int64s
    ends: Int64s
    counts: Int64s
    base_offsets: Int64s
    last_offset_deltas: Int64s
    base_timestamps: Int64s
    max_timestamps: Int64s
    attributes: Int64s

    @classmethod
    def of(cls, payloads: list[Payload]) -> Payloads:
        headers = [payload.header for payload in payloads]
        return cls(
            _column([payload.start for payload in payloads]),
            _column([payload.end for payload in payloads]),
            _column([header.record_count for header in headers]),
            _column([header.base_offset for header in headers]),
            _column([header.last_offset_delta for header in headers]),
            _column([header.base_timestamp for header in headers]),
            _column([header.max_timestamp for header in headers]),
            _column([header.attributes for header in headers]),
        )

    @classmethod
    def of_columns(cls, headers: HeaderColumns, starts: Int64s, ends: Int64s) -> Payloads:
        return cls(
            starts,
            ends,
            headers.record_counts,
            headers.base_offsets,
            headers.last_offset_deltas,
            headers.base_timestamps,
            headers.max_timestamps,
            headers.attributes,
        )

    def with_records(self) -> Payloads:
        """Without batches that compaction has emptied: they are batches, but have no rows to repeat anything for."""
        if not self.counts.size or int(self.counts.min()) > 0:
            return self
        return Payloads(*(column[self.counts > 0] for column in self))


class Numbers:
    """The numbers of all records as arrays."""

    offsets: Int64s
    timestamps: Int64s
    timestamp_types: npt.NDArray[np.int32]
    first_offset: int
    """The lowest; so the last is the highest."""
    last_offset: int

    def take(self, offset_deltas: Int64s, timestamp_deltas: Int64s, payloads: Payloads) -> None:
        payloads = payloads.with_records()
        self.take_offsets(offset_deltas, payloads)
        self.timestamps = timestamps_of(timestamp_deltas, payloads, payloads.counts)
        by_broker = (payloads.attributes & LOG_APPEND_TIME_BIT != 0).astype(np.int32)
        self.timestamp_types = np.repeat(by_broker, payloads.counts)

    def take_offsets(self, offset_deltas: Int64s, payloads: Payloads) -> None:
        _check_offsets(offset_deltas, payloads)
        self.offsets = np.repeat(payloads.base_offsets, payloads.counts) + offset_deltas
        self.first_offset = int(self.offsets.min()) if self.offsets.size else 0
        self.last_offset = int(self.offsets.max()) if self.offsets.size else -1

    def are_within(self, start_offset: int, end_offset: int | None) -> bool:
        return not len(self.offsets) or (
            self.first_offset >= start_offset and (end_offset is None or self.last_offset < end_offset)
        )


class RecordLayout(Numbers):
    """The fields of any records: for keys and values, arrays of where they start and how long they are."""

    def __init__(self, buf: ReadBuffer, octets: Octets, payloads: Payloads, *, with_timestamps: bool = True) -> None:
        self.buf = buf
        self.octets = octets
        self.payloads = payloads
        counts = payloads.counts
        self.starts = find_all_starts(buf, octets, payloads.starts, payloads.ends, counts)
        heads = read_heads(octets, self.starts)
        check_lengths(heads.lengths)
        self.ends = heads.body_starts + heads.lengths
        is_alone = counts == 1
        if (self.ends[(np.cumsum(counts) - 1)[is_alone]] != payloads.ends[is_alone]).any():
            raise CorruptBatchError("a record does not end where its batch does")
        self.key_lengths, self.key_starts = heads.key_lengths, heads.key_starts
        at = _after(self.key_starts, self.key_lengths, "key")
        self.value_lengths, self.value_starts = read_varints(octets, at, 32)
        self.header_starts = _after(self.value_starts, self.value_lengths, "value")
        self._check_ends()
        if with_timestamps:
            self.take(heads.offset_deltas, heads.timestamp_deltas, payloads)
        else:
            self.take_offsets(heads.offset_deltas, payloads.with_records())

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


def _column(values: list[int]) -> Int64s:
    return np.array(values, np.int64)


def _after(starts: Int64s, lengths: Int64s, what: str) -> Int64s:
    smallest = int(lengths.min()) if lengths.size else 0
    if smallest < -1:
        raise_negative_length(what)
    return starts + (lengths if smallest >= 0 else np.maximum(lengths, 0))


def _check_offsets(deltas: Int64s, payloads: Payloads) -> None:
    if not deltas.size:
        return
    lasts = np.cumsum(payloads.counts) - 1
    firsts = lasts - payloads.counts + 1
    steps = np.empty_like(deltas)
    steps[1:] = deltas[1:] - deltas[:-1]
    steps[firsts] = deltas[firsts] + 1
    if int(steps.min()) < 1:
        raise CorruptBatchError("the offset deltas of a batch do not rise from record to record")
    if (payloads.base_offsets > MAX_INT64 - payloads.last_offset_deltas).any():
        raise CorruptBatchError("a batch has offsets beyond 64 bits")
    if (deltas[lasts] > payloads.last_offset_deltas).any():
        raise CorruptBatchError("a record has an offset beyond the last one of its batch")


def timestamps_of(deltas: Int64s, payloads: Payloads, counts: Int64s) -> Int64s:
    """Of records, so many of each batch, whose timestamps say `deltas`."""
    bases = np.repeat(payloads.base_timestamps, counts)
    timestamps: Int64s = bases + deltas
    # Both terms have the sign the sum has not: it went round.
    overflows = ((bases ^ timestamps) & (deltas ^ timestamps)) < 0
    appended = payloads.attributes & LOG_APPEND_TIME_BIT != 0
    if appended.any():
        by_broker = np.repeat(appended, counts)
        timestamps = np.where(by_broker, np.repeat(payloads.max_timestamps, counts), timestamps)
        overflows &= ~by_broker
    if overflows.any():
        raise CorruptBatchError("the timestamp of a record does not fit 64 bits")
    return timestamps
