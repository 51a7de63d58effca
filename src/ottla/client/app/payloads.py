"""What a listener's annotation makes of the bytes of a record, and what the sender makes of an object.

`bytes` and `str`, also as an Enum, are taken as they are; everything else is JSON, which pydantic validates
(docs/adr/0008). An annotation that nothing can be made for is found when the listener is bound, a payload that does not
fit it when it is read: the error names the place in the payload, but not what stands there.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Callable
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType, TypeAlias, Union, get_args, get_origin
from uuid import UUID

from ottla.client.app.typed_dicts import with_typed_dicts
from ottla.client.serdes.formats import JsonSerde

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

Decoder: TypeAlias = Callable[[bytes | None], Any]

_PROBLEMS_MAX = 3
"""How many things that are wrong with a payload are told."""


_KINDS = {dict: "an object", list: "a list", str: "text", type(None): "null", bool: "true or false"}
"""What JSON has, besides numbers."""


class AnnotationError(TypeError):
    """Nothing can be made for this annotation."""


class PayloadError(ValueError):
    """The payload is not what the annotation says."""


def decoder_for(annotation: Any) -> Decoder:
    """A function of a record's bytes. A null value is allowed if the annotation allows None."""
    options = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    allows_none = annotation is Any or type(None) in options or None in options
    rest = [option for option in options if option not in (None, type(None))]
    decode = _decoder_of(rest[0] if len(rest) == 1 else annotation)

    def decode_or_none(data: bytes | None) -> Any:
        if data is not None:
            return decode(data)
        if allows_none:
            return None
        raise PayloadError("there is no value (it is null); annotate it with `| None` to take such records")

    return decode_or_none


def _decoder_of(annotation: Any) -> Callable[[bytes], Any]:
    named = _without_names(annotation)
    if named is bytes:
        return bytes
    if named is str:
        return _text
    validate = _validator(annotation)
    plain = get_args(named)[0] if get_origin(named) is Annotated else named
    if plain is str or _is_text_choice(plain):
        return _from_text(validate, may_be_json=plain is not str)
    return _or_text(validate) if _may_be_text(plain) else validate


def _without_names(annotation: Any) -> Any:
    while isinstance(annotation, NewType):
        annotation = annotation.__supertype__
    return annotation


# Text, which is sent as it is


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as e:
        raise PayloadError(f"not UTF-8: {e}") from e


def _from_text(validate: Callable[[bytes], Any], *, may_be_json: bool) -> Callable[[bytes], Any]:
    """Such an Enum is sent as its text, but others may send it as JSON, as they do everything else."""

    def decode(data: bytes) -> Any:
        text = _text(data)
        return validate(data if may_be_json and text.startswith('"') else json.dumps(text).encode())

    return decode


def _or_text(validate: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Where text is one of several things, it is sent as it is, and the others as JSON."""

    def decode(data: bytes) -> Any:
        try:
            return validate(data)
        except PayloadError as first:
            as_text = json.dumps(_text(data)).encode()
            try:
                return validate(as_text)
            except PayloadError as second:
                raise (second if first.__class__ is _NoJsonError else first) from None

    return decode


def _may_be_text(annotation: Any) -> bool:
    if get_origin(annotation) in (Union, types.UnionType):
        return any(map(_may_be_text, get_args(annotation)))
    if get_origin(annotation) is Literal:
        return any(isinstance(value, str) for value in get_args(annotation))
    return _without_names(annotation) is str or _is_text_choice(annotation)


def _is_text_choice(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, str) and issubclass(annotation, Enum)


# JSON


class _NoJsonError(PayloadError):
    """Text, perhaps."""


def _validator(annotation: Any) -> Callable[[bytes], Any]:
    adapter = _adapter(annotation)
    from pydantic import ValidationError

    # A model says itself how strict it is. Elsewhere a number is a number, and text is text.
    strict = None if _is_model(annotation) else True
    validate_json = adapter.validate_json

    def validate(data: bytes) -> Any:
        try:
            return validate_json(data, strict=strict)
        except ValidationError as e:
            raise _payload_error(e) from e

    return validate


def _adapter(annotation: Any) -> TypeAdapter[Any]:
    """AnnotationError if there is none."""
    try:
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
    except ImportError as e:
        raise AnnotationError(
            f"a payload of the type {_name(annotation)} needs pydantic: pip install 'ottla[app]'."
            " Only bytes and str can do without"
        ) from e
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(with_typed_dicts(annotation))
        schema = adapter.json_schema()
    except PydanticUndefinedAnnotation as e:
        raise AnnotationError(f"{_name(annotation)} uses {e.name}, which its module does not have") from e
    except PydanticUserError as e:
        reason = e.message.split("\n", 1)[0]
        raise AnnotationError(f"nothing can be made for {_name(annotation)}: {reason}") from e
    if not _is_model(annotation) and _holds_bytes(schema):
        raise AnnotationError("bytes can be all of a payload (also `bytes | None`), but JSON has none")
    return adapter


def _holds_bytes(schema: Any) -> bool:
    if isinstance(schema, dict):
        return schema.get("format") == "binary" or any(map(_holds_bytes, schema.values()))
    return isinstance(schema, list) and any(map(_holds_bytes, schema))


def _payload_error(error: ValidationError) -> PayloadError:
    problems = error.errors(include_url=False, include_context=False)
    if problems[0]["type"] == "json_invalid":
        return _NoJsonError(f"not JSON: {problems[0]['msg'].removeprefix('Invalid JSON: ')}")
    told = [
        _problem(problem["type"], problem["loc"], problem["msg"], problem["input"])
        for problem in problems[:_PROBLEMS_MAX]
    ]
    if len(problems) > _PROBLEMS_MAX:
        told.append(f"and {len(problems) - _PROBLEMS_MAX} more")
    return PayloadError("; ".join(told))


def _problem(kind: str, location: tuple[int | str, ...], message: str, found: Any) -> str:
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).removeprefix(".")
    if kind == "missing":
        return f"{place} is missing"
    if kind == "dataclass_type":
        message = "Input should be an object"
    instead = f", but is {_KINDS.get(found.__class__, 'a number')}" if kind.endswith("_type") else ""
    if message.startswith("Input should "):
        return f"{place or 'the payload'} {message.removeprefix('Input ')}{instead}"
    return f"{place or 'the payload'}: {message}{instead}"


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and hasattr(annotation, "model_validate_json")


def _name(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)


# The other way


def encode(value: Any) -> bytes | None:
    """Bytes as they are, text in UTF-8, None as null, everything else as JSON.

    Models are written with their aliases, for that is how they are read.
    """
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    if _is_model(type(value)):
        text: str = value.model_dump_json(by_alias=True)
        return text.encode()
    return _JSON.serialize("", value)


def _plain(value: Any) -> Any:
    """What JSON does not know, in terms of what it knows."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if _is_model(type(value)):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return _duration(value)
    if isinstance(value, (UUID, Decimal)):
        return str(value)
    if isinstance(value, (set, frozenset)):
        return list(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _duration(value: timedelta) -> str:
    """As ISO 8601 writes it."""
    length = abs(value)
    sign = "-" if value < timedelta() else ""
    return f"{sign}P{length.days}DT{length.seconds}.{length.microseconds:06d}S"


_JSON = JsonSerde(default=_plain)
