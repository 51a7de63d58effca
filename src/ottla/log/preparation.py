"""Brings batches into the form in which a topic stores them, and refuses those that break its rules.

Begins with the verdict on the header and looks inside only where a rule needs it: keys of compacted topics, limits on
timestamps, a codec that the topic imposes. Faults are reported in Kafka's order.
"""

from __future__ import annotations

from ottla.base.errors import CorruptBatchError, ErrorCode, KafkaError
from ottla.log.append_rules import AppendRules, Verdict, foreign_format
from ottla.log.config import INT64_MAX, PRODUCER_CODEC, LogConfig
from ottla.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    MAGIC_POSITION,
    MAGIC_V2,
    NO_TIMESTAMP,
    BatchHeader,
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


def prepare_client_batch(records: memoryview, rules: AppendRules, now_ms: int) -> memoryview:
    """Check what a client sent and bring it into the form the topic asks for: the same bytes, patched or rebuilt."""
    config = rules.config
    if MAGIC_POSITION < len(records) < HEADER_SIZE and records[MAGIC_POSITION] != MAGIC_V2:
        raise foreign_format(records[MAGIC_POSITION])
    header = read_header(records)
    verdict = rules.judge_header(header, len(records), now_ms)
    if not verdict.precedes_checksum and not crc_is_valid(records, header):
        raise CorruptBatchError("the batch has a wrong checksum")
    if verdict is Verdict.SPECIAL:
        _check_records(records, header, config, now_ms)
        records = _with_topic_codec(records, header, rules)
        if config.stamps_append_time:
            set_append_time(records, 0, len(records), now_ms)
    elif verdict is not Verdict.PLAIN:
        if verdict is Verdict.APPEND_TIME and config.is_compacted:
            # The keys are judged first.
            validate_records(records, header, keys_required=True)
        raise rules.refusal(verdict, header, len(records))
    _check_fits_segment(records, config)
    return records


def prepare_coordinator_batches(records: memoryview, rules: AppendRules, now_ms: int) -> list[tuple[int, BatchHeader]]:
    """Check batches that this broker made itself; control batches are allowed. Returns where each one lies."""
    config = rules.config
    _check_fits_segment(records, config)
    batches = split_batches(records)
    for position, header in batches:
        verdict = rules.judge_header(header._replace(base_offset=0), header.size, now_ms)
        if verdict in (Verdict.TOO_LARGE, Verdict.MISCOUNTED):
            raise rules.refusal(verdict, header, header.size)
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


def _check_fits_segment(records: memoryview, config: LogConfig) -> None:
    if len(records) > config.segment_bytes:
        raise KafkaError(
            f"{len(records)} bytes are to be stored together, a segment takes {config.segment_bytes}",
            code=ErrorCode.RECORD_LIST_TOO_LARGE,
        )


def _check_records(records: memoryview, header: BatchHeader, config: LogConfig, now_ms: int) -> None:
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


def _with_topic_codec(records: memoryview, header: BatchHeader, rules: AppendRules) -> memoryview:
    config = rules.config
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
    if len(rebuilt) > rules.batch_bytes_max:
        raise rules.refusal(Verdict.TOO_LARGE, stored_header, len(rebuilt))
    return memoryview(rebuilt)
