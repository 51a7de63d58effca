"""A table somebody wants to send, brought into the one form that the encoder knows."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.base.errors import InvalidRecordError
from ottla.records.arrays.varint import Int64s, VarintColumn
from ottla.records.batch import NO_TIMESTAMP
from ottla.records.columns.schema import COLUMN_NAMES, HEADERS_TYPE
from ottla.records.columns.varint import binary_array, join_varints

NO_HEADERS: Final = pa.scalar(b"\x00", pa.binary())
_NOTHING: Final = pa.scalar(b"", pa.binary())
_SENT: Final = ("key", "value", "timestamp", "headers")


class RecordColumns:
    """Columns that can be encoded: nulls replaced by nothing, with lengths of -1 that remember them.

    `keys` and `values` are None if all of theirs are null; `headers` are encoded already, None if no row has any.
    `payload_sizes` is what keys, values and headers take together.
    """

    def __init__(
        self, keys: Any, values: Any, headers: Any, key_lengths: Int64s, value_lengths: Int64s, timestamps: Int64s
    ) -> None:
        self.keys = keys
        self.values = values
        self.headers = headers
        self.key_lengths = key_lengths
        self.value_lengths = value_lengths
        self.timestamps = timestamps

    @cached_property
    def payload_sizes(self) -> Int64s:
        header_sizes = np.int64(1) if self.headers is None else _lengths(self.headers)
        return np.maximum(self.key_lengths, 0) + np.maximum(self.value_lengths, 0) + header_sizes

    @classmethod
    def of(cls, table: Any, default_timestamp_ms: int) -> RecordColumns:
        """Raises ValueError on columns that cannot be sent, InvalidRecordError on rows that cannot."""
        names = table.schema.names
        unknown = [name for name in names if name not in COLUMN_NAMES]
        if unknown:
            raise ValueError(f"records have no column {unknown[0]!r}; those that are sent: {', '.join(_SENT)}")
        repeated = [name for name in _SENT if names.count(name) > 1]
        if repeated or "value" not in names:
            raise ValueError(f"there are two columns {repeated[0]!r}" if repeated else "there is no column 'value'")
        count = table.num_rows
        keys, key_lengths = _binary(_column(table, "key"), "key", count)
        values, value_lengths = _binary(_column(table, "value"), "value", count)
        timestamps = _timestamps(_column(table, "timestamp"), count, default_timestamp_ms)
        headers = _encode_headers(_column(table, "headers"))
        return cls(keys, values, headers, key_lengths, value_lengths, timestamps)

    def __len__(self) -> int:
        return len(self.timestamps)

    def slice(self, first: int, last: int) -> RecordColumns:
        if first == 0 and last == len(self):
            return self
        keys, values, headers = (
            None if column is None else column.slice(first, last - first)
            for column in (self.keys, self.values, self.headers)
        )
        rows = np.s_[first:last]
        return RecordColumns(
            keys, values, headers, self.key_lengths[rows], self.value_lengths[rows], self.timestamps[rows]
        )


def _column(table: Any, name: str) -> Any:
    """The column as one Arrow array, or None if there is none."""
    if name not in table.schema.names:
        return None
    column = table.column(name)
    if isinstance(column, pa.ChunkedArray):
        # Putting together what is in one piece would copy it.
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        raise ValueError(f"the column {name!r} is larger than 2 GiB: send the table in parts")
    return column


def _binary(column: Any, name: str, count: int) -> tuple[Any, Int64s]:
    if column is None or column.null_count == count:
        return None, np.full(count, -1, np.int64)
    try:
        column = column.cast(pa.binary())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        raise ValueError(f"the column {name!r} is {column.type}, not bytes or text") from e
    lengths = _lengths(column)
    return (column.fill_null(b"") if column.null_count else column), lengths


def _lengths(column: Any) -> Int64s:
    lengths = pc.binary_length(column)
    if lengths.null_count:
        lengths = lengths.fill_null(-1)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)


def _timestamps(column: Any, count: int, default_ms: int) -> Int64s:
    if column is None:
        return np.full(count, default_ms, np.int64)
    try:
        if pa.types.is_timestamp(column.type):
            # Finer units are cut to milliseconds; seconds may be too many of them.
            column = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=column.type.unit == "s")
        elif not pa.types.is_integer(column.type):
            raise ValueError(f"the column 'timestamp' is {column.type}, neither a timestamp nor milliseconds")
        column = column.cast(pa.int64())
    except pa.ArrowInvalid as e:
        raise ValueError("the column 'timestamp' has values that do not fit 64 bits of milliseconds") from e
    timestamps = np.asarray(column.fill_null(default_ms).to_numpy(zero_copy_only=False), np.int64)
    if count and int(timestamps.min()) < NO_TIMESTAMP:
        row = int(timestamps.argmin())
        raise InvalidRecordError(
            f"row {row} has the timestamp {timestamps[row]}, before 1970",
            record_errors=[(row, "the timestamp is negative")],
        )
    return timestamps


def _encode_headers(column: Any) -> Any:
    """For each row its headers as they stand in a record, their count first; None if no row has any."""
    if column is None or column.null_count == len(column):
        return None
    try:
        column = column.cast(HEADERS_TYPE)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        raise ValueError(f"the column 'headers' is {column.type}, not a list of (key, value)") from e
    counts = np.asarray(column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False), np.int64)
    if not counts.any():
        return None
    entries = column.flatten()
    keys, values = entries.flatten()
    if entries.null_count or keys.null_count:
        raise InvalidRecordError("a header has no key: it needs one, its value alone may be null")
    key_part = join_varints([VarintColumn(_lengths(keys.cast(pa.binary())))])
    value_part = join_varints([VarintColumn(_lengths(values))])
    encoded = pc.binary_join_element_wise(key_part, keys.cast(pa.binary()), value_part, values.fill_null(b""), _NOTHING)
    _, offsets_buffer, data = encoded.buffers()
    ends = np.frombuffer(offsets_buffer, np.int32)[encoded.offset : encoded.offset + len(encoded) + 1]
    rows = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=rows[1:])
    # The headers of one row lie next to each other, so a row's are the slice from its first to its last.
    together = binary_array(ends[rows], data)
    return pc.binary_join_element_wise(join_varints([VarintColumn(counts)]), together, _NOTHING)
