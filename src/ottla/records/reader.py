"""The records inside a batch: decoded, scanned for their keys, or checked against a topic's rules.

The bytes come from producers, so everything a record says about itself is checked: it must take exactly the bytes it
claims, there must be as many records as the header counts, nothing may be left over, and offsets must rise within
the range the header gives. The checksum is not checked here; `batch.crc_is_valid` does that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, NoReturn, TypeAlias

from ottla.base.errors import CorruptBatchError
from ottla.base.types import ReadBuffer
from ottla.records.batch import HEADER_SIZE, LOG_APPEND_TIME_BIT, BatchHeader, read_header
from ottla.records.compression import Codec, decompress
from ottla.records.varint import read_unsigned, read_varint, read_varlong

MAX_UNCOMPRESSED: Final = 100 * 1024 * 1024
"""How large the records of one batch may become unless a caller says otherwise: as large as a request may be."""

MIN_RECORD_SIZE: Final = 7

Header: TypeAlias = tuple[str, bytes | None]

_MIN_INT64: Final = -(1 << 63)
_MAX_INT64: Final = (1 << 63) - 1
_new_tuple = tuple.__new__


class Record(NamedTuple):
    """One record as an application sees it. The type of the timestamp is the batch's."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]


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
    # Compaction keeps the codec in the header of a batch that it has emptied, and leaves no payload behind it.
    if not header.record_count and not len(payload):
        codec = Codec.NONE
    records = decompress(codec, payload, max_uncompressed)
    if not 0 <= header.record_count * MIN_RECORD_SIZE <= len(records):
        raise CorruptBatchError(f"{header.record_count} records cannot be in {len(records)} bytes")
    return records


def read_records(
    batch: ReadBuffer, header: BatchHeader | None = None, *, max_uncompressed: int = MAX_UNCOMPRESSED
) -> list[Record]:
    """Every record of the batch, control records too."""
    if header is None:
        header = read_header(batch)
    payload = read_payload(batch, header, max_uncompressed=max_uncompressed)
    try:
        return _decode_records(payload, header)
    except IndexError:
        _raise_cut_short()


def _decode_records(buf: bytes, header: BatchHeader) -> list[Record]:
    """The loop behind `read_records`. Varints of one and two bytes are read in line: they are nearly all there are."""
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    timestamp = header.max_timestamp
    has_create_time = not header.attributes & LOG_APPEND_TIME_BIT
    key: bytes | None
    value: bytes | None
    records: list[Record] = []
    append = records.append
    new_tuple = _new_tuple
    record_type = Record
    last_delta = -1
    pos = 0
    for _ in range(header.record_count):
        n = buf[pos]
        pos += 1
        if n > 127:
            if buf[pos] > 127:
                n, pos = read_unsigned(buf, pos - 1, 32)
            else:
                n += (buf[pos] << 7) - 128
                pos += 1
        # A negative length makes the end lie before the start, where no record can end.
        end = pos + (n >> 1) if not n & 1 else -1
        pos += 1

        n = buf[pos]
        pos += 1
        if n > 127:
            if buf[pos] > 127:
                n, pos = _read_timestamp_delta(buf, pos - 1, base_timestamp)
            else:
                n += (buf[pos] << 7) - 128
                pos += 1
        if has_create_time:
            timestamp = base_timestamp + ((n >> 1) ^ -(n & 1))

        n = buf[pos]
        pos += 1
        if n > 127:
            if buf[pos] > 127:
                n, pos = read_unsigned(buf, pos - 1, 32)
            else:
                n += (buf[pos] << 7) - 128
                pos += 1
        delta = (n >> 1) ^ -(n & 1)
        if delta <= last_delta:
            _raise_offset_order(delta, last_delta)
        last_delta = delta

        n = buf[pos]
        pos += 1
        if n > 127:
            if buf[pos] > 127:
                n, pos = read_unsigned(buf, pos - 1, 32)
            else:
                n += (buf[pos] << 7) - 128
                pos += 1
        if n & 1:
            if n != 1:
                _raise_negative_length("key")
            key = None
        else:
            start = pos
            pos += n >> 1
            key = buf[start:pos]

        n = buf[pos]
        pos += 1
        if n > 127:
            if buf[pos] > 127:
                n, pos = read_unsigned(buf, pos - 1, 32)
            else:
                n += (buf[pos] << 7) - 128
                pos += 1
        if n & 1:
            if n != 1:
                _raise_negative_length("value")
            value = None
        else:
            start = pos
            pos += n >> 1
            value = buf[start:pos]

        headers: list[Header] = []
        if buf[pos]:
            pos = _read_headers(buf, pos, headers)
        else:
            pos += 1
        if pos != end:
            _raise_wrong_length(end)
        append(new_tuple(record_type, (base_offset + delta, timestamp, key, value, headers)))
    _check_end(buf, pos, last_delta, header)
    return records


def _read_timestamp_delta(buf: bytes, pos: int, base_timestamp: int) -> tuple[int, int]:
    """Short deltas cannot leave the range of a timestamp in practice; a long one that does is not a record's."""
    n, pos = read_unsigned(buf, pos, 64)
    if not _MIN_INT64 <= base_timestamp + ((n >> 1) ^ -(n & 1)) <= _MAX_INT64:
        raise CorruptBatchError("a record's timestamp does not fit 64 bits")
    return n, pos


def _read_headers(buf: bytes, pos: int, headers: list[Header]) -> int:
    """Read the headers at `pos` into `headers`. A count that is too large runs into the end of the buffer."""
    count, pos = read_varint(buf, pos)
    if count < 0 or count > len(buf) - pos:
        raise CorruptBatchError(f"a record claims {count} headers")
    for _ in range(count):
        length, pos = read_varint(buf, pos)
        if length < 0:
            _raise_negative_length("header key")
        start = pos
        pos += length
        try:
            name = buf[start:pos].decode()
        except UnicodeDecodeError as e:
            raise CorruptBatchError("the key of a header is not UTF-8") from e
        length, pos = read_varint(buf, pos)
        if length < 0:
            if length != -1:
                _raise_negative_length("header value")
            headers.append((name, None))
        else:
            start = pos
            pos += length
            headers.append((name, buf[start:pos]))
    return pos


def scan_payload(payload: bytes, header: BatchHeader) -> list[RecordSpan]:
    """Where each record of a payload lies, with its key; values and headers are passed over."""
    try:
        return _locate_records(payload, header)
    except IndexError:
        _raise_cut_short()


def _locate_records(buf: bytes, header: BatchHeader) -> list[RecordSpan]:
    timestamp = header.max_timestamp
    has_create_time = not header.attributes & LOG_APPEND_TIME_BIT
    spans: list[RecordSpan] = []
    last_delta = -1
    pos = 0
    for _ in range(header.record_count):
        start = pos
        length, pos = read_varint(buf, pos)
        end = pos + length
        if length < MIN_RECORD_SIZE - 1 or end > len(buf):
            _raise_wrong_length(end)
        timestamp_delta, pos = read_varlong(buf, pos + 1)
        if has_create_time:
            timestamp = header.base_timestamp + timestamp_delta
        delta, pos = read_varint(buf, pos)
        if delta <= last_delta:
            _raise_offset_order(delta, last_delta)
        last_delta = delta
        key_length, pos = read_varint(buf, pos)
        key = None
        if key_length >= 0:
            key = buf[pos : pos + key_length]
            pos += key_length
        elif key_length != -1:
            _raise_negative_length("key")
        value_length, pos = read_varint(buf, pos)
        if value_length < -1:
            _raise_negative_length("value")
        # The header count takes a byte at least, so the value must end before the record does.
        if pos + max(value_length, 0) >= end:
            _raise_wrong_length(end)
        spans.append(RecordSpan(header.base_offset + delta, timestamp, key, value_length == -1, start, end))
        pos = end
    _check_end(buf, pos, last_delta, header)
    return spans


def iter_record_keys(
    batch: ReadBuffer, header: BatchHeader | None = None, *, max_uncompressed: int = MAX_UNCOMPRESSED
) -> Iterator[tuple[int, bytes | None]]:
    """The offset and the key of every record, without looking at values."""
    if header is None:
        header = read_header(batch)
    payload = read_payload(batch, header, max_uncompressed=max_uncompressed)
    for span in scan_payload(payload, header):
        yield span.offset, span.key


def _check_end(buf: bytes, pos: int, last_delta: int, header: BatchHeader) -> None:
    if pos != len(buf):
        raise CorruptBatchError(f"{len(buf) - pos} bytes are left after the last of {header.record_count} records")
    if last_delta > header.last_offset_delta:
        raise CorruptBatchError(
            f"a record has the offset delta {last_delta}, the last of the batch is {header.last_offset_delta}"
        )


def _raise_cut_short() -> NoReturn:
    raise CorruptBatchError("the records end within a record") from None


def _raise_wrong_length(end: int) -> NoReturn:
    raise CorruptBatchError(f"a record does not end at byte {end}, where its length says")


def _raise_negative_length(what: str) -> NoReturn:
    raise CorruptBatchError(f"the {what} of a record has a negative length")


def _raise_offset_order(delta: int, last_delta: int) -> NoReturn:
    raise CorruptBatchError(f"the offset delta {delta} of a record does not follow {last_delta}")
