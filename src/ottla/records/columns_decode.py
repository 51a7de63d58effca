"""Fetched bytes into Arrow columns: runs of batches with any codec, without those an application must not see.

Checks what `reader` checks, a column at a time, and before Arrow is shown any position: Arrow trusts its offsets. Only
the headers of records are passed over unless they are asked for. Keys and values are copied once, by Arrow itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from ottla.base.errors import CorruptBatchError
from ottla.base.types import ReadBuffer
from ottla.records.batch import HEADER_SIZE, LOG_APPEND_TIME_BIT, BatchHeader, crc_is_valid, iter_headers
from ottla.records.columns_headers import read_header_columns
from ottla.records.columns_hop import check_lengths, find_starts
from ottla.records.columns_schema import PLAIN_COLUMNS, columns_schema
from ottla.records.columns_slices import slices
from ottla.records.columns_varint import Int64s, Octets, read_varints
from ottla.records.compression import Codec
from ottla.records.control import ControlType, parse_control_key
from ottla.records.reader import read_records
from ottla.records.scan import MAX_UNCOMPRESSED, MIN_RECORD_SIZE, raise_cut_short, raise_negative_length, read_payload

MAX_DECODED: Final = 1 << 30
"""Decoding stops before the batch that would take it beyond this: Arrow counts the bytes of a column in 31 bits."""

_MAX_INT64: Final = (1 << 63) - 1
_GROUP_SIZE: Final = 2 << 20


class DecodedColumns(NamedTuple):
    records: Any
    """A pyarrow.RecordBatch."""
    next_offset: int
    """Where to go on reading: after the last whole batch, which may be well after the last record."""


class _Payload(NamedTuple):
    """The records of one batch: `start` and `end` are positions in the buffer all payloads share."""

    header: BatchHeader
    start: int
    end: int


def decode_columns(
    data: ReadBuffer,
    *,
    columns: Iterable[str] = PLAIN_COLUMNS,
    topic: str = "",
    partition: int = 0,
    start_offset: int = 0,
    end_offset: int | None = None,
    aborted: Iterable[tuple[int, int]] = (),
    check_crc: bool = True,
    max_uncompressed: int = MAX_UNCOMPRESSED,
) -> DecodedColumns:
    """The records of every whole batch in `data`, from `start_offset` up to and without `end_offset`.

    `aborted` are the (producer id, first offset) of a fetch reply for read_committed. Control batches are left out.
    A batch cut short at the end is ignored, as in a fetch reply. Raises CorruptBatchError on anything else that is not
    a record batch should be.
    """
    schema = columns_schema(columns)
    kept, next_offset = _visible_batches(data, start_offset, end_offset, aborted, check_crc)
    buf, payloads, stopped_at = _open_payloads(data, kept, max_uncompressed)
    if stopped_at is not None:
        next_offset = stopped_at
    octets: Octets = np.frombuffer(buf, np.uint8)
    parts: list[list[Any]] = []
    for group in _groups(payloads):
        try:
            fields = _Fields(buf, octets, group)
            fields.cut(start_offset, end_offset)
            parts.append([_COLUMNS[name](fields, topic, partition) for name in schema.names])
        except IndexError:
            raise_cut_short()
    arrays = parts[0] if len(parts) == 1 else [pa.concat_arrays(column) for column in zip(*parts, strict=True)]
    return DecodedColumns(pa.RecordBatch.from_arrays(arrays, schema=schema), next_offset)


def _groups(payloads: list[_Payload]) -> Iterator[list[_Payload]]:
    """Batches that are decoded together: enough to make the cost of a call small, and few enough to stay in the cache.

    There is always one group, if of nothing, because the columns of nothing have types too.
    """
    group: list[_Payload] = []
    size = 0
    for payload in payloads:
        if size and size + payload.end - payload.start > _GROUP_SIZE:
            yield group
            group, size = [], 0
        group.append(payload)
        size += payload.end - payload.start
    yield group


def _visible_batches(
    data: ReadBuffer, start_offset: int, end_offset: int | None, aborted: Iterable[tuple[int, int]], check_crc: bool
) -> tuple[list[tuple[int, BatchHeader]], int]:
    """The batches that hold records to be shown, with their positions, and the offset after the last one looked at."""
    view = memoryview(data)
    transactions = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
    aborting: set[int] = set()
    kept: list[tuple[int, BatchHeader]] = []
    next_offset = start_offset
    for pos, header in iter_headers(view):
        if end_offset is not None and header.base_offset >= end_offset:
            return kept, max(next_offset, end_offset)
        if check_crc and not crc_is_valid(view[pos:], header):
            raise CorruptBatchError(f"the batch at offset {header.base_offset} does not match its checksum")
        while transactions and transactions[-1][1] <= header.last_offset:
            aborting.add(transactions.pop()[0])
        next_offset = max(next_offset, header.next_offset)
        if header.is_control:
            if header.producer_id in aborting and _is_abort_marker(view[pos:], header):
                aborting.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in aborting:
            continue
        elif header.last_offset >= start_offset:
            kept.append((pos, header))
    return kept, next_offset


def _is_abort_marker(batch: memoryview, header: BatchHeader) -> bool:
    records = read_records(batch, header)
    return bool(records) and parse_control_key(records[0].key) is ControlType.ABORT


def _open_payloads(
    data: ReadBuffer, batches: list[tuple[int, BatchHeader]], max_uncompressed: int
) -> tuple[ReadBuffer, list[_Payload], int | None]:
    """One buffer with the records of all batches, where they lie in it, and the base offset it had to stop at, if any.

    Uncompressed batches are left where they are; only if there are compressed ones are all put together anew.
    """
    if all(header.codec is Codec.NONE for _, header in batches):
        payloads: list[_Payload] = []
        for pos, header in batches:
            payload = _Payload(header, pos + HEADER_SIZE, pos + header.size)
            if payload.end - batches[0][0] > MAX_DECODED and payloads:
                return _shift(data, payloads, header.base_offset)
            _check_room(header, payload.end - payload.start, max_uncompressed)
            payloads.append(payload)
        return _shift(data, payloads, None)
    view = memoryview(data)
    parts: list[bytes] = []
    opened: list[_Payload] = []
    size = 0
    for pos, header in batches:
        part = read_payload(view[pos:], header, max_uncompressed=max_uncompressed)
        if size + len(part) > MAX_DECODED and opened:
            return b"".join(parts), opened, header.base_offset
        opened.append(_Payload(header, size, size + len(part)))
        parts.append(part)
        size += len(part)
    return b"".join(parts), opened, None


def _shift(
    data: ReadBuffer, payloads: list[_Payload], stopped_at: int | None
) -> tuple[ReadBuffer, list[_Payload], int | None]:
    """Positions count from the first payload, so that they stay small however much is skipped before it."""
    if not payloads or payloads[-1].end <= MAX_DECODED:
        return data, payloads, stopped_at
    origin = payloads[0].start
    shifted = [_Payload(header, start - origin, end - origin) for header, start, end in payloads]
    return memoryview(data)[origin : payloads[-1].end], shifted, stopped_at


def _check_room(header: BatchHeader, size: int, max_uncompressed: int) -> None:
    if size > max_uncompressed:
        raise CorruptBatchError(f"the records are {size} bytes, more than the {max_uncompressed} allowed")
    if not 0 <= header.record_count * MIN_RECORD_SIZE <= size:
        raise CorruptBatchError(f"{header.record_count} records cannot be in {size} bytes")


class _Fields:
    """The fields of all records as arrays: numbers, and for keys and values where they start and how long they are."""

    def __init__(self, buf: ReadBuffer, octets: Octets, payloads: list[_Payload]) -> None:
        self.buf = buf
        self.octets = octets
        counts = np.array([payload.header.record_count for payload in payloads], np.int64)
        lasts = np.cumsum(counts)
        starts = np.empty(int(lasts[-1]) if payloads else 0, np.int64)
        for payload, last in zip(payloads, lasts.tolist(), strict=True):
            own = starts[last - payload.header.record_count : last]
            find_starts(buf, self.octets, payload.start, payload.end, own)
        # A batch that compaction has emptied is still a batch, but has no rows to repeat anything for.
        headers = [payload.header for payload in payloads if payload.header.record_count]
        self._read(starts, headers, counts[counts > 0])

    def _read(self, starts: Int64s, headers: list[BatchHeader], counts: Int64s) -> None:
        octets = self.octets
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
        _check_offsets(offset_deltas, headers, counts)
        self.offsets = _repeat([header.base_offset for header in headers], counts) + offset_deltas
        self.timestamps = _timestamps(timestamp_deltas, headers, counts)
        self.timestamp_types = np.repeat(np.array([int(header.timestamp_type) for header in headers], np.int32), counts)

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
        if inside.all():
            return
        for name, values in list(vars(self).items()):
            if isinstance(values, np.ndarray) and name != "octets":
                setattr(self, name, values[inside])


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


def _constant(scalar: Any, count: int) -> Any:
    return pa.repeat(scalar, count)


_COLUMNS: Final[dict[str, Callable[[_Fields, str, int], Any]]] = {
    "key": lambda fields, topic, partition: slices(fields.buf, fields.key_starts, fields.key_lengths),
    "value": lambda fields, topic, partition: slices(fields.buf, fields.value_starts, fields.value_lengths),
    "topic": lambda fields, topic, partition: _constant(pa.scalar(topic, pa.string()), len(fields.offsets)),
    "partition": lambda fields, topic, partition: _constant(pa.scalar(partition, pa.int32()), len(fields.offsets)),
    "offset": lambda fields, topic, partition: pa.array(fields.offsets),
    "timestamp": lambda fields, topic, partition: pa.array(fields.timestamps).view(pa.timestamp("ms", tz="UTC")),
    "timestampType": lambda fields, topic, partition: pa.array(fields.timestamp_types),
    "headers": lambda fields, topic, partition: read_header_columns(
        fields.buf, fields.octets, fields.header_starts, fields.ends
    ),
}
