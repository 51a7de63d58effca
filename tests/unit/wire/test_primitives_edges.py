"""Primitive types at their edges: the last value that takes so many bytes, the first that takes more, and the end."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.errors import DecodeError, EncodeError
from ottla.wire import primitives as p

EDGES = sorted({(1 << bits) + step for bits in (0, 1, *range(7, 71, 7), 31, 32, 63, 64) for step in (-1, 0, 1)})
SIGNED = sorted({sign * each for each in EDGES for sign in (1, -1)})


def groups(value: int) -> bytes:
    """Seven bits a byte, the lowest first, and a mark on all bytes but the last."""
    out = [value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes(each | 0x80 for each in out[:-1]) + bytes(out[-1:])


@pytest.mark.parametrize(
    ("read", "write", "bits"),
    [
        (p.read_unsigned_varint, p.write_unsigned_varint, 32),
        (p.read_unsigned_varlong, p.write_unsigned_varlong, 64),
    ],
)
def test_unsigned_numbers_of_every_size(
    read: Callable[..., tuple[int, int]], write: Callable[[int], bytes], bits: int
) -> None:
    for value in EDGES:
        coded = groups(value)
        if value < 1 << bits:
            assert write(value) == coded
            for behind in (b"", b"\0", b"\xff", b"\xff\xff\xff"):
                assert read(b"\xff\x80" + coded + behind, 2) == (value, 2 + len(coded))
        else:
            with pytest.raises(EncodeError):
                write(value)
            with pytest.raises(DecodeError):
                read(coded, 0)
        for cut in range(len(coded)):
            with pytest.raises(DecodeError):
                read(b"\x01" + coded[:cut], 1)
    for value in (-1, -128, -(1 << 32)):
        with pytest.raises(EncodeError):
            write(value)


@pytest.mark.parametrize(
    ("read", "write", "bits"), [(p.read_varint, p.write_varint, 32), (p.read_varlong, p.write_varlong, 64)]
)
def test_signed_numbers_of_every_size(
    read: Callable[..., tuple[int, int]], write: Callable[[int], bytes], bits: int
) -> None:
    for value in SIGNED:
        coded = groups(2 * value if value >= 0 else -2 * value - 1)
        if -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            assert write(value) == coded
            assert read(b"\xff" + coded + b"\xff", 1) == (value, 1 + len(coded))
        else:
            with pytest.raises(EncodeError):
                write(value)


@pytest.mark.parametrize(
    ("read", "bytes_max"),
    [(p.read_unsigned_varint, 5), (p.read_varint, 5), (p.read_unsigned_varlong, 10), (p.read_varlong, 10)],
)
def test_a_number_may_take_more_bytes_than_it_needs_but_not_more_than_there_may_be(
    read: Callable[..., tuple[int, int]], bytes_max: int
) -> None:
    for size in range(1, bytes_max + 1):
        for behind in (b"", b"\xff\xff"):
            assert read(b"\x80" * (size - 1) + b"\0" + behind, 0) == (0, size)
    with pytest.raises(DecodeError, match=f"no end within {bytes_max} bytes"):
        read(b"\x80" * bytes_max + b"\0", 0)


FIXED = {
    "boolean": (1, False, True),
    "int8": (1, -(2**7), 2**7 - 1),
    "int16": (2, -(2**15), 2**15 - 1),
    "uint16": (2, 0, 2**16 - 1),
    "int32": (4, -(2**31), 2**31 - 1),
    "uint32": (4, 0, 2**32 - 1),
    "int64": (8, -(2**63), 2**63 - 1),
    "float64": (8, -1.5, 1e300),
    "uuid": (16, bytes(16), bytes(range(16))),
}


@pytest.mark.parametrize("kind", FIXED)
def test_types_of_one_size(kind: str) -> None:
    size, low, high = FIXED[kind]
    read, write = getattr(p, f"read_{kind}"), getattr(p, f"write_{kind}")
    assert struct.calcsize(">" + p.FIXED_FORMATS[kind]) == size
    for value in (low, high):
        coded = write(value)
        assert len(coded) == size
        assert read(coded, 0) == (value, size)
        assert read(b"\xff" * 3 + coded + b"\xff", 3) == (value, 3 + size)
        for cut in range(size):
            with pytest.raises(DecodeError, match=f"needs {size} more bytes, {cut} are left"):
                read(b"\xff" * 3 + coded[:cut], 3)
    if "int" in kind:
        for outside in (low - 1, high + 1):
            with pytest.raises(EncodeError):
                write(outside)
    with pytest.raises(DecodeError, match=f"needs {size} more bytes, 0 are left"):
        read(b"", 5)


def test_every_type_of_one_size_has_its_format() -> None:
    assert set(p.FIXED_FORMATS) == set(FIXED)


@pytest.mark.parametrize("size", [15, 17])
def test_a_uuid_has_16_bytes(size: int) -> None:
    with pytest.raises(EncodeError, match=f"16 bytes, not {size}"):
        p.write_uuid(bytes(size))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("compact", "short", "length", "coded"),
    [
        (False, False, None, b"\xff\xff\xff\xff"),
        (False, False, 0, b"\0\0\0\0"),
        (False, False, 70_000, b"\0\x01\x11\x70"),
        (False, True, None, b"\xff\xff"),
        (False, True, 0, b"\0\0"),
        (False, True, 300, b"\x01\x2c"),
        (True, False, None, b"\0"),
        (True, False, 0, b"\x01"),
        (True, True, 1, b"\x02"),
        (True, False, 127, b"\x80\x01"),
    ],
)
def test_lengths(compact: bool, short: bool, length: int | None, coded: bytes) -> None:
    assert p.write_length(length, compact=compact, short=short) == coded
    assert p.read_length(b"\xaa" + coded, 1, compact=compact, short=short) == (length, 1 + len(coded))
    if not short:
        assert p.write_length(length, compact=compact) == coded
        assert p.read_length(coded, 0, compact=compact) == (length, len(coded))


@pytest.mark.parametrize(("coded", "short"), [(b"\xff\xfe", True), (b"\xff\xff\xff\xfe", False), (b"\x80\0", True)])
def test_a_length_below_that_of_null_is_refused(coded: bytes, short: bool) -> None:
    with pytest.raises(DecodeError, match="is negative"):
        p.read_length(coded, 0, compact=False, short=short)


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128])
def test_what_a_length_announces_has_to_be_there(compact: bool, size: int) -> None:
    text, data = "x" * size, b"x" * size
    cases: list[tuple[bytes, Callable[..., tuple[Any, int]], Any]] = [
        (p.write_string(text, compact=compact), p.read_string, text),
        (p.write_bytes(data, compact=compact), p.read_bytes, data),
        (p.write_bytes(data, compact=compact), p.read_view, data),
        (p.write_length(size, compact=compact) + data, p.read_array_count, size),
    ]
    for coded, read, expected in cases:
        found, end = read(b"\xff\xff" + coded, 2, compact=compact)
        assert found == expected
        assert end == 2 + len(coded) - (size if read is p.read_array_count else 0)
        if read is not p.read_array_count:
            assert read(coded + b"\xff", 0, compact=compact) == (expected, len(coded))
        for cut in range(len(coded)):
            with pytest.raises(DecodeError):
                read(coded[:cut], 0, compact=compact)


@pytest.mark.parametrize("compact", [False, True])
def test_what_is_null(compact: bool) -> None:
    for write, read, short in (
        (p.write_string, p.read_string, True),
        (p.write_bytes, p.read_bytes, False),
        (p.write_bytes, p.read_view, False),
    ):
        coded = write(None, compact=compact)
        assert coded == p.write_length(None, compact=compact, short=short)
        assert read(coded, 0, compact=compact) == (None, len(coded))
    coded = p.write_length(None, compact=compact)
    assert p.read_array_count(coded, 0, compact=compact) == (None, len(coded))


@pytest.mark.parametrize("size", [32_767, 32_768])
def test_the_longest_string(size: int) -> None:
    data = p.write_unsigned_varint(size + 1) + b"x" * size
    if size == 32_767:
        assert p.read_string(data, 0, compact=True) == ("x" * size, len(data))
    else:
        with pytest.raises(DecodeError, match="32768 bytes is over 32767"):
            p.read_string(data, 0, compact=True)


def test_where_text_is_not_utf8_is_said() -> None:
    with pytest.raises(DecodeError) as refused:
        p.read_string(b"\xaa\xaa\0\x04ab\xc3\x28", 2, compact=False)
    assert refused.value.position == 6
