"""Decodes the records of a batch, or checks them against the rules of a topic.

Everything is checked as `scan` describes; what is here does the same for whole records, and faster.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from ottla.base.errors import CorruptBatchError, ErrorCode, InvalidRecordError
from ottla.base.types import ReadBuffer
from ottla.records.batch import LOG_APPEND_TIME_BIT, NO_TIMESTAMP, BatchHeader, TimestampType, read_header
from ottla.records.runs import MIN_RUN, decode_run
from ottla.records.scan import (
    MAX_UNCOMPRESSED,
    check_end,
    check_timestamps,
    raise_cut_short,
    raise_negative_length,
    raise_offset_order,
    raise_wrong_length,
    read_payload,
    scan_payload,
)
from ottla.records.varint import read_unsigned, read_varint

Header: TypeAlias = tuple[str, bytes | None]
R = TypeVar("R", bound=tuple[Any, ...])

_TIMESTAMP_OF: Final = itemgetter(1)
_PATIENCE_MAX: Final = 1024
"""How many records at most are read one by one before a run is looked for again."""

_new_tuple = tuple.__new__


class Record(NamedTuple):
    """One record as an application sees it. The type of the timestamp is the batch's."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


def read_records(
    batch: ReadBuffer, header: BatchHeader | None = None, *, max_uncompressed: int = MAX_UNCOMPRESSED
) -> list[Record]:
    """Every record of the batch, control records too."""
    if header is None:
        header = read_header(batch)
    return read_records_as(Record, batch, header, max_uncompressed=max_uncompressed)


def read_records_as(
    record_type: type[R], batch: ReadBuffer, header: BatchHeader, *, max_uncompressed: int = MAX_UNCOMPRESSED
) -> list[R]:
    """The same as another kind of tuple with the fields of `Record`, made without a second pass over the records."""
    payload = read_payload(batch, header, max_uncompressed=max_uncompressed)
    try:
        return _decode_records(payload, header, record_type)
    except IndexError:
        raise_cut_short()


def _decode_records(buf: bytes, header: BatchHeader, record_type: type[R]) -> list[R]:
    """Runs of records of one shape together, everything else one by one."""
    records: list[R] = []
    count = header.record_count
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else None
    pos, last_delta, patience = 0, -1, MIN_RUN
    while True:
        before = len(records)
        if count - before >= MIN_RUN:
            pos = decode_run(
                buf,
                pos,
                count - before,
                last_delta + 1,
                base_offset=header.base_offset,
                base_timestamp=header.base_timestamp,
                append_time=append_time,
                record_type=record_type,
                records=records,
            )
            last_delta += len(records) - before
        # Where runs are rare they are looked for rarely.
        patience = MIN_RUN if len(records) - before > patience else min(2 * patience, _PATIENCE_MAX)
        before = len(records)
        pos, last_delta = _decode_each(
            buf, pos, min(patience, count - before), last_delta, header, record_type, records
        )
        if append_time is None:
            check_timestamps(map(_TIMESTAMP_OF, records[before:]))
        if len(records) == count:
            break
    check_end(buf, pos, last_delta, header)
    return records


def _decode_each(
    buf: bytes,
    pos: int,
    count: int,
    last_delta: int,
    header: BatchHeader,
    record_type: type[R],
    records: list[R],
) -> tuple[int, int]:
    """Appends `count` records; returns where they end and the last one's offset delta.

    Varints of one and two bytes are read in line: they are nearly all there are.
    """
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    timestamp = header.max_timestamp
    has_create_time = not header.attributes & LOG_APPEND_TIME_BIT
    key: bytes | None
    value: bytes | None
    append = records.append
    new_tuple = _new_tuple
    for _ in range(count):
        n = buf[pos]
        if n < 128:
            pos += 1
        else:
            m = buf[pos + 1]
            if m < 128:
                n += (m << 7) - 128
                pos += 2
            else:
                n, pos = read_unsigned(buf, pos, 32)
        # A negative length makes the end lie before the start, where no record can end.
        end = pos + (n >> 1) if not n & 1 else -1

        # The first byte of a record holds attributes, of which none are defined.
        n = buf[pos + 1]
        if n < 128:
            pos += 2
        else:
            m = buf[pos + 2]
            if m < 128:
                n += (m << 7) - 128
                pos += 3
            else:
                n, pos = read_unsigned(buf, pos + 1, 64)
        if has_create_time:
            timestamp = base_timestamp + ((n >> 1) ^ -(n & 1))

        n = buf[pos]
        if n < 128:
            pos += 1
        else:
            m = buf[pos + 1]
            if m < 128:
                n += (m << 7) - 128
                pos += 2
            else:
                n, pos = read_unsigned(buf, pos, 32)
        delta = (n >> 1) ^ -(n & 1)
        if delta <= last_delta:
            raise_offset_order(delta, last_delta)
        last_delta = delta

        n = buf[pos]
        if n < 128:
            pos += 1
        else:
            m = buf[pos + 1]
            if m < 128:
                n += (m << 7) - 128
                pos += 2
            else:
                n, pos = read_unsigned(buf, pos, 32)
        if n & 1:
            if n != 1:
                raise_negative_length("key")
            key = None
        else:
            start = pos
            pos += n >> 1
            key = buf[start:pos]

        n = buf[pos]
        if n < 128:
            pos += 1
        else:
            m = buf[pos + 1]
            if m < 128:
                n += (m << 7) - 128
                pos += 2
            else:
                n, pos = read_unsigned(buf, pos, 32)
        if n & 1:
            if n != 1:
                raise_negative_length("value")
            value = None
        else:
            start = pos
            pos += n >> 1
            value = buf[start:pos]

        headers: tuple[Header, ...] = ()
        if buf[pos]:
            headers, pos = _read_headers(buf, pos)
        else:
            pos += 1
        if pos != end:
            raise_wrong_length(end)
        append(new_tuple(record_type, (base_offset + delta, timestamp, key, value, headers)))
    return pos, last_delta


def _read_headers(buf: bytes, pos: int) -> tuple[tuple[Header, ...], int]:
    """The headers at `pos`, and where they end. A count that is too large runs into the end of the buffer."""
    count, pos = read_varint(buf, pos)
    if count < 0 or count > len(buf) - pos:
        raise CorruptBatchError(f"a record claims {count} headers")
    headers: list[Header] = []
    for _ in range(count):
        length, pos = read_varint(buf, pos)
        if length < 0:
            raise_negative_length("header key")
        start = pos
        pos += length
        # Clients that know no text write any bytes here; as in Java they must not make the rest unreadable.
        name = buf[start:pos].decode(errors="replace")
        length, pos = read_varint(buf, pos)
        if length < 0:
            if length != -1:
                raise_negative_length("header value")
            headers.append((name, None))
        else:
            start = pos
            pos += length
            headers.append((name, buf[start:pos]))
    return tuple(headers), pos


class RecordsInfo(NamedTuple):
    """What a look at every record of a batch has shown."""

    max_timestamp: int
    offset_of_max_timestamp: int
    uncompressed_size: int


def validate_records(
    batch: ReadBuffer,
    header: BatchHeader,
    *,
    keys_required: bool = False,
    min_timestamp: int | None = None,
    max_timestamp: int | None = None,
    max_uncompressed: int = MAX_UNCOMPRESSED,
) -> RecordsInfo:
    """Open a producer's batch and check each record; one that breaks a rule refuses the whole batch.

    `keys_required` is for compacted topics. The timestamps are bounds for CreateTime, both inclusive; a record
    without a timestamp is exempt. Raises InvalidRecordError that names each offending record by its index, with
    INVALID_TIMESTAMP as its code if a timestamp is to blame, or CorruptBatchError if the records cannot be read.
    """
    payload = read_payload(batch, header, max_uncompressed=max_uncompressed)
    spans = scan_payload(payload, header)
    checks_time = header.timestamp_type is TimestampType.CREATE_TIME
    errors: list[tuple[int, str]] = []
    code = ErrorCode.INVALID_RECORD
    newest, newest_offset = NO_TIMESTAMP, header.base_offset
    for index, span in enumerate(spans):
        if span.offset != header.base_offset + index:
            errors.append((index, f"offset {span.offset} where {header.base_offset + index} is due"))
        if keys_required and span.key is None:
            errors.append((index, "a record of a compacted topic needs a key"))
        if checks_time and span.timestamp != NO_TIMESTAMP:
            too_old = min_timestamp is not None and span.timestamp < min_timestamp
            if too_old or (max_timestamp is not None and span.timestamp > max_timestamp):
                errors.append((index, f"timestamp {span.timestamp} is outside the accepted range"))
                code = ErrorCode.INVALID_TIMESTAMP
        if span.timestamp > newest:
            newest, newest_offset = span.timestamp, span.offset
    if errors:
        raise InvalidRecordError(f"record {errors[0][0]}: {errors[0][1]}", code=code, record_errors=errors)
    return RecordsInfo(newest, newest_offset, len(payload))
