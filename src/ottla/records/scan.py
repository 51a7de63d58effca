"""Gets at the records of a batch without decoding them: the decompressed payload, and where each record lies in it.

The bytes come from producers, so everything a record says about itself is checked: it must take exactly the bytes it
claims, there must be as many records as the header counts, nothing may be left over, and offsets must rise within
the range the header gives. The checksum is not checked here; `batch.crc_is_valid` does that.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Final, NamedTuple, NoReturn

from ottla.base.errors import CorruptBatchError
from ottla.base.types import ReadBuffer
from ottla.records.batch import HEADER_SIZE, LOG_APPEND_TIME_BIT, BatchHeader
from ottla.records.compression import Codec, decompress
from ottla.records.varint import read_unsigned

MAX_UNCOMPRESSED: Final = 100 * 1024 * 1024
"""How large the records of one batch may become unless a caller says otherwise: as large as a request may be."""

MIN_RECORD_SIZE: Final = 7

_MIN_INT64: Final = -(1 << 63)
_MAX_INT64: Final = (1 << 63) - 1
_TIMESTAMP_OF: Final = itemgetter(1)


class RecordSpan(NamedTuple):
    """A record that was located but not decoded: `payload[start:end]` is all of it, its length included."""

    offset: int
    timestamp: int
    key: bytes | None
    is_tombstone: bool
    start: int
    end: int


def read_payload(batch: ReadBuffer, header: BatchHeader, *, max_uncompressed: int = MAX_UNCOMPRESSED) -> bytes:
    """The records of a batch as one run of bytes, decompressed. `batch` may go on after the batch."""
    size = header.size
    if not HEADER_SIZE <= size <= len(batch):
        raise CorruptBatchError(f"the batch claims {size} bytes, {len(batch)} are there")
    codec = header.codec
    payload = memoryview(batch)[HEADER_SIZE:size]
    # A batch that compaction has emptied has no payload at all, which is not what a codec makes of no records.
    if not header.record_count and not len(payload):
        codec = Codec.NONE
    records = decompress(codec, payload, max_uncompressed)
    if not 0 <= header.record_count * MIN_RECORD_SIZE <= len(records):
        raise CorruptBatchError(f"{header.record_count} records cannot be in {len(records)} bytes")
    return records


def scan_payload(payload: bytes, header: BatchHeader) -> list[RecordSpan]:
    """Where each record of a payload lies, with its key; values and headers are passed over."""
    try:
        return _locate_records(payload, header)
    except IndexError:
        raise_cut_short()


def _locate_records(buf: bytes, header: BatchHeader) -> list[RecordSpan]:
    """Varints of one and two bytes are read in line, as in the loop that decodes whole records."""
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    timestamp = header.max_timestamp
    has_create_time = not header.attributes & LOG_APPEND_TIME_BIT
    size = len(buf)
    key: bytes | None
    spans: list[RecordSpan] = []
    append = spans.append
    new_tuple = tuple.__new__
    span_type = RecordSpan
    last_delta = -1
    pos = 0
    for _ in range(header.record_count):
        start = pos
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
        end = pos + (n >> 1)
        if n & 1 or end > size:
            raise_wrong_length(end)

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
            key_start = pos
            pos += n >> 1
            key = buf[key_start:pos]

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
        else:
            pos += n >> 1
        # The count of headers takes a byte at least, so the value must end before the record does.
        if pos >= end:
            raise_wrong_length(end)
        append(new_tuple(span_type, (base_offset + delta, timestamp, key, n == 1, start, end)))
        pos = end
    check_end(buf, pos, last_delta, header)
    if has_create_time:
        check_timestamps(map(_TIMESTAMP_OF, spans))
    return spans


def check_end(buf: bytes, pos: int, last_delta: int, header: BatchHeader) -> None:
    if pos != len(buf):
        raise CorruptBatchError(f"{len(buf) - pos} bytes are left after the last of {header.record_count} records")
    if last_delta > header.last_offset_delta:
        raise CorruptBatchError(
            f"a record has the offset delta {last_delta}, the last of the batch is {header.last_offset_delta}"
        )


def check_timestamps(timestamps: Iterable[int]) -> None:
    """A delta can carry a timestamp out of the range it is stored in; nobody could write such a record again."""
    found = tuple(timestamps)
    if found and not (min(found) >= _MIN_INT64 and max(found) <= _MAX_INT64):
        raise CorruptBatchError("the timestamp of a record does not fit 64 bits")


def raise_cut_short() -> NoReturn:
    raise CorruptBatchError("the records end within a record") from None


def raise_wrong_length(end: int) -> NoReturn:
    raise CorruptBatchError(f"a record does not end at byte {end}, where its length says")


def raise_negative_length(what: str) -> NoReturn:
    raise CorruptBatchError(f"the {what} of a record has a negative length")


def raise_offset_order(delta: int, last_delta: int) -> NoReturn:
    raise CorruptBatchError(f"the offset delta {delta} of a record does not follow {last_delta}")
