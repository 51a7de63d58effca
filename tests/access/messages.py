"""Requests written as plain dictionaries, and replies read as plain paths, for any API."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from ottla.base.types import NIL_UUID
from ottla.wire.api_keys import ApiKey
from ottla.wire.apis import request_class
from ottla.wire.message import Request, Response, Struct

_LABELS = ("name", "topic", "topic_name", "group_id", "transactional_id", "key", "resource_name", "topic_id")
_NUMBERS = ("partition_index", "partition", "partition_id", "index", "producer_id")


def request_of(api: ApiKey, **fields: Any) -> Request:
    made = _struct(request_class(api), fields)
    assert isinstance(made, Request)
    return made


def _struct(kind: type[Any], fields: Mapping[str, Any]) -> Any:
    hints = typing.get_type_hints(kind)
    return kind(**{name: _value(hints[name], value) for name, value in fields.items()})


def _value(hint: Any, value: Any) -> Any:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        hint = next(choice for choice in typing.get_args(hint) if choice is not type(None))
    if isinstance(value, list):
        return [_value(typing.get_args(hint)[0], entry) for entry in value]
    return _struct(hint, value) if isinstance(value, dict) else value


def refusals_in(response: Response, names_of_ids: Mapping[bytes, str]) -> dict[str, int]:
    """The place of every error code that says something; entries are called by what they are about."""
    return {path: value for path, value in _fields(response, "", names_of_ids) if path.endswith("error_code") and value}


def labels_in(response: Response, names_of_ids: Mapping[bytes, str]) -> set[str]:
    """The names of all resources that the reply mentions."""
    return {str(value) for path, value in _fields(response, "", names_of_ids) if path.rpartition(".")[2] in _LABELS}


def _fields(struct: Struct, path: str, names_of_ids: Mapping[bytes, str]) -> Iterator[tuple[str, Any]]:
    for name in typing.get_type_hints(type(struct)):
        value = getattr(struct, name, None)
        here = f"{path}.{name}" if path else name
        if isinstance(value, Struct):
            yield from _fields(value, here, names_of_ids)
        elif isinstance(value, list):
            for number, entry in enumerate(value):
                if isinstance(entry, Struct):
                    label = _label(entry, names_of_ids)
                    yield from _fields(entry, f"{here}[{number if label is None else label}]", names_of_ids)
        elif value:
            yield here, value


def _label(struct: Struct, names_of_ids: Mapping[bytes, str]) -> str | int | None:
    for name in _LABELS:
        value = getattr(struct, name, None)
        if value and value != NIL_UUID:
            return names_of_ids.get(value, "an id") if isinstance(value, bytes) else str(value)
    return next((int(getattr(struct, name)) for name in _NUMBERS if hasattr(struct, name)), None)
