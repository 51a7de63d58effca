"""kafka-python as an oracle: its codec, and the definitions of Kafka 4 that come with the package.

It knows newer versions than kio, and the definitions rather than only classes, so that every default can be compared.
"""

from __future__ import annotations

import io
import uuid
from functools import cache
from random import Random
from typing import Any

from kafka.protocol.data_container import DataContainer
from kafka.protocol.schemas import StructField, load_json

from tests.architecture.codecs.oracle import Values, bare_name, random_primitive


class KafkaPython:
    def versions(self, name: str) -> range:
        if name.endswith("Header"):
            return range(0)  # the client id keeps its old form in flexible versions: done elsewhere in the package
        struct = _struct(name)
        return range(struct.min_version, struct.max_version + 1) if struct else range(0)

    def is_flexible(self, name: str, version: int) -> bool:
        first, last = StructField.parse_versions(_struct(name)._json["flexibleVersions"])
        return bool(first <= version <= last)

    def random(self, rng: Random, name: str, version: int) -> Values:
        return {bare_name(f.name): _random_field(rng, f, version) for f in _fields(_struct(name), version)}

    def defaults(self, name: str, version: int) -> Values:
        return _defaults(_struct(name), version)

    def encode(self, name: str, version: int, values: Values) -> bytes:
        struct, flexible = _struct(name), self.is_flexible(name, version)
        item = _item_of(struct, values, version)
        data: bytes = struct.encode(item, version=version, compact=flexible, tagged=flexible)
        return data

    def decode(self, name: str, version: int, data: bytes) -> Values:
        struct, flexible = _struct(name), self.is_flexible(name, version)
        stream = io.BytesIO(data)
        item = struct.decode(stream, version=version, compact=flexible, tagged=flexible)
        assert stream.tell() == len(data)
        return _values_of(struct, item, version)


@cache
def _struct(name: str) -> Any:
    """The package's own classes patch some definitions for their users; here they are taken as they are."""
    try:
        struct = StructField(load_json(name))
    except FileNotFoundError:
        return None
    struct.set_data_class(type(name, (DataContainer,), {"_struct": struct}))
    return struct


def _fields(struct: Any, version: int) -> list[Any]:
    return [field for field in struct.fields.values() if field.for_version_q(version)]


def _random_field(rng: Random, field: Any, version: int) -> Any:
    if field.nullable_for_version_q(version) and rng.random() < 0.25:
        return None
    if field.is_struct_array():
        return [_random_struct(rng, field, version) for _ in range(rng.randrange(4))]
    if field.is_array():
        return [random_primitive(rng, field.type_str[2:]) for _ in range(rng.randrange(4))]
    if not field.is_struct():
        return random_primitive(rng, field.type_str)
    value = _random_struct(rng, field, version)
    # The package writes a tagged struct even when all in it is default; Kafka does not, and nor do we.
    while field.tagged_field_q(version) and value == _defaults(field, version):
        value = _random_struct(rng, field, version)
    return value


def _random_struct(rng: Random, struct: Any, version: int) -> Values:
    return {bare_name(f.name): _random_field(rng, f, version) for f in _fields(struct, version)}


def _item_of(struct: Any, values: Values, version: int) -> dict[str, Any]:
    item = {}
    for field in _fields(struct, version):
        value = values[bare_name(field.name)]
        if value is None or not (field.is_struct() or field.is_struct_array()):
            # The package compares an absent id with None when it looks for tags to leave out.
            item[field.name] = None if value == bytes(16) else _ids_of(field, value)
        elif field.is_struct():
            item[field.name] = _item_of(field, value, version)
        else:
            item[field.name] = [_item_of(field, element, version) for element in value]
    return item


def _ids_of(field: Any, value: Any) -> Any:
    match field._json["type"]:
        case "uuid":
            return uuid.UUID(bytes=value)
        case "[]uuid" if value is not None:
            return [uuid.UUID(bytes=each) for each in value]
    return value


def _values_of(struct: Any, item: Any, version: int) -> Values:
    found: Values = {}
    for field in _fields(struct, version):
        value = getattr(item, field.name)
        if field.is_struct_array() and value is not None:
            value = [_values_of(field, element, version) for element in value]
        elif field.is_struct() and value is not None:
            value = _values_of(field, value, version)
        elif field.is_struct() and field.tagged_field_q(version):
            value = _defaults(field, version)
        else:
            value = _plain(field, value)
        found[bare_name(field.name)] = value
    return found


def _plain(field: Any, value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(field, each) for each in value]
    if field._json["type"] == "uuid" and value is None:
        return bytes(16)
    return value.bytes if isinstance(value, uuid.UUID) else value


def _defaults(struct: Any, version: int) -> Values:
    found: Values = {}
    for field in _fields(struct, version):
        if field.is_struct() and field._json.get("default") != "null":
            found[bare_name(field.name)] = _defaults(field, version)
        else:
            found[bare_name(field.name)] = _plain(field, field.default)
    return found
