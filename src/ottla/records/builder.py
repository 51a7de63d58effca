"""Writes record batches from new records.

`RecordBatchBuilder` is for a producer that fills a batch record by record; `build_batch` is for a list that is there
already. Both write the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from ottla.records.batch import (
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    MAGIC_V2,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    TimestampType,
    pack_batch,
)
from ottla.records.compression import Codec, compress
from ottla.records.varint import VARINT_TABLE, VARINT_TABLE_SIZE, encode_varint
from ottla.records.walk import Header

RecordFields: TypeAlias = tuple[bytes | None, bytes | None, Sequence[Header], int]


class NewRecord(NamedTuple):
    """A record that has no offset yet. A plain tuple in this order does as well."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()
    timestamp_ms: int = NO_TIMESTAMP


def encode_record(
    offset_delta: int, timestamp_delta: int, key: bytes | None, value: bytes | None, headers: Sequence[Header] = ()
) -> bytes:
    """One record with its length before it, as it stands in an uncompressed batch."""
    if key is None:
        key_length = b"\x01"
        key = b""
    else:
        key_length = VARINT_TABLE[len(key)] if len(key) < VARINT_TABLE_SIZE else encode_varint(len(key))
    if value is None:
        value_length = b"\x01"
        value = b""
    else:
        value_length = VARINT_TABLE[len(value)] if len(value) < VARINT_TABLE_SIZE else encode_varint(len(value))
    body = b"\x00%b%b%b%b%b%b%b" % (
        VARINT_TABLE[timestamp_delta] if 0 <= timestamp_delta < VARINT_TABLE_SIZE else encode_varint(timestamp_delta),
        VARINT_TABLE[offset_delta] if 0 <= offset_delta < VARINT_TABLE_SIZE else encode_varint(offset_delta),
        key_length,
        key,
        value_length,
        value,
        _encode_headers(headers) if headers else b"\x00",
    )
    return encode_varint(len(body)) + body


def _encode_headers(headers: Sequence[Header]) -> bytes:
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        name_bytes = name.encode()
        parts += (encode_varint(len(name_bytes)), name_bytes)
        if value is None:
            parts.append(b"\x01")
        else:
            parts += (encode_varint(len(value)), value)
    return b"".join(parts)


def _encode_records(records: Iterable[RecordFields]) -> tuple[bytes, int, int, int]:
    """The payload of `records`, their number, and the first and the largest timestamp.

    The same bytes as `encode_record` for each; the varints come from the table wherever they are short.
    """
    table = VARINT_TABLE
    table_size = VARINT_TABLE_SIZE
    parts: list[bytes] = []
    append = parts.append
    base_timestamp = max_timestamp = NO_TIMESTAMP
    count = 0
    for key, value, headers, timestamp in records:
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        if not count:
            base_timestamp = max_timestamp = timestamp
        delta = timestamp - base_timestamp
        if key is None:
            key_part = b"\x01"
        elif len(key) < table_size:
            key_part = table[len(key)] + key
        else:
            key_part = encode_varint(len(key)) + key
        if value is None:
            value_length = b"\x01"
            value = b""
        elif len(value) < table_size:
            value_length = table[len(value)]
        else:
            value_length = encode_varint(len(value))
        body = b"\x00%b%b%b%b%b%b" % (
            table[delta] if 0 <= delta < table_size else encode_varint(delta),
            table[count] if count < table_size else encode_varint(count),
            key_part,
            value_length,
            value,
            _encode_headers(headers) if headers else b"\x00",
        )
        append(table[len(body)] if len(body) < table_size else encode_varint(len(body)))
        append(body)
        count += 1
    return b"".join(parts), count, base_timestamp, max_timestamp


def _attributes(codec: Codec, timestamp_type: TimestampType, transactional: bool, control: bool) -> int:
    return (
        codec
        | (LOG_APPEND_TIME_BIT if timestamp_type else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
    )


def build_batch(
    records: Iterable[RecordFields],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    log_append_time_ms: int | None = None,
) -> bytes:
    """A batch of `records`, whose offsets follow each other from `base_offset`.

    `log_append_time_ms` is the time of the append for a batch of LogAppendTime, and makes it one.
    """
    payload, count, base_timestamp, max_timestamp = _encode_records(records)
    if not count:
        raise ValueError("a batch needs at least one record")
    if log_append_time_ms is not None:
        timestamp_type = TimestampType.LOG_APPEND_TIME
        max_timestamp = log_append_time_ms
    header = BatchHeader(
        base_offset,
        0,
        partition_leader_epoch,
        MAGIC_V2,
        0,
        _attributes(codec, timestamp_type, transactional, control),
        count - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    return pack_batch(header, compress(codec, payload, level) if codec else payload)


class RecordBatchBuilder:
    """Fills one batch record by record, up to `max_size` bytes.

    With compression the size is a guess until the batch is built: `compression_ratio` is what the caller has seen
    batches shrink to so far.
    """

    def __init__(
        self,
        *,
        max_size: int,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        compression_ratio: float = 1.0,
    ) -> None:
        self._max_size = max_size
        self._codec = codec
        self._level = level
        self._ratio = compression_ratio if codec else 1.0
        self._parts: list[bytes] = []
        self._payload_size = 0
        self._base_timestamp = NO_TIMESTAMP
        self._max_timestamp = NO_TIMESTAMP

    @property
    def record_count(self) -> int:
        return len(self._parts)

    @property
    def uncompressed_size(self) -> int:
        return HEADER_SIZE + self._payload_size

    @property
    def estimated_size(self) -> int:
        """How large the batch would be if it were built now: exact without compression."""
        return HEADER_SIZE + int(self._payload_size * self._ratio)

    @property
    def max_timestamp(self) -> int:
        return self._max_timestamp

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header] = (),
        timestamp_ms: int = NO_TIMESTAMP,
    ) -> bool:
        """Add a record, unless the batch would become too large: then nothing changes and the answer is False.

        The first record is always taken, so that one of any size can be sent; the broker judges it.
        """
        parts = self._parts
        base_timestamp = self._base_timestamp if parts else timestamp_ms
        record = encode_record(len(parts), timestamp_ms - base_timestamp, key, value, headers)
        payload_size = self._payload_size + len(record)
        if parts and HEADER_SIZE + int(payload_size * self._ratio) > self._max_size:
            return False
        parts.append(record)
        self._base_timestamp = base_timestamp
        self._payload_size = payload_size
        if timestamp_ms > self._max_timestamp or len(parts) == 1:
            self._max_timestamp = timestamp_ms
        return True

    def build(
        self,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
    ) -> bytes:
        """The batch as a producer sends it: base offset 0, no leader epoch."""
        count = len(self._parts)
        if not count:
            raise ValueError("a batch needs at least one record")
        payload = b"".join(self._parts)
        header = BatchHeader(
            0,
            0,
            NO_PARTITION_LEADER_EPOCH,
            MAGIC_V2,
            0,
            _attributes(self._codec, TimestampType.CREATE_TIME, transactional, False),
            count - 1,
            self._base_timestamp,
            self._max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
        )
        return pack_batch(header, compress(self._codec, payload, self._level) if self._codec else payload)
