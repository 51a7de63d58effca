"""kio as an oracle: one class per message and version, generated from the definitions of Kafka 3.9.

It knows the messages between brokers and the oldest versions, which Kafka 4 has dropped.
"""

from __future__ import annotations

import datetime as dt
import io
import re
import uuid
from dataclasses import MISSING, Field, fields, is_dataclass
from random import Random
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from kio.index import load_entity_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from kio.static.primitive import TZAware, i32Timedelta, i64Timedelta

from tests.architecture.codecs.oracle import Values, bare_name, random_primitive

_MILLISECOND = dt.timedelta(milliseconds=1)
_ROLES = (("Request", EntityType.request), ("Response", EntityType.response), ("Header", EntityType.header))


class Kio:
    def versions(self, name: str) -> range:
        group, role = _address(name)
        known = sorted(version for version, roles in schema_name_map.get(group, {}).items() if role in roles)
        versions = range(known[0], known[-1] + 1) if known else range(0)
        assert list(versions) == known
        return versions

    def is_flexible(self, name: str, version: int) -> bool:
        flexible: bool = _schema(name, version).__flexible__
        return flexible

    def random(self, rng: Random, name: str, version: int) -> Values:
        return _random_entity(rng, _schema(name, version))

    def defaults(self, name: str, version: int) -> Values:
        return _defaults(_schema(name, version))

    def encode(self, name: str, version: int, values: Values) -> bytes:
        schema = _schema(name, version)
        out = io.BytesIO()
        entity_writer(schema)(out, _entity_of(schema, values))
        return out.getvalue()

    def decode(self, name: str, version: int, data: bytes) -> Values:
        entity, size = entity_reader(_schema(name, version))(data, 0)
        assert size == len(data)
        return _values_of(entity)


def _address(name: str) -> tuple[str, EntityType]:
    words = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    for suffix, role in _ROLES:
        if name.endswith(suffix):
            return (words if role is EntityType.header else words.rpartition("_")[0]), role
    return words, EntityType.data


def _schema(name: str, version: int) -> Any:
    group, role = _address(name)
    return load_entity_schema(group, version, role)


def _parts(field: Field[Any]) -> tuple[Any, bool, bool]:
    """The type of a field or of its elements, whether it is an array, and whether it may be null."""
    kind: Any = field.type
    nullable = False
    if get_origin(kind) is UnionType:
        (kind,) = (each for each in get_args(kind) if each is not NoneType)
        nullable = True
    if get_origin(kind) is tuple:
        element = get_args(kind)[0]
        assert get_origin(element) is not UnionType or field.metadata["kafka_type"] == "uuid"
        return element, True, nullable
    return kind, False, nullable


def _random_entity(rng: Random, schema: Any) -> Values:
    return {bare_name(field.name): _random_field(rng, field) for field in fields(schema)}


def _random_field(rng: Random, field: Field[Any]) -> Any:
    kind, is_array, nullable = _parts(field)
    primitive = field.metadata.get("kafka_type")
    # Absent times and ids are numbers on the wire (-1, zeros), not nulls; a null in a tag is its absence.
    if nullable and primitive not in ("uuid", "datetime_i64") and rng.random() < 0.25:
        return None
    count = rng.randrange(4) if is_array else 1
    if is_dataclass(kind):
        found: list[Any] = [_random_entity(rng, kind) for _ in range(count)]
    else:
        found = [_random_value(rng, primitive or "", nullable) for _ in range(count)]
    return found if is_array else found[0]


def _random_value(rng: Random, kind: str, nullable: bool) -> Any:
    match kind:
        case "error_code":
            return rng.choice(list(ErrorCode)).value
        case "timedelta_i32":
            return random_primitive(rng, "int32")
        case "timedelta_i64":
            return rng.randrange(-(1 << 40), 1 << 40)
        case "datetime_i64":
            return -1 if nullable and rng.random() < 0.25 else rng.randrange(1 << 31) * 1000
    return random_primitive(rng, kind)


def _entity_of(schema: Any, values: Values) -> Any:
    return schema(**{field.name: _field_of(field, values[bare_name(field.name)]) for field in fields(schema)})


def _field_of(field: Field[Any], value: Any) -> Any:
    kind, is_array, _ = _parts(field)
    if value is None:
        return None
    convert = (lambda v: _entity_of(kind, v)) if is_dataclass(kind) else (lambda v: _value_of(field, v))
    return tuple(map(convert, value)) if is_array else convert(value)


def _value_of(field: Field[Any], value: Any) -> Any:
    match field.metadata.get("kafka_type"):
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32":
            return i32Timedelta.parse(value * _MILLISECOND)
        case "timedelta_i64":
            return i64Timedelta.parse(value * _MILLISECOND)
        case "datetime_i64":
            return None if value == -1 else TZAware.parse(dt.datetime.fromtimestamp(value / 1000, dt.UTC))
        case "uuid":
            return uuid.UUID(bytes=value) if any(value) else None
    return value


def _values_of(entity: Any) -> Values:
    return {bare_name(field.name): _plain(field, getattr(entity, field.name)) for field in fields(entity)}


def _plain(field: Field[Any], value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(field, item) for item in value]
    if is_dataclass(value):
        return _values_of(value)
    match field.metadata.get("kafka_type"):
        case "error_code":
            return value.value
        case "timedelta_i32" | "timedelta_i64":
            return value // _MILLISECOND
        case "datetime_i64":
            return -1 if value is None else round(value.timestamp() * 1000)
        case "uuid":
            return bytes(16) if value is None else value.bytes
    return value


def _defaults(schema: Any) -> Values:
    found: Values = {}
    for field in fields(schema):
        kind, is_array, nullable = _parts(field)
        if field.default is not MISSING:
            found[bare_name(field.name)] = _plain(field, field.default)
        elif is_dataclass(kind) and not is_array and not nullable:
            found[bare_name(field.name)] = _defaults(kind)
    return found
