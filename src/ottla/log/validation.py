"""The rules a client's batch must meet before it is stored, in the order in which Kafka reports their violation.

Looks inside a batch only where a rule needs it: keys of compacted topics, limits on old timestamps, a codec that the
topic imposes. `PartitionLog` lets a batch through on its header alone when none of this applies.
"""

from __future__ import annotations

from ottla.base.errors import CorruptBatchError, ErrorCode, InvalidRecordError, KafkaError
from ottla.log.config import INT64_MAX, PRODUCER_CODEC, LogConfig
from ottla.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    MAGIC_POSITION,
    MAGIC_V2,
    NO_TIMESTAMP,
    BatchHeader,
    TimestampType,
    crc_is_valid,
    iter_headers,
    pack_batch,
    read_header,
    set_append_time,
    set_max_timestamp,
)
from ottla.records.compression import Codec, compress
from ottla.records.reader import validate_records
from ottla.records.scan import read_payload


def needs_no_look_inside(config: LogConfig) -> bool:
    """Whether batches of such a topic can be judged by their header and stored as they come."""
    return (
        not config.is_compacted
        and config.compression_type == PRODUCER_CODEC
        and not config.stamps_append_time
        and config.message_timestamp_before_max_ms == INT64_MAX
    )


def prepare_client_batch(records: memoryview, config: LogConfig, now_ms: int) -> memoryview:
    """Check what a client sent and bring it into the form the topic asks for: the same bytes, patched or rebuilt."""
    header = _single_header(records)
    _check_header(records, header, config)
    _check_records(records, header, config, now_ms)
    records = _with_topic_codec(records, header, config)
    if config.stamps_append_time:
        set_append_time(records, 0, len(records), now_ms)
    if len(records) > config.segment_bytes:
        raise KafkaError(
            f"the batch has {len(records)} bytes, a segment takes {config.segment_bytes}",
            code=ErrorCode.RECORD_LIST_TOO_LARGE,
        )
    return records


def prepare_coordinator_batches(records: memoryview, config: LogConfig, now_ms: int) -> list[tuple[int, BatchHeader]]:
    """Check batches that this broker made itself; control batches are allowed. Returns where each one lies."""
    if len(records) > config.segment_bytes:
        raise KafkaError(
            f"the batches have {len(records)} bytes, a segment takes {config.segment_bytes}",
            code=ErrorCode.RECORD_LIST_TOO_LARGE,
        )
    batches = split_batches(records)
    for position, header in batches:
        _check_size(header.size, config)
        if header.record_count <= 0 or header.last_offset_delta + 1 != header.record_count:
            raise InvalidRecordError("the batch's offsets do not follow each other")
        if config.stamps_append_time and not header.is_control:
            set_append_time(records, position, header.size, now_ms)
    return [(position, read_header(records, position)) for position, _ in batches]


def split_batches(records: memoryview) -> list[tuple[int, BatchHeader]]:
    """The whole batches that `records` must consist of, each with a valid checksum."""
    batches = list(iter_headers(records))
    end = batches[-1][0] + batches[-1][1].size if batches else 0
    if end != len(records) or not batches:
        raise CorruptBatchError(f"{len(records) - end} bytes are left after the last whole batch")
    for position, header in batches:
        if not crc_is_valid(records[position : position + header.size], header):
            raise CorruptBatchError(f"the batch of offset {header.base_offset} has a wrong checksum")
    return batches


def _single_header(records: memoryview) -> BatchHeader:
    if len(records) > MAGIC_POSITION and records[MAGIC_POSITION] != MAGIC_V2:
        raise InvalidRecordError(f"the batch has magic {records[MAGIC_POSITION]}, only {MAGIC_V2} is accepted")
    header = read_header(records)
    if header.size < HEADER_SIZE or header.size > len(records):
        raise CorruptBatchError(f"the batch claims {header.size} bytes, {len(records)} came")
    if header.size < len(records):
        raise InvalidRecordError("a produce request must hold exactly one batch per partition")
    return header


def _check_size(size: int, config: LogConfig) -> None:
    if size > config.max_message_bytes:
        raise KafkaError(
            f"the batch has {size} bytes, max.message.bytes is {config.max_message_bytes}",
            code=ErrorCode.MESSAGE_TOO_LARGE,
        )


def _check_header(records: memoryview, header: BatchHeader, config: LogConfig) -> None:
    if header.base_offset != 0:
        raise InvalidRecordError(f"the base offset of a produced batch must be 0, not {header.base_offset}")
    _check_size(header.size, config)
    if not crc_is_valid(records, header):
        raise CorruptBatchError("the batch has a wrong checksum")
    if header.attributes & CODEC_MASK > Codec.ZSTD:
        raise CorruptBatchError(f"the batch uses codec {header.attributes & CODEC_MASK}, which does not exist")
    if header.record_count <= 0 or header.last_offset_delta + 1 != header.record_count:
        raise InvalidRecordError(
            f"the batch has {header.record_count} records but its last offset delta is {header.last_offset_delta}"
        )
    if header.is_control:
        raise InvalidRecordError("clients must not write control batches")
    if header.has_producer_id and header.base_sequence < 0:
        raise InvalidRecordError(
            f"a batch of producer {header.producer_id} has the sequence number {header.base_sequence}"
        )
    if header.is_transactional and not header.has_producer_id:
        raise InvalidRecordError("a transactional batch needs a producer id")


def _check_records(records: memoryview, header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        # The keys are judged first: that is the order in which Kafka finds fault.
        if config.is_compacted:
            validate_records(records, header, keys_required=True)
        raise InvalidRecordError("clients must not send batches with LogAppendTime", code=ErrorCode.INVALID_TIMESTAMP)
    limits_age = not config.stamps_append_time and config.message_timestamp_before_max_ms < INT64_MAX
    latest = INT64_MAX if config.stamps_append_time else now_ms + config.message_timestamp_after_max_ms
    if not (config.is_compacted or limits_age or header.max_timestamp > latest):
        return
    found = validate_records(
        records,
        header,
        keys_required=config.is_compacted,
        min_timestamp=now_ms - config.message_timestamp_before_max_ms if limits_age else None,
        max_timestamp=latest if latest < INT64_MAX else None,
    )
    if found.max_timestamp != header.max_timestamp and found.max_timestamp != NO_TIMESTAMP:
        set_max_timestamp(records, 0, len(records), found.max_timestamp)


def _with_topic_codec(records: memoryview, header: BatchHeader, config: LogConfig) -> memoryview:
    if config.compression_type == PRODUCER_CODEC:
        return records
    codec = Codec.from_name(config.compression_type)
    if header.codec is codec:
        return records
    payload = read_payload(records, header)
    attributes = header.attributes & ~CODEC_MASK | codec
    level = config.compression_level(codec.config_name)
    stored_header = read_header(records)._replace(attributes=attributes)
    rebuilt = bytearray(pack_batch(stored_header, compress(codec, payload, level)))
    _check_size(len(rebuilt), config)
    return memoryview(rebuilt)
