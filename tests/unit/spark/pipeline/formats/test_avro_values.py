"""Avro by the column against fastavro, which reads and writes a value at a time: any schema, any rows, any bytes."""

from __future__ import annotations

import datetime
import io
import json
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("fastavro")
pytest.importorskip("pyspark")

import fastavro
import pyarrow as pa

from ottla.spark.pipeline.formats.avro.decoder import PlainDecoder
from ottla.spark.pipeline.formats.avro.spark_types import spark_type
from ottla.spark.pipeline.formats.avro.types import parse_record
from ottla.spark.pipeline.formats.avro.writers import compile_writer
from tests.unit.spark.pipeline.formats.avro_values import decoded, written

EPOCH = datetime.datetime(1970, 1, 1)
MICROS = st.integers(-62135596800000000, 253402300799999999)


class Kind(NamedTuple):
    schema: Any
    bare: Any
    """The schema without logical types: fastavro takes and gives the numbers and bytes themselves."""
    values: st.SearchStrategy[Any]
    shown: Callable[[Any], Any] = lambda value: value
    """A bare value as Arrow shows it."""


def logical(bare: Any, values: st.SearchStrategy[Any], shown: Callable[[Any], Any], name: str, **more: Any) -> Kind:
    schema = bare if isinstance(bare, dict) else {"type": bare}
    return Kind({**schema, "logicalType": name, **more}, bare, values, shown)


def moment(micros: int) -> datetime.datetime:
    return EPOCH + datetime.timedelta(microseconds=micros)


def utc(micros: int) -> datetime.datetime:
    return moment(micros).replace(tzinfo=datetime.UTC)


def number_bytes(number: int) -> bytes:
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


def decimal(scale: int) -> Callable[[bytes], Decimal]:
    return lambda data: Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, Context(prec=76))


def digits(count: int) -> st.SearchStrategy[int]:
    return st.integers(1 - 10**count, 10**count - 1)


DAY = 86_400_000_000
PLAIN = [
    *(
        Kind(name, name, values)
        for name, values in {
            "boolean": st.booleans(),
            "int": st.integers(-(2**31), 2**31 - 1),
            "long": st.integers(-(2**63), 2**63 - 1),
            "float": st.floats(width=32, allow_nan=False),
            "double": st.floats(allow_nan=False),
            "bytes": st.binary(max_size=200),
            "string": st.text(max_size=100),
        }.items()
    ),
    logical("int", st.integers(-719162, 2932896), lambda n: (EPOCH + datetime.timedelta(days=n)).date(), "date"),
    logical("int", st.integers(0, DAY // 1000 - 1), lambda n: moment(n * 1000).time(), "time-millis"),
    logical("long", st.integers(0, DAY - 1), lambda n: moment(n).time(), "time-micros"),
    logical("long", MICROS.map(lambda n: n // 1000), lambda n: utc(n * 1000), "timestamp-millis"),
    logical("long", MICROS, utc, "timestamp-micros"),
    logical("long", st.integers(-(2**53), 2**53).map(lambda n: n * 1000), lambda n: utc(n // 1000), "timestamp-nanos"),
    logical("long", MICROS, moment, "local-timestamp-micros"),
    logical("bytes", digits(4).map(number_bytes), decimal(2), "decimal", precision=4, scale=2),
    logical("bytes", digits(18).map(number_bytes), decimal(0), "decimal", precision=18),
    logical("bytes", digits(20).map(number_bytes), decimal(5), "decimal", precision=20, scale=5),
    logical("bytes", digits(38).map(number_bytes), decimal(0), "decimal", precision=38),
    logical("string", st.uuids().map(str), str, "uuid"),
]


def fixed(name: str) -> list[Kind]:
    schema = {"type": "fixed", "name": name}
    return [
        Kind({**schema, "size": 3}, {**schema, "size": 3}, st.binary(min_size=3, max_size=3)),
        logical(
            {**schema, "size": 5},
            digits(9).map(lambda n: n.to_bytes(5, "big", signed=True)),
            decimal(3),
            "decimal",
            precision=9,
            scale=3,
        ),
    ]


@st.composite
def kinds(draw: st.DrawFn, name: str = "r", depth: int = 2) -> Kind:
    choice = draw(
        st.sampled_from(["plain", "fixed", "enum", *(["array", "map", "record", "null", "union"] * (depth > 0))])
    )
    if choice == "plain":
        return draw(st.sampled_from(PLAIN))
    if choice == "fixed":
        return draw(st.sampled_from(fixed(f"{name}_fixed")))
    if choice == "enum":
        schema = {"type": "enum", "name": f"{name}_enum", "symbols": ["A", "B", "C"]}
        return Kind(schema, schema, st.sampled_from("ABC"))
    if choice == "record":
        return draw(records(f"{name}_record", depth - 1))
    if choice == "union":
        members = [
            Kind("int", "int", st.integers(-5, 5)),
            Kind("string", "string", st.text(max_size=3)),
            draw(records(f"{name}_branch", depth - 1)),
        ]
        return union(members, is_nullable=draw(st.booleans()))
    inner = draw(kinds(f"{name}_item", depth - 1))
    if choice == "array":
        return Kind(
            {"type": "array", "items": inner.schema},
            {"type": "array", "items": inner.bare},
            st.lists(inner.values, max_size=5),
            lambda items: list(map(inner.shown, items)),
        )
    if choice == "map":
        return Kind(
            {"type": "map", "values": inner.schema},
            {"type": "map", "values": inner.bare},
            st.dictionaries(st.text(max_size=5), inner.values, max_size=4),
            lambda items: [(key, inner.shown(item)) for key, item in items.items()],
        )
    if isinstance(inner.schema, list):
        return inner
    order = draw(st.permutations(["null", inner]))
    return Kind(
        [each if each == "null" else each.schema for each in order],
        [each if each == "null" else each.bare for each in order],
        st.none() | inner.values,
        lambda value: None if value is None else inner.shown(value),
    )


def union(members: list[Kind], *, is_nullable: bool) -> Kind:
    names = [kind.schema if isinstance(kind.schema, str) else kind.schema["name"] for kind in members]

    def shown(chosen: Any) -> Any:
        if chosen is None:
            return None
        name, value = chosen
        return {each: members[at].shown(value) if each == name else None for at, each in enumerate(names)}

    values = st.one_of([st.tuples(st.just(name), kind.values) for name, kind in zip(names, members, strict=True)])
    null = ["null"] if is_nullable else []
    return Kind(
        [*null, *(kind.schema for kind in members)],
        [*null, *(kind.bare for kind in members)],
        st.none() | values if is_nullable else values,
        shown,
    )


@st.composite
def records(draw: st.DrawFn, name: str = "r", depth: int = 2) -> Kind:
    fields = [draw(kinds(f"{name}_{index}", depth)) for index in range(draw(st.integers(1, 4)))]
    return Kind(
        {"type": "record", "name": name, "fields": [{"name": f"f{i}", "type": k.schema} for i, k in enumerate(fields)]},
        {"type": "record", "name": name, "fields": [{"name": f"f{i}", "type": k.bare} for i, k in enumerate(fields)]},
        st.fixed_dictionaries({f"f{i}": kind.values for i, kind in enumerate(fields)}),
        lambda row: {f"f{i}": kind.shown(row[f"f{i}"]) for i, kind in enumerate(fields)},
    )


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_what_fastavro_writes_is_read_and_written_again_byte_for_byte(data: st.DataObject) -> None:
    kind = data.draw(records())
    rows = data.draw(st.lists(kind.values, max_size=6))
    values = written(kind.bare, rows)
    assert decoded(list(values), kind.schema) == [(kind.shown(row), None) for row in rows]
    schema = parse_record(json.dumps(kind.schema))
    columns = spark_type(schema)
    array = PlainDecoder(schema, schema)(pa.array(values, pa.binary())).field("value")
    assert compile_writer(schema, columns)(array.flatten(), b"\x07").to_pylist() == [b"\x07" + each for each in values]


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_value_that_is_cut_off_is_bad_and_its_neighbours_are_not(data: st.DataObject) -> None:
    kind = data.draw(records())
    rows = data.draw(st.lists(kind.values, min_size=3, max_size=3))
    values: list[bytes | None] = list(written(kind.bare, rows))
    at = data.draw(st.integers(0, max(len(values[1] or b"") - 1, 0)))
    if not values[1]:
        return
    values[1] = (values[1] or b"")[:at]
    (first, _), (_, error), (last, _) = decoded(values, kind.schema)
    assert (first, last) == (kind.shown(rows[0]), kind.shown(rows[2]))
    assert error is not None and error.endswith("the value ends too early")


def plain(value: object) -> object:
    """The same moment is written in the same way, whichever of Python's names of UTC it carries."""
    match value:
        case datetime.datetime() if value.tzinfo is not None:
            return value.astimezone(datetime.UTC)
        case dict():
            return {key: plain(inner) for key, inner in value.items()}
        case list():
            return [plain(inner) for inner in value]
        case _:
            return value


@given(st.data(), st.lists(st.binary(max_size=40), max_size=20))
@settings(max_examples=60, deadline=None)
def test_any_bytes_are_read_as_fastavro_reads_them_or_are_bad(data: st.DataObject, values: list[bytes]) -> None:
    kind = data.draw(records())
    parsed = fastavro.parse_schema(json.loads(json.dumps(kind.bare)))
    for value, (found, error) in zip(values, decoded(list(values), kind.schema), strict=True):
        if error is None:
            source = io.BytesIO(value)
            expected = fastavro.schemaless_reader(source, parsed, None)
            assert source.tell() == len(value)
            # fastavro does not tell which branch of several it was.
            if "_branch" not in json.dumps(kind.schema):
                assert repr(plain(found)) == repr(plain(kind.shown(expected)))
