"""Tables of PostgreSQL as a source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import psycopg
import pyarrow as pa
from pyspark.sql.types import StructType

from ottla.spark.connect.postgres_rows import PgColumn, fetch_batches, table_columns
from ottla.spark.connect.postgresql import Connection, connect
from ottla.spark.connect.sql import STANDARD
from ottla.spark.connect.table_window import Condition


class PostgresTableServer:
    dialect = STANDARD
    number_kinds: tuple[str, ...] = ("bigint", "integer", "smallint")
    moment_kinds: tuple[str, ...] = ("timestamp", "timestamp with time zone")

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Connection | None = None

    def columns(self, table: str) -> list[PgColumn]:
        with connect(self._url) as connection:
            return table_columns(connection, table)

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        try:
            return self._connected().execute(query.encode(), parameters).fetchall()
        except psycopg.OperationalError:
            # The server was restarted or the connection cut; a second failure is the query's.
            self._connection = None
            return self._connected().execute(query.encode(), parameters).fetchall()

    def fetch(self, query: str, parameters: Sequence[object], schema: StructType) -> Iterator[pa.RecordBatch]:
        # In a transaction: rows that stay on the server do so until its end.
        with connect(self._url) as connection:
            yield from fetch_batches(connection, query, parameters, schema)

    def is_older(self, table: str, column: str, delay_ms: int) -> Condition:
        return Condition(f"{STANDARD.quoted(column)} <= now() - %s * interval '1 millisecond'", (delay_ms,))

    def writers(self) -> int:
        """The first transaction id that nobody has yet: those of all writers by now are below."""
        ((first_unused_xid,),) = self.rows("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
        return cast(int, first_unused_xid)

    def are_done(self, writers: object) -> bool:
        ((oldest_running_xid,),) = self.rows("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
        return cast(int, oldest_running_xid) >= cast(int, writers)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._url, autocommit=True)
        return self._connection
