"""Messages of every kind of field by their descriptors, which are made here as protoc would."""

from __future__ import annotations

import datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("google.protobuf")

import pyarrow as pa
from google.protobuf import descriptor_pb2 as d
from google.protobuf import message_factory

from ottla.spark.pipeline.formats.protobuf.columns import _MOMENTS, _micros, message_column
from ottla.spark.pipeline.formats.protobuf.descriptors import DescriptorError, find_message, index_path
from ottla.spark.pipeline.formats.protobuf.format import ProtobufDecoder

Field = d.FieldDescriptorProto


def add(
    message: Any, name: str, kind: int, type_name: str | None = None, *, repeated: bool = False, **more: Any
) -> Any:
    label = Field.LABEL_REPEATED if repeated else Field.LABEL_OPTIONAL
    return message.field.add(
        name=name, number=len(message.field) + 1, type=kind, type_name=type_name, label=label, **more
    )


def described() -> bytes:
    file = d.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(
        ["google/protobuf/timestamp.proto", "google/protobuf/duration.proto", "google/protobuf/wrappers.proto"]
    )
    colour = file.enum_type.add(name="Colour")
    colour.value.add(name="NONE", number=0)
    colour.value.add(name="RED", number=1)
    file.message_type.add(name="First").field.add(name="x", number=1, type=Field.TYPE_INT32, label=1)
    order = file.message_type.add(name="Order")
    item = order.nested_type.add(name="Item")
    add(item, "name", Field.TYPE_STRING)
    entry = order.nested_type.add(name="PricesEntry", options=d.MessageOptions(map_entry=True))
    add(entry, "key", Field.TYPE_STRING)
    add(entry, "value", Field.TYPE_DOUBLE)
    add(order, "id", Field.TYPE_INT64)
    add(order, "small", Field.TYPE_UINT32)
    add(order, "large", Field.TYPE_UINT64)
    add(order, "is_paid", Field.TYPE_BOOL)
    add(order, "data", Field.TYPE_BYTES)
    add(order, "colour", Field.TYPE_ENUM, ".shop.Colour")
    add(order, "item", Field.TYPE_MESSAGE, ".shop.Order.Item")
    add(order, "items", Field.TYPE_MESSAGE, ".shop.Order.Item", repeated=True)
    add(order, "tags", Field.TYPE_STRING, repeated=True)
    add(order, "prices", Field.TYPE_MESSAGE, ".shop.Order.PricesEntry", repeated=True)
    add(order, "note", Field.TYPE_STRING, oneof_index=1, proto3_optional=True)
    add(order, "card", Field.TYPE_STRING, oneof_index=0)
    add(order, "cash", Field.TYPE_INT32, oneof_index=0)
    add(order, "at", Field.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    add(order, "took", Field.TYPE_MESSAGE, ".google.protobuf.Duration")
    add(order, "count", Field.TYPE_MESSAGE, ".google.protobuf.Int32Value")
    order.oneof_decl.add(name="paid_by")
    order.oneof_decl.add(name="_note")
    loop = file.message_type.add(name="Loop")
    add(loop, "next", Field.TYPE_MESSAGE, ".shop.Loop")
    old = d.FileDescriptorProto(name="old.proto", package="old", syntax="proto2")
    message = old.message_type.add(name="Message")
    message.field.add(name="id", number=1, type=Field.TYPE_INT32, label=Field.LABEL_REQUIRED)
    add(message, "text", Field.TYPE_STRING)
    return d.FileDescriptorSet(file=[file, old]).SerializeToString()


SET = described()
ORDER = find_message(SET, "shop.Order")
Order: Any = message_factory.GetMessageClass(ORDER)


def decoded(values: list[bytes | None], message: Any = ORDER, **more: Any) -> list[tuple[Any, str | None]]:
    decode = ProtobufDecoder(message, **{"enum_names": True, "is_framed": False, **more})
    found = decode(pa.array(values, pa.binary()))
    found.validate(full=True)
    return [(row["value"], row["error"]) for row in found.to_pylist()]


def test_a_message_with_everything_in_it_and_one_with_nothing() -> None:
    full = Order(id=-5, small=2**32 - 1, large=2**64 - 1, is_paid=True, data=b"\xff", colour=1, tags=["a", "b"])
    full.item.name = "one"
    full.items.add(name="two")
    full.prices["x"] = 1.5
    full.note = ""
    full.cash = 0
    full.at.seconds, full.at.nanos = 1, 1_999
    full.took.seconds, full.took.nanos = -1, -500_000_000
    full.count.value = 0
    found = decoded([full.SerializeToString(), b""])
    assert found[0] == (
        {
            "id": -5,
            "small": 2**32 - 1,
            "large": Decimal(2**64 - 1),
            "is_paid": True,
            "data": b"\xff",
            "colour": "RED",
            "item": {"name": "one"},
            "items": [{"name": "two"}],
            "tags": ["a", "b"],
            "prices": [("x", 1.5)],
            "note": "",
            "card": None,
            "cash": 0,
            "at": datetime.datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=datetime.UTC),
            "took": datetime.timedelta(seconds=-1.5),
            "count": 0,
        },
        None,
    )
    value, error = found[1]
    assert error is None
    absent = ("item", "note", "card", "cash", "at", "took", "count")
    assert {name: value[name] for name in absent} == dict.fromkeys(absent)
    assert (value["id"], value["colour"], value["tags"], value["prices"]) == (0, "NONE", [], [])


def test_enums_by_number_and_numbers_without_a_name() -> None:
    data = Order(colour=7).SerializeToString()
    assert decoded([data])[0][0]["colour"] == "7"
    assert decoded([data], enum_names=False)[0][0]["colour"] == 7


def test_what_is_wrong_with_a_message() -> None:
    late = Order()
    late.at.seconds = 2**50
    found = decoded([b"\x08", None, late.SerializeToString(), Order(id=1).SerializeToString()])
    assert [error for _, error in found] == [
        "the value is not a message of type shop.Order",
        "the value is null",
        f"at: {2**50} seconds and 0 nanoseconds are out of range",
        None,
    ]
    old = find_message(SET, "old.Message")
    errors = [error for _, error in decoded([b"", b"\x08\x01", b"\x08\x01\x12\x01\xff"], old)]
    assert errors == ["the field id is missing", None, "text: a text is not UTF-8"]


def test_frames_say_which_message_it_is() -> None:
    item = find_message(SET, "shop.Order.Item")
    assert (index_path(ORDER), index_path(item)) == ([1], [1, 0])
    head = b"\0\0\0\0\x07"
    data = Order(id=3).SerializeToString()
    values = [
        head + b"\x02\x02" + data,
        head + b"\x00" + data,
        head + b"\x04\x02\x00",
        head,
        b"\1" + head[1:] + b"\0",
        head + b"\x02",
    ]
    found = decoded(values, is_framed=True)
    assert found[0][0]["id"] == 3
    another = "it is another message of its schema than shop.Order"
    no_head = "it does not begin with a zero byte and the four bytes of a schema's id"
    no_index = "it does not say which message of its schema it is"
    assert [error for _, error in found] == [None, another, another, no_head, no_head, no_index]
    first = find_message(SET, "shop.First")
    assert decoded([head + b"\0\x08\x05"], first, is_framed=True) == [({"x": 5}, None)]
    assert decoded([head + b"\x04\x02\x00"], item, is_framed=True) == [({"name": ""}, None)]


@pytest.mark.parametrize(
    ("descriptors", "name", "sentence"),
    [
        (b"", "shop.Order", "not a set of descriptors; make it with"),
        (b"no descriptors", "shop.Order", "not a set of descriptors; make it with"),
        (SET, "shop.Ordr", "it has no message 'shop.Ordr'. Did you mean 'shop.Order'?"),
        (
            d.FileDescriptorSet(
                file=[d.FileDescriptorProto(name="a.proto", dependency=["b.proto"])]
            ).SerializeToString(),
            "a",
            "a.proto imports b.proto, which is not in it; make it with --include_imports",
        ),
    ],
)
def test_descriptors_that_are_refused(descriptors: bytes, name: str, sentence: str) -> None:
    with pytest.raises(DescriptorError) as told:
        find_message(descriptors, name)
    assert sentence in str(told.value)


def test_a_message_that_contains_itself_is_refused() -> None:
    with pytest.raises(DescriptorError, match=r"the message shop.Loop contains itself"):
        message_column(find_message(SET, "shop.Loop"), enum_names=True)


@pytest.mark.parametrize(
    ("seconds", "nanos", "is_in_range"),
    [
        (-62_135_596_800, 0, True),
        (-62_135_596_801, 0, False),
        (253_402_300_799, 999_999_999, True),
        (253_402_300_800, 0, False),
        (0, 1_000_000_000, False),
        (0, -1_000_000_000, False),
        (0, -999_999_999, True),
    ],
)
def test_moments_have_bounds(seconds: int, nanos: int, is_in_range: bool) -> None:
    value = SimpleNamespace(seconds=seconds, nanos=nanos)
    if is_in_range:
        assert _micros(value, "at", *_MOMENTS) == seconds * 1_000_000 + nanos // 1000
    else:
        with pytest.raises(ValueError, match=r"at: .* are out of range"):
            _micros(value, "at", *_MOMENTS)


@pytest.mark.parametrize(
    ("count", "error"),
    [
        (32, "it is another message of its schema than shop.Order"),
        (33, "it does not say which message of its schema it is"),
        (-1, "it does not say which message of its schema it is"),
    ],
)
def test_a_message_lies_at_most_32_messages_deep(count: int, error: str) -> None:
    value = b"\0\0\0\0\x07" + bytes([2 * count if count >= 0 else 1]) + bytes(max(count, 0))
    assert decoded([value], is_framed=True) == [(None, error)]
