from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.util import decode_varint as kafka_python_decode
from kafka.record.util import encode_varint as kafka_python_encode

from ottla.base.errors import CorruptBatchError
from ottla.records.varint import VARINT_TABLE, VARINT_TABLE_SIZE, encode_varint, read_varint, read_varlong


def kafka_python_bytes(value: int) -> bytes:
    out = bytearray()
    kafka_python_encode(value, out.append)
    return bytes(out)


def test_the_table_holds_what_others_write() -> None:
    assert len(VARINT_TABLE) == VARINT_TABLE_SIZE
    for number, data in enumerate(VARINT_TABLE):
        assert data == kafka_python_bytes(number)


@given(st.integers(-(2**63), 2**63 - 1))
def test_round_trip_of_64_bits(value: int) -> None:
    data = encode_varint(value)
    assert data == kafka_python_bytes(value)
    assert kafka_python_decode(bytearray(data))[0] == value
    assert read_varlong(data + b"\xff", 0) == (value, len(data))


@given(st.integers(-(2**31), 2**31 - 1))
def test_round_trip_of_32_bits(value: int) -> None:
    data = encode_varint(value)
    assert len(data) <= 5
    assert read_varint(b"\xff" + data, 1) == (value, 1 + len(data))


@pytest.mark.parametrize(
    "data", [b"\xff" * 20, b"\x80" * 5 + b"\x00", b"\xff\xff\xff\xff\x1f"], ids=["endless", "overlong", "33 bits"]
)
def test_a_number_that_is_too_long_for_32_bits(data: bytes) -> None:
    with pytest.raises(CorruptBatchError):
        read_varint(data, 0)


@pytest.mark.parametrize("data", [b"\xff" * 20, b"\xff" * 9 + b"\x02"], ids=["endless", "65 bits"])
def test_a_number_that_is_too_long_for_64_bits(data: bytes) -> None:
    with pytest.raises(CorruptBatchError):
        read_varlong(data, 0)


def test_the_largest_numbers_fit() -> None:
    assert read_varint(b"\xff\xff\xff\xff\x0f", 0)[0] == -(2**31)
    assert read_varlong(b"\xff" * 9 + b"\x01", 0)[0] == -(2**63)
