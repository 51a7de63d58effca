"""Which columns the fields of a message become, and how their values are taken from it.

A field that can be told to be absent (optional, of a oneof, a message) is NULL then; any other has its default. Numbers
without a sign get the next larger type, so that none is read as a negative one.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from google.protobuf.descriptor import FieldDescriptor as Proto
from pyspark.sql import types as t

from ottla.spark.pipeline.formats.protobuf.descriptors import DescriptorError

Get: TypeAlias = Callable[[Any], Any]
"""A value of a message as Arrow takes it."""

_MOMENTS = (-62_135_596_800, 253_402_300_799)
"""Seconds of the years 1 to 9999."""
_DURATION_S_MAX = 315_576_000_000
_NANOS_PER_S = 1_000_000_000


class Column(NamedTuple):
    type: t.DataType
    get: Get


def _same(value: Any) -> Any:
    return value


_SCALARS: dict[int, Column] = {
    Proto.TYPE_DOUBLE: Column(t.DoubleType(), _same),
    Proto.TYPE_FLOAT: Column(t.FloatType(), _same),
    Proto.TYPE_BOOL: Column(t.BooleanType(), _same),
    Proto.TYPE_BYTES: Column(t.BinaryType(), _same),
    **dict.fromkeys((Proto.TYPE_INT32, Proto.TYPE_SINT32, Proto.TYPE_SFIXED32), Column(t.IntegerType(), _same)),
    **dict.fromkeys(
        (Proto.TYPE_INT64, Proto.TYPE_SINT64, Proto.TYPE_SFIXED64, Proto.TYPE_UINT32, Proto.TYPE_FIXED32),
        Column(t.LongType(), _same),
    ),
    **dict.fromkeys((Proto.TYPE_UINT64, Proto.TYPE_FIXED64), Column(t.DecimalType(20, 0), Decimal)),
}


def message_column(message: Any, *, enum_names: bool, path: tuple[str, ...] = ()) -> Column:
    """A struct of a message's fields, as a dictionary; DescriptorError if the message has no such form."""
    if message.full_name in path:
        raise DescriptorError(f"the message {message.full_name} contains itself, and a table cannot be of any depth")
    if not message.fields:
        raise DescriptorError(f"the message {message.full_name} has no fields, and a table needs columns")
    inner = (*path, message.full_name)
    fields = [(field.name, _field(field, enum_names, inner)) for field in message.fields]
    gets = [(name, column.get) for name, column in fields]

    def get(value: Any) -> Any:
        return {name: get_field(value) for name, get_field in gets}

    return Column(t.StructType([t.StructField(name, column.type) for name, column in fields]), get)


def _field(field: Any, enum_names: bool, path: tuple[str, ...]) -> Column:
    name = field.name
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = (_single(each, enum_names, path) for each in field.message_type.fields)

        def get_map(message: Any) -> Any:
            return [(key.get(each), value.get(item)) for each, item in getattr(message, name).items()]

        return Column(t.MapType(key.type, value.type), get_map)
    single = _single(field, enum_names, path)
    convert = single.get
    if field.is_repeated:
        return Column(t.ArrayType(single.type), lambda message: [convert(item) for item in getattr(message, name)])
    if field.has_presence:
        return Column(single.type, lambda message: convert(getattr(message, name)) if message.HasField(name) else None)
    return Column(single.type, lambda message: convert(getattr(message, name)))


def _single(field: Any, enum_names: bool, path: tuple[str, ...]) -> Column:
    """A value of the field's type, which may stand in a list or a map."""
    if field.enum_type is not None:
        return _enum(field) if enum_names else Column(t.IntegerType(), _same)
    if field.type == Proto.TYPE_STRING:
        return Column(t.StringType(), lambda value: _text(value, field.name))
    if field.message_type is None:
        return _SCALARS[field.type]
    match field.message_type.full_name:
        case "google.protobuf.Timestamp":
            return Column(t.TimestampType(), lambda value: _micros(value, field.name, *_MOMENTS))
        case "google.protobuf.Duration":
            bounds = (-_DURATION_S_MAX, _DURATION_S_MAX)
            return Column(t.DayTimeIntervalType(), lambda value: _micros(value, field.name, *bounds))
        case str(name) if name.startswith("google.protobuf.") and name.endswith("Value") and _is_wrapper(field):
            inner = _single(field.message_type.fields_by_name["value"], enum_names, path)
            return Column(inner.type, lambda value: inner.get(value.value))
    return message_column(field.message_type, enum_names=enum_names, path=path)


def _is_wrapper(field: Any) -> bool:
    return [each.name for each in field.message_type.fields] == ["value"]


def _enum(field: Any) -> Column:
    names = {value.number: value.name for value in field.enum_type.values}
    # A number that got a name later is still a value.
    return Column(t.StringType(), lambda number: names.get(number) or str(number))


def _text(value: str | bytes, name: str) -> str:
    # proto2 does not ask for UTF-8, and gives bytes for what is none.
    if isinstance(value, bytes):
        raise ValueError(f"{name}: a text is not UTF-8")
    return value


def _micros(value: Any, name: str, first_s: int, last_s: int) -> int:
    seconds, nanos = value.seconds, value.nanos
    if not first_s <= seconds <= last_s or not -_NANOS_PER_S < nanos < _NANOS_PER_S:
        raise ValueError(f"{name}: {seconds} seconds and {nanos} nanoseconds are out of range")
    return int(seconds * 1_000_000 + nanos // 1000)
