"""Every type that a field of a message may have, as a column; and what a section says of messages."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("google.protobuf")

import pyarrow as pa
from google.protobuf import descriptor_pb2 as d
from google.protobuf import message_factory
from pyspark.sql import types as t

from ottla.spark.pipeline.formats import arrow_values, value_format
from ottla.spark.pipeline.formats.protobuf.columns import message_column
from ottla.spark.pipeline.formats.protobuf.descriptors import DescriptorError, find_message
from ottla.spark.pipeline.formats.protobuf.format import ProtobufDecoder, ProtobufFormat
from ottla.spark.pipeline.formats.value_format import ERROR, VALUE
from ottla.spark.pipeline.problems import Place, SpecError
from ottla.spark.pipeline.section import Section
from tests.unit.spark.pipeline.formats.test_protobuf import add
from tests.unit.spark.pipeline.plain_columns import ArrayFunction, Frame, use_plain_columns

Field = d.FieldDescriptorProto
I32, I64 = 2**31, 2**63
WELL_KNOWN = ("any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers")

SCALARS = [
    # a type, the column it becomes, and values that it can hold
    ("double", t.DoubleType(), [1.5, -0.0, 1e300]),
    ("float", t.FloatType(), [1.5, -2.0]),
    ("bool", t.BooleanType(), [True, False]),
    ("bytes", t.BinaryType(), [b"\xff\x00", b""]),
    ("string", t.StringType(), ["x", ""]),
    ("int32", t.IntegerType(), [I32 - 1, -I32]),
    ("sint32", t.IntegerType(), [I32 - 1, -I32]),
    ("sfixed32", t.IntegerType(), [I32 - 1, -I32]),
    ("int64", t.LongType(), [I64 - 1, -I64]),
    ("sint64", t.LongType(), [I64 - 1, -I64]),
    ("sfixed64", t.LongType(), [I64 - 1, -I64]),
    ("uint32", t.LongType(), [2 * I32 - 1, 0]),
    ("fixed32", t.LongType(), [2 * I32 - 1, 0]),
    ("uint64", t.DecimalType(20, 0), [2 * I64 - 1, 0]),
    ("fixed64", t.DecimalType(20, 0), [2 * I64 - 1, 0]),
]


def file_of(*messages: Any, syntax: str = "proto3") -> bytes:
    file = d.FileDescriptorProto(name="m.proto", package="m", syntax=syntax, message_type=messages)
    file.dependency.extend(f"google/protobuf/{name}.proto" for name in WELL_KNOWN)
    colour = file.enum_type.add(name="Colour")
    colour.value.add(name="NONE", number=0)
    colour.value.add(name="RED", number=1)
    data: bytes = d.FileDescriptorSet(file=[file]).SerializeToString()
    return data


def message(name: str, *fields: tuple[str, int, str | None], repeated: bool = False) -> Any:
    made = d.DescriptorProto(name=name)
    for field_name, kind, type_name in fields:
        add(made, field_name, kind, type_name, repeated=repeated)
    return made


def read(data: bytes, *messages: Any, name: str = "m.M", **more: bool) -> tuple[Any, str | None]:
    decode = ProtobufDecoder(find_message(file_of(*messages), name), **{"enum_names": True, "is_framed": False, **more})
    (row,) = decode(pa.array([data], pa.binary())).to_pylist()
    return row["value"], row["error"]


def made(*messages: Any) -> Any:
    """An empty message m.M."""
    return message_factory.GetMessageClass(find_message(file_of(*messages), "m.M"))()


def kind_of(name: str) -> int:
    return int(getattr(Field, f"TYPE_{name.upper()}"))


@pytest.mark.parametrize(("kind", "column", "values"), SCALARS, ids=[kind for kind, _, _ in SCALARS])
def test_scalars_alone_and_in_lists(kind: str, column: t.DataType, values: list[Any]) -> None:
    one, many = (message("M", ("x", kind_of(kind), None), repeated=repeated) for repeated in (False, True))
    columns = [message_column(find_message(file_of(each), "m.M"), enum_names=True).type for each in (one, many)]
    assert columns == [
        t.StructType([t.StructField("x", column)]),
        t.StructType([t.StructField("x", t.ArrayType(column))]),
    ]
    for value in values:
        written = made(one)
        written.x = value
        assert read(written.SerializeToString(), one) == ({"x": value}, None)
    written = made(many)
    written.x.extend(values)
    assert read(written.SerializeToString(), many) == ({"x": values}, None)
    if isinstance(column, t.DecimalType):
        value, _ = read(written.SerializeToString(), many)
        assert value["x"] == [Decimal(one) for one in values]


WRAPPERS = [
    ("Double", t.DoubleType(), 0.5),
    ("Float", t.FloatType(), 0.5),
    ("Int64", t.LongType(), -I64),
    ("UInt64", t.DecimalType(20, 0), 2 * I64 - 1),
    ("Int32", t.IntegerType(), -I32),
    ("UInt32", t.LongType(), 2 * I32 - 1),
    ("Bool", t.BooleanType(), True),
    ("String", t.StringType(), "x"),
    ("Bytes", t.BinaryType(), b"x"),
]


@pytest.mark.parametrize(("name", "column", "value"), WRAPPERS, ids=[name for name, _, _ in WRAPPERS])
def test_wrappers_are_what_they_wrap(name: str, column: t.DataType, value: Any) -> None:
    wrapping = message("M", ("x", Field.TYPE_MESSAGE, f".google.protobuf.{name}Value"))
    found = message_column(find_message(file_of(wrapping), "m.M"), enum_names=True).type
    assert found == t.StructType([t.StructField("x", column)])
    written = made(wrapping)
    assert read(written.SerializeToString(), wrapping) == ({"x": None}, None)
    written.x.value = value
    assert read(written.SerializeToString(), wrapping) == ({"x": value}, None)


def test_what_is_only_called_like_a_wrapper_is_a_message() -> None:
    own = message("OwnValue", ("value", Field.TYPE_INT32, None))
    holder = message("M", ("x", Field.TYPE_MESSAGE, ".m.OwnValue"), ("mask", 11, ".google.protobuf.FieldMask"))
    written = made(holder, own)
    written.x.value = 5
    written.mask.paths.append("a.b")
    assert read(written.SerializeToString(), holder, own) == ({"x": {"value": 5}, "mask": {"paths": ["a.b"]}}, None)


def with_map(value: int, type_name: str | None = None, key: int = Field.TYPE_STRING) -> Any:
    holder = d.DescriptorProto(name="M")
    entry = holder.nested_type.add(name="XEntry", options=d.MessageOptions(map_entry=True))
    add(entry, "key", key)
    add(entry, "value", value, type_name)
    add(holder, "x", Field.TYPE_MESSAGE, ".m.M.XEntry", repeated=True)
    return holder


def test_maps_hold_values_of_any_type() -> None:
    times = with_map(Field.TYPE_MESSAGE, ".google.protobuf.Duration", key=Field.TYPE_INT64)
    column = message_column(find_message(file_of(times), "m.M"), enum_names=True).type
    assert column == t.StructType([t.StructField("x", t.MapType(t.LongType(), t.DayTimeIntervalType()))])
    written = made(times)
    written.x[5].seconds = 7
    ((_, took),) = read(written.SerializeToString(), times)[0]["x"]
    assert took.total_seconds() == 7
    colours = with_map(Field.TYPE_ENUM, ".m.Colour")
    written = made(colours)
    written.x["a"] = 1
    data = written.SerializeToString()
    assert read(data, colours)[0] == {"x": [("a", "RED")]}
    assert read(data, colours, enum_names=False)[0] == {"x": [("a", 1)]}
    inner = message("Inner", ("y", Field.TYPE_UINT64, None))
    nested = with_map(Field.TYPE_MESSAGE, ".m.Inner", key=Field.TYPE_UINT64)
    written = made(nested, inner)
    written.x[2 * I64 - 1].y = 5
    assert read(written.SerializeToString(), nested, inner)[0] == {"x": [(2 * I64 - 1, {"y": 5})]}


def test_lists_of_times_and_enums() -> None:
    lists = message(
        "M", ("at", 11, ".google.protobuf.Timestamp"), ("colours", Field.TYPE_ENUM, ".m.Colour"), repeated=True
    )
    written = made(lists)
    written.at.add(seconds=5)
    written.colours.extend([1, 0, 9])
    value, error = read(written.SerializeToString(), lists)
    assert error is None
    assert ([at.timestamp() for at in value["at"]], value["colours"]) == ([5.0], ["RED", "NONE", "9"])


@pytest.mark.parametrize(
    ("kind", "seconds", "nanos", "micros"),
    [
        ("Duration", 315_576_000_000, 0, 315_576_000_000_000_000),
        ("Duration", -315_576_000_000, 0, -315_576_000_000_000_000),
        ("Duration", 315_576_000_001, 0, None),
        ("Duration", -315_576_000_001, 0, None),
        ("Duration", 0, 1_999, 1),
        ("Duration", 0, 1_000_000_000, None),
        ("Timestamp", -62_135_596_800, 0, -62_135_596_800_000_000),
        ("Timestamp", -62_135_596_801, 0, None),
        ("Timestamp", 253_402_300_799, 0, 253_402_300_799_000_000),
        ("Timestamp", 253_402_300_800, 0, None),
    ],
)
def test_times_have_the_bounds_of_their_kind(kind: str, seconds: int, nanos: int, micros: int | None) -> None:
    timed = message("M", ("x", Field.TYPE_MESSAGE, f".google.protobuf.{kind}"))
    column = message_column(find_message(file_of(timed), "m.M"), enum_names=True)
    written = made(timed)
    written.x.seconds, written.x.nanos = seconds, nanos
    if micros is not None:
        assert column.get(written) == {"x": micros}
    else:
        assert read(written.SerializeToString(), timed) == (
            None,
            f"x: {seconds} seconds and {nanos} nanoseconds are out of range",
        )


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([message("M")], "the message m.M has no fields, and a table needs columns"),
        (
            [message("M", ("x", 11, ".google.protobuf.Empty"))],
            "the message google.protobuf.Empty has no fields, and a table needs columns",
        ),
        (
            [message("M", ("x", 11, ".google.protobuf.Value"))],
            "the message google.protobuf.Value contains itself, and a table cannot be of any depth",
        ),
        (
            [message("M", ("x", 11, ".m.N")), message("N", ("y", 11, ".m.M"))],
            "the message m.M contains itself, and a table cannot be of any depth",
        ),
    ],
)
def test_messages_that_are_no_table(messages: list[Any], told: str) -> None:
    with pytest.raises(DescriptorError) as refusal:
        message_column(find_message(file_of(*messages), "m.M"), enum_names=True)
    assert str(refusal.value) == told


def test_a_message_may_stand_in_two_places() -> None:
    both = message("M", ("a", 11, ".m.N"), ("b", 11, ".m.N"))
    written = made(both, message("N", ("x", Field.TYPE_INT32, None)))
    written.b.x = 5
    found = read(written.SerializeToString(), both, message("N", ("x", Field.TYPE_INT32, None)))
    assert found == ({"a": None, "b": {"x": 5}}, None)


def test_messages_are_suggested_by_their_full_names() -> None:
    outer = message("Outer", ("x", Field.TYPE_INT32, None))
    outer.nested_type.add(name="Inner")
    with pytest.raises(DescriptorError) as refusal:
        find_message(file_of(outer, message("Zzz")), "y")
    assert str(refusal.value) == "it has no message 'y'. There is 'm.Outer', 'm.Outer.Inner', 'm.Zzz'."
    bare = d.FileDescriptorProto(name="b.proto", message_type=[d.DescriptorProto(name="Bare")])
    with pytest.raises(DescriptorError, match=r"There is 'Bare'\."):
        find_message(d.FileDescriptorSet(file=[bare]).SerializeToString(), "y")
    wrong = d.FileDescriptorProto(name="w.proto", message_type=[message("M", ("x", 11, ".m.Nowhere"))])
    with pytest.raises(DescriptorError, match=r"w\.proto in it is no description of messages: "):
        find_message(d.FileDescriptorSet(file=[wrong]).SerializeToString(), "M")


# The section


def section(directory: Path, **values: object) -> Section:
    given = {"descriptor_file": "m.pb", "message": "m.M", **values}
    return Section.of(given, Place("p.yaml", 7), "source in", directory=directory)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    described = message("M", ("colour", Field.TYPE_ENUM, ".m.Colour"), ("id", Field.TYPE_INT32, None))
    (tmp_path / "m.pb").write_bytes(file_of(described, message("None")))
    return tmp_path


@pytest.mark.parametrize(
    ("options", "head", "colour"),
    [
        ({}, b"", "RED"),
        ({"enums": "name", "framing": "none"}, b"", "RED"),
        ({"enums": "number"}, b"", 1),
        ({"framing": "confluent"}, b"\0\0\0\0\1\0", "RED"),
    ],
)
def test_values_are_read_as_the_section_says(
    directory: Path, options: dict[str, object], head: bytes, colour: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_plain_columns(monkeypatch, arrow_values, value_format)
    monkeypatch.setattr(arrow_values, "array_function", ArrayFunction)
    made_of = ProtobufFormat.from_section(section(directory, **options))
    assert (list(made_of.check()), made_of.inputs, made_of.has_columns) == ([], ("value",), True)
    frame: Any = made_of.decode(Frame({"value": head + b"\x08\x01\x10\x05"}, {"value": b"\xff"}))  # type: ignore[arg-type]
    good, bad = frame.rows
    assert (good[VALUE], good[ERROR]) == ({"colour": colour, "id": 5}, None)
    assert bad[VALUE] is None and bad[ERROR]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"message": "m.N"}, "{directory}/m.pb: it has no message 'm.N'. Did you mean 'm.None'?"),
        ({"message": "m.None"}, "{directory}/m.pb: the message m.None has no fields, and a table needs columns"),
        ({"descriptor_file": "no.pb"}, "{directory}/no.pb cannot be read: No such file or directory"),
    ],
)
def test_what_is_wrong_with_it(directory: Path, options: dict[str, object], told: str) -> None:
    made_of = ProtobufFormat.from_section(section(directory, **options))
    (problem,) = made_of.check()
    expected = told.format(directory=directory)
    assert str(problem).startswith(f"p.yaml:7: source in: {expected.partition(' Did')[0]}")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"enums": "text"}, "'enums' cannot be 'text'. There is 'name', 'number'."),
        ({"framing": "confluence"}, "'framing' cannot be 'confluence'. Did you mean 'confluent'?"),
        ({"message": None}, "'message' is missing"),
    ],
)
def test_options_that_it_has_not_got(directory: Path, options: dict[str, object], told: str) -> None:
    with pytest.raises(SpecError) as refusal:
        ProtobufFormat.from_section(section(directory, **options))
    assert str(refusal.value) == f"p.yaml:7: source in: {told}"
