"""Avro's schemas as plain types, as columns and back again, which of them fit each other, and their defaults."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("fastavro")
pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql import types as t

from ottla.spark.pipeline.formats.avro.compiling import arrow_type
from ottla.spark.pipeline.formats.avro.defaults import default_array
from ottla.spark.pipeline.formats.avro.resolution import branch_for, describe, fits, source_of
from ottla.spark.pipeline.formats.avro.spark_types import branch_names, derived_schema, family, spark_type
from ottla.spark.pipeline.formats.avro.types import (
    NOTHING,
    Array,
    AvroSchemaError,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
    is_null,
    parse_record,
)

INT, LONG, STRING, NULL = (Primitive(kind) for kind in ("int", "long", "string", "null"))


def parsed(kind: Any) -> AvroType:
    """A type alone."""
    return (
        parse_record(json.dumps({"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]}))
        .fields[0]
        .type
    )


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def fixed(size: int, **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": "n.F", "size": size, **more}


PARSED: list[tuple[Any, AvroType, t.DataType]] = [
    ("null", NULL, t.NullType()),
    ("boolean", Primitive("boolean"), t.BooleanType()),
    ("int", INT, t.IntegerType()),
    ({"type": "long"}, LONG, t.LongType()),
    ("float", Primitive("float"), t.FloatType()),
    ("double", Primitive("double"), t.DoubleType()),
    ("bytes", Primitive("bytes"), t.BinaryType()),
    ("string", STRING, t.StringType()),
    (logical("int", "date"), Primitive("int", "date"), t.DateType()),
    (logical("int", "time-millis"), Primitive("int", "time-millis"), t.TimeType()),
    (logical("long", "time-micros"), Primitive("long", "time-micros"), t.TimeType()),
    *(
        (logical("long", f"{kind}-{unit}"), Primitive("long", f"{kind}-{unit}"), column)
        for kind, column in (("timestamp", t.TimestampType()), ("local-timestamp", t.TimestampNTZType()))
        for unit in ("millis", "micros", "nanos")
    ),
    (logical("string", "uuid"), Primitive("string", "uuid"), t.StringType()),
    (
        logical("bytes", "decimal", precision=9, scale=2),
        Primitive("bytes", "decimal", 9, 2),
        t.DecimalType(9, 2),
    ),
    (logical("bytes", "decimal", precision=38), Primitive("bytes", "decimal", 38, 0), t.DecimalType(38, 0)),
    (logical("bytes", "decimal", precision=1), Primitive("bytes", "decimal", 1, 0), t.DecimalType(1, 0)),
    # What is not valid where it stands is ignored.
    (logical("long", "date"), LONG, t.LongType()),
    (logical("int", "time-micros"), INT, t.IntegerType()),
    (logical("string", "decimal"), STRING, t.StringType()),
    (logical("bytes", "uuid"), Primitive("bytes"), t.BinaryType()),
    (logical("double", "anything"), Primitive("double"), t.DoubleType()),
    (fixed(3), Fixed("n.F", 3), t.BinaryType()),
    (fixed(3, aliases=["n.G"]), Fixed("n.F", 3, frozenset({"n.G"})), t.BinaryType()),
    (
        fixed(5, logicalType="decimal", precision=9, scale=3),
        Fixed("n.F", 5, frozenset(), "decimal", 9, 3),
        t.DecimalType(9, 3),
    ),
    (fixed(16, logicalType="uuid"), Fixed("n.F", 16, frozenset(), "uuid"), t.StringType()),
    (fixed(15, logicalType="uuid"), Fixed("n.F", 15), t.BinaryType()),
    (
        {"type": "enum", "name": "n.E", "symbols": ["A", "B"], "default": "A", "aliases": ["n.O"]},
        Enum("n.E", ("A", "B"), frozenset({"n.O"}), "A"),
        t.StringType(),
    ),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, Enum("E", ("A",)), t.StringType()),
    ({"type": "array", "items": "int"}, Array(INT), t.ArrayType(t.IntegerType())),
    ({"type": "map", "values": ["null", "int"]}, Map(Union((NULL, INT))), t.MapType(t.StringType(), t.IntegerType())),
    (["null", "string"], Union((NULL, STRING)), t.StringType()),
    (["null"], Union((NULL,)), t.NullType()),
    (
        ["int", "null", {"type": "array", "items": "int"}, {"type": "map", "values": "int"}, fixed(2)],
        Union((INT, NULL, Array(INT), Map(INT), Fixed("n.F", 2))),
        t.StructType(
            [
                t.StructField("int", t.IntegerType()),
                t.StructField("array", t.ArrayType(t.IntegerType())),
                t.StructField("map", t.MapType(t.StringType(), t.IntegerType())),
                t.StructField("F", t.BinaryType()),
            ]
        ),
    ),
    (
        {
            "type": "record",
            "name": "n.I",
            "aliases": ["n.J"],
            "fields": [
                {"name": "a", "type": "int", "default": 5, "aliases": ["b"]},
                {"name": "c", "type": ["null", "int"], "default": None},
            ],
        },
        Record("n.I", (Field("a", INT, 5, frozenset({"b"})), Field("c", Union((NULL, INT)), None)), frozenset({"n.J"})),
        t.StructType([t.StructField("a", t.IntegerType()), t.StructField("c", t.IntegerType())]),
    ),
]


@pytest.mark.parametrize(("schema", "kind", "column"), PARSED, ids=[str(schema)[:60] for schema, _, _ in PARSED])
def test_types_and_their_columns(schema: Any, kind: AvroType, column: t.DataType) -> None:
    assert parsed(schema) == kind
    assert spark_type(kind) == column


def test_names_stand_for_what_they_were_defined_as() -> None:
    inner = {"type": "record", "name": "n.I", "fields": [{"name": "x", "type": "int"}]}
    whole = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": inner}, {"name": "b", "type": "n.I"}],
    }
    kind = Record("n.I", (Field("x", INT),))
    assert parse_record(json.dumps(whole)) == Record("R", (Field("a", kind), Field("b", kind)))
    used = {"type": "record", "name": "S", "fields": [{"name": "a", "type": "n.I"}]}
    assert parse_record(json.dumps(used), [json.dumps(inner)]) == Record("S", (Field("a", kind),))
    assert parse_record('"int"') == Record("value", (Field("value", INT),))
    assert repr(NOTHING) == "NOTHING" and Field("x", INT).default is NOTHING
    assert (is_null(NULL), is_null(INT), is_null(Array(NULL))) == (True, False, False)
    union = Union((INT, NULL, STRING))
    assert (union.is_nullable, union.others) == (True, (INT, STRING))
    assert (Union((INT,)).is_nullable, Union((INT,)).others) == (False, (INT,))


@pytest.mark.parametrize(
    ("logical_type", "expected"),
    [
        ("date", "date"),
        ("uuid", "uuid"),
        ("time-millis", "time"),
        ("timestamp-micros", "timestamp"),
        ("local-timestamp-nanos", "local-timestamp"),
        ("local-timestamp", "local-timestamp"),
        ("decimal", "decimal"),
    ],
)
def test_families_of_logical_types(logical_type: str, expected: str) -> None:
    assert family(logical_type) == expected


def test_branches_of_one_name_are_numbered() -> None:
    record = Record("a.X", (Field("i", INT),))
    assert branch_names(Union((record, NULL, INT))) == ["X", "int"]
    assert branch_names(Union((record, NULL, Enum("b.X", ("A",)), INT))) == ["X_0", "X_1", "int_2"]


COLUMNS: list[tuple[t.DataType, Any]] = [
    (t.BooleanType(), "boolean"),
    (t.ByteType(), "int"),
    (t.ShortType(), "int"),
    (t.IntegerType(), "int"),
    (t.LongType(), "long"),
    (t.FloatType(), "float"),
    (t.DoubleType(), "double"),
    (t.StringType(), "string"),
    (t.BinaryType(), "bytes"),
    (t.DateType(), logical("int", "date")),
    (t.TimeType(), logical("long", "time-micros")),
    (t.TimestampType(), logical("long", "timestamp-micros")),
    (t.TimestampNTZType(), logical("long", "local-timestamp-micros")),
    (t.DecimalType(9, 2), logical("bytes", "decimal", precision=9, scale=2)),
    (t.ArrayType(t.IntegerType(), False), {"type": "array", "items": "int"}),
    (t.ArrayType(t.IntegerType()), {"type": "array", "items": ["null", "int"]}),
    (t.MapType(t.StringType(), t.LongType(), False), {"type": "map", "values": "long"}),
    (t.MapType(t.StringType(), t.LongType()), {"type": "map", "values": ["null", "long"]}),
    (
        t.StructType([t.StructField("x", t.IntegerType(), False)]),
        {"type": "record", "name": "R_c", "fields": [{"name": "x", "type": "int"}]},
    ),
    (
        t.ArrayType(t.StructType([t.StructField("x", t.IntegerType())]), False),
        {
            "type": "array",
            "items": {
                "type": "record",
                "name": "R_c_item",
                "fields": [{"name": "x", "type": ["null", "int"], "default": None}],
            },
        },
    ),
    (
        t.MapType(t.StringType(), t.StructType([t.StructField("x", t.IntegerType(), False)]), False),
        {
            "type": "map",
            "values": {"type": "record", "name": "R_c_value", "fields": [{"name": "x", "type": "int"}]},
        },
    ),
]


@pytest.mark.parametrize(("column", "schema"), COLUMNS, ids=[column.simpleString() for column, _ in COLUMNS])
@pytest.mark.parametrize("nullable", [True, False])
def test_schemas_of_columns(column: t.DataType, schema: Any, nullable: bool) -> None:
    made = derived_schema(t.StructType([t.StructField("c", column, nullable)]), "R")
    field = {"name": "c", "type": ["null", schema], "default": None} if nullable else {"name": "c", "type": schema}
    assert made == {"type": "record", "name": "R", "fields": [field]}
    parse_record(json.dumps(made))


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (
            t.MapType(t.LongType(), t.LongType()),
            "Avro has no type for the column c, which is map<bigint,bigint>; cast it",
        ),
        (t.NullType(), "Avro has no type for the column c, which is void; cast it"),
        (
            t.ArrayType(t.DayTimeIntervalType()),
            "Avro has no type for the column c, which is interval day to second; cast it",
        ),
    ],
)
def test_columns_that_avro_has_no_type_for(column: t.DataType, told: str) -> None:
    with pytest.raises(AvroSchemaError) as refusal:
        derived_schema(t.StructType([t.StructField("c", column)]), "R")
    assert str(refusal.value) == told


# Resolution

KINDS = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
PROMOTED = {
    ("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double"), ("float", "double"),
    ("string", "bytes"), ("bytes", "string"),
}  # fmt: skip


@pytest.mark.parametrize("writer", KINDS)
@pytest.mark.parametrize("reader", KINDS)
def test_which_plain_types_may_be_read_as_others(writer: str, reader: str) -> None:
    assert fits(Primitive(writer), Primitive(reader)) is (writer == reader or (writer, reader) in PROMOTED)


A, B = Record("n.A", (Field("x", INT),)), Record("B", (Field("x", INT),))
ENUM, FIXED = Enum("A", ("S",)), Fixed("A", 2)


@pytest.mark.parametrize(
    ("writer", "reader", "expected"),
    [
        (A, Record("other.A", ()), True),
        (A, B, False),
        (A, Record("B", (), frozenset({"old.A"})), True),
        (Record("B", (), frozenset({"A"})), A, False),
        (A, ENUM, False),
        (ENUM, Enum("n.A", ()), True),
        (FIXED, Fixed("A", 3), True),
        (FIXED, ENUM, False),
        (Array(INT), Array(STRING), True),
        (Map(INT), Map(STRING), True),
        (Array(INT), Map(INT), False),
        (INT, Array(INT), False),
        (ENUM, STRING, False),
        (Union((INT,)), Union((INT,)), False),
    ],
)
def test_which_other_types_may(writer: AvroType, reader: AvroType, expected: bool) -> None:
    assert fits(writer, reader) is expected


@pytest.mark.parametrize(
    ("writer", "branches", "chosen"),
    [
        (INT, (STRING, LONG, INT), INT),
        (INT, (STRING, Primitive("double"), LONG), Primitive("double")),
        (NULL, (INT, NULL), NULL),
        (A, (NULL, B), B),
        (A, (B, Record("A", ())), Record("A", ())),
        (Array(INT), (INT, Array(STRING)), Array(STRING)),
        (STRING, (Primitive("bytes"), STRING), STRING),
    ],
)
def test_the_branch_that_a_value_is_read_as(writer: AvroType, branches: tuple[AvroType, ...], chosen: AvroType) -> None:
    assert branch_for(writer, Union(branches)) == chosen


@pytest.mark.parametrize(
    ("writer", "branches", "told"),
    [
        (STRING, (NULL, INT), "it is written as string and read as null or int"),
        (A, (B, Record("C", ())), "it is written as record n.A and read as record B or record C"),
        (A, (INT, B), "it is written as record n.A and read as int or record B"),
        (ENUM, (FIXED, Array(INT)), "it is written as enum A and read as fixed A of 2 bytes or array"),
        (Map(INT), (Primitive("int", "date"),), "it is written as map and read as date"),
        (Primitive("boolean"), (Fixed("F", 5, logical="decimal"),), "it is written as boolean and read as decimal"),
    ],
)
def test_where_no_branch_fits(writer: AvroType, branches: tuple[AvroType, ...], told: str) -> None:
    with pytest.raises(AvroSchemaError) as refusal:
        branch_for(writer, Union(branches))
    assert str(refusal.value) == told


def test_a_field_is_found_by_its_name_and_then_by_its_aliases() -> None:
    a, b, c = (Field(name, INT) for name in "abc")
    writer = Record("R", (a, b, c))
    assert source_of(Field("b", LONG, aliases=frozenset("a")), writer) is b
    assert source_of(Field("x", LONG, aliases=frozenset("cb")), writer) is b, "the first by its name"
    assert source_of(Field("x", LONG, aliases=frozenset("yz")), writer) is None
    assert describe(Union((INT, NULL))) == "int or null"


# Defaults


DEFAULTS: list[tuple[Any, Any, Any]] = [
    ("int", 5, 5),
    ("boolean", False, False),
    ("double", 1, 1.0),
    ("string", "é", "é"),
    ("bytes", "\u00ff\u0000", b"\xff\x00"),
    (fixed(2), "a\u00fe", b"a\xfe"),
    (logical("bytes", "decimal", precision=4, scale=2), "\u00ff\u0000", Decimal("-2.56")),
    (logical("bytes", "decimal", precision=38, scale=0), "\u0000" + "\u00ff" * 15, Decimal(2**120 - 1)),
    (fixed(2, logicalType="decimal", precision=4, scale=1), "\u0001\u0000", Decimal("25.6")),
    (["null", "int"], None, None),
    (["null", "int"], 5, 5),
    (["int", "null"], 5, 5),
    (["int", "string"], 5, {"int": 5, "string": None}),
    (["null", "int", "string"], None, None),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
    ({"type": "array", "items": "bytes"}, ["\u00ff"], [b"\xff"]),
    ({"type": "map", "values": "bytes"}, {"k": "\u00ff"}, [("k", b"\xff")]),
    (
        {
            "type": "record",
            "name": "I",
            "fields": [{"name": "x", "type": "bytes", "default": "\u00fe"}, {"name": "y", "type": "int"}],
        },
        {"y": 5},
        {"x": b"\xfe", "y": 5},
    ),
]


@pytest.mark.parametrize(("kind", "default", "value"), DEFAULTS, ids=[str(kind)[:50] for kind, _, _ in DEFAULTS])
def test_defaults(kind: Any, default: Any, value: Any) -> None:
    found = parsed(kind)
    assert default_array(default, found, arrow_type(found), "f").to_pylist() == [value]


@pytest.mark.parametrize(
    ("kind", "default", "number"),
    [
        (logical("int", "date"), 5, 5),
        (logical("int", "time-millis"), 5, 5_000_000),
        (logical("long", "time-micros"), 5, 5000),
        (logical("long", "timestamp-millis"), 5, 5000),
        (logical("long", "timestamp-micros"), 5, 5),
        (logical("long", "timestamp-nanos"), 5999, 5),
        (logical("long", "local-timestamp-millis"), -5, -5000),
        (logical("long", "local-timestamp-micros"), 5, 5),
        (logical("long", "local-timestamp-nanos"), -1, -1),
    ],
)
def test_defaults_of_dates_and_times(kind: Any, default: int, number: int) -> None:
    found = parsed(kind)
    array = default_array(default, found, arrow_type(found), "f")
    assert array.view(pa.int32() if array.type == pa.date32() else pa.int64()).to_pylist() == [number]


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        (INT, "x"),
        (INT, 2**40),
        (Primitive("bytes"), 5),
        (Primitive("bytes"), "\u0100"),
        (Enum("E", ("A",)), "B"),
        (Union((INT, STRING)), None),
        (Record("I", (Field("x", INT),)), {}),
        (Record("I", (Field("x", INT),)), 5),
        (Map(INT), [1]),
        (Primitive("bytes", "decimal", 2, 0), "\u0064"),
    ],
)
def test_defaults_that_are_not_of_their_type(kind: AvroType, default: Any) -> None:
    with pytest.raises(AvroSchemaError) as refusal:
        default_array(default, kind, arrow_type(kind), "a.b")
    assert str(refusal.value) == f"a.b: its default {default!r} is not of its type"
