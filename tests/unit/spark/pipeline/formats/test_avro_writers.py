"""Rows as Avro values, byte for byte, and which columns and rows a schema has no place for."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("fastavro")
pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql import types as t

from ottla.spark.pipeline.formats.avro.types import AvroSchemaError, parse_record
from ottla.spark.pipeline.formats.avro.writers import UnwritableRowError, compile_writer

ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
SEVERAL = ["int", "null", "string"]
BRANCHES = t.StructType([t.StructField("int", t.IntegerType()), t.StructField("string", t.StringType())])
ARROW_BRANCHES = pa.struct([("int", pa.int32()), ("string", pa.string())])
INNER = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}
ROW_OF_X = t.StructType([t.StructField("x", t.IntegerType())])


def schema(*kinds: Any) -> str:
    fields = [{"name": name, "type": kind} for name, kind in zip("ab", kinds, strict=False)]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


def columns(*kinds: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in zip("ab", kinds, strict=False)])


def written(kind: Any, column: t.DataType, array: Any, prefix: bytes = b"") -> list[bytes]:
    """Of a slice, too: arrays do not always begin where their buffers do."""
    write = compile_writer(parse_record(schema(kind)), columns(column))
    found: list[bytes] = write([array], prefix).to_pylist()
    if len(array) > 1:
        assert write([array[1:]], prefix).to_pylist() == found[1:]
        assert write([array[:1]], prefix).to_pylist() == found[:1]
    assert write([array[:0]], prefix).to_pylist() == []
    return found


WRITTEN: list[tuple[str, Any, t.DataType, Any, list[bytes]]] = [
    ("boolean", "boolean", t.BooleanType(), pa.array([True, False]), [b"\1", b"\0"]),
    ("byte", "int", t.ByteType(), pa.array([1, -1], pa.int8()), [b"\2", b"\1"]),
    ("short", "int", t.ShortType(), pa.array([64, -65], pa.int16()), [b"\x80\1", b"\x81\1"]),
    ("int", "long", t.IntegerType(), pa.array([3], pa.int32()), [b"\6"]),
    ("long", "long", t.LongType(), pa.array([2**63 - 1], pa.int64()), [b"\xfe" + b"\xff" * 8 + b"\1"]),
    ("float", "float", t.FloatType(), pa.array([1.5], pa.float32()), [b"\0\0\xc0\x3f"]),
    ("float as double", "double", t.FloatType(), pa.array([1.5], pa.float32()), [b"\0\0\0\0\0\0\xf8\x3f"]),
    ("double", "double", t.DoubleType(), pa.array([1.5, 0.0]), [b"\0\0\0\0\0\0\xf8\x3f", bytes(8)]),
    ("string", "string", t.StringType(), pa.array(["é", ""]), [b"\4\xc3\xa9", b"\0"]),
    ("bytes", "bytes", t.BinaryType(), pa.array([b"ab", b""], pa.binary()), [b"\4ab", b"\0"]),
    ("uuid", {"type": "string", "logicalType": "uuid"}, t.StringType(), pa.array(["x"]), [b"\2x"]),
    ("fixed", {"type": "fixed", "name": "F", "size": 2}, t.BinaryType(), pa.array([b"ab", b"cd"]), [b"ab", b"cd"]),
    ("enum", ENUM, t.StringType(), pa.array(["B", "A", "B"]), [b"\2", b"\0", b"\2"]),
    ("null", "null", t.NullType(), pa.nulls(2), [b"", b""]),
    ("nullable", ["null", "int"], t.IntegerType(), pa.array([None, 5, None], pa.int32()), [b"\0", b"\2\n", b"\0"]),
    ("null last", ["int", "null"], t.IntegerType(), pa.array([7, None, 5], pa.int32()), [b"\0\x0e", b"\2", b"\0\n"]),
    ("nulls alone", ["null", "int"], t.IntegerType(), pa.nulls(2, pa.int32()), [b"\0", b"\0"]),
    ("no null", ["int"], t.IntegerType(), pa.array([5, 6], pa.int32()), [b"\0\n", b"\0\x0c"]),
    (
        "several",
        SEVERAL,
        BRANCHES,
        pa.array([{"string": "x"}, {"int": 5}, None, {"string": ""}], ARROW_BRANCHES),
        [b"\4\2x", b"\0\n", b"\2", b"\4\0"],
    ),
    (
        "array",
        {"type": "array", "items": "int"},
        t.ArrayType(t.IntegerType()),
        pa.array([[1, 2], [], [3]], pa.list_(pa.int32())),
        [b"\4\2\4\0", b"\0", b"\2\6\0"],
    ),
    (
        "empty arrays",
        {"type": "array", "items": "int"},
        t.ArrayType(t.IntegerType()),
        pa.array([[], []], pa.list_(pa.int32())),
        [b"\0", b"\0"],
    ),
    (
        "map",
        {"type": "map", "values": ["null", "int"]},
        t.MapType(t.StringType(), t.IntegerType()),
        pa.array([[("k", 1)], [("l", None), ("m", 2)], []], pa.map_(pa.string(), pa.int32())),
        [b"\2\2k\2\2\0", b"\4\2l\0\2m\2\4\0", b"\0"],
    ),
    ("record", INNER, ROW_OF_X, pa.array([{"x": 1}, {"x": 2}], pa.struct([("x", pa.int32())])), [b"\2", b"\4"]),
]


@pytest.mark.parametrize(
    ("kind", "column", "array", "values"), [each[1:] for each in WRITTEN], ids=[each[0] for each in WRITTEN]
)
def test_values(kind: Any, column: t.DataType, array: Any, values: list[bytes]) -> None:
    assert written(kind, column, array) == values
    assert written(kind, column, array, b"\0head") == [b"\0head" + value for value in values]


def test_columns_are_written_in_the_order_of_the_schema() -> None:
    write = compile_writer(
        parse_record(schema("int", "string")),
        t.StructType(list(reversed(columns(t.ByteType(), t.StringType()).fields))),
    )
    assert write([pa.array(["x", "y"]), pa.array([1, 2], pa.int8())], b"").to_pylist() == [b"\2\2x", b"\4\2y"]


@pytest.mark.parametrize(
    ("kind", "column", "told"),
    [
        ("int", t.LongType(), "the column a is bigint, and the schema has int for it; cast it to int"),
        ("long", t.StringType(), "the column a is string, and the schema has long for it; cast it to bigint"),
        ("boolean", t.ByteType(), "the column a is tinyint, and the schema has boolean for it; cast it to boolean"),
        ("float", t.DoubleType(), "the column a is double, and the schema has float for it; cast it to float"),
        ("double", t.LongType(), "the column a is bigint, and the schema has double for it; cast it to double"),
        ("string", t.BinaryType(), "the column a is binary, and the schema has string for it; cast it to string"),
        ("bytes", t.StringType(), "the column a is string, and the schema has bytes for it; cast it to binary"),
        ("null", t.IntegerType(), "the column a is int, and the schema has null for it; cast it to void"),
        (ENUM, t.BinaryType(), "the column a is binary, and the schema has enum E for it; cast it to string"),
        (
            {"type": "fixed", "name": "F", "size": 2},
            t.StringType(),
            "the column a is string, and the schema has fixed F of 2 bytes for it; cast it to binary",
        ),
        (
            {"type": "int", "logicalType": "date"},
            t.TimestampType(),
            "the column a is timestamp, and the schema has date for it; cast it to date",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            t.DecimalType(4, 1),
            "the column a is decimal(4,1), and the schema has decimal for it; cast it to decimal(4,2)",
        ),
        (
            {"type": "array", "items": "int"},
            t.IntegerType(),
            "the column a is int, and the schema has array for it; cast it to array<int>",
        ),
        (
            {"type": "map", "values": "int"},
            t.MapType(t.IntegerType(), t.IntegerType()),
            "the column a is map<int,int>, and the schema has map for it; cast it to map<string,int>",
        ),
        (INNER, t.IntegerType(), "the column a is int, and the schema has record I for it; cast it to struct<x:int>"),
        (
            INNER,
            t.StructType([*ROW_OF_X.fields, t.StructField("y", t.IntegerType())]),
            "the schema has no field for the column a.y; leave it out, or add the field",
        ),
        (
            INNER,
            t.StructType([]),
            "there is no column a.x, which the schema has a field for; add it",
        ),
        (
            SEVERAL,
            ROW_OF_X,
            "the column a is struct<x:int>, and the schema has int or null or string for it; "
            "make it a struct with the fields int, string, all but one of them NULL",
        ),
    ],
)
def test_columns_that_do_not_suit(kind: Any, column: t.DataType, told: str) -> None:
    with pytest.raises(AvroSchemaError) as refusal:
        compile_writer(parse_record(schema(kind)), columns(column))
    assert str(refusal.value) == told


NO_NULL = (
    "the column a is NULL in a row, and the schema has no null for it; "
    "give it a value (coalesce), or write null into the schema as a branch of a union"
)


@pytest.mark.parametrize(
    ("kind", "column", "array", "told"),
    [
        ("string", t.StringType(), pa.array(["x", None]), NO_NULL),
        (["int"], t.IntegerType(), pa.array([1, None], pa.int32()), NO_NULL.partition(";")[0]),
        ({"type": "array", "items": "int"}, t.ArrayType(t.IntegerType()), pa.array([[1, None]]), NO_NULL),
        (ENUM, t.StringType(), pa.array(["A", "C", "D"]), "the column a is 'C', and the enum E has no such symbol"),
        (
            {"type": "fixed", "name": "F", "size": 2},
            t.BinaryType(),
            pa.array([b"ab", b"a"]),
            "the column a has bytes that are not 2, as the schema wants them",
        ),
        *(
            (
                SEVERAL,
                BRANCHES,
                pa.array([{"int": 1}, wrong], ARROW_BRANCHES),
                "the column a must have one field that is not NULL, and has none or several",
            )
            for wrong in ({}, {"int": 1, "string": "x"})
        ),
    ],
)
def test_rows_that_there_is_no_place_for(kind: Any, column: t.DataType, array: Any, told: str) -> None:
    write = compile_writer(parse_record(schema(kind)), columns(column))
    with pytest.raises(UnwritableRowError) as refusal:
        write([array if array.type != pa.list_(pa.int64()) else array.cast(pa.list_(pa.int32()))], b"")
    assert str(refusal.value) == told


def test_a_field_without_a_column_is_null_only_if_that_is_its_default() -> None:
    fields = [{"name": "a", "type": "int"}, {"name": "b", "type": ["int", "null"]}]
    bare = json.dumps({"type": "record", "name": "R", "fields": fields})
    with pytest.raises(AvroSchemaError) as refusal:
        compile_writer(parse_record(bare), columns(t.IntegerType()))
    assert str(refusal.value) == "there is no column b, which the schema has a field for; add it"
    fields[1] = {"name": "b", "type": ["null", "int"], "default": None}
    write = compile_writer(
        parse_record(json.dumps({"type": "record", "name": "R", "fields": fields})), columns(t.IntegerType())
    )
    assert write([pa.array([5, 6], pa.int32())], b"").to_pylist() == [b"\n\0", b"\x0c\0"]
