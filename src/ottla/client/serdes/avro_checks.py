"""Whether a value is plainly of an Avro schema, for what fastavro would write without a complaint and change.

It stores 1.9 and True as the int 1, 2**40 as an int of six bytes, "no" as the boolean true, 1e300 as an infinite float,
and a text as an array of letters. To validate every value costs several times what writing does, so this only looks at
such fields, and only for the ordinary case: what is not certain here is for fastavro's validation to decide. That knows
no range of floats, so whoever has written a large number looks for `infinities`. The writer itself looks at texts,
bytes, enums and unions.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

IsPlain: TypeAlias = Callable[[Any], bool]

_RANGES = {"int": (-(2**31), 2**31 - 1), "long": (-(2**63), 2**63 - 1)}
_CLASSES = {"double": float, "boolean": bool, "null": type(None)}
_FLOAT_END = float.fromhex("0x1.ffffffp127")
"""From here on a number becomes infinite as a float of four bytes."""
_CONVERTED: dict[str, tuple[type, ...]] = {
    "date": (datetime.date, datetime.datetime),
    "time-millis": (datetime.time,),
    "time-micros": (datetime.time,),
    "timestamp-millis": (datetime.datetime,),
    "timestamp-micros": (datetime.datetime,),
    "local-timestamp-millis": (datetime.datetime,),
    "local-timestamp-micros": (datetime.datetime,),
}
"""What the writer turns into an int or a long of the logical type."""


def plain_check(parsed_schema: Any) -> IsPlain | None:
    """For a schema as fastavro parses it; None if there is nothing in it that the writer does not look at itself."""
    # A field of that name would only cost some time.
    has_floats = "'float'" in repr(parsed_schema)
    return _check_of(parsed_schema, _Schema({}, _is_plain_of_union_with_floats if has_floats else _is_plain_of_union))


class _Schema(NamedTuple):
    named: dict[str, IsPlain | None]
    check_union: IsPlain


def _is_plain_of_union(value: Any) -> bool:
    # The writer validates a value to find its place in the union, unless a tuple names that.
    return value.__class__ is not tuple


def _is_plain_of_union_with_floats(value: Any) -> bool:
    return value.__class__ is not tuple and not has_large_number(value)


def _check_of(schema: Any, whole: _Schema) -> IsPlain | None:
    if isinstance(schema, list):
        for branch in schema:
            _check_of(branch, whole)  # others may refer to it by its name
        return whole.check_union
    details: dict[str, Any] = schema if isinstance(schema, dict) else {"type": schema}
    kind = details["type"]
    match kind:
        case "int" | "long":
            return _check_of_integer(*_RANGES[kind], _CONVERTED.get(details.get("logicalType", ""), ()))
        case "float":
            return lambda value: value.__class__ is float and not _FLOAT_END <= abs(value) < math.inf
        case "double" | "boolean" | "null":
            wanted = _CLASSES[kind]
            return lambda value: value.__class__ is wanted
        case "array":
            items = details["items"]
            return _check_of_integers(*_RANGES[items]) if items in ("int", "long") else _check_of_array(items, whole)
        case "map":
            return _check_of_map(_check_of(details["values"], whole))
        case "record" | "error":
            return _check_of_record(details, whole)
    return whole.named.get(kind) if isinstance(kind, str) else _check_of(kind, whole)


def has_large_number(value: Any) -> bool:
    """Whether there is a number in it that a float would make infinite, though it is not."""
    if isinstance(value, float | int):
        return _FLOAT_END <= abs(value) < math.inf
    if isinstance(value, dict):
        return any(map(has_large_number, value.values()))
    return isinstance(value, list | tuple) and any(map(has_large_number, value))


def infinities(value: Any) -> int:
    """How many numbers in it are infinite."""
    if isinstance(value, dict):
        return sum(map(infinities, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(infinities, value))
    return int(isinstance(value, float) and math.isinf(value))


def _check_of_integer(lowest: int, highest: int, converted: tuple[type, ...]) -> IsPlain:
    def check(value: Any) -> bool:
        return lowest <= value <= highest if value.__class__ is int else value.__class__ in converted

    return check


def _check_of_integers(lowest: int, highest: int) -> IsPlain:
    """An array of them, without a call for each."""

    def check(value: Any) -> bool:
        if value.__class__ not in (list, tuple):
            return False
        return not value or (set(map(type, value)) == {int} and lowest <= min(value) and max(value) <= highest)

    return check


def _check_of_array(items: Any, whole: _Schema) -> IsPlain:
    check_item = _check_of(items, whole)

    def check(value: Any) -> bool:
        return value.__class__ in (list, tuple) and (check_item is None or all(map(check_item, value)))

    return check


def _check_of_map(check_item: IsPlain | None) -> IsPlain | None:
    if check_item is None:
        return None

    def check(value: Any) -> bool:
        return value.__class__ is dict and all(map(check_item, value.values()))

    return check


def _check_of_record(schema: dict[str, Any], whole: _Schema) -> IsPlain | None:
    integers: list[tuple[str, int, int]] = []
    others: list[tuple[str, IsPlain]] = []

    def check(value: Any) -> bool:
        if value.__class__ is not dict:
            return False
        get = value.get
        for name, lowest, highest in integers:
            # If it is not there, that is for the writer to say.
            item = get(name, lowest)
            if item.__class__ is not int or not lowest <= item <= highest:
                return False
        for name, check_item in others:
            item = get(name, value)
            if item is not value and not check_item(item):
                return False
        return True

    # A record may hold others of its own kind.
    whole.named[schema["name"]] = check
    for field in schema["fields"]:
        if field["type"] in ("int", "long"):
            integers.append((field["name"], *_RANGES[field["type"]]))
        elif (check_field := _check_of(field["type"], whole)) is not None:
            others.append((field["name"], check_field))
    if not integers and not others:
        whole.named[schema["name"]] = None
    return whole.named[schema["name"]]
