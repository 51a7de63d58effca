from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import DecodeError, EncodeError
from ottla.wire import primitives as p

from .golden import VECTORS


def compact_of(kind: str) -> bool:
    return "compact" in kind


@pytest.mark.parametrize("item", VECTORS["primitives"], ids=lambda i: f"{i['type']}={i['value']}")
def test_golden(item: dict[str, Any]) -> None:
    kind, value, data = item["type"], item["value"], bytes.fromhex(item["hex"])
    if kind.startswith("varint"):
        assert (p.read_varint(data, 0), p.write_varint(value)) == ((value, len(data)), data)
    elif kind.startswith("varlong"):
        assert (p.read_varlong(data, 0), p.write_varlong(value)) == ((value, len(data)), data)
    elif kind == "unsigned varint":
        assert (p.read_unsigned_varlong(data, 0), p.write_unsigned_varlong(value)) == ((value, len(data)), data)
        if value < 1 << 32:
            assert (p.read_unsigned_varint(data, 0), p.write_unsigned_varint(value)) == ((value, len(data)), data)
    elif "string" in kind:
        compact = compact_of(kind)
        assert p.read_string(data, 0, compact=compact) == (value, len(data))
        assert p.write_string(value, compact=compact) == data
    elif "bytes" in kind:
        assert p.read_bytes(data, 0, compact=compact_of(kind)) == (value, len(data))
        assert p.write_bytes(value, compact=compact_of(kind)) == data
    elif "array" in kind:
        count, position = p.read_array_count(data, 0, compact=compact_of(kind))
        assert count == (None if value is None else len(value))
        assert [p.read_int32(data, position + 4 * i)[0] for i in range(count or 0)] == (value or [])
        assert p.write_length(count, compact=compact_of(kind)) == data[:position]
    elif kind == "float64":
        assert (p.read_float64(data, 0), p.write_float64(value)) == ((value, 8), data)
    elif kind == "uuid":
        raw = uuid.UUID(value).bytes
        assert (p.read_uuid(data, 0), p.write_uuid(raw)) == ((raw, 16), data)  # type: ignore[arg-type]
    else:
        assert "tagged fields" in kind  # the codecs' tests cover tag sections
        assert p.read_unsigned_varint(data, 0)[0] in (0, 2)


@pytest.mark.parametrize(
    ("read", "write", "bits", "signed"),
    [
        (p.read_unsigned_varint, p.write_unsigned_varint, 32, False),
        (p.read_unsigned_varlong, p.write_unsigned_varlong, 64, False),
        (p.read_varint, p.write_varint, 32, True),
        (p.read_varlong, p.write_varlong, 64, True),
    ],
)
@given(data=st.data())
def test_variable_integers_round_trip_and_refuse_what_does_not_fit(
    read: Callable[..., tuple[int, int]], write: Callable[[int], bytes], bits: int, signed: bool, data: st.DataObject
) -> None:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    value = data.draw(st.one_of(st.integers(low, high), st.sampled_from([low, high, 0, 127, 128, 16383, 16384])))
    coded = write(value)
    assert read(b"\xaa" + coded + b"\xbb", 1) == (value, 1 + len(coded))
    for cut in range(len(coded)):
        with pytest.raises(DecodeError):
            read(coded[:cut], 0)
    for outside in (low - 1, high + 1):
        with pytest.raises(EncodeError):
            write(outside)


@pytest.mark.parametrize("read", [p.read_unsigned_varint, p.read_varint, p.read_unsigned_varlong, p.read_varlong])
def test_a_varint_without_end_is_refused(read: Callable[..., tuple[int, int]]) -> None:
    with pytest.raises(DecodeError, match="no end"):
        read(b"\x80" * 20, 0)


def test_a_varint_of_five_bytes_may_not_carry_more_than_32_bits() -> None:
    assert p.read_unsigned_varint(b"\xff\xff\xff\xff\x0f", 0) == (0xFFFFFFFF, 5)
    with pytest.raises(DecodeError, match="32 bits"):
        p.read_unsigned_varint(b"\xff\xff\xff\xff\x1f", 0)
    with pytest.raises(DecodeError, match="64 bits"):
        p.read_unsigned_varlong(b"\xff" * 9 + b"\x7f", 0)


@pytest.mark.parametrize("compact", [True, False])
@given(text=st.none() | st.text(max_size=300))
def test_strings_round_trip(compact: bool, text: str | None) -> None:
    coded = p.write_string(text, compact=compact)
    assert p.read_string(coded, 0, compact=compact) == (text, len(coded))


@pytest.mark.parametrize("compact", [True, False])
def test_strings_end_at_32767_bytes(compact: bool) -> None:
    longest = "x" * 32_767
    assert p.read_string(p.write_string(longest, compact=compact), 0, compact=compact)[0] == longest
    with pytest.raises(EncodeError, match="32768"):
        p.write_string(longest + "x", compact=compact)
    with pytest.raises(DecodeError, match="32768"):
        p.read_string(p.write_unsigned_varint(32_769) + b"x" * 32_768, 0, compact=True)


@pytest.mark.parametrize(
    ("data", "read", "reason"),
    [
        (b"\xff\xfe", lambda b: p.read_string(b, 0, compact=False), "negative"),
        (b"\xff\xff\xff\xfe", lambda b: p.read_bytes(b, 0, compact=False), "negative"),
        (b"\x00\x02\xc3\x28", lambda b: p.read_string(b, 0, compact=False), "UTF-8"),
        (b"\x00\x00\x00\x09ab", lambda b: p.read_view(b, 0, compact=False), "9 more bytes, 2 are left"),
        (b"\x00\x0f\x42\x40\x00", lambda b: p.read_array_count(b, 0, compact=False), "1000000 elements in 1 bytes"),
        (b"\x01", lambda b: p.read_int16(b, 0), "2 more bytes, 1 are left"),
    ],
)
def test_bad_bytes_are_named(data: bytes, read: Callable[[bytes], object], reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        read(data)


def test_views_do_not_copy_and_bytes_do() -> None:
    buffer = bytearray(b"\x00\x00\x00\x03abc")
    view, _ = p.read_view(buffer, 0, compact=False)
    copy, _ = p.read_bytes(buffer, 0, compact=False)
    buffer[4:7] = b"xyz"
    assert (view, copy) == (b"xyz", b"abc")


@pytest.mark.parametrize(
    ("write", "value"), [(p.write_int8, 128), (p.write_uint16, -1), (p.write_int64, 1 << 63), (p.write_uuid, b"short")]
)
def test_values_that_do_not_fit_are_encode_errors(write: Callable[[Any], bytes], value: Any) -> None:
    with pytest.raises(EncodeError):
        write(value)


def test_text_without_utf8_form_is_an_encode_error() -> None:
    with pytest.raises(EncodeError, match="UTF-8"):
        p.write_string("\ud800", compact=True)
