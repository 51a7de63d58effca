"""Statements about staging tables, where a batch's rows arrive before they are taken over. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import pyarrow as pa

from ottla.spark.connect.sql import Dialect

PART, ATTEMPT, ROW = "ottla_part", "ottla_attempt", "ottla_row"
MARKS = (PART, ATTEMPT, ROW)
"""Which task wrote the row, in which attempt, and where in the task's rows it stood."""


def staging_prefix(sink: str) -> str:
    """Databases cut names at 63 bytes or so, so a sink's name of any length becomes a digest."""
    return f"ottla_staging_{hashlib.sha256(sink.encode()).hexdigest()[:16]}_"


def marked(row_count: int, *, part: int, attempt: int, first_row: int) -> list[pa.Array]:
    """The columns of the marks, for so many rows of an attempt."""
    return [
        pa.repeat(pa.scalar(part, pa.int32()), row_count),
        pa.repeat(pa.scalar(attempt, pa.int64()), row_count),
        pa.array(range(first_row, first_row + row_count), pa.int64()),
    ]


def rows_of(staging: str, attempts: Iterable[tuple[int, int]], dialect: Dialect) -> str:
    """FROM and WHERE for the rows of these attempts (part, attempt)."""
    chosen = ", ".join(f"({part:d}, {attempt:d})" for part, attempt in attempts)
    return f"FROM {dialect.quoted_table(staging)} WHERE ({PART}, {ATTEMPT}) IN ({chosen})"


def take_over(
    staging: str,
    table: str,
    names: Sequence[str],
    keys: Sequence[str],
    attempts: Iterable[tuple[int, int]],
    dialect: Dialect,
) -> str:
    """The rows of these attempts into the real table; with keys, the last row of each key replaces the one there.
    Attempts are chosen by the same statement that reads: others may commit rows at any moment."""
    listed = dialect.quoted_list(names)
    rows = rows_of(staging, attempts, dialect)
    insert = dialect.insert_into(table, names)
    if not keys:
        return f"{insert} SELECT {listed} {rows}"
    conflict = dialect.conflict_clause(names, keys)
    if dialect.takes_a_key_twice:
        return f"{insert} SELECT {listed} {rows} ORDER BY {PART}, {ROW} {conflict}"
    by_key = dialect.quoted_list(keys)
    return (
        f"{insert} SELECT DISTINCT ON ({by_key}) {listed} {rows} ORDER BY {by_key}, {PART} DESC, {ROW} DESC {conflict}"
    )
