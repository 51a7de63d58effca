"""Messages as JSON, with Kafka's names: what the records of internal topics mean."""

from __future__ import annotations

import base64
from typing import Any

from ottla.base.types import Uuid, uuid_to_text
from ottla.wire.fields import Field
from ottla.wire.message import Struct


def plain(message: Struct, version: int) -> dict[str, Any]:
    """The fields that a message has in this version, as Kafka's tools show them."""
    unset = type(message)()
    shown = {}
    for field in message.FIELDS:
        value = getattr(message, field.name)
        # A tagged field is there if it says something.
        if version in field.versions and (version not in field.tagged or value != getattr(unset, field.name)):
            shown[_camel(field.name)] = _plain_value(value, field, version)
    return shown


def _plain_value(value: Any, field: Field, version: int) -> Any:
    if isinstance(value, Struct):
        return plain(value, version)
    if isinstance(value, (list, tuple)):
        return [_plain_value(entry, field.of, version) for entry in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return uuid_to_text(Uuid(bytes(value))) if field.kind == "uuid" else base64.b64encode(value).decode()
    return value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
