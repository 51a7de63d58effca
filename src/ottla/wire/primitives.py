"""The protocol's primitive types, one reader and one writer each.

Readers take a buffer and a position and return the value and the position after it; whatever the bytes are, they raise
nothing but DecodeError. Writers return bytes and raise EncodeError for a value that does not fit. This is the plain
form that the reference codec and the record code use; the compiled codecs fuse these reads instead of calling them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ottla.base.errors import DecodeError, EncodeError
from ottla.base.types import Uuid

Buffer = bytes | bytearray | memoryview

STRING_BYTES_MAX = 32_767
"""Kafka refuses longer strings even where the compact form could carry them."""

UVARINT32_BYTES_MAX = 5
UVARINT64_BYTES_MAX = 10

FIXED_FORMATS = {
    "boolean": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""The struct format of every type whose size does not depend on its value."""

SMALL_UVARINTS = tuple(bytes((n,)) for n in range(128))


def _truncated(position: int, wanted: int, have: int) -> DecodeError:
    return DecodeError(f"needs {wanted} more bytes, {max(have, 0)} are left", position=position)


# --- fixed size ---------------------------------------------------------------------------------------------------


def _fixed_reader(form: str) -> Callable[[Buffer, int], tuple[Any, int]]:
    layout = struct.Struct(">" + form)

    def read(buffer: Buffer, position: int) -> tuple[Any, int]:
        if position + layout.size > len(buffer):
            raise _truncated(position, layout.size, len(buffer) - position)
        return layout.unpack_from(buffer, position)[0], position + layout.size

    return read


def _fixed_writer(form: str) -> Callable[[Any], bytes]:
    layout = struct.Struct(">" + form)

    def write(value: Any) -> bytes:
        try:
            return layout.pack(value)
        except struct.error as e:
            raise EncodeError(f"{value!r} does not fit: {e}") from e

    return write


read_boolean = _fixed_reader("?")
read_int8 = _fixed_reader("b")
read_int16 = _fixed_reader("h")
read_uint16 = _fixed_reader("H")
read_int32 = _fixed_reader("i")
read_uint32 = _fixed_reader("I")
read_int64 = _fixed_reader("q")
read_float64 = _fixed_reader("d")
read_uuid = _fixed_reader("16s")

write_boolean = _fixed_writer("?")
write_int8 = _fixed_writer("b")
write_int16 = _fixed_writer("h")
write_uint16 = _fixed_writer("H")
write_int32 = _fixed_writer("i")
write_uint32 = _fixed_writer("I")
write_int64 = _fixed_writer("q")
write_float64 = _fixed_writer("d")


def write_uuid(value: Uuid) -> bytes:
    if len(value) != 16:
        raise EncodeError(f"a uuid has 16 bytes, not {len(value)}")
    return bytes(value)


# --- variable-size integers ---------------------------------------------------------------------------------------


def _read_groups(buffer: Buffer, position: int, bytes_max: int, bits: int) -> tuple[int, int]:
    value = shift = 0
    limit = len(buffer)
    for at in range(position, position + bytes_max):
        if at >= limit:
            raise _truncated(at, 1, 0)
        group = buffer[at]
        value |= (group & 0x7F) << shift
        if group < 0x80:
            if value >> bits:
                raise DecodeError(f"the varint does not fit into {bits} bits", position=position)
            return value, at + 1
        shift += 7
    raise DecodeError(f"the varint has no end within {bytes_max} bytes", position=position)


def _write_groups(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_unsigned_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    # Lengths and counts are nearly always of one to three bytes, and this is called for every one of them.
    if position + 3 <= len(buffer):
        first = buffer[position]
        if first < 0x80:
            return first, position + 1
        second = buffer[position + 1]
        if second < 0x80:
            return first & 0x7F | second << 7, position + 2
        third = buffer[position + 2]
        if third < 0x80:
            return first & 0x7F | (second & 0x7F) << 7 | third << 14, position + 3
    return _read_groups(buffer, position, UVARINT32_BYTES_MAX, 32)


def read_unsigned_varlong(buffer: Buffer, position: int) -> tuple[int, int]:
    return _read_groups(buffer, position, UVARINT64_BYTES_MAX, 64)


def write_unsigned_varint(value: int) -> bytes:
    if 0 <= value < 1 << 7:
        return SMALL_UVARINTS[value]
    if not 1 << 7 <= value < 1 << 32:
        raise EncodeError(f"{value} does not fit into an unsigned varint")
    if value < 1 << 14:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 1 << 21:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    return _write_groups(value)


def write_unsigned_varlong(value: int) -> bytes:
    if not 0 <= value < 1 << 64:
        raise EncodeError(f"{value} does not fit into an unsigned varlong")
    return _write_groups(value)


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """A zigzag-coded 32-bit integer; only records use it, never messages."""
    coded, position = _read_groups(buffer, position, UVARINT32_BYTES_MAX, 32)
    return (coded >> 1) ^ -(coded & 1), position


def read_varlong(buffer: Buffer, position: int) -> tuple[int, int]:
    """A zigzag-coded 64-bit integer; only records use it, never messages."""
    coded, position = _read_groups(buffer, position, UVARINT64_BYTES_MAX, 64)
    return (coded >> 1) ^ -(coded & 1), position


def write_varint(value: int) -> bytes:
    if not -(1 << 31) <= value < 1 << 31:
        raise EncodeError(f"{value} does not fit into a varint")
    return _write_groups((value << 1) ^ (value >> 31))


def write_varlong(value: int) -> bytes:
    if not -(1 << 63) <= value < 1 << 63:
        raise EncodeError(f"{value} does not fit into a varlong")
    return _write_groups((value << 1) ^ (value >> 63))


# --- lengths and what they announce ---------------------------------------------------------------------------------


def read_length(buffer: Buffer, position: int, *, compact: bool, short: bool = False) -> tuple[int | None, int]:
    """The length of a string, bytes or array: None is null. `short` lengths (strings) have 16 bits when not compact."""
    if compact:
        coded, after = read_unsigned_varint(buffer, position)
        return (coded - 1 if coded else None), after
    length, after = read_int16(buffer, position) if short else read_int32(buffer, position)
    if length < -1:
        raise DecodeError(f"the length {length} is negative", position=position)
    return (None if length == -1 else length), after


def write_length(length: int | None, *, compact: bool, short: bool = False) -> bytes:
    if compact:
        return write_unsigned_varint(0 if length is None else length + 1)
    return (write_int16 if short else write_int32)(-1 if length is None else length)


def _take(buffer: Buffer, position: int, length: int) -> int:
    if length > len(buffer) - position:
        raise _truncated(position, length, len(buffer) - position)
    return position + length


def read_string(buffer: Buffer, position: int, *, compact: bool) -> tuple[str | None, int]:
    length, start = read_length(buffer, position, compact=compact, short=True)
    if length is None:
        return None, start
    if length > STRING_BYTES_MAX:
        raise DecodeError(f"a string of {length} bytes is over {STRING_BYTES_MAX}", position=position)
    end = _take(buffer, start, length)
    try:
        return str(buffer[start:end], "utf-8"), end
    except UnicodeDecodeError as e:
        raise DecodeError(f"not UTF-8: {e.reason}", position=start + e.start) from e


def write_string(value: str | None, *, compact: bool) -> bytes:
    if value is None:
        return write_length(None, compact=compact, short=True)
    try:
        data = value.encode()
    except UnicodeEncodeError as e:
        raise EncodeError(f"{value!r} has no UTF-8 form: {e.reason}") from e
    if len(data) > STRING_BYTES_MAX:
        raise EncodeError(f"a string of {len(data)} bytes is over {STRING_BYTES_MAX}")
    return write_length(len(data), compact=compact, short=True) + data


def read_bytes(buffer: Buffer, position: int, *, compact: bool) -> tuple[bytes | None, int]:
    view, end = read_view(buffer, position, compact=compact)
    return (None if view is None else bytes(view)), end


def read_view(buffer: Buffer, position: int, *, compact: bool) -> tuple[memoryview | None, int]:
    """Like `read_bytes`, but a view of the buffer instead of a copy."""
    length, start = read_length(buffer, position, compact=compact)
    if length is None:
        return None, start
    end = _take(buffer, start, length)
    return memoryview(buffer)[start:end], end


def write_bytes(value: Buffer | None, *, compact: bool) -> bytes:
    if value is None:
        return write_length(None, compact=compact)
    return write_length(len(value), compact=compact) + bytes(value)


def read_array_count(buffer: Buffer, position: int, *, compact: bool) -> tuple[int | None, int]:
    """An element takes a byte or more, so a count beyond the bytes left is a lie and must not size anything."""
    count, after = read_length(buffer, position, compact=compact)
    if count is not None and count > len(buffer) - after:
        raise DecodeError(f"announces {count} elements in {len(buffer) - after} bytes", position=position)
    return count, after
