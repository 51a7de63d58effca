"""The zigzag varints inside records. Nothing outside a record's body uses this encoding.

Reading and writing records inline the short cases; these are the table and the general case they fall back to.
"""

from __future__ import annotations

from typing import Final

from ottla.base.errors import CorruptBatchError

VARINT_TABLE_SIZE: Final = 8192
"""Non-negative numbers below this take one or two bytes and are in `VARINT_TABLE`."""

VARINT_TABLE: Final[list[bytes]] = [bytes((low,)) for low in range(0, 128, 2)] + [
    bytes((low, high)) for high in range(1, 128) for low in range(128, 256, 2)
]


def encode_varint(value: int) -> bytes:
    """A 32 or 64-bit number: both are written the same way."""
    if 0 <= value < VARINT_TABLE_SIZE:
        return VARINT_TABLE[value]
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def read_unsigned(buf: bytes, pos: int, max_bits: int) -> tuple[int, int]:
    """The number at `pos` before its zigzag is undone, and the position after it.

    Raises CorruptBatchError if it does not fit `max_bits`, IndexError if the buffer ends within it.
    """
    value = shift = 0
    while True:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= max_bits:
            raise CorruptBatchError(f"a varint at position {pos} does not end within {max_bits} bits")
    if value >> max_bits:
        raise CorruptBatchError(f"a varint before position {pos} does not fit {max_bits} bits")
    return value, pos


def read_varint(buf: bytes, pos: int) -> tuple[int, int]:
    value, pos = read_unsigned(buf, pos, 32)
    return (value >> 1) ^ -(value & 1), pos


def read_varlong(buf: bytes, pos: int) -> tuple[int, int]:
    value, pos = read_unsigned(buf, pos, 64)
    return (value >> 1) ^ -(value & 1), pos
