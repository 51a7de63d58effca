"""Values of one schema read with another, and schemas that cannot be: Avro's rules of resolution."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("fastavro")
pytest.importorskip("pyspark")

import pyarrow as pa

from ottla.spark.pipeline.formats.avro.decoder import FramedDecoder, PlainDecoder
from ottla.spark.pipeline.formats.avro.spark_types import derived_schema, spark_type
from ottla.spark.pipeline.formats.avro.types import AvroSchemaError, Record, parse_record
from ottla.spark.pipeline.formats.avro.writers import UnwritableRowError, compile_writer
from tests.unit.spark.pipeline.formats.avro_values import decoded, written


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    """Fields are names and types, or whole."""
    whole = [field if isinstance(field, dict) else {"name": field[0], "type": field[1]} for field in fields]
    return {"type": "record", "name": name, "fields": whole, **more}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


COLOURS = {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN"]}
FEWER = {"type": "enum", "name": "Colour", "symbols": ["GREEN"]}
RESOLVED = [
    # written as, value, read as, found
    ("int", 5, "long", 5),
    ("int", -5, "double", -5.0),
    ("long", 2**40, "float", float(2**40)),
    ("float", 0.5, "double", 0.5),
    ("string", "é", "bytes", "é".encode()),
    ("bytes", b"abc", "string", "abc"),
    ("int", 5, ["null", "long"], 5),
    (["null", "int"], None, ["null", "long"], None),
    (["null", "int"], 7, "long", 7),
    ("int", 5, ["string", "double"], {"string": None, "double": 5.0}),
    (["int", "string"], "a", ["string", "long"], {"string": "a", "long": None}),
    (COLOURS, "RED", {**FEWER, "default": "GREEN"}, "GREEN"),
    (COLOURS, "GREEN", FEWER, "GREEN"),
    ({"type": "array", "items": "int"}, [1, 2], {"type": "array", "items": "long"}, [1, 2]),
    ({"type": "map", "values": "int"}, {"a": 1}, {"type": "map", "values": ["null", "double"]}, [("a", 1.0)]),
    ("long", 1000, logical("long", "timestamp-millis"), datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC)),
    (
        logical("long", "timestamp-millis"),
        1000,
        logical("long", "timestamp-micros"),
        datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC),
    ),
    (logical("int", "time-millis"), 1000, logical("long", "time-micros"), datetime.time(0, 0, 1)),
    (logical("long", "timestamp-millis"), 1000, "long", 1000),
    (
        {**record(("x", "int"), name="other.Inner")},
        {"x": 1},
        record(("x", "long"), {"name": "y", "type": "string", "default": "?"}, name="Inner"),
        {"x": 1, "y": "?"},
    ),
]
UNRESOLVED = [
    ("string", "a", "long", "f: it is written as string and read as long"),
    ("long", 1, "int", "f: it is written as long and read as int"),
    ("double", 1.0, ["null", "string"], "f: it is written as double and read as null or string"),
    (
        {"type": "fixed", "name": "F", "size": 2},
        b"ab",
        {"type": "fixed", "name": "F", "size": 3},
        "f: it is written with 2 bytes and read with 3",
    ),
    (
        logical("bytes", "decimal", precision=4, scale=2),
        b"\x01",
        logical("bytes", "decimal", precision=4, scale=1),
        "f: it is written as a decimal of 2 places and read as a decimal of 1 places, which are different numbers",
    ),
    (record(("x", "int"), name="I"), {"x": 1}, record(("y", "int"), name="I"), "f.y: it is not among what was written"),
]


@pytest.mark.parametrize(("writer", "value", "reader", "expected"), RESOLVED)
def test_what_is_read_as_another_type(writer: Any, value: Any, reader: Any, expected: Any) -> None:
    data = written(_bare(record(("f", writer), ("end", "int"))), [{"f": value, "end": 9}] * 3)
    found = decoded(data, record(("f", writer), ("end", "int")), record(("f", reader), ("end", "int")))
    assert found == [({"f": expected, "end": 9}, None)] * 3


@pytest.mark.parametrize(("writer", "value", "reader", "sentence"), UNRESOLVED)
def test_what_cannot_be(writer: Any, value: Any, reader: Any, sentence: str) -> None:
    with pytest.raises(AvroSchemaError) as told:
        decoded([b""], record(("f", writer)), record(("f", reader)))
    assert str(told.value).startswith(sentence)


def _bare(schema: Any) -> Any:
    """Without logical types."""
    if isinstance(schema, dict):
        return {key: _bare(value) for key, value in schema.items() if key != "logicalType"}
    return [_bare(each) for each in schema] if isinstance(schema, list) else schema


def test_fields_come_go_and_change_their_names_and_places() -> None:
    writer = record(("gone", {"type": "array", "items": "string"}), ("b", "string"), ("old", "int"), name="ns.Old")
    reader = record(
        {"name": "new", "type": "long", "aliases": ["old"]},
        {"name": "added", "type": ["null", "string"], "default": None},
        {"name": "amount", "type": logical("bytes", "decimal", precision=5, scale=2), "default": "\u0001\u0000"},
        {"name": "when", "type": logical("long", "timestamp-millis"), "default": 1000},
        {"name": "tags", "type": {"type": "map", "values": "int"}, "default": {"a": 1}},
        ("b", "string"),
        name="New",
        aliases=["ns.Old"],
    )
    found = decoded(written(writer, [{"gone": ["x", "y"], "b": "é", "old": 3}] * 2), writer, reader)
    expected = {
        "new": 3,
        "added": None,
        "amount": Decimal("2.56"),
        "when": datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC),
        "tags": [("a", 1)],
        "b": "é",
    }
    assert found == [(expected, None)] * 2


def test_a_branch_that_the_reader_has_not_is_bad_only_where_it_is_used() -> None:
    writer, reader = record(("f", ["int", "string"])), record(("f", "long"))
    found = decoded(written(writer, [{"f": 1}, {"f": "a"}, {"f": 2}]), writer, reader)
    assert found == [
        ({"f": 1}, None),
        (None, "f: it is written as string and read as long"),
        ({"f": 2}, None),
    ]


def test_a_symbol_that_the_reader_has_not_is_bad() -> None:
    writer, reader = record(("f", COLOURS)), record(("f", FEWER))
    found = decoded(written(writer, [{"f": "RED"}, {"f": "GREEN"}]), writer, reader)
    assert found == [(None, "f: the schema it is read with has no symbol 'RED'"), ({"f": "GREEN"}, None)]


BAD_VALUES = [
    ("boolean", b"\x02", "f: a boolean is neither 0 nor 1"),
    ("int", b"\x80\x80\x80\x80\x10", "f: a number does not fit an int"),
    ("long", b"\xff" * 9 + b"\x02", "f: a number has more than 64 bits"),
    ("long", b"\xff" * 30, "f: a number has more than 64 bits"),
    ("string", b"\x02\xff", "f: a text is not UTF-8"),
    ("bytes", b"\x01", "f: a length is below zero"),
    ("bytes", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "f: the value ends too early"),
    (COLOURS, b"\x04", "f: the enum has no such symbol"),
    (COLOURS, b"\x01", "f: the enum has no such symbol"),
    (["null", "int"], b"\x04", "f: the union has no such branch"),
    (["null", "int"], b"\x01", "f: the union has no such branch"),
    (
        {"type": "array", "items": "long"},
        b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00",
        "f: the value ends too early",
    ),
    (
        {"type": "array", "items": "long"},
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x00",
        "f: the value ends too early",
    ),
    ({"type": "array", "items": "string"}, b"\x04\x02\xff\x02a\x00", "f: a text is not UTF-8"),
    ({"type": "map", "values": "int"}, b"\x02\x02\xff\x02\x00", "f.key: a text is not UTF-8"),
    (logical("int", "date"), b"\xfe\xff\xff\xff\x0f", "f: a date is not of the years 1 to 9999"),
    (logical("int", "time-millis"), b"\x01", "f: a time is not within a day"),
    (logical("long", "timestamp-micros"), b"\xfe" + b"\xff" * 8 + b"\x01", "f: a moment is not of the years 1 to 9999"),
    (logical("long", "timestamp-millis"), b"\xfe" + b"\xff" * 8 + b"\x01", "f: a moment is not of the years 1 to 9999"),
    (logical("bytes", "decimal", precision=2, scale=1), b"\x02\x64", "f: a decimal does not fit 2 digits"),
    (logical("bytes", "decimal", precision=2, scale=1), b"\x28" + b"\x00" * 20, "f: a decimal does not fit 2 digits"),
    ("null", b"\x00", "1 bytes are left after what the schema describes"),
]


@pytest.mark.parametrize(("kind", "bad", "sentence"), BAD_VALUES)
def test_a_bad_value_is_told_and_its_neighbours_are_read(kind: Any, bad: bytes, sentence: str) -> None:
    schema = record(("id", "long"), ("f", kind))
    default = {"boolean": True, "null": None, "string": "x", "bytes": b"x"}
    value = default.get(kind, 1) if isinstance(kind, str) else _sample(kind)
    good = written(_bare(schema), [{"id": 1, "f": value}])[0]
    found = decoded([good, b"\x02" + bad, None, good], schema)
    assert [error for _, error in found] == [None, sentence, "the value is null", None]
    assert [value for value, _ in found][1:3] == [None, None]
    assert found[0] == found[3]


def _sample(kind: Any) -> Any:
    if isinstance(kind, list):
        return 1
    return {"enum": "RED", "array": [], "map": {}, "int": 1, "long": 1, "bytes": b"\x01"}[kind["type"]]


def test_blocks_that_tell_their_size_and_lists_of_several_blocks() -> None:
    schema = record(("f", {"type": "array", "items": "int"}))
    # A block of two, one of minus one with its size, one of a third kind: none.
    assert decoded([b"\x04\x02\x04\x01\x02\x06\x00", b"\x00"], schema) == [({"f": [1, 2, 3]}, None), ({"f": []}, None)]


@pytest.mark.parametrize("kind", ["long", "double", "boolean"])
def test_lists_of_thousands_of_items(kind: str) -> None:
    schema = record(("f", {"type": "array", "items": kind}), ("end", "int"))
    make = {"long": lambda n: n * 7919 - 2**40, "double": lambda n: n / 3, "boolean": lambda n: n % 3 == 0}[kind]
    rows = [{"f": [make(n) for n in range(count)], "end": count} for count in (70_000, 0, 1, 3_000)]
    values = written(schema, rows)
    # The last three bytes are the field after the list, the one before them ends it.
    cut = [values[0][:-2], values[0][:-4], values[0][:-5], values[0][:100]]
    assert decoded([*values, *cut, values[3]], schema) == [
        *((row, None) for row in rows),
        (None, "end: the value ends too early"),
        *[(None, "f: the value ends too early")] * 3,
        (rows[3], None),
    ]


def test_a_schema_of_another_type_is_a_column_value() -> None:
    assert decoded([b"\x02a"], "string") == [({"value": "a"}, None)]


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("{", "the schema is not JSON"),
        ('{"type": "record", "fields": []}', "this is not a schema of Avro"),
        ('{"type": "record", "name": "R", "fields": [{"name": "x", "type": "lon"}]}', "names a type 'lon'"),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]}',
            "the record R contains itself",
        ),
        ('{"type": "record", "name": "R", "fields": []}', "has no fields"),
        *(
            (
                json.dumps(record(("f", logical("bytes", "decimal", precision=precision)))),
                f"a decimal has a precision of 1 to 38, but there is one of {precision}",
            )
            for precision in (0, 39)
        ),
    ],
)
def test_schemas_that_are_refused(schema: str, sentence: str) -> None:
    with pytest.raises(AvroSchemaError, match=sentence):
        parse_record(schema)


def test_items_without_bytes_are_refused() -> None:
    with pytest.raises(AvroSchemaError, match="items without bytes"):
        decoded([b"\x02\x00"], record(("f", {"type": "array", "items": "null"})))


class TestFrames:
    def test_each_value_is_read_with_its_own_schema_and_in_its_place(self) -> None:
        first = record(("id", "int"))
        second = record(("name", "string"), ("id", "long"))
        reader = record(("id", "long"), {"name": "name", "type": ["null", "string"], "default": None})
        schemas = {1: first, 2: second, 3: record(("other", "int"))}
        loop = record(("next", ["null", "R"]))
        schemas[4] = loop
        asked: list[int] = []

        def find(schema_id: int) -> Record | None:
            asked.append(schema_id)
            return parse_record(json.dumps(schemas[schema_id])) if schema_id in schemas else None

        decode = FramedDecoder(parse_record(json.dumps(reader)), find)
        values = [
            b"\0\0\0\0\x02" + written(second, [{"name": "b", "id": 2}])[0],
            b"\0\0\0\0\x01" + written(first, [{"id": 1}])[0],
            b"\0\0\0\0\x03\x02",
            b"\0\0\0\0\x09\x02",
            b"\0\0\0\0\x04\x00",
            b"\1\0\0\0\x01\x02",
            b"\0\0\0",
            b"\0\0\0\0\x01",
            b"\0\0\0\0\x01" + written(first, [{"id": 3}])[0],
        ]
        for _ in range(2):
            found = decode(pa.array(values)).to_pylist()
            assert [row["value"] for row in found] == [
                {"id": 2, "name": "b"},
                {"id": 1, "name": None},
                *[None] * 6,
                {"id": 3, "name": None},
            ]
            errors = [row["error"] for row in found]
            assert "schema with the id 3 does not suit the one it is read with: id: it is not among" in errors[2]
            assert errors[3] == "the schema registry has no Avro schema with the id 9"
            assert (
                "schema with the id 4 does not suit the one it is read with: the record R contains itself" in errors[4]
            )
            assert errors[5] == errors[6] == "it does not begin with a zero byte and the four bytes of a schema's id"
            assert errors[7] == "id: the value ends too early"
        # A schema that is not there is asked for again: it may be by then.
        assert asked == [1, 2, 3, 4, 9, 9]

    def test_a_batch_of_none(self) -> None:
        decode = FramedDecoder(parse_record(json.dumps(record(("id", "int")))), lambda schema_id: None)
        assert decode(pa.array([], pa.binary())).to_pylist() == []


class TestWriting:
    def test_a_schema_is_made_for_columns(self) -> None:
        from pyspark.sql.types import StructType

        columns = StructType.fromJson(
            {
                "type": "struct",
                "fields": [
                    {"name": "id", "type": "long", "nullable": False, "metadata": {}},
                    {"name": "price", "type": "decimal(10,2)", "nullable": True, "metadata": {}},
                    {"name": "at", "type": "timestamp", "nullable": False, "metadata": {}},
                    {
                        "name": "tags",
                        "type": {"type": "array", "elementType": "string", "containsNull": False},
                        "nullable": False,
                        "metadata": {},
                    },
                ],
            }
        )
        schema = derived_schema(columns, "orders")
        assert schema["fields"] == [
            {"name": "id", "type": "long"},
            {
                "name": "price",
                "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}],
                "default": None,
            },
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
        ]
        assert spark_type(parse_record(json.dumps(schema))).simpleString() == columns.simpleString()

    @pytest.mark.parametrize(
        ("schema", "columns", "sentence"),
        [
            (
                record(("a", "int")),
                record(("a", "long")),
                "the column a is bigint, and the schema has int for it; cast",
            ),
            (record(("a", "int")), record(("b", "int")), "the schema has no field for the column b"),
            (record(("a", "int"), ("b", "int")), record(("a", "int")), "there is no column b"),
            (
                record(("a", "int"), {"name": "b", "type": "int", "default": 0}),
                record(("a", "int")),
                r"there is no column b, .* \(defaults are for readers",
            ),
            (
                record(("a", ["int", "string"])),
                record(("a", "int")),
                "make it a struct with the fields int, string, all but one of them NULL",
            ),
        ],
    )
    def test_columns_that_do_not_suit_the_schema(self, schema: Any, columns: Any, sentence: str) -> None:
        with pytest.raises(AvroSchemaError, match=sentence):
            compile_writer(parse_record(json.dumps(schema)), spark_type(parse_record(json.dumps(columns))))

    @pytest.mark.parametrize(
        ("kind", "values", "sentence"),
        [
            (
                "int",
                pa.array([1, None], pa.int32()),
                "the column a is NULL in a row, and the schema has no null for it",
            ),
            (COLOURS, pa.array(["RED", "BLUE"]), "the column a is 'BLUE', and the enum Colour has no such symbol"),
            ({"type": "fixed", "name": "F", "size": 2}, pa.array([b"abc"]), "the column a has bytes that are not 2"),
            (
                {"type": "fixed", "name": "F", "size": 1, "logicalType": "decimal", "precision": 2, "scale": 0},
                pa.array([Decimal("128")], pa.decimal128(3, 0)),
                "the column a has a decimal",
            ),
        ],
    )
    def test_rows_that_the_schema_has_no_place_for(self, kind: Any, values: Any, sentence: str) -> None:
        schema = parse_record(json.dumps(record(("a", kind))))
        with pytest.raises(UnwritableRowError, match=sentence):
            compile_writer(schema, spark_type(schema))([values], b"")

    def test_a_field_that_may_be_null_needs_no_column(self) -> None:
        schema = parse_record(json.dumps(record(("a", "int"), {"name": "b", "type": ["null", "int"], "default": None})))
        columns = spark_type(parse_record(json.dumps(record(("a", "int")))))
        assert compile_writer(schema, columns)([pa.array([1, 2], pa.int32())], b"").to_pylist() == [b"\2\0", b"\4\0"]


def test_a_plain_decoder_resolves_too() -> None:
    writer, reader = (parse_record(json.dumps(record(("a", kind)))) for kind in ("int", "double"))
    assert PlainDecoder(writer, reader)(pa.array([b"\x02"])).to_pylist() == [{"value": {"a": 1.0}, "error": None}]
