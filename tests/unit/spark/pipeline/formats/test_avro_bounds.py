"""Numbers at the bounds of what Avro's logical types and Spark's columns can hold, read from the bytes of a value."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("fastavro")
pytest.importorskip("pyspark")

import pyarrow as pa

from ottla.spark.pipeline.formats.avro.decoder import PlainDecoder
from ottla.spark.pipeline.formats.avro.types import parse_record
from tests.unit.spark.pipeline.formats.avro_values import decoded

I32, I64 = 2**31, 2**63
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
FIRST_S, LAST_S = FIRST_DAY * 86_400, (LAST_DAY + 1) * 86_400 - 1
DAY_S = 86_400


def varint(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def record(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]}


def numbers(kind: Any, *written: int, reader: Any = None) -> tuple[list[int], dict[int, str]]:
    """What is read as the whole numbers that Arrow has for them, and what is wrong, by row."""
    writer = parse_record(json.dumps(record(kind)))
    decode = PlainDecoder(writer, writer if reader is None else parse_record(json.dumps(record(reader))))
    found = decode(pa.array([varint(number) for number in written], pa.binary()))
    column = found.field("value").field("f")
    size = pa.int32() if column.type.bit_width == 32 else pa.int64()
    errors = {row: error for row, error in enumerate(found.field("error").to_pylist()) if error is not None}
    return column.view(size).to_pylist(), errors


MOMENT, TIME, DATE = (
    "a moment is not of the years 1 to 9999",
    "a time is not within a day",
    "a date is not of the years",
)


@pytest.mark.parametrize(
    ("kind", "first", "last", "per_number", "told"),
    [
        ("int", -I32, I32 - 1, 1, "a number does not fit an int"),
        (logical("int", "date"), FIRST_DAY, LAST_DAY, 1, f"{DATE} 1 to 9999"),
        (logical("int", "time-millis"), 0, DAY_S * 1000 - 1, 1_000_000, TIME),
        (logical("long", "time-micros"), 0, DAY_S * 10**6 - 1, 1000, TIME),
        (logical("long", "timestamp-millis"), FIRST_S * 1000, LAST_S * 1000 + 999, 1000, MOMENT),
        (logical("long", "timestamp-micros"), FIRST_S * 10**6, LAST_S * 10**6 + 999_999, 1, MOMENT),
        (logical("long", "local-timestamp-millis"), FIRST_S * 1000, LAST_S * 1000 + 999, 1000, MOMENT),
        (logical("long", "local-timestamp-micros"), FIRST_S * 10**6, LAST_S * 10**6 + 999_999, 1, MOMENT),
    ],
)
def test_the_first_and_the_last_that_is_read(kind: Any, first: int, last: int, per_number: int, told: str) -> None:
    read, errors = numbers(kind, first, last, 0, first - 1, last + 1)
    assert read[:3] == [first * per_number, last * per_number, 0]
    assert errors == {3: f"f: {told}", 4: f"f: {told}"}


@pytest.mark.parametrize("kind", ["timestamp-nanos", "local-timestamp-nanos"])
def test_nanoseconds_are_cut_to_microseconds(kind: str) -> None:
    read, errors = numbers(logical("long", kind), -I64, I64 - 1, 1999, -1)
    assert (read, errors) == ([-I64 // 1000, (I64 - 1) // 1000, 1, -1], {})


def test_whole_numbers_of_64_bits_have_no_bounds() -> None:
    assert numbers("long", -I64, I64 - 1, 0) == ([-I64, I64 - 1, 0], {})
    assert numbers("int", -I32, I32 - 1, reader="long") == ([-I32, I32 - 1], {})
    assert numbers("int", I32, reader="long")[1] == {0: "f: a number does not fit an int"}
    assert decoded([varint(I32)], record("int"), record("double")) == [(None, "f: a number does not fit an int")]


@pytest.mark.parametrize(
    ("writer", "reader", "number", "read"),
    [
        ("long", logical("long", "timestamp-millis"), 5, 5000),
        ("long", logical("long", "timestamp-micros"), 5, 5),
        ("long", logical("long", "timestamp-nanos"), 5000, 5),
        ("int", logical("int", "date"), 5, 5),
        ("int", logical("long", "time-micros"), 5, 5000),
        (logical("int", "date"), logical("long", "timestamp-millis"), 5, 5000),
        (logical("int", "time-millis"), logical("long", "time-micros"), 5, 5_000_000),
        (logical("long", "timestamp-nanos"), logical("long", "timestamp-millis"), 5000, 5),
        (logical("long", "timestamp-millis"), logical("long", "local-timestamp-micros"), 5, 5000),
        (logical("long", "local-timestamp-micros"), logical("long", "timestamp-millis"), 5, 5),
        (logical("long", "time-micros"), logical("long", "timestamp-millis"), 5, 5000),
        (logical("int", "date"), "int", 5, 5),
    ],
)
def test_the_unit_is_that_of_who_wrote(writer: Any, reader: Any, number: int, read: int) -> None:
    assert numbers(writer, number, reader=reader) == ([read], {})


def test_dates_and_times_are_of_their_columns_types() -> None:
    kinds = [logical("int", "date"), logical("long", "time-micros"), logical("long", "timestamp-micros")]
    kinds.append(logical("long", "local-timestamp-micros"))
    found = [decoded([varint(1)], record(kind))[0][0]["f"] for kind in kinds]
    moment = datetime.datetime(1970, 1, 1, 0, 0, 0, 1)
    assert found == [datetime.date(1970, 1, 2), datetime.time(0, 0, 0, 1), moment.replace(tzinfo=datetime.UTC), moment]


# Decimals


def sized(data: bytes) -> bytes:
    return varint(len(data)) + data


def signed(number: int, size: int) -> bytes:
    return number.to_bytes(size, "big", signed=True)


@pytest.mark.parametrize("precision", [1, 2, 9, 18, 19, 20, 37, 38])
def test_decimals_have_so_many_digits(precision: int) -> None:
    most = 10**precision - 1
    kind = logical("bytes", "decimal", precision=precision, scale=1)
    written = [most, -most, 0, most + 1, -most - 1, 1, -1]
    too_long = f"f: a decimal does not fit {precision} digits"
    found = decoded([sized(signed(number, 16)) for number in written], record(kind))
    assert [error for _, error in found] == [None, None, None, too_long, too_long, None, None]
    right = [row["f"] for row, error in found if error is None]
    assert [int(number.scaleb(1)) if precision < 28 else None for number in right] == [
        number if precision < 28 else None for number in (most, -most, 0, 1, -1)
    ]
    assert [number.as_tuple().exponent for number in right] == [-1] * 5
    assert [int("".join(map(str, number.as_tuple().digits))) for number in right] == [most, most, 0, 1, 1]


@pytest.mark.parametrize(
    ("data", "number"),
    [
        (b"", 0),
        (b"\x00", 0),
        (b"\x7f", 127),
        (b"\x80", -128),
        (b"\xff", -1),
        (b"\x00\x80", 128),
        (b"\xff\x7f", -129),
        (bytes(15) + b"\x05", 5),
        (b"\xff" * 16, -1),
        (b"\x7f" + b"\xff" * 15, None),
        (b"\x80" + bytes(15), None),
        (b"\x00\x00\x00\x00\x00\x00\x00\x01" + bytes(8), 2**64),
        (bytes(17), None),
        (bytes(16) + b"\x05", None),
    ],
)
def test_decimals_of_any_length(data: bytes, number: int | None) -> None:
    """More than 16 bytes are not looked at."""
    kind = logical("bytes", "decimal", precision=38, scale=0)
    (found,) = decoded([sized(data)], record(kind))
    assert found == (
        ({"f": Decimal(number)}, None) if number is not None else (None, "f: a decimal does not fit 38 digits")
    )


@pytest.mark.parametrize(
    ("size", "precision", "number"),
    [(1, 2, -99), (2, 4, 300), (8, 18, 1 - 10**18), (9, 21, I64), (16, 38, 1 - 10**38)],
)
def test_decimals_of_a_fixed_size(size: int, precision: int, number: int) -> None:
    kind = {"type": "fixed", "name": "F", "size": size, "logicalType": "decimal", "precision": precision}
    data = signed(number, size)
    found = decoded([data, data[:-1], data + b"!"], record(kind))
    assert found == [
        ({"f": Decimal(number)}, None),
        (None, "f: the value ends too early"),
        (None, "1 bytes are left after what the schema describes"),
    ]


def test_a_bad_decimal_does_not_shift_its_neighbours() -> None:
    kind = {"type": "array", "items": logical("bytes", "decimal", precision=2, scale=0)}
    good = varint(2) + sized(b"\x05") + sized(b"\x63") + b"\0"
    bad = varint(2) + sized(b"\x64") + sized(b"\x01") + b"\0"
    long = varint(2) + sized(b"\x01" * 20) + sized(b"\x01") + b"\0"
    read = ({"f": [Decimal(5), Decimal(99)]}, None)
    wrong = (None, "f: a decimal does not fit 2 digits")
    assert decoded([good, bad, good, long, good], record(kind)) == [read, wrong, read, wrong, read]


# Fixed sizes, floats, UUIDs


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        ("float", b"\x00\x00\xc0\x3f", 1.5),
        ("double", b"\x00\x00\x00\x00\x00\x00\xf8\x3f", 1.5),
        ({"type": "fixed", "name": "F", "size": 3}, b"abc", b"abc"),
        (
            {"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"},
            bytes(range(16)),
            "00010203-0405-0607-0809-0a0b0c0d0e0f",
        ),
        ({"type": "fixed", "name": "F", "size": 15, "logicalType": "uuid"}, bytes(15), bytes(15)),
        (logical("string", "uuid"), b"\x02x", "x"),
        (logical("long", "unknown"), b"\x02", 1),
        (logical("string", "date"), b"\x02x", "x"),
        ("boolean", b"\x01", True),
        ("boolean", b"\x00", False),
    ],
)
def test_values_of_one_size(kind: Any, data: bytes, value: Any) -> None:
    found = decoded([data, data[:-1], data], record(kind))
    assert found == [({"f": value}, None), (None, "f: the value ends too early"), ({"f": value}, None)]
