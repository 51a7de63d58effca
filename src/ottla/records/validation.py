"""The rules for single records that a broker checks before it stores a batch, where a topic has such rules."""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.errors import ErrorCode, InvalidRecordError
from ottla.base.types import ReadBuffer
from ottla.records.batch import NO_TIMESTAMP, BatchHeader, TimestampType
from ottla.records.reader import MAX_UNCOMPRESSED, read_payload, scan_payload


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
