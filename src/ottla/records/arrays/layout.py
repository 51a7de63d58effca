"""Where the fields of many records lie in a buffer, and what their numbers are.

Checks what `reader` checks of a record, an array at a time.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ottla.base.errors import CorruptBatchError
from ottla.base.types import ReadBuffer
from ottla.records.arrays.hop import check_lengths, find_starts
from ottla.records.arrays.varint import Int64s, Octets, read_varints
from ottla.records.batch import LOG_APPEND_TIME_BIT, BatchHeader
from ottla.records.faults import raise_negative_length

MAX_INT64: Final = (1 << 63) - 1


class Payload(NamedTuple):
    """The records of one batch: `start` and `end` are positions in the buffer all payloads share."""

    header: BatchHeader
    start: int
    end: int


class Numbers:
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


class RecordLayout(Numbers):
    """The fields of any records: for keys and values, arrays of where they start and how long they are."""

    def __init__(self, buf: ReadBuffer, octets: Octets, payloads: list[Payload]) -> None:
        self.buf = buf
        self.octets = octets
        counts = record_counts(payloads)
        lasts = np.cumsum(counts)
        starts = np.empty(int(lasts[-1]) if payloads else 0, np.int64)
        for payload, last in zip(payloads, lasts.tolist(), strict=True):
            count = payload.header.record_count
            if count != 1:
                find_starts(buf, self.octets, payload.start, payload.end, starts[last - count : last])
        # Batches of one record are common, and need nobody to look for it.
        alone = lasts[counts == 1] - 1
        starts[alone] = [payload.start for payload in payloads if payload.header.record_count == 1]
        lengths, at = read_varints(octets, starts, 32)
        check_lengths(lengths)
        self.starts = starts
        self.ends = at + lengths
        if (self.ends[alone] != [payload.end for payload in payloads if payload.header.record_count == 1]).any():
            raise CorruptBatchError("a record does not end where its batch does")
        self.timestamp_starts = at + 1
        timestamp_deltas, self.delta_starts = read_varints(octets, self.timestamp_starts, 64)
        offset_deltas, at = read_varints(octets, self.delta_starts, 32)
        self.key_lengths, self.key_starts = read_varints(octets, at, 32)
        at = _after(self.key_starts, self.key_lengths, "key")
        self.value_lengths, self.value_starts = read_varints(octets, at, 32)
        self.header_starts = _after(self.value_starts, self.value_lengths, "value")
        self._check_ends()
        self.take(offset_deltas, timestamp_deltas, payloads, counts)

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


def record_counts(payloads: list[Payload]) -> Int64s:
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
    if any(header.last_offset > MAX_INT64 for header in headers):
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
