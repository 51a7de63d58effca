"""Statements about staging tables of PostgreSQL, where a batch's rows arrive before they are taken over. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from ottla.spark.connect.database import conflict_clause, quoted_list, quoted_table

PART, ATTEMPT, ROW = "ottla_part", "ottla_attempt", "ottla_row"
MARKS = (PART, ATTEMPT, ROW)
"""Which task wrote the row, in which attempt, and where in the task's rows it stood."""


def staging_prefix(sink: str) -> str:
    """PostgreSQL cuts names at 63 bytes, so a sink's name of any length becomes a digest."""
    return f"ottla_staging_{hashlib.sha256(sink.encode()).hexdigest()[:16]}_"


def empty_copy(table: str, names: Sequence[str]) -> str:
    """A query with the columns' own types and the marks, and no rows: for CREATE TABLE … AS."""
    return (
        f"SELECT {quoted_list(names)}, 0 AS {PART}, 0::bigint AS {ATTEMPT}, 0::bigint AS {ROW} "
        f"FROM {quoted_table(table)} WITH NO DATA"
    )


def take_over(
    staging: str, table: str, names: Sequence[str], keys: Sequence[str], attempts: Iterable[tuple[int, int]]
) -> str:
    """The rows of these attempts (part, attempt) into the real table; with keys, the last row of each key replaces the
    one there. Attempts are chosen by the same statement that reads: others may commit rows at any moment."""
    listed = quoted_list(names)
    chosen = ", ".join(f"({part:d}, {attempt:d})" for part, attempt in attempts)
    rows = f"FROM {quoted_table(staging)} WHERE ({PART}, {ATTEMPT}) IN ({chosen})"
    insert = f"INSERT INTO {quoted_table(table)} ({listed})"
    if not keys:
        return f"{insert} SELECT {listed} {rows}"
    return (
        f"{insert} SELECT DISTINCT ON ({quoted_list(keys)}) {listed} {rows} "
        f"ORDER BY {quoted_list(keys)}, {PART} DESC, {ROW} DESC {conflict_clause(names, keys)}"
    )
