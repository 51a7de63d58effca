"""Records of one shape in a row, decoded together: most batches are long runs of them.

Two records have one shape if every length in them is the same and every number takes as many bytes. Then each byte that
says something about the shape stands at the same distance from the next record's, so a strided slice has all of them,
and comparing it checks all records at once. What is not checked this way is left to the loop in `reader`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, repeat
from struct import Struct
from typing import Any, Final, NamedTuple, TypeVar

from ottla.base.types import ReadBuffer

R = TypeVar("R", bound=tuple[Any, ...])

MIN_RUN: Final = 8
"""Shorter runs are not worth looking for."""

WIDER_DELTAS: Final = frozenset({1 << 6, 1 << 13})
"""The offset deltas from which on one more byte is needed: there a run ends, and as a rule another one begins."""

_MAX_DELTA: Final = 1 << 16
_MAX_TIMESTAMP_WIDTH: Final = 4
_MAX_BASE: Final = 1 << 62
"""Far enough from the end of 64 bits that no delta of four bytes can get there."""

# Bytes that go on (those of 128 and more) become ASCII, and the others do not: `isascii` then checks them all.
_FLIP: Final = bytes(byte ^ 0x80 for byte in range(256))

_new_tuple = tuple.__new__
_delta_columns: dict[int, list[bytes]] = {}


class Shape(NamedTuple):
    """Of one record: how large it is and where its parts are, counted from its first byte."""

    size: int
    length_width: int
    fixed: list[tuple[int, int]]
    """Positions and bytes that every record of the run has."""
    timestamp_at: int
    timestamp_width: int
    delta_at: int
    delta_width: int
    key_at: int
    key_size: int
    """-1 if the key is null; so for the value."""
    value_at: int
    value_size: int


def decode_run(
    buf: bytes,
    pos: int,
    count: int,
    delta: int,
    *,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
    record_type: type[R],
    records: list[R],
) -> int:
    """Appends the run that starts at `pos` to `records`, and returns where it ends: at `pos` if there is none.

    At most `count` records, the first of which should have the offset delta `delta`. `append_time` is the time of all
    records if the broker has set it.
    """
    if not -_MAX_BASE < base_timestamp < _MAX_BASE or delta >= _MAX_DELTA:
        return pos
    shape = shape_at(buf, pos)
    if shape is None:
        return pos
    size = shape.size
    count = min(count, (len(buf) - pos) // size, min(1 << (7 * shape.delta_width - 1), _MAX_DELTA) - delta)
    count = _length_of_run(buf, pos, count, delta, shape)
    if count < MIN_RUN:
        return pos
    timestamps = repeat(append_time) if append_time is not None else _timestamps(buf, pos, count, base_timestamp, shape)
    first = base_offset + delta
    fields: Iterable[tuple[Any, ...]] = zip(
        range(first, first + count),
        timestamps,
        *_keys_and_values(buf, pos, count, shape),
        repeat(()),
        strict=False,
    )
    records.extend(map(_new_tuple, repeat(record_type), fields))
    return pos + size * count


def shape_at(buf: ReadBuffer, pos: int) -> Shape | None:
    """The shape of the record at `pos`, or None if it is one the loop should look at. IndexError if it is cut short."""
    body, length = _number_at(buf, pos)
    timestamp = body + 1
    delta, _ = _number_at(buf, timestamp)
    key_length, _ = _number_at(buf, delta)
    key, key_size = _number_at(buf, key_length)
    if length & 1 or (key_size & 1 and key_size != 1):
        return None
    key_size = -1 if key_size & 1 else key_size >> 1
    value_length = key + max(key_size, 0)
    value, value_size = _number_at(buf, value_length)
    if value_size & 1 and value_size != 1:
        return None
    value_size = -1 if value_size & 1 else value_size >> 1
    headers = value + max(value_size, 0)
    end = body + (length >> 1)
    if buf[headers] or headers + 1 != end or delta - timestamp > _MAX_TIMESTAMP_WIDTH:
        return None
    # Not the attributes, the byte before the timestamp: none are defined, so they may be anything.
    fixed_positions = chain(range(pos, body), range(key_length, key), range(value_length, value), (headers,))
    return Shape(
        end - pos,
        body - pos,
        [(at - pos, buf[at]) for at in fixed_positions],
        timestamp - pos,
        delta - timestamp,
        delta - pos,
        key_length - delta,
        key - pos,
        key_size,
        value - pos,
        value_size,
    )


def signed_number_at(buf: ReadBuffer, pos: int) -> int:
    number = _number_at(buf, pos)[1]
    return (number >> 1) ^ -(number & 1)


def _number_at(buf: ReadBuffer, pos: int) -> tuple[int, int]:
    """Where the varint at `pos` ends, and what it is before it is taken apart into sign and size."""
    number = shift = 0
    while buf[pos] >= 0x80:
        number |= (buf[pos] & 0x7F) << shift
        shift += 7
        pos += 1
    return pos + 1, number | buf[pos] << shift


def _length_of_run(buf: bytes, pos: int, count: int, delta: int, shape: Shape) -> int:
    """How many of the records from `pos` on have the shape, and offsets that follow each other."""
    for at, byte in shape.fixed:
        if count < MIN_RUN:
            return 0
        column = _column(buf, pos + at, count, shape.size)
        if column.count(byte) != count:
            count -= len(column.lstrip(bytes((byte,))))
    last = shape.timestamp_width - 1
    for index in range(shape.timestamp_width):
        column = _column(buf, pos + shape.timestamp_at + index, count, shape.size)
        count = _ascii_prefix(column if index == last else column.translate(_FLIP))
    for index, expected in enumerate(_columns_of_deltas(shape.delta_width)):
        column = _column(buf, pos + shape.delta_at + index, count, shape.size)
        count = _common_prefix(column, expected[delta : delta + count])
    return count


def _column(buf: bytes, at: int, count: int, size: int) -> bytes:
    return buf[at : at + (count - 1) * size + 1 : size] if count else b""


def _ascii_prefix(column: bytes) -> int:
    if column.isascii():
        return len(column)
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if column[:middle].isascii() else (low, middle)
    return low


def _common_prefix(column: bytes, expected: bytes) -> int:
    """Of two that are equally long."""
    if column == expected:
        return len(column)
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if column[:middle] == expected[:middle] else (low, middle)
    return low


def _columns_of_deltas(width: int) -> list[bytes]:
    """The bytes of all offset deltas from 0 on, first bytes in the first column, as `width` bytes would hold them."""
    columns = _delta_columns.get(width)
    if columns is None:
        numbers = range(0, 2 * min(1 << (7 * width - 1), _MAX_DELTA), 2)
        columns = _delta_columns[width] = [
            bytes((number >> 7 * index) & 0x7F | (0x80 if index < width - 1 else 0) for number in numbers)
            for index in range(width)
        ]
    return columns


def _timestamps(buf: bytes, pos: int, count: int, base: int, shape: Shape) -> Iterable[int]:
    columns = [
        _column(buf, pos + shape.timestamp_at + index, count, shape.size) for index in range(shape.timestamp_width)
    ]
    if all(column.count(column[0]) == count for column in columns):
        return repeat(base + signed_number_at(buf, pos + shape.timestamp_at))
    joined = bytearray(_MAX_TIMESTAMP_WIDTH * count)
    for index, column in enumerate(columns):
        joined[index::_MAX_TIMESTAMP_WIDTH] = column
    packed = Struct(f"<{count}I").unpack(joined)
    # A producer writes many records in a millisecond, so few of these differ.
    known = {found: base + _unpack_zigzag(found) for found in set(packed)}
    return map(known.__getitem__, packed)


def _unpack_zigzag(packed: int) -> int:
    """The signed number whose varint, padded to four bytes, reads as `packed` with its first byte lowest."""
    number = packed & 0x7F | packed >> 1 & 0x3F80 | packed >> 2 & 0x1FC000 | packed >> 3 & 0xFE00000
    return (number >> 1) ^ -(number & 1)


def _keys_and_values(
    buf: bytes, pos: int, count: int, shape: Shape
) -> tuple[Iterable[bytes | None], Iterable[bytes | None]]:
    data = memoryview(buf)[pos : pos + count * shape.size]
    if shape.key_size < 0:
        return repeat(None), _slices(data, shape.value_at, shape.value_size, shape.size)
    if shape.value_size < 0:
        return _slices(data, shape.key_at, shape.key_size, shape.size), repeat(None)
    between = shape.value_at - shape.key_at - shape.key_size
    rest = shape.size - shape.value_at - shape.value_size
    pairs = Struct(f"{shape.key_at}x{shape.key_size}s{between}x{shape.value_size}s{rest}x").iter_unpack(data)
    keys, values = zip(*pairs, strict=True)
    return keys, values


def _slices(data: memoryview, at: int, length: int, size: int) -> Iterable[bytes | None]:
    if length < 0:
        return repeat(None)
    return chain.from_iterable(Struct(f"{at}x{length}s{size - at - length}x").iter_unpack(data))
