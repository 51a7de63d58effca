"""SQLite as a sink's database: one file, written by the driver alone."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from pyspark.sql.types import StructType

from ottla.spark.connect.batch_progress import Progress
from ottla.spark.connect.column_types import SQLITE_TYPES, TableColumn, sql_type
from ottla.spark.connect.database import PROGRESS_TABLE, Converters, DatabaseError, SqlValue
from ottla.spark.connect.sql import STANDARD

BUSY_TIMEOUT_S = 600
"""How long a writer waits for another one, which holds the whole file for as long as its batch takes."""


class SqliteDatabase:
    dialect = STANDARD

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.shown_url = f"sqlite:{self.path}"

    @contextmanager
    def transaction(self, *, read_only: bool = False) -> Iterator[SqliteSession]:
        try:
            connection = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        except sqlite3.Error as e:
            raise DatabaseError(f"{self.shown_url} cannot be opened: {e}") from e
        with closing(connection):
            try:
                if not read_only:
                    # Readers go on while a batch is written, and the commit costs one sync instead of two.
                    connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("BEGIN" if read_only else "BEGIN IMMEDIATE")
                yield SqliteSession(connection)
                connection.execute("COMMIT")
            except sqlite3.Error as e:
                raise DatabaseError(f"{self.shown_url}: {e}") from e
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def exists(self) -> bool:
        if not self.path.parent.is_dir():
            raise DatabaseError(f"{self.shown_url} cannot be made: there is no directory {self.path.parent}")
        return self.path.exists()

    def staging(self, sink: str) -> None:
        """A file has one writer at a time, and tasks on other machines do not see it."""
        return None


class SqliteSession:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def columns(self, table: str) -> list[TableColumn] | None:
        rows = self._pragma("table_info", table)
        key_size = sum(bool(key) for *_, key in rows)
        found = []
        for _, name, kind, not_null, default, key in rows:
            # A lone INTEGER PRIMARY KEY that is left out is numbered by SQLite itself.
            numbered = key and key_size == 1 and str(kind).upper() == "INTEGER"
            found.append(TableColumn(str(name), bool(not_null) and default is None and not numbered))
        return found or None

    def unique_keys(self, table: str) -> list[frozenset[str]]:
        keys = {str(row[1]) for row in self._pragma("table_info", table) if row[5]}
        found = [frozenset(keys)] if keys else []
        schema = table.rpartition(".")[0]
        for _, index, unique, _, partial in self._pragma("index_list", table):
            if unique and not partial:
                name = f"{schema}.{index}" if schema else str(index)
                found.append(frozenset(str(row[2]) for row in self._pragma("index_info", name)))
        return found

    def obstacle(self, table: str, names: Sequence[str], keys: Sequence[str]) -> None:
        return None

    def _pragma(self, name: str, argument: str) -> list[tuple[object, ...]]:
        schema, dot, inner = argument.rpartition(".")
        prefix = f"{STANDARD.quoted(schema)}." if dot else ""
        return self._connection.execute(f"PRAGMA {prefix}{name}({STANDARD.quoted(inner)})").fetchall()

    def create_table(self, table: str, schema: StructType, keys: Sequence[str]) -> None:
        types = {field.name: sql_type(field, SQLITE_TYPES, "TEXT") for field in schema.fields}
        self._connection.execute(STANDARD.create_statement(table, types, keys))

    def claim(self, sink: str) -> None:
        """The transaction was begun as the only writer of the file."""
        self._connection.execute(
            f"CREATE TABLE IF NOT EXISTS {PROGRESS_TABLE} (sink TEXT PRIMARY KEY, query_id TEXT NOT NULL, "
            "batch_id INTEGER NOT NULL, offsets TEXT NOT NULL, written_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)"
        )

    def progress(self, sink: str) -> Progress | None:
        row = self._connection.execute(
            f"SELECT query_id, batch_id, offsets FROM {PROGRESS_TABLE} WHERE sink = ?", (sink,)
        ).fetchone()
        return None if row is None else Progress(row[0], row[1], tuple(json.loads(row[2])))

    def save_progress(self, sink: str, progress: Progress) -> None:
        names = ("sink", "query_id", "batch_id", "offsets", "written_at")
        row = (sink, progress.query_id, progress.batch_id, json.dumps(progress.offsets), _stored(datetime.now(UTC)))
        self._connection.execute(STANDARD.insert_statement(PROGRESS_TABLE, names, ("sink",)), row)

    def append(self, table: str, names: Sequence[str], batches: Iterable[pa.RecordBatch]) -> None:
        self._insert(STANDARD.insert_statement(table, names), batches)

    def upsert(self, table: str, names: Sequence[str], keys: Sequence[str], batches: Iterable[pa.RecordBatch]) -> None:
        self._insert(STANDARD.insert_statement(table, names, keys), batches)

    def _insert(self, statement: str, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            columns = [_stored_column(column) for column in batch.columns]
            self._connection.executemany(statement, zip(*columns, strict=True))

    def change_converters(self, table: str) -> Converters:
        return {}

    def run(self, statement: str, rows: Sequence[Sequence[SqlValue]] = ((),)) -> None:
        self._connection.executemany(statement, rows)

    def count(self, query: str) -> int:
        return int(self._connection.execute(query).fetchone()[0])


def _stored_column(column: pa.Array) -> list[object]:
    values: list[object] = column.to_pylist()
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_decimal(kind):
        return [_stored(value) for value in values]
    return values


def _stored(value: object) -> object:
    if isinstance(value, datetime):
        # Always six digits: text of one length sorts as time does.
        return value.isoformat(sep=" ", timespec="microseconds")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    return value
