"""What a table source needs of the database it reads from: columns, rows, and word of writers still under way.

PostgreSQL and MySQL implement it; nothing here opens a connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import pyarrow as pa
from pyspark.sql.types import DataType, StructField, StructType

from ottla.spark.connect.database import DatabaseError, driver_of
from ottla.spark.connect.sql import Dialect
from ottla.spark.connect.table_window import Condition


class SourceColumn(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str:
        """The type as the database names it."""
        ...

    @property
    def spark_type(self) -> DataType: ...

    @property
    def expression(self) -> str:
        """How it is selected: types that Spark has no counterpart for, as their text."""
        ...


class TableServer(Protocol):
    """Opens a connection when it needs one and keeps it; of use to one thread. Unused, it can travel to a task."""

    dialect: Dialect
    number_kinds: tuple[str, ...]
    """Types of columns a table can be followed by as they grow, and as they tell the time of the last change."""
    moment_kinds: tuple[str, ...]

    def columns(self, table: str) -> Sequence[SourceColumn]:
        """Empty if there is no such table."""
        ...

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        """Parameters are marked by `%s`."""
        ...

    def fetch(self, query: str, parameters: Sequence[object], schema: StructType) -> Iterator[pa.RecordBatch]:
        """The query's rows. They stay on the server until they are needed: a result may be larger than memory."""
        ...

    def is_older(self, table: str, column: str, delay_ms: int) -> Condition:
        """That a row's timestamp is this long past, so that no other row can get the same one any more."""
        ...

    def writers(self) -> object:
        """A note of all transactions that have written anything and are not over."""
        ...

    def are_done(self, writers: object) -> bool: ...

    def close(self) -> None: ...


def open_table_server(url: str) -> TableServer:
    scheme = url.partition(":")[0]
    if scheme in ("postgresql", "postgres"):
        with driver_of("PostgreSQL"):
            from ottla.spark.connect.postgres_tables import PostgresTableServer
        return PostgresTableServer(url)
    if scheme in ("mysql", "mariadb"):
        with driver_of("MySQL"):
            from ottla.spark.connect.mysql.tables import MysqlTableServer
        return MysqlTableServer(url)
    raise DatabaseError(
        "tables are read from PostgreSQL and MySQL: postgresql://user@host:port/name or mysql://user@host:port/name"
    )


def spark_schema(columns: Iterable[SourceColumn]) -> StructType:
    return StructType([StructField(column.name, column.spark_type) for column in columns])
