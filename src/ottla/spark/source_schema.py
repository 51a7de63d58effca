"""The columns of a source: those of Spark's own Kafka source, or those of them a query asks for with `.schema(…)`."""

from __future__ import annotations

import difflib
from typing import Any, NamedTuple

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.base.errors import InvalidConfigError

_HEADERS = "headers"
_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    _HEADERS: ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}


class SourceColumns(NamedTuple):
    """The columns of a query, in its order."""

    names: tuple[str, ...]
    arrow_schema: Any
    """A pyarrow.Schema that Spark accepts without conversion."""


def source_schema(*, include_headers: bool) -> StructType:
    return StructType([StructField(name, kind) for name, kind in _TYPES.items() if include_headers or name != _HEADERS])


def source_columns(schema: StructType) -> SourceColumns:
    """The columns Spark has settled on; InvalidConfigError if a query asks for others than there are."""
    for field in schema.fields:
        known = _TYPES.get(field.name)
        if known is None:
            close = difflib.get_close_matches(field.name.lower(), [name.lower() for name in _TYPES])
            names = {name.lower(): name for name in _TYPES}
            hint = f"did you mean {names[close[0]]}?" if close else f"there are {', '.join(_TYPES)}"
            raise InvalidConfigError("schema", f"records have no column {field.name}; {hint}")
        if field.dataType != known:
            raise InvalidConfigError(
                "schema", f"the column {field.name} is {known.simpleString()}, not {field.dataType.simpleString()}"
            )
    return SourceColumns(tuple(schema.fieldNames()), to_arrow_schema(schema, timezone="UTC"))
