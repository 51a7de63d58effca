"""Staging tables of PostgreSQL: tasks fill them by COPY."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import psycopg
import pyarrow as pa

from ottla.spark.connect.copy_rows import copy_batches
from ottla.spark.connect.postgresql import connect, empty_copy
from ottla.spark.connect.sql import STANDARD

_LOCK_TIMEOUT_MS = 5000


class PostgresStagingTables:
    dialect = STANDARD

    def __init__(self, url: str) -> None:
        self._url = url

    def named(self, prefix: str) -> list[str]:
        with connect(self._url, autocommit=True) as connection:
            found = connection.execute(
                "SELECT relname FROM pg_class WHERE relkind = 'r' AND relpersistence = 'u' "
                "AND starts_with(relname, %s) AND pg_table_is_visible(oid)",
                (prefix,),
            ).fetchall()
        return [str(name) for (name,) in found]

    def create(self, staging: str, table: str, names: Sequence[str]) -> None:
        with connect(self._url, autocommit=True) as connection:
            # Not logged: if the server loses its rows they are missed, and the batch is written again.
            columns = empty_copy(table, names)
            connection.execute(f"CREATE UNLOGGED TABLE {STANDARD.quoted_table(staging)} AS {columns}")

    def write(
        self, staging: str, names: Sequence[str], batches: Iterable[pa.RecordBatch], *, part: int, attempt: int
    ) -> int:
        with connect(self._url) as connection:
            return copy_batches(connection, staging, names, batches, part=part, attempt=attempt)

    def drop(self, staging: str) -> bool:
        with connect(self._url, autocommit=True) as connection:
            connection.execute(f"SET lock_timeout = '{_LOCK_TIMEOUT_MS}ms'")
            try:
                connection.execute(f"DROP TABLE IF EXISTS {STANDARD.quoted_table(staging)}")
            except psycopg.errors.LockNotAvailable:
                return False
        return True
