"""Arrow batches as the text of INSERT … VALUES: built in Arrow's own code, no row becomes a Python object. Pure.

LOAD DATA LOCAL would cost the server about a fifth less, but many servers switch it off, and a client that allows it
lets the server ask for any of its files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.spark.connect.database import DatabaseError

STATEMENT_BYTES = 512 * 1024
"""About so much goes into one statement. A server takes `max_allowed_packet`, which is seldom below one megabyte."""

_TEXT = pa.large_string()
_EMPTY, _COMMA, _QUOTE, _OPEN, _CLOSE, _NULL = (pa.scalar(text, _TEXT) for text in ("", ",", "'", "(", ")", "NULL"))


class Values(NamedTuple):
    text: bytes
    row_count: int


def values_of(
    columns: Sequence[pa.Array], names: Sequence[str], *, statement_bytes: int = STATEMENT_BYTES
) -> Iterator[Values]:
    """The rows in their order, as `(…),(…)`: pieces of about `statement_bytes`, or of one row that is larger."""
    literals = [_literals(column, name) for column, name in zip(columns, names, strict=True)]
    rows = pc.binary_join_element_wise(_OPEN, pc.binary_join_element_wise(*literals, _COMMA), _CLOSE, _EMPTY)
    if not len(rows):
        return
    # A new piece begins with each row in which the running length passes another multiple of the limit.
    ends = np.cumsum(pc.binary_length(rows).to_numpy(zero_copy_only=False) + 1)
    starts = np.flatnonzero(np.diff(ends // statement_bytes, prepend=-1))
    bounds = np.append(starts, len(rows))
    pieces = pc.binary_join(pa.LargeListArray.from_arrays(pa.array(bounds, pa.int64()), rows), _COMMA)
    for piece, row_count in zip(pieces, np.diff(bounds), strict=True):
        yield Values(piece.as_buffer().to_pybytes(), int(row_count))


def _literals(column: pa.Array, name: str) -> pa.Array:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        escaped = pc.replace_substring(pc.replace_substring(column, "\\", "\\\\"), "'", "''")
        text = _quoted(escaped)
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        text = pa.array([None if value is None else f"x'{value.hex()}'" for value in column.to_pylist()], _TEXT)
    elif pa.types.is_timestamp(kind):
        # Without a zone the text is that of UTC, in which Arrow keeps the time.
        text = _quoted(pc.cast(column, pa.timestamp("us")))
    elif pa.types.is_boolean(kind):
        text = pc.cast(pc.cast(column, pa.int8()), _TEXT)
    elif pa.types.is_floating(kind):
        text = _finite(column, name)
    elif pa.types.is_integer(kind):
        text = pc.cast(column, _TEXT)
    else:
        text = _quoted(column)
    return pc.fill_null(text, _NULL)


def _quoted(column: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(_QUOTE, pc.cast(column, _TEXT), _QUOTE, _EMPTY)


def _finite(column: pa.Array, name: str) -> pa.Array:
    if not pc.all(pc.is_finite(column), min_count=0).as_py():
        raise DatabaseError(
            f"column {name!r} holds NaN or an infinite number, and MySQL has neither: turn them into NULL with "
            f"if(isnan({name}), NULL, {name})"
        )
    return pc.cast(column, _TEXT)
