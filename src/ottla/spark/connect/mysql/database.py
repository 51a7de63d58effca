"""MySQL and MariaDB as a sink's database: rows arrive by INSERTs of many rows, which settle keys as they go."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import pyarrow as pa
from pyspark.sql.types import StructType

from ottla.spark.connect.batch_progress import Progress
from ottla.spark.connect.column_types import MYSQL_KEY_TYPES, MYSQL_TYPES, TableColumn, sql_type
from ottla.spark.connect.database import PROGRESS_TABLE, Converters, DatabaseError, SqlValue, Staging
from ottla.spark.connect.mysql import catalogue
from ottla.spark.connect.mysql.address import Address
from ottla.spark.connect.mysql.change_values import CHANGE_CONVERTERS
from ottla.spark.connect.mysql.connection import Connection, connected
from ottla.spark.connect.mysql.values import STATEMENT_BYTES, values_of
from ottla.spark.connect.sql import MYSQL


class MysqlDatabase:
    dialect = MYSQL

    def __init__(self, url: str) -> None:
        self._address = Address.parse(url)
        self.shown_url = self._address.shown_url

    @contextmanager
    def transaction(self, *, read_only: bool = False) -> Iterator[MysqlSession]:
        with connected(self._address) as connection:
            if read_only:
                connection.query("START TRANSACTION READ ONLY")
            yield MysqlSession(connection)

    def exists(self) -> bool:
        return True

    def staging(self, sink: str) -> Staging:
        from ottla.spark.connect.mysql.staging import MysqlStagingTables
        from ottla.spark.connect.staging import TaskStaging

        return TaskStaging(MysqlStagingTables(self._address), sink)


class MysqlSession:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def columns(self, table: str) -> list[TableColumn] | None:
        return catalogue.columns(self._connection, table)

    def unique_keys(self, table: str) -> list[frozenset[str]]:
        return [index.columns for index in catalogue.unique_indexes(self._connection, table) if index.whole]

    def obstacle(self, table: str, names: Sequence[str], keys: Sequence[str]) -> str | None:
        engine = catalogue.without_transactions(self._connection, table)
        if engine is not None:
            return (
                f"table {table} is kept by {engine}, which has no transactions, so its rows could come twice: "
                f"ALTER TABLE {MYSQL.quoted_table(table)} ENGINE = InnoDB"
            )
        if not keys:
            return None
        for index in catalogue.unique_indexes(self._connection, table):
            # An index with all the keys in it cannot be hit by another row than that of the keys.
            if not index.columns >= set(keys) and index.columns & set(names):
                return (
                    f"table {table} has another unique index, on {', '.join(sorted(index.columns))}: MySQL cannot be "
                    f"told to look at {', '.join(keys)} alone, so an upsert would change the wrong row"
                )
        return None

    def create_table(self, table: str, schema: StructType, keys: Sequence[str]) -> None:
        types = {
            field.name: sql_type(
                field, MYSQL_KEY_TYPES if field.name in keys else MYSQL_TYPES, "decimal({precision}, {scale})"
            )
            for field in schema.fields
        }
        self._create(MYSQL.create_statement(table, types, keys))

    def _create(self, statement: str) -> None:
        """MySQL commits whatever was going on before it creates a table: only at the beginning of a transaction."""
        ((version,),) = catalogue.rows(self._connection, "SELECT version()")
        collation = exact_collation(str(version))
        self._connection.query(f"{statement} ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {collation}")

    def claim(self, sink: str) -> None:
        """By the lock on the sink's row in the table of progress, which is there from now on, if only with NULLs."""
        if self.columns(PROGRESS_TABLE) is None:
            self._create(
                f"CREATE TABLE IF NOT EXISTS {PROGRESS_TABLE} (sink varchar(512) PRIMARY KEY, query_id varchar(64), "
                "batch_id bigint, offsets longtext, written_at datetime(6) DEFAULT NULL)"
            )
        engine = catalogue.without_transactions(self._connection, PROGRESS_TABLE)
        if engine is not None:
            raise DatabaseError(
                f"{PROGRESS_TABLE} is kept by {engine}, which has no transactions: ALTER TABLE {PROGRESS_TABLE} "
                "ENGINE = InnoDB"
            )
        self.run(MYSQL.insert_statement(PROGRESS_TABLE, ["sink"], ["sink"]), [[sink]])

    def progress(self, sink: str) -> Progress | None:
        found = catalogue.rows(
            self._connection, f"SELECT query_id, batch_id, offsets FROM {PROGRESS_TABLE} WHERE sink = %s", (sink,)
        )
        if not found or found[0][0] is None:
            return None
        query_id, batch_id, offsets = found[0]
        return Progress(str(query_id), int(cast(int, batch_id)), tuple(json.loads(str(offsets))))

    def save_progress(self, sink: str, progress: Progress) -> None:
        names = ("sink", "query_id", "batch_id", "offsets")
        row = (sink, progress.query_id, progress.batch_id, json.dumps(progress.offsets))
        self.run(MYSQL.insert_statement(PROGRESS_TABLE, names, ["sink"]), [row])
        self.run(f"UPDATE {PROGRESS_TABLE} SET written_at = now(6) WHERE sink = ?", [[sink]])

    def append(self, table: str, names: Sequence[str], batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            insert_columns(self._connection, table, names, batch.columns)

    def upsert(self, table: str, names: Sequence[str], keys: Sequence[str], batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            insert_columns(self._connection, table, names, batch.columns, MYSQL.conflict_clause(names, keys))

    def change_converters(self, table: str) -> Converters:
        kinds = catalogue.kinds(self._connection, table)
        return {name: CHANGE_CONVERTERS[kind] for name, kind in kinds.items() if kind in CHANGE_CONVERTERS}

    def run(self, statement: str, rows: Sequence[Sequence[SqlValue]] = ((),)) -> None:
        marked = MYSQL.with_format_marks(statement)
        with self._connection.cursor() as cursor:
            if "%%" in marked:
                # The driver's way of joining many rows into one statement leaves these doubled behind the values.
                for row in rows:
                    cursor.execute(marked, tuple(row))
            else:
                cursor.executemany(marked, [tuple(row) for row in rows])

    def count(self, query: str) -> int:
        ((number,),) = catalogue.rows(self._connection, query)
        return int(cast(int, number))


def insert_columns(
    connection: Connection, table: str, names: Sequence[str], columns: Sequence[pa.Array], conflict: str = ""
) -> None:
    begin = f"{MYSQL.insert_into(table, names)} VALUES ".encode()
    end = f" {conflict}".encode()
    for values in values_of(columns, names):
        if len(values.text) > 2 * STATEMENT_BYTES:
            _check_packet(connection, len(begin) + len(values.text) + len(end), table)
        connection.query(begin + values.text + end)


def _check_packet(connection: Connection, size: int, table: str) -> None:
    """The server would hang up on a statement it cannot take, as if the connection had failed."""
    ((limit,),) = catalogue.rows(connection, "SELECT @@max_allowed_packet")
    if size >= int(cast(int, limit)):
        raise DatabaseError(
            f"a row for table {table} takes {size} bytes, and the server takes {limit} at a time: raise its "
            "max_allowed_packet"
        )


def exact_collation(server: str) -> str:
    """The one in which no two texts are the same, not even by blanks at the end; its name depends on the server."""
    if "MariaDB" in server:
        return "utf8mb4_nopad_bin"
    return "utf8mb4_bin" if server.startswith("5.") else "utf8mb4_0900_bin"
