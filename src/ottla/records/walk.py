"""The one loop over the bytes of records: it decodes them, or finds where each one lies.

It is unrolled, because it runs for every record that a consumer reads: varints of one and two bytes, which are nearly
all there are, are read in line instead of by calls that would take as long as all the rest.
"""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

from ottla.base.errors import CorruptBatchError
from ottla.records.batch import LOG_APPEND_TIME_BIT, BatchHeader
from ottla.records.faults import raise_negative_length, raise_offset_order, raise_wrong_length
from ottla.records.varint import read_unsigned, read_varint

Header: TypeAlias = tuple[str, bytes | None]
R = TypeVar("R", bound=tuple[Any, ...])

_new_tuple = tuple.__new__


def walk_records(
    buf: bytes,
    pos: int,
    count: int,
    last_delta: int,
    header: BatchHeader,
    record_type: type[R],
    records: list[R],
    *,
    locates: bool = False,
) -> tuple[int, int]:
    """Appends `count` records; returns where they end and the last one's offset delta.

    What is appended has the fields of `reader.Record`, or of `scan.RecordSpan` if it `locates`: then values and headers
    are passed over. Raises IndexError where the bytes end within a record.
    """
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    timestamp = header.max_timestamp
    has_create_time = not header.attributes & LOG_APPEND_TIME_BIT
    key: bytes | None
    value: bytes | None
    size = len(buf)
    append = records.append
    new_tuple = _new_tuple
    for _ in range(count):
        record_start = pos
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
        if locates:
            if not n & 1:
                pos += n >> 1
            elif n != 1:
                raise_negative_length("value")
            # The count of headers takes a byte at least, so the value must end before the record does.
            if not pos < end <= size:
                raise_wrong_length(end)
            append(new_tuple(record_type, (base_offset + delta, timestamp, key, n == 1, record_start, end)))
            pos = end
            continue
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
    if count < 0:
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
