"""Record batches as columns: Arrow tables into batches, and fetched batches into Arrow, whole and never row by row.

This is the door: `encode` and `decode` do the work. It needs numpy and pyarrow, which nothing else in
this room does; whoever has no use for columns never imports it.
"""

from __future__ import annotations

try:
    import numpy  # noqa: F401
    import pyarrow  # noqa: F401
except ImportError as e:
    raise ImportError(
        f"columns need numpy and pyarrow, and {e.name} is missing: pip install 'ottla[columns]'", name=e.name
    ) from e

from ottla.base.memory import keep_freed_memory
from ottla.records.columns.decode import DecodedColumns, decode_columns
from ottla.records.columns.encode import EncodedBatch, encode_columns
from ottla.records.columns.schema import COLUMN_NAMES, HEADERS_TYPE, columns_schema

__all__ = [
    "COLUMN_NAMES",
    "HEADERS_TYPE",
    "DecodedColumns",
    "EncodedBatch",
    "columns_schema",
    "decode_columns",
    "encode_columns",
]

keep_freed_memory()
