"""PostgreSQL as a sink's database: rows arrive by COPY, keys are settled by one INSERT from where they arrived."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import psycopg
import pyarrow as pa
from pyspark.sql.types import StructType

from ottla.spark.connect.batch_progress import Progress
from ottla.spark.connect.column_types import POSTGRESQL_TYPES, TableColumn, sql_type
from ottla.spark.connect.copy_rows import copy_batches
from ottla.spark.connect.database import (
    PROGRESS_TABLE,
    Converters,
    DatabaseError,
    SqlValue,
    Staging,
    without_password,
)
from ottla.spark.connect.sql import STANDARD
from ottla.spark.connect.staging_sql import ATTEMPT, PART, ROW, take_over

CONNECT_TIMEOUT_S = 15
_ARRIVALS = "ottla_arrivals"

Connection = psycopg.Connection[tuple[object, ...]]


def connect(url: str, *, autocommit: bool = False) -> Connection:
    try:
        connection = psycopg.connect(
            url, autocommit=autocommit, connect_timeout=CONNECT_TIMEOUT_S, application_name="ottla"
        )
    except psycopg.Error as e:
        raise DatabaseError(f"no connection to {without_password(url)}: {str(e).strip()}") from e
    connection.execute("SET client_encoding TO 'UTF8'; SET timezone TO 'UTC'; SET datestyle TO ISO")
    return connection


class PostgresDatabase:
    dialect = STANDARD

    def __init__(self, url: str) -> None:
        self.url = url
        self.shown_url = without_password(url)

    @contextmanager
    def transaction(self, *, read_only: bool = False) -> Iterator[PostgresSession]:
        try:
            # The block of a psycopg connection commits at its end, rolls back on an exception and closes.
            with connect(self.url) as connection:
                if read_only:
                    connection.execute("SET TRANSACTION READ ONLY")
                yield PostgresSession(connection)
        except psycopg.Error as e:
            raise DatabaseError(f"{self.shown_url}: {str(e).strip()}") from e

    def exists(self) -> bool:
        return True

    def staging(self, sink: str) -> Staging:
        from ottla.spark.connect.postgres_staging import PostgresStagingTables
        from ottla.spark.connect.staging import TaskStaging

        return TaskStaging(PostgresStagingTables(self.url), sink)


class PostgresSession:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def columns(self, table: str) -> list[TableColumn] | None:
        rows = self._connection.execute(
            "SELECT attname, attnotnull AND NOT atthasdef AND attidentity = '' FROM pg_attribute "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            (STANDARD.quoted_table(table),),
        ).fetchall()
        return [TableColumn(str(name), bool(required)) for name, required in rows] or None

    def unique_keys(self, table: str) -> list[frozenset[str]]:
        rows = self._connection.execute(
            "SELECT array_agg(attname::text) FROM pg_index JOIN pg_attribute ON attrelid = indrelid "
            "AND attnum = ANY(indkey[0:indnkeyatts - 1]) WHERE indrelid = to_regclass(%s) AND indisunique "
            "AND indpred IS NULL AND indexprs IS NULL GROUP BY indexrelid",
            (STANDARD.quoted_table(table),),
        ).fetchall()
        return [frozenset(cast(list[str], row[0])) for row in rows]

    def obstacle(self, table: str, names: Sequence[str], keys: Sequence[str]) -> None:
        return None

    def create_table(self, table: str, schema: StructType, keys: Sequence[str]) -> None:
        # Two sessions that create the same table at once would not wait for each other but fail.
        self._lock(f"create {table}")
        types = {
            field.name: sql_type(field, POSTGRESQL_TYPES, "numeric({precision}, {scale})") for field in schema.fields
        }
        self._connection.execute(STANDARD.create_statement(table, types, keys))

    def claim(self, sink: str) -> None:
        if self.columns(PROGRESS_TABLE) is None:
            self._create_progress_table()
        self._lock(f"sink {sink}")

    def _create_progress_table(self) -> None:
        # Held until the transaction ends, by all sinks of the database: only when there is something to create.
        self._lock(f"create {PROGRESS_TABLE}")
        self._connection.execute(
            f"CREATE TABLE IF NOT EXISTS {PROGRESS_TABLE} (sink text PRIMARY KEY, query_id text NOT NULL, "
            "batch_id bigint NOT NULL, offsets text NOT NULL, written_at timestamptz NOT NULL DEFAULT now())"
        )

    def _lock(self, what: str) -> None:
        self._connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"ottla {what}",))

    def progress(self, sink: str) -> Progress | None:
        row = self._connection.execute(
            f"SELECT query_id, batch_id, offsets FROM {PROGRESS_TABLE} WHERE sink = %s", (sink,)
        ).fetchone()
        if row is None:
            return None
        return Progress(str(row[0]), int(cast(int, row[1])), tuple(json.loads(str(row[2]))))

    def save_progress(self, sink: str, progress: Progress) -> None:
        self._connection.execute(
            f"INSERT INTO {PROGRESS_TABLE} (sink, query_id, batch_id, offsets) VALUES (%s, %s, %s, %s) "
            "ON CONFLICT (sink) DO UPDATE SET query_id = excluded.query_id, batch_id = excluded.batch_id, "
            "offsets = excluded.offsets, written_at = now()",
            (sink, progress.query_id, progress.batch_id, json.dumps(progress.offsets)),
        )

    def append(self, table: str, names: Sequence[str], batches: Iterable[pa.RecordBatch]) -> None:
        copy_batches(self._connection, table, names, batches)

    def upsert(self, table: str, names: Sequence[str], keys: Sequence[str], batches: Iterable[pa.RecordBatch]) -> None:
        columns = empty_copy(table, names)
        self._connection.execute(f"CREATE TEMPORARY TABLE {_ARRIVALS} ON COMMIT DROP AS {columns}")
        copy_batches(self._connection, _ARRIVALS, names, batches, part=0)
        self._connection.execute(take_over(_ARRIVALS, table, names, keys, [(0, 0)], STANDARD))

    def change_converters(self, table: str) -> Converters:
        return {}

    def run(self, statement: str, rows: Sequence[Sequence[SqlValue]] = ((),)) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(STANDARD.with_format_marks(statement), rows)

    def count(self, query: str) -> int:
        row = self._connection.execute(query.encode()).fetchone()
        assert row is not None
        return int(cast(int, row[0]))


def empty_copy(table: str, names: Sequence[str]) -> str:
    """A query with the columns' own types and a staging table's marks, and no rows: for CREATE TABLE … AS."""
    return (
        f"SELECT {STANDARD.quoted_list(names)}, 0 AS {PART}, 0::bigint AS {ATTEMPT}, 0::bigint AS {ROW} "
        f"FROM {STANDARD.quoted_table(table)} WITH NO DATA"
    )
