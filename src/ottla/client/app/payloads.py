"""What a listener's annotation makes of the bytes of a record, and what the sender makes of an object.

`bytes` and `str`, also as an Enum, are taken as they are; everything else is JSON. An annotation that nothing can be
made for is found when the listener is bound, a payload that does not fit it when it is read: the error names the place
in the payload. Pydantic's models are recognised by their methods, so that nothing here needs pydantic.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import (
    Any,
    Literal,
    NotRequired,
    Required,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)
from uuid import UUID

from ottla.client.serdes import JsonSerde

Decoder: TypeAlias = Callable[[bytes | None], Any]
Shape: TypeAlias = Callable[[Any, str], Any]
"""Turns a value read from JSON into the annotated type; the text is the place, for errors."""


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
    if annotation is bytes:
        return bytes
    if annotation is str:
        return _text
    if _is_model(annotation):
        validate: Callable[[bytes], Any] = annotation.model_validate_json
        return validate
    if _is_text_choice(annotation):
        return _text_choice(annotation)
    shape = _Shapes().of(annotation)

    def decode(data: bytes) -> Any:
        try:
            value = json.loads(data)
        except ValueError as e:
            raise PayloadError(f"not JSON: {e}") from e
        return shape(value, "")

    return _or_text(shape) if _may_be_text(annotation) else decode


def _or_text(shape: Shape) -> Callable[[bytes], Any]:
    """Where text is one of several things, it is sent as it is, and the others as JSON."""

    def decode(data: bytes) -> Any:
        try:
            value = json.loads(data)
        except ValueError:
            return shape(_text(data), "")
        try:
            return shape(value, "")
        except ValueError:
            with suppress(ValueError):
                return shape(_text(data), "")
            raise

    return decode


def _may_be_text(annotation: Any) -> bool:
    if get_origin(annotation) in (Union, types.UnionType):
        return any(map(_may_be_text, get_args(annotation)))
    if get_origin(annotation) is Literal:
        return any(isinstance(value, str) for value in get_args(annotation))
    return annotation is str or _is_text_choice(annotation)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as e:
        raise PayloadError(f"not UTF-8: {e}") from e


def _is_text_choice(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, str) and issubclass(annotation, Enum)


def _text_choice(annotation: Any) -> Callable[[bytes], Any]:
    """Such an Enum is sent as its text, but others may send it as JSON, as they do everything else."""
    choose = _Shapes().of(annotation)

    def decode(data: bytes) -> Any:
        text = _text(data)
        return choose(json.loads(text) if text.startswith('"') else text, "")

    return decode


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and hasattr(annotation, "model_validate_json")


_SCALARS: dict[type, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "text"),
    dict: ((dict,), "an object"),
    list: ((list,), "a list"),
    type(None): ((type(None),), "null"),
}
_TEXTUAL: dict[type, Callable[[str], Any]] = {
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    UUID: UUID,
    Decimal: Decimal,
}


class _Shapes:
    """One for each annotation of a listener: a class that contains itself is met again while it is being looked at."""

    def __init__(self) -> None:
        self._objects: dict[Any, _ObjectShape] = {}

    def of(self, annotation: Any) -> Shape:
        if annotation is Any or annotation is object:
            return lambda value, place: value
        annotation = type(None) if annotation is None else annotation
        if get_origin(annotation) is not None:
            return self._of_generic(annotation, get_origin(annotation), get_args(annotation))
        if annotation is bytes:
            raise AnnotationError("bytes can be all of a payload (also `bytes | None`), but JSON has none")
        if annotation in _SCALARS:
            return _scalar(annotation)
        if annotation in _TEXTUAL:
            return _textual(annotation)
        if dataclasses.is_dataclass(annotation) or is_typeddict(annotation):
            return self._of_object(annotation)
        if _is_model(annotation):
            return lambda value, place: annotation.model_validate(value)
        if isinstance(annotation, type) and issubclass(annotation, Enum):
            return _choice(annotation, [member.value for member in annotation], annotation)
        raise AnnotationError(
            f"nothing is known about {_name(annotation)}; use bytes, str, a type of JSON, a dataclass or a pydantic"
            " model"
        )

    def _of_generic(self, annotation: Any, origin: Any, arguments: tuple[Any, ...]) -> Shape:
        if origin in (Union, types.UnionType):
            return _union(annotation, [self.of(argument) for argument in arguments])
        if origin is Literal:
            return _choice(annotation, list(arguments), lambda value: value)
        if origin in (list, set, frozenset):
            return _sequence(origin, self.of(arguments[0]))
        if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
            return _sequence(tuple, self.of(arguments[0]))
        if origin is dict and arguments[0] is str:
            return _mapping(self.of(arguments[1]))
        raise AnnotationError(f"nothing is known about {_name(annotation)}")

    def _of_object(self, annotation: Any) -> Shape:
        if annotation not in self._objects:
            made = self._objects[annotation] = _ObjectShape(annotation)
            hints = get_type_hints(annotation)
            made.fields = {name: self.of(hints[name]) for name in made.names}
        return self._objects[annotation]


class _ObjectShape:
    """A dataclass or TypedDict from an object of JSON. Names it does not know are passed over."""

    def __init__(self, annotation: Any) -> None:
        self._annotation = annotation
        self.fields: dict[str, Shape] = {}
        if dataclasses.is_dataclass(annotation):
            known = [field for field in dataclasses.fields(annotation) if field.init]
            self.names = [field.name for field in known]
            missing = dataclasses.MISSING
            self._required = {
                field.name for field in known if field.default is missing and field.default_factory is missing
            }
        else:
            # With postponed annotations a TypedDict does not know itself which of its keys are marked.
            marks = {name: get_origin(hint) for name, hint in get_type_hints(annotation, include_extras=True).items()}
            self.names = list(marks)
            self._required = {
                name
                for name, mark in marks.items()
                if mark is Required or (name in annotation.__required_keys__ and mark is not NotRequired)
            }

    def __call__(self, value: Any, place: str) -> Any:
        if not isinstance(value, dict):
            raise _misfit("an object", value, place)
        for name in self.names:
            if name in self._required and name not in value:
                raise PayloadError(f"{_at(place, name)} is missing")
        return self._annotation(
            **{name: shape(value[name], _at(place, name)) for name, shape in self.fields.items() if name in value}
        )


def _scalar(kind: type) -> Shape:
    accepted, what = _SCALARS[kind]

    def check(value: Any, place: str) -> Any:
        # A bool is an int to Python, but not to JSON.
        if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
            raise _misfit(what, value, place)
        return float(value) if kind is float and isinstance(value, int) else value

    return check


def _textual(kind: type) -> Shape:
    def convert(value: Any, place: str) -> Any:
        if not isinstance(value, str):
            raise _misfit(f"text ({kind.__name__})", value, place)
        try:
            return _TEXTUAL[kind](value)
        except (ValueError, ArithmeticError) as e:
            raise PayloadError(f"{place or 'the payload'} is no {kind.__name__}: {value!r}") from e

    return convert


def _choice(annotation: Any, allowed: list[Any], convert: Callable[[Any], Any]) -> Shape:
    def choose(value: Any, place: str) -> Any:
        if value not in allowed:
            raise PayloadError(f"{place or 'the payload'} must be one of {allowed}, but is {value!r}")
        return convert(value)

    return choose


def _union(annotation: Any, shapes: list[Shape]) -> Shape:
    def first_that_fits(value: Any, place: str) -> Any:
        problems = []
        for shape in shapes:
            try:
                return shape(value, place)
            except ValueError as e:
                problems.append(str(e))
        raise PayloadError("; or ".join(problems))

    return first_that_fits


def _sequence(kind: Callable[[Any], Any], item: Shape) -> Shape:
    def convert(value: Any, place: str) -> Any:
        if not isinstance(value, list):
            raise _misfit("a list", value, place)
        return kind([item(entry, f"{place}[{number}]") for number, entry in enumerate(value)])

    return convert


def _mapping(item: Shape) -> Shape:
    def convert(value: Any, place: str) -> Any:
        if not isinstance(value, dict):
            raise _misfit("an object", value, place)
        return {name: item(entry, _at(place, name)) for name, entry in value.items()}

    return convert


def _misfit(what: str, value: Any, place: str) -> PayloadError:
    names = {dict: "an object", list: "a list", str: "text", type(None): "null", bool: "true or false"}
    return PayloadError(f"{place or 'the payload'} must be {what}, but is {names.get(type(value), 'a number')}")


def _at(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


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
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, (UUID, Decimal)):
        return str(value)
    if isinstance(value, (set, frozenset)):
        return list(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


_JSON = JsonSerde(default=_plain)
