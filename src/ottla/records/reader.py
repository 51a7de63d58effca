"""Decodes the records of a batch, or checks them against the rules of a topic.

Everything is checked as `scan` describes; what is here does the same for whole records, and faster.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeVar

from ottla.base.errors import ErrorCode, InvalidRecordError
from ottla.base.types import ReadBuffer
from ottla.records.batch import LOG_APPEND_TIME_BIT, NO_TIMESTAMP, BatchHeader, TimestampType, read_header
from ottla.records.faults import check_end, check_timestamps, raise_cut_short
from ottla.records.runs import MIN_RUN, WIDER_DELTAS, decode_run
from ottla.records.scan import MAX_UNCOMPRESSED, read_payload, scan_payload
from ottla.records.walk import Header, walk_records

R = TypeVar("R", bound=tuple[Any, ...])

_TIMESTAMP_OF: Final = itemgetter(1)
_PATIENCE_MAX: Final = 1024
"""How many records at most are read one by one before a run is looked for again."""


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
            if len(records) > before and last_delta + 1 in WIDER_DELTAS:
                continue
        # Where runs are rare they are looked for rarely.
        patience = MIN_RUN if len(records) - before > patience else min(2 * patience, _PATIENCE_MAX)
        before = len(records)
        pos, last_delta = walk_records(
            buf, pos, min(patience, count - before), last_delta, header, record_type, records
        )
        if append_time is None:
            check_timestamps(map(_TIMESTAMP_OF, records[before:]))
        if len(records) == count:
            break
    check_end(buf, pos, last_delta, header)
    return records


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
            errors.append((index, "Compacted topic cannot accept message without key."))
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
