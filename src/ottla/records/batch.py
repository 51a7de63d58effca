"""The header of a record batch (magic 2), read and patched in place.

Everything here works on a buffer and a position and never copies a payload: it is what the broker's hot path knows
of a batch. What is inside the batch is the business of `reader` and `builder`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from ottla.base.errors import CorruptBatchError
from ottla.base.types import ReadBuffer, WriteBuffer
from ottla.records.checksum import crc32c
from ottla.records.compression import Codec

HEADER_SIZE: Final = 61
OFFSET_AND_LENGTH_SIZE: Final = 12
MAGIC_V2: Final = 2
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1
NO_PARTITION_LEADER_EPOCH: Final = -1
MAX_SEQUENCE: Final = 2**31 - 1

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

# The checksum starts after itself, so that the broker can assign offsets and leader epochs without computing it anew.
CRC_START: Final = 21
MAGIC_POSITION: Final = 16
_CRC_POSITION: Final = 17
_LEADER_EPOCH_POSITION: Final = 12
_LOW_ATTRIBUTES_POSITION: Final = 22
_MAX_TIMESTAMP_POSITION: Final = 35
_PRODUCER_POSITION: Final = 43
_MIN_BATCH_LENGTH: Final = HEADER_SIZE - OFFSET_AND_LENGTH_SIZE

HEADER_STRUCT: Final = Struct(">qiibIhiqqqhii")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_UINT32: Final = Struct(">I")
_INT64: Final = Struct(">q")
_PRODUCER: Final = Struct(">qhi")

_new_tuple = tuple.__new__
_unpack_header = HEADER_STRUCT.unpack_from
_pack_up_to_crc = Struct(">qiibI").pack
_pack_behind_crc = Struct(">hiqqqhii").pack
_unpack_int32 = _INT32.unpack_from
_unpack_int64 = _INT64.unpack_from
_pack_int32_into = _INT32.pack_into
_pack_int64_into = _INT64.pack_into


class TimestampType(IntEnum):
    """Who set the timestamps of a batch, by the value of bit 3 of its attributes."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @property
    def config_name(self) -> str:
        """The name used by `message.timestamp.type`."""
        return "LogAppendTime" if self else "CreateTime"

    @classmethod
    def from_name(cls, name: str) -> TimestampType:
        for kind in cls:
            if kind.config_name == name:
                return kind
        raise ValueError(f"no timestamp type is called {name!r}; known: CreateTime, LogAppendTime")


class BatchHeader(NamedTuple):
    """The 61 fixed bytes of a batch, in the order in which they are stored."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """All the bytes of the batch, this header included."""
        return OFFSET_AND_LENGTH_SIZE + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        try:
            return Codec(self.attributes & CODEC_MASK)
        except ValueError:
            raise CorruptBatchError(f"no codec has the number {self.attributes & CODEC_MASK}") from None

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_BIT else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop the tombstones of the batch; it lives in the base timestamp (KIP-534)."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)


def read_header(buf: ReadBuffer, pos: int = 0) -> BatchHeader:
    """The header at `pos`, unchecked: whether it makes sense is for the caller to ask."""
    try:
        return _new_tuple(BatchHeader, _unpack_header(buf, pos))
    except struct.error:
        raise CorruptBatchError(
            f"a batch header needs {HEADER_SIZE} bytes, {max(0, len(buf) - pos)} are left at position {pos}"
        ) from None


def peek_attributes(buf: ReadBuffer, pos: int = 0) -> int:
    """The attributes of a batch that nobody has checked yet; 0 where it is too short to have any."""
    return buf[pos + _LOW_ATTRIBUTES_POSITION] if len(buf) > pos + _LOW_ATTRIBUTES_POSITION else 0


def peek_first_offset(buf: ReadBuffer) -> int | None:
    """The offset of the first batch, if one begins in `buf`."""
    return _unpack_int64(buf)[0] if len(buf) >= HEADER_SIZE else None


def iter_headers(buf: ReadBuffer, pos: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """Every whole batch in `buf[pos:end]` with its position. A partial batch at the end is left out.

    A length that no batch can have, or a format other than magic 2, raises CorruptBatchError. A length that points
    past the end cannot be told from a batch that is cut short, so it ends the iteration.
    """
    end = len(buf) if end is None else min(end, len(buf))
    while end - pos >= OFFSET_AND_LENGTH_SIZE:
        (batch_length,) = _unpack_int32(buf, pos + 8)
        if batch_length < _MIN_BATCH_LENGTH:
            if end - pos <= MAGIC_POSITION or buf[pos + MAGIC_POSITION] == MAGIC_V2:
                raise CorruptBatchError(f"a batch at position {pos} has the impossible length {batch_length}")
            raise CorruptBatchError(f"the entry at position {pos} is no batch of magic {MAGIC_V2}")
        next_pos = pos + OFFSET_AND_LENGTH_SIZE + batch_length
        if next_pos > end:
            return
        header = read_header(buf, pos)
        if header.magic != MAGIC_V2:
            raise CorruptBatchError(f"the batch at position {pos} has magic {header.magic}, not {MAGIC_V2}")
        yield pos, header
        pos = next_pos


def iter_ordered_headers(buf: ReadBuffer) -> Iterator[tuple[int, BatchHeader]]:
    """The same for what was read from a log: there no batch starts before the one in front of it ends.

    Checksums do not cover offsets, so this is all that tells if one of them was damaged on its way.
    """
    next_offset: int | None = None
    for pos, header in iter_headers(buf):
        if next_offset is not None and header.base_offset < next_offset:
            raise CorruptBatchError(f"the batch at offset {header.base_offset} comes after offset {next_offset - 1}")
        next_offset = header.next_offset
        yield pos, header


def crc_is_valid(batch: ReadBuffer, header: BatchHeader) -> bool:
    """Whether the checksum holds; `batch` starts with the batch and may go on after it."""
    size = OFFSET_AND_LENGTH_SIZE + header.batch_length
    if not HEADER_SIZE <= size <= len(batch):
        return False
    if not isinstance(batch, memoryview):
        batch = memoryview(batch)
    return crc32c(batch[CRC_START:size]) == header.crc


def assign_offsets(buf: WriteBuffer, pos: int, base_offset: int, leader_epoch: int) -> None:
    """Give the batch its place in the log. Both fields lie outside the checksum, which stays as it is."""
    _pack_int64_into(buf, pos, base_offset)
    _pack_int32_into(buf, pos + _LEADER_EPOCH_POSITION, leader_epoch)


def set_append_time(buf: WriteBuffer, pos: int, size: int, now_ms: int) -> None:
    """Turn the batch of `size` bytes at `pos` into one whose records all carry the broker's time."""
    (attributes,) = _INT16.unpack_from(buf, pos + CRC_START)
    _INT16.pack_into(buf, pos + CRC_START, attributes | LOG_APPEND_TIME_BIT)
    set_max_timestamp(buf, pos, size, now_ms)


def set_max_timestamp(buf: WriteBuffer, pos: int, size: int, max_timestamp: int) -> None:
    """Replace the batch's max timestamp and compute its checksum anew."""
    _pack_int64_into(buf, pos + _MAX_TIMESTAMP_POSITION, max_timestamp)
    _seal(buf, pos, size)


def set_producer(
    buf: WriteBuffer, pos: int, size: int, *, producer_id: int, producer_epoch: int, base_sequence: int
) -> None:
    """Give a batch that is already built another producer id, epoch and sequence (KIP-360), and a new checksum."""
    _PRODUCER.pack_into(buf, pos + _PRODUCER_POSITION, producer_id, producer_epoch, base_sequence)
    _seal(buf, pos, size)


def _seal(buf: WriteBuffer, pos: int, size: int) -> None:
    _UINT32.pack_into(buf, pos + _CRC_POSITION, crc32c(memoryview(buf)[pos + CRC_START : pos + size]))


def pack_batch(header: BatchHeader, payload: ReadBuffer) -> bytes:
    """A whole batch from its header and its records. Length, magic and checksum of `header` are computed here."""
    length = HEADER_SIZE - OFFSET_AND_LENGTH_SIZE + len(payload)
    head = bytearray(HEADER_STRUCT.pack(*header._replace(batch_length=length, magic=MAGIC_V2, crc=0)))
    _UINT32.pack_into(head, _CRC_POSITION, crc32c(payload, crc32c(memoryview(head)[CRC_START:])))
    return b"".join((head, payload))


def pack_in_place(header: BatchHeader, buf: WriteBuffer, *, checksum: bool = True) -> None:
    """The same where the records are in place already, behind room for the header.

    Without a checksum the batch is not valid before `set_producer`, which computes it in any case.
    """
    length = len(buf) - OFFSET_AND_LENGTH_SIZE
    HEADER_STRUCT.pack_into(buf, 0, *header._replace(batch_length=length, magic=MAGIC_V2, crc=0))
    if checksum:
        _seal(buf, 0, len(buf))


def pack_plain_batch(
    records: bytes, record_count: int, timestamp_ms: int, base_offset: int, partition_leader_epoch: int
) -> bytes:
    """A whole batch of uncompressed records that all have one timestamp, and no producer id."""
    behind_crc = _pack_behind_crc(0, record_count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, record_count)
    crc = crc32c(records, crc32c(behind_crc))
    length = _MIN_BATCH_LENGTH + len(records)
    return _pack_up_to_crc(base_offset, length, partition_leader_epoch, MAGIC_V2, crc) + behind_crc + records


def increment_sequence(sequence: int, by: int) -> int:
    """Sequence numbers go round: 0 follows 2147483647."""
    return (sequence + by) & MAX_SEQUENCE
