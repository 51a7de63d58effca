"""TypedDicts of `typing` in a form that pydantic takes: before Python 3.12 it wants those of `typing_extensions`.

Those within generic types and within each other are found; one that is a field of a dataclass is not, and pydantic's
error says what to import instead.
"""

from __future__ import annotations

import functools
import operator
import sys
import types
from typing import Annotated, Any, NotRequired, Required, Union, get_args, get_origin, get_type_hints, is_typeddict


def with_typed_dicts(annotation: Any) -> Any:
    if sys.version_info >= (3, 12):
        return annotation
    if is_typeddict(annotation):
        return _rebuilt(annotation) if type(annotation).__module__ == "typing" else annotation
    origin, arguments = get_origin(annotation), get_args(annotation)
    changed = tuple(with_typed_dicts(argument) for argument in arguments)
    if all(new is old for new, old in zip(changed, arguments, strict=True)):
        return annotation
    if origin is Annotated:
        return Annotated[(changed[0], *annotation.__metadata__)]
    if origin in (Union, types.UnionType):
        return functools.reduce(operator.or_, changed)
    return origin[changed]


def _rebuilt(annotation: Any) -> Any:
    import typing_extensions

    fields: dict[str, Any] = {}
    for name, hint in get_type_hints(annotation, include_extras=True).items():
        mark = get_origin(hint)
        # With postponed annotations a TypedDict does not know itself which of its keys are marked.
        is_required = mark is Required or (name in annotation.__required_keys__ and mark is not NotRequired)
        kind = with_typed_dicts(get_args(hint)[0] if mark in (Required, NotRequired) else hint)
        fields[name] = Required[kind] if is_required else NotRequired[kind]
    return typing_extensions.TypedDict(annotation.__name__, fields)  # type: ignore[operator]
