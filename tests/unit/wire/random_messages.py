"""Random messages of any declared class and version, from a seed."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from random import Random
from typing import Any

from ottla.base.types import Uuid
from ottla.wire.apis import API_TABLE, request_class, response_class
from ottla.wire.fields import Field
from ottla.wire.header import RequestHeaderMessage, ResponseHeaderMessage
from ottla.wire.message import Message, StoredRecord

STORED_MODULES = ("consumer_offsets", "transaction_state", "consumer_protocol", "producer_snapshot")

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_TEXTS = ("", "a", "topic-1", "grüße", "日本", "x" * 126, "y" * 127, "z" * 200)
_SIZES = (0, 1, 2, 3, 40, 126, 127, 128, 300)


def stored_classes() -> Iterator[type[StoredRecord]]:
    for name in STORED_MODULES:
        module = import_module(f"ottla.wire.stored.{name}")
        for _, cls in inspect.getmembers(module, inspect.isclass):
            if issubclass(cls, StoredRecord) and cls is not StoredRecord:
                yield cls


def all_message_classes() -> list[type[Message]]:
    classes: list[type[Message]] = [RequestHeaderMessage, ResponseHeaderMessage, *stored_classes()]
    for key in API_TABLE:
        classes += (request_class(key), response_class(key))
    return classes


def random_message(rng: Random, cls: type[Any], version: int) -> Any:
    """Fields the version lacks keep their defaults; of the others about a quarter do."""
    values = {
        field.name: random_value(rng, field, version)
        for field in cls.FIELDS
        if version in field.versions and rng.random() > 0.25
    }
    for field in cls.FIELDS:
        absent = field.name not in values
        if absent and version in field.versions and field.new_default() is None and version not in field.nullable:
            values[field.name] = random_value(rng, field, version)
    return cls(**values)


def random_value(rng: Random, field: Field, version: int) -> Any:
    if version in field.nullable and rng.random() < 0.2:
        return None
    match field.kind:
        case "boolean":
            return rng.random() < 0.5
        case "int8" | "int16" | "int32" | "int64":
            half = 1 << (_BITS[field.kind] - 1)
            return rng.choice((0, 1, -1, half - 1, -half, rng.randrange(-half, half)))
        case "uint16":
            return rng.choice((0, 1, 0xFFFF, rng.randrange(1 << 16)))
        case "uint32":
            return rng.choice((0, 1, 0xFFFFFFFF, rng.randrange(1 << 32)))
        case "float64":
            return rng.choice((0.0, -1.5, 1e300, rng.random()))
        case "uuid":
            return Uuid(rng.randbytes(16))
        case "string":
            return rng.choice(_TEXTS)
        case "bytes" | "records":
            return rng.randbytes(rng.choice(_SIZES))
        case "struct":
            return random_message(rng, field.of, version)
        case "array":
            return [random_value(rng, field.of, version) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    raise AssertionError(field.kind)
