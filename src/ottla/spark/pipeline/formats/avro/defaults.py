"""The defaults of a schema's fields, which are JSON, as Arrow values."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from ottla.spark.pipeline.formats.avro.spark_types import branch_names
from ottla.spark.pipeline.formats.avro.types import (
    NOTHING,
    Array,
    AvroSchemaError,
    AvroType,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
    is_null,
)

_MICROS_PER_UNIT = {"timestamp-millis": 1000, "local-timestamp-millis": 1000}
_EXACT = Context(prec=76)
"""What a context has by default is less than the digits of a decimal."""
_NANOS_PER_UNIT = {"time-millis": 1_000_000, "time-micros": 1000}


def default_array(default: Any, kind: AvroType, type_: Any, where: str) -> Any:
    """The default as an array of one row."""
    try:
        return pa.array([_value(default, kind)], type_)
    except (pa.ArrowException, TypeError, ValueError, AttributeError, OverflowError, KeyError):
        raise AvroSchemaError(f"{where}: its default {default!r} is not of its type") from None


def _value(default: Any, kind: AvroType) -> Any:
    match kind:
        case Union():
            return _of_union(default, kind)
        case Primitive(logical="decimal") | Fixed(logical="decimal"):
            digits = int.from_bytes(default.encode("latin-1"), "big", signed=True)
            return Decimal(digits).scaleb(-kind.scale, _EXACT)
        case Primitive(kind="bytes") | Fixed():
            return default.encode("latin-1")
        case Primitive(logical=str(logical)) if isinstance(default, int):
            if logical.endswith("nanos"):
                return default // 1000
            return default * _MICROS_PER_UNIT.get(logical, _NANOS_PER_UNIT.get(logical, 1))
        case Enum() if default not in kind.symbols:
            raise ValueError(default)
        case Array():
            return [_value(item, kind.items) for item in default]
        case Map():
            return [(key, _value(item, kind.values)) for key, item in default.items()]
        case Record():
            return {field.name: _value(default.get(field.name, field.default), field.type) for field in kind.fields}
    if default is NOTHING:
        raise KeyError
    return default


def _of_union(default: Any, kind: Union) -> Any:
    # The specification wants a default of the first branch; what is null can only be the branch null.
    branch = kind.branches[0]
    if default is None:
        if not kind.is_nullable:
            raise ValueError(default)
        return None
    if is_null(branch):
        branch = kind.others[0]
    value = _value(default, branch)
    if len(kind.others) == 1:
        return value
    return {branch_names(kind)[kind.others.index(branch)]: value}
