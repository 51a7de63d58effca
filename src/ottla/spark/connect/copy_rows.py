"""Arrow batches into PostgreSQL by COPY: columns become CSV in Arrow's own code, no row becomes a Python object."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import psycopg
import pyarrow as pa
from pyarrow import csv

from ottla.spark.connect.sql import STANDARD
from ottla.spark.connect.staging_sql import MARKS, marked

# Valid values are quoted and NULL is not: so an empty text stays apart from no text, as COPY reads them.
_OPTIONS = csv.WriteOptions(include_header=False, quoting_style="all_valid")


def copy_batches(
    connection: psycopg.Connection[tuple[object, ...]],
    table: str,
    names: Sequence[str],
    batches: Iterable[pa.RecordBatch],
    *,
    part: int | None = None,
    attempt: int = 0,
) -> int:
    """Returns how many rows were copied. With `part` the rows get a staging table's three marks."""
    marks = () if part is None else MARKS
    target = f"{STANDARD.quoted_table(table)} ({STANDARD.quoted_list([*names, *marks])})"
    count = 0
    with connection.cursor() as cursor, cursor.copy(f"COPY {target} FROM STDIN (FORMAT csv)".encode()) as copy:
        for batch in batches:
            columns = [_copied(column) for column in batch.columns]
            if part is not None:
                columns += marked(batch.num_rows, part=part, attempt=attempt, first_row=count)
            out = pa.BufferOutputStream()
            csv.write_csv(pa.record_batch(columns, names=[*names, *marks]), out, _OPTIONS)
            copy.write(out.getvalue())
            count += batch.num_rows
    return count


def _copied(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.array([None if value is None else f"\\x{value.hex()}" for value in column.to_pylist()], pa.string())
    return column
