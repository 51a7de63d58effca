from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.errors import ClientError, SerializationError
from ottla.client.serdes.formats import (
    BytesSerde,
    DoubleSerde,
    FloatSerde,
    IntegerSerde,
    JsonSerde,
    LongSerde,
    ShortSerde,
    StringSerde,
    deserializing,
    serde_named,
    serializing,
)

json_values = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner | st.none(), max_size=3) | st.dictionaries(st.text(), inner | st.none(), max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("serde", "value", "data"),
    [
        (BytesSerde(), b"raw", b"raw"),
        (BytesSerde(), bytearray(b"raw"), b"raw"),
        (StringSerde(), "žluť", b"\xc5\xbelu\xc5\xa5"),
        (StringSerde("iso8859-2"), "žluť", b"\xbelu\xbb"),
        (ShortSerde(), -2, b"\xff\xfe"),
        (IntegerSerde(), 258, b"\x00\x00\x01\x02"),
        (LongSerde(), -1, b"\xff" * 8),
        (FloatSerde(), 1.5, b"\x3f\xc0\x00\x00"),
        (DoubleSerde(), -2.0, b"\xc0\x00\x00\x00\x00\x00\x00\x00"),
        (DoubleSerde(), 3, b"\x40\x08\x00\x00\x00\x00\x00\x00"),
        (JsonSerde(), {"a": [1, None, "č"]}, '{"a":[1,null,"č"]}'.encode()),
    ],
)
def test_the_bytes_are_those_of_other_clients(serde: Any, value: Any, data: bytes) -> None:
    assert serde.serialize("t", value) == data
    assert serde.deserialize("t", data) == value
    assert serde.serialize("t", None) is None
    assert serde.deserialize("t", None) is None


@given(st.integers(-(2**63), 2**63 - 1))
def test_longs_come_back(number: int) -> None:
    assert LongSerde().deserialize("t", LongSerde().serialize("t", number)) == number


@given(st.floats(allow_nan=False))
def test_doubles_come_back(number: float) -> None:
    assert DoubleSerde().deserialize("t", DoubleSerde().serialize("t", number)) == number


@given(json_values)
def test_json_comes_back(value: Any) -> None:
    assert JsonSerde().deserialize("t", JsonSerde().serialize("t", value)) == value


@pytest.mark.parametrize(
    ("serde", "value", "complaint"),
    [
        (BytesSerde(), "text", "bytes are needed, but str was given"),
        (StringSerde(), b"raw", "text is needed, but bytes was given"),
        (StringSerde("ascii"), "č", "ascii"),
        (ShortSerde(), 32768, "32768 does not fit a short, which has 2 bytes"),
        (IntegerSerde(), 2**31, "does not fit an integer"),
        (IntegerSerde(), 1.0, "a number .an integer. is needed, but float was given"),
        (LongSerde(), True, "but bool was given"),
        (FloatSerde(), 1e300, "does not fit a float"),
        (JsonSerde(), float("nan"), "JSON"),
        (JsonSerde(), {1, 2}, "set"),
    ],
)
def test_what_cannot_be_serialized(serde: Any, value: Any, complaint: str) -> None:
    with pytest.raises(SerializationError, match=f"orders: the value could not be serialized: .*{complaint}") as caught:
        serializing("value", serde)("orders", value)
    assert not caught.value.retriable
    assert not caught.value.fatal


@pytest.mark.parametrize(
    ("serde", "data", "complaint"),
    [
        (StringSerde(), b"\xff", "utf-8"),
        (IntegerSerde(), b"\0\0\1", "an integer has 4 bytes, but 3 are there"),
        (DoubleSerde(), b"", "a double has 8 bytes, but 0 are there"),
        (JsonSerde(), b"{", "not JSON"),
        (JsonSerde(), b"\xff\xff\xff", "utf"),
    ],
)
def test_what_cannot_be_deserialized(serde: Any, data: bytes, complaint: str) -> None:
    with pytest.raises(SerializationError, match=f"orders: the key could not be deserialized: .*{complaint}"):
        deserializing("key", serde)("orders", data)


def test_an_encoding_nobody_knows_is_refused_at_once() -> None:
    with pytest.raises(LookupError, match="utf-88"):
        StringSerde("utf-88")


def test_json_of_your_own_types() -> None:
    serde = JsonSerde(default=datetime.date.isoformat, load=lambda value: datetime.date.fromisoformat(value["day"]))
    assert serde.serialize("t", {"day": datetime.date(2024, 2, 29)}) == b'{"day":"2024-02-29"}'
    assert serde.deserialize("t", b'{"day":"2024-02-29"}') == datetime.date(2024, 2, 29)


def test_your_own_as_functions_and_as_objects() -> None:
    assert serializing("key", str.encode)("t", "abc") == b"abc"
    assert deserializing("key", lambda data: data and data[::-1])("t", b"abc") == b"cba"

    class WithTopic:
        def serialize(self, topic: str, value: str | None) -> bytes:
            return f"{topic}/{value}".encode()

    assert serializing("key", WithTopic())("t", "abc") == b"t/abc"
    with pytest.raises(TypeError, match="a serializer must be callable"):
        serializing("key", 5)  # type: ignore[arg-type]


def test_an_error_of_the_client_is_passed_on_as_it_is() -> None:
    def refuse(value: object) -> bytes:
        raise ClientError("no")

    with pytest.raises(ClientError, match="no") as caught:
        serializing("value", refuse)("t", 1)
    assert type(caught.value) is ClientError


def test_serdes_by_name() -> None:
    assert serde_named("long").serialize("t", 1) == bytes(7) + b"\x01"
    with pytest.raises(ValueError, match="no serde is called 'lnog'; known: bytes, string"):
        serde_named("lnog")


@pytest.mark.parametrize(
    ("name", "value", "data"),
    [
        ("bytes", b"\x00\xff", b"\x00\xff"),
        ("string", "é", b"\xc3\xa9"),
        ("short", 1, b"\x00\x01"),
        ("integer", 1, b"\x00\x00\x00\x01"),
        ("long", 1, b"\x00\x00\x00\x00\x00\x00\x00\x01"),
        ("float", 1.0, b"\x3f\x80\x00\x00"),
        ("double", 1.0, b"\x3f\xf0\x00\x00\x00\x00\x00\x00"),
        ("json", [1, None], b"[1,null]"),
    ],
)
def test_every_format_has_a_name(name: str, value: Any, data: bytes) -> None:
    serde = serde_named(name)
    assert serde.serialize("t", value) == data and serde.deserialize("t", data) == value


def test_who_mistypes_a_name_is_told_all() -> None:
    with pytest.raises(ValueError, match=r"known: bytes, string, short, integer, long, float, double, json$"):
        serde_named("")


@pytest.mark.parametrize(
    ("serde", "lowest", "highest"),
    [
        (ShortSerde(), -(2**15), 2**15 - 1),
        (IntegerSerde(), -(2**31), 2**31 - 1),
        (LongSerde(), -(2**63), 2**63 - 1),
    ],
)
def test_whole_numbers_have_bounds(serde: Any, lowest: int, highest: int) -> None:
    for number in (lowest, highest):
        assert serde.deserialize("t", serde.serialize("t", number)) == number
    for number in (lowest - 1, highest + 1):
        with pytest.raises(ValueError, match=f"{number} does not fit"):
            serde.serialize("t", number)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_of_any_kind_are_bytes(kind: Any) -> None:
    data = BytesSerde().serialize("t", kind(b"raw"))
    assert data == b"raw" and type(data) is bytes
