"""Avro's types as plain values, made from a schema in JSON.

fastavro checks a schema and resolves the names in it. A schema that contains itself is refused: its values have no
depth that a table could have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import fastavro
from fastavro.schema import SchemaParseException, UnknownType


class AvroSchemaError(ValueError):
    """A schema that is none, or that cannot be used for a table; the message is a sentence."""


class _Nothing:
    def __repr__(self) -> str:
        return "NOTHING"


NOTHING: Final = _Nothing()
"""The default of a field that has none: None is a default, too."""


@dataclass(frozen=True)
class Primitive:
    kind: str
    """null, boolean, int, long, float, double, bytes or string."""
    logical: str | None = None
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True)
class Fixed:
    name: str
    size: int
    aliases: frozenset[str] = frozenset()
    logical: str | None = None
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True)
class Enum:
    name: str
    symbols: tuple[str, ...]
    aliases: frozenset[str] = frozenset()
    default: str | None = None


@dataclass(frozen=True)
class Array:
    items: AvroType


@dataclass(frozen=True)
class Map:
    values: AvroType


@dataclass(frozen=True)
class Union:
    branches: tuple[AvroType, ...]

    @property
    def is_nullable(self) -> bool:
        return any(is_null(branch) for branch in self.branches)

    @property
    def others(self) -> tuple[AvroType, ...]:
        """The branches but for null."""
        return tuple(branch for branch in self.branches if not is_null(branch))


@dataclass(frozen=True)
class Field:
    name: str
    type: AvroType
    default: Any = NOTHING
    """As in the schema's JSON."""
    aliases: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Record:
    name: str
    fields: tuple[Field, ...]
    aliases: frozenset[str] = frozenset()


AvroType: TypeAlias = Primitive | Fixed | Enum | Array | Map | Union | Record
Named: TypeAlias = Fixed | Enum | Record

_LOGICAL_TYPES: Final[Mapping[str, frozenset[str]]] = {
    "int": frozenset({"date", "time-millis"}),
    "long": frozenset(
        {"time-micros"}
        | {f"{kind}-{unit}" for kind in ("timestamp", "local-timestamp") for unit in ("millis", "micros", "nanos")}
    ),
    "bytes": frozenset({"decimal"}),
    "string": frozenset({"uuid"}),
    "fixed": frozenset({"decimal", "uuid"}),
}
"""Others are ignored, as the specification asks for."""
_MAX_PRECISION: Final = 38


def is_null(kind: AvroType) -> bool:
    return isinstance(kind, Primitive) and kind.kind == "null"


def parse_record(text: str, references: Sequence[str] = ()) -> Record:
    """The record that a schema describes; `references` are schemas it uses by name, those that others need first.

    A schema of another type becomes a record with the one field `value`: its bytes are the same.
    """
    named: dict[str, Any] = {}
    for reference in references:
        _checked(reference, named)
    found = _Parser(named).type_of(_checked(text, named))
    return found if isinstance(found, Record) else Record("value", (Field("value", found),))


def _checked(text: str, named: dict[str, Any]) -> Any:
    try:
        schema = json.loads(text)
    except json.JSONDecodeError as e:
        raise AvroSchemaError(f"the schema is not JSON: {e}") from None
    try:
        return fastavro.parse_schema(schema, named)
    except UnknownType as e:
        raise AvroSchemaError(f"the schema names a type {e.name!r} that it does not define") from None
    except (SchemaParseException, KeyError, TypeError, ValueError, AttributeError) as e:
        # What fastavro raises for a schema of the wrong shape depends on how far it got.
        raise AvroSchemaError(f"this is not a schema of Avro: {str(e) or type(e).__name__}") from None


class _Parser:
    """Walks a schema that fastavro has parsed: names are full, and a type that was defined is named afterwards."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._open: list[str] = []

    def type_of(self, schema: Any) -> AvroType:
        if isinstance(schema, list):
            return Union(tuple(self.type_of(branch) for branch in schema))
        if isinstance(schema, str):
            return self.type_of(self._named[schema]) if schema in self._named else Primitive(schema)
        kind = schema["type"]
        match kind:
            case "record" | "error":
                return self._record(schema)
            case "enum":
                return Enum(schema["name"], tuple(schema["symbols"]), _aliases(schema), schema.get("default"))
            case "fixed":
                return Fixed(schema["name"], schema["size"], _aliases(schema), *_logical(kind, schema))
            case "array":
                return Array(self.type_of(schema["items"]))
            case "map":
                return Map(self.type_of(schema["values"]))
            case str() if kind not in self._named:
                return Primitive(kind, *_logical(kind, schema))
        return self.type_of(kind)

    def _record(self, schema: Any) -> Record:
        name = schema["name"]
        if name in self._open:
            raise AvroSchemaError(f"the record {name} contains itself, and a table cannot be of any depth")
        if not schema["fields"]:
            raise AvroSchemaError(f"the record {name} has no fields, and a table needs columns")
        self._open.append(name)
        fields = tuple(
            Field(field["name"], self.type_of(field["type"]), field.get("default", NOTHING), _aliases(field))
            for field in schema["fields"]
        )
        self._open.pop()
        return Record(name, fields, _aliases(schema))


def _aliases(schema: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(schema.get("aliases", ()))


def _logical(kind: str, schema: Mapping[str, Any]) -> tuple[str | None, int, int]:
    """A logical type that is not valid where it stands is ignored, as the specification asks for."""
    logical = schema.get("logicalType")
    if logical not in _LOGICAL_TYPES.get(kind, ()) or (logical == "uuid" and kind == "fixed" and schema["size"] != 16):
        return None, 0, 0
    precision, scale = schema.get("precision", 0), schema.get("scale", 0)
    if logical == "decimal" and not 0 < precision <= _MAX_PRECISION:
        raise AvroSchemaError(f"a decimal has a precision of 1 to {_MAX_PRECISION}, but there is one of {precision}")
    return logical, precision, scale
