"""Avro with schemas from a registry, in the wire format every Confluent client uses: a zero, the schema's id, the data.

Needs fastavro, which is loaded when the first serde is made.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from struct import Struct
from typing import Any

from ottla.client.serdes.avro_checks import has_large_number, infinities, plain_check
from ottla.client.serdes.formats import Field
from ottla.client.serdes.registry import RegisteredSchema, SchemaRegistry

_PREFIX = Struct(">bI")
_MAGIC = 0


def topic_subject(topic: str, field: Field) -> str:
    """The usual name of a topic's schemas: one subject for its keys and one for its values."""
    return f"{topic}-{field}"


class AvroSerde:
    """Writes with `schema`; reads with the schema the data was written with, and into `reader_schema` if given.

    `schema` may be left out by those who only read. With `auto_register=False` it must be in the registry already.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | dict[str, Any] | list[Any] | None = None,
        *,
        field: Field = "value",
        reader_schema: str | dict[str, Any] | list[Any] | None = None,
        subject: Callable[[str, Field], str] = topic_subject,
        auto_register: bool = True,
    ) -> None:
        try:
            import fastavro
            import fastavro.validation
        except ImportError as e:
            raise ImportError("Avro needs fastavro: pip install 'ottla[avro]'", name=e.name) from e
        self._avro = fastavro
        self._registry = registry
        self._field: Field = field
        self._subject = subject
        self._auto_register = auto_register
        self._text = None if schema is None else json.dumps(_as_json(schema), separators=(",", ":"))
        self._schema = None if schema is None else fastavro.parse_schema(_as_json(schema))
        self._is_plain = None if schema is None else plain_check(self._schema)
        self._reader_schema = None if reader_schema is None else fastavro.parse_schema(_as_json(reader_schema))
        self._ids: dict[str, int] = {}
        self._writer_schemas: dict[bytes, Any] = {}
        """By the bytes that data begins with."""

    def waits_to_serialize(self, topic: str, value: Any) -> bool:
        """Whether the registry has to be asked for the id to write with."""
        return value is not None and topic not in self._ids

    def waits_to_deserialize(self, topic: str, data: bytes | None) -> bool:
        """Whether the registry has to be asked for the schema the data was written with."""
        return data is not None and data[: _PREFIX.size] not in self._writer_schemas

    def serialize(self, topic: str, value: Any) -> bytes | None:
        if value is None:
            return None
        schema_id = self._ids.get(topic)
        if schema_id is None:
            schema_id = self._id_for(topic)
        out = io.BytesIO()
        out.write(_PREFIX.pack(_MAGIC, schema_id))
        assert self._schema is not None
        is_plain = self._is_plain is None or self._is_plain(value)
        if not is_plain:
            self._validate(value, self._schema)
        try:
            self._avro.schemaless_writer(out, self._schema, value)
        except (KeyError, AttributeError, OverflowError) as e:
            # What fastavro raises depends on how far it got; all of it means that the value is not of the schema.
            raise ValueError(f"the value does not match the schema: {e!r}") from e
        if not is_plain and has_large_number(value):
            self._check_floats(value, self._schema, out)
        return out.getvalue()

    def _check_floats(self, value: Any, schema: Any, written: io.BytesIO) -> None:
        written.seek(_PREFIX.size)
        if infinities(self._avro.schemaless_reader(written, schema, None)) > infinities(value):
            raise ValueError("the value does not match the schema: a number is too large for a float")

    def _validate(self, value: Any, schema: Any) -> None:
        try:
            self._avro.validation.validate(value, schema)
        except self._avro.validation.ValidationError as e:
            raise ValueError("the value does not match the schema: " + "; ".join(map(str, e.errors)).strip()) from None

    def deserialize(self, topic: str, data: bytes | None) -> Any:
        if data is None:
            return None
        schema = self._writer_schemas.get(data[: _PREFIX.size])
        if schema is None:
            schema = self._schema_of(data)
        source = io.BytesIO(data)
        source.seek(_PREFIX.size)
        try:
            value = self._avro.schemaless_reader(source, schema, self._reader_schema)
        except (EOFError, IndexError, KeyError, UnicodeDecodeError, OverflowError) as e:
            raise ValueError(f"the data does not match the schema with id {_id_in(data)}: {e!r}") from e
        left = len(data) - source.tell()
        if left:
            raise ValueError(f"{left} bytes are left after what the schema with id {_id_in(data)} describes")
        return value

    def _id_for(self, topic: str) -> int:
        if self._text is None:
            raise ValueError("this Avro serde has no schema to write with")
        ask = self._registry.register if self._auto_register else self._registry.lookup
        schema_id = self._ids[topic] = ask(self._subject(topic, self._field), self._text)
        return schema_id

    def _schema_of(self, data: bytes) -> Any:
        if len(data) < _PREFIX.size or data[0] != _MAGIC:
            raise ValueError(
                "this is not Avro with a schema id: it must begin with a zero byte and the four bytes of the id, "
                f"but begins with {data[: _PREFIX.size].hex() or 'nothing'}"
            )
        schema = self._writer_schemas[data[: _PREFIX.size]] = self._parse(_id_in(data))
        return schema

    def _parse(self, schema_id: int) -> Any:
        registered = self._registry.schema(schema_id)
        if registered.schema_type != "AVRO":
            raise ValueError(f"the schema with id {schema_id} is {registered.schema_type}, not Avro")
        named: dict[str, Any] = {}
        return self._parse_with_references(registered, named)

    def _parse_with_references(self, registered: RegisteredSchema, named: dict[str, Any]) -> Any:
        for reference in registered.references:
            self._parse_with_references(reference, named)
        return self._avro.parse_schema(json.loads(registered.text), named)


def _id_in(data: bytes) -> int:
    schema_id: int = _PREFIX.unpack_from(data)[1]
    return schema_id


def _as_json(schema: str | dict[str, Any] | list[Any]) -> Any:
    """Schemas come as text from files and as objects from code; a bare name such as "string" is a schema as well."""
    if not isinstance(schema, str):
        return schema
    try:
        return json.loads(schema)
    except json.JSONDecodeError:
        return schema
