"""The columns a record has, by name and type: those of Spark's Kafka source, so that Spark needs no conversion but one.

The one is the timestamp: Kafka keeps milliseconds and so does the column, Spark wants microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

HEADERS_TYPE: Final = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), ("value", pa.binary())])))
"""A record without headers has null here, not an empty list."""

_TYPES: Final[dict[str, Any]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("ms", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS_TYPE,
}

COLUMN_NAMES: Final = tuple(_TYPES)
"""Every column there is, in the order in which they come."""

PLAIN_COLUMNS: Final = ("key", "value", "offset", "timestamp", "timestampType")
"""What is decoded unless something else is asked for."""


def columns_schema(columns: Iterable[str]) -> Any:
    """The Arrow schema of the asked columns, always in the order of `COLUMN_NAMES`."""
    return _schema_of(frozenset(columns))


@lru_cache(maxsize=64)
def _schema_of(asked: frozenset[str]) -> Any:
    unknown = sorted(asked - _TYPES.keys())
    if unknown:
        raise ValueError(f"records have no column {unknown[0]!r}; known: {', '.join(COLUMN_NAMES)}")
    return pa.schema([(name, kind) for name, kind in _TYPES.items() if name in asked])
