"""How records are printed: as lines, as JSON, or as what the internal topics' records mean."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from ottla.base.errors import OttlaError
from ottla.cli.failures import UsageError
from ottla.cli.lines import FORMAT_OPTIONS, PlainRecord, RecordFormatter
from ottla.cli.stored_json import plain
from ottla.wire.message import Struct

Format = Callable[[PlainRecord], bytes]
Decode = Callable[[bytes], bytes]

REGISTRY_URL = "schema.registry.url"
_NUMBERS = {"short": ">h", "integer": ">i", "int": ">i", "long": ">q", "float": ">f", "double": ">d"}


class RecordError(OttlaError):
    """A record is not what it was said to be; the message is one sentence."""


def _number(name: str) -> Decode:
    form = _NUMBERS[name]

    def decode(data: bytes) -> bytes:
        if len(data) != struct.calcsize(form):
            raise RecordError(f"{len(data)} bytes are no {name}, which has {struct.calcsize(form)}")
        return str(struct.unpack(form, data)[0]).encode()

    return decode


def _uuid(data: bytes) -> bytes:
    """As text, or as the 16 bytes that it stands for."""
    if len(data) not in (16, 36):
        raise RecordError(f"{len(data)} bytes are no uuid, which has 16, or 36 as text")
    return data if len(data) == 36 else str(UUID(bytes=data)).encode()


class AsJson:
    """Decodes what has a structure: shown over several lines, or as a part of what is JSON anyway."""

    def __init__(self, kind: str, read: Callable[[bytes], Any]) -> None:
        self._kind = kind
        self._read = read

    def __call__(self, data: bytes) -> bytes:
        return json.dumps(self.value(data), indent=2, ensure_ascii=False, default=_as_text).encode()

    def value(self, data: bytes) -> Any:
        try:
            return self._read(data)
        except ValueError as e:
            raise RecordError(f"{data[:40]!r} is no {self._kind}: {e}") from None


def _as_text(value: object) -> str:
    """What JSON has no form for: bytes, moments, decimal numbers."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _avro(registry_url: str | None) -> AsJson:
    if registry_url is None:
        raise UsageError("avro needs the schemas: --property schema.registry.url=http://HOST:PORT")
    from ottla.client.serdes.avro import AvroSerde
    from ottla.client.serdes.registry import SchemaRegistry

    try:
        serde = AvroSerde(SchemaRegistry(registry_url))
    except (ValueError, ImportError) as e:
        raise UsageError(str(e)) from None
    return AsJson("Avro", lambda data: serde.deserialize("", data))


DESERIALIZERS: dict[str, Decode] = {
    "string": lambda data: data,
    "default": lambda data: data,
    "bytes": lambda data: data,
    "bytearray": lambda data: data,
    "bytebuffer": lambda data: data,
    "hex": lambda data: data.hex().encode(),
    "base64": base64.b64encode,
    "uuid": _uuid,
    "json": AsJson("JSON", json.loads),
    **{name: _number(name) for name in _NUMBERS},
}


def deserializer(name: str | None, registry_url: str | None = None) -> Decode | None:
    """By a short name, or by that of Kafka's class. Avro's schemas are in a registry."""
    if name is None:
        return None
    short = name.rsplit(".", 1)[-1].lower().removesuffix("deserializer").removesuffix("decoder")
    if short in ("avro", "kafkaavro"):
        return _avro(registry_url)
    if short not in DESERIALIZERS:
        raise UsageError(f"{name!r} is no deserializer; there are {', '.join(DESERIALIZERS)}, avro")
    return DESERIALIZERS[short]


def line_format(
    properties: Mapping[str, str], key_decode: Decode | None, value_decode: Decode | None, *, lenient: bool
) -> Format:
    """`lenient` leaves out properties that are not known, as Kafka's tool does."""
    own = dict(properties)
    registry_url = own.pop(REGISTRY_URL, None)
    key_decode = deserializer(own.pop("key.deserializer", None), registry_url) or key_decode
    value_decode = deserializer(own.pop("value.deserializer", None), registry_url) or value_decode
    own.pop("headers.deserializer", None)
    if lenient:
        own = {name: value for name, value in own.items() if name in FORMAT_OPTIONS and name != "print.epoch"}
    formatter = RecordFormatter(own)
    if key_decode is None and value_decode is None:
        return formatter.format

    def format_decoded(record: PlainRecord) -> bytes:
        return formatter.format(
            record._replace(key=_decoded(key_decode, record.key), value=_decoded(value_decode, record.value))
        )

    return format_decoded


def _decoded(decode: Decode | None, data: bytes | None) -> bytes | None:
    return data if decode is None or data is None else decode(data)


def json_format(key_decode: Decode | None, value_decode: Decode | None) -> Format:
    """One object per line. JSON values are put in as they are; bytes that are no text become base64."""

    def text(data: bytes | None, decode: Decode | None) -> object:
        if data is None:
            return None
        if isinstance(decode, AsJson):
            return decode.value(data)
        if decode is not None:
            return decode(data).decode(errors="replace")
        if data[:1] in (b"{", b"["):
            try:
                return json.loads(data)
            except ValueError:
                pass
        try:
            return data.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(data).decode()}

    def format_record(record: PlainRecord) -> bytes:
        shown = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestamp_type": record.timestamp_type.config_name,
            "key": text(record.key, key_decode),
            "headers": [{"name": name, "value": text(value, None)} for name, value in record.headers],
            "value": text(record.value, value_decode),
        }
        return json.dumps(shown, ensure_ascii=False, default=_as_text).encode() + b"\n"

    return format_record


# Internal topics


def named_format(name: str, fallback: Format, *, line_end: bytes) -> Format:
    """A formatter by a short name, or by that of Kafka's class."""
    short = name.replace("$", ".").rsplit(".", 1)[-1].lower().removesuffix("formatter").removesuffix("message")
    formats: dict[str, Format] = {
        "default": fallback,
        "logging": fallback,
        "noop": lambda _: b"",
        "offsets": lambda record: _stored(record, _offset_record, line_end),
        "groupmetadata": lambda record: _stored(record, _group_record, line_end),
        "transactionlog": lambda record: _stored(record, _transaction_record, line_end),
        "transactions": lambda record: _stored(record, _transaction_record, line_end),
    }
    if short not in formats:
        raise UsageError(f"{name!r} is no formatter; there are {', '.join(formats)}")
    return formats[short]


Parsed = tuple[Struct, Struct | None]


def _offset_record(key: bytes, value: bytes | None) -> Parsed | None:
    from ottla.machines.groups.record_types import parse

    return parse(key, value) if key[:2] in (b"\0\0", b"\0\1") else None


def _group_record(key: bytes, value: bytes | None) -> Parsed | None:
    from ottla.machines.groups.record_types import parse

    return parse(key, value) if key[:2] == b"\0\2" else None


def _transaction_record(key: bytes, value: bytes | None) -> Parsed | None:
    from ottla.machines.transactions.record_types import parse_record

    return parse_record(key, value)


def _stored(record: PlainRecord, parse: Callable[[bytes, bytes | None], Parsed | None], line_end: bytes) -> bytes:
    if record.key is None:
        return b""
    try:
        found = parse(record.key, record.value)
    except OttlaError as e:
        raise RecordError(str(e)) from None
    if found is None:
        return b""
    key, value = found
    shown = {
        "key": _versioned(record.key, key),
        "value": None if value is None else _versioned(record.value or b"", value),
    }
    return json.dumps(shown, separators=(",", ":")).encode() + line_end


def _versioned(data: bytes, message: Struct) -> dict[str, object]:
    version = int.from_bytes(data[:2], "big")
    return {"version": version, "data": plain(message, version)}
