"""What a sink needs of a database: transactions, a table's shape, rows in, and the memory of the last batch.

SQLite, PostgreSQL and MySQL implement it; nothing here opens a connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from ottla.base.errors import OttlaError
from ottla.spark.connect.batch_progress import Progress
from ottla.spark.connect.column_types import TableColumn
from ottla.spark.connect.sql import Dialect

PROGRESS_TABLE = "ottla_progress"

SqlValue = str | int | float | bytes | bool | None
"""What every driver takes as a parameter."""


Converters = Mapping[str, Callable[[SqlValue], SqlValue]]
"""By a column's name."""


class DatabaseError(OttlaError):
    """A database that cannot be used as asked; the message is for the person who set it up."""


class DatabaseAwayError(DatabaseError):
    """A database that could not be reached or could not finish just now: the same may well succeed later."""


class TooManyRowsError(OttlaError):
    """A batch is larger than what the driver should carry; the transaction is to be given up."""


class Session(Protocol):
    """One transaction."""

    def columns(self, table: str) -> list[TableColumn] | None:
        """None if there is no such table."""
        ...

    def unique_keys(self, table: str) -> list[frozenset[str]]:
        """The column sets that a unique index without a condition keeps unique."""
        ...

    def obstacle(self, table: str, names: Sequence[str], keys: Sequence[str]) -> str | None:
        """What about an existing table keeps these columns from being written exactly once, with keys as an upsert."""
        ...

    def create_table(self, table: str, schema: StructType, keys: Sequence[str]) -> None:
        """Does nothing if the table is there."""
        ...

    def claim(self, sink: str) -> None:
        """Until the transaction ends nobody else writes for this sink: a driver that was thought dead must wait."""
        ...

    def progress(self, sink: str) -> Progress | None: ...

    def save_progress(self, sink: str, progress: Progress) -> None: ...

    def append(self, table: str, names: Sequence[str], batches: Iterable[pa.RecordBatch]) -> None: ...

    def upsert(self, table: str, names: Sequence[str], keys: Sequence[str], batches: Iterable[pa.RecordBatch]) -> None:
        """Of rows with the same key the last one stays."""
        ...

    def change_converters(self, table: str) -> Converters:
        """For columns that do not take a value as it stands in a change, which is as PostgreSQL writes it."""
        ...

    def run(self, statement: str, rows: Sequence[Sequence[SqlValue]] = ((),)) -> None:
        """The statement once for each row of parameters, which it names by `?`."""
        ...

    def count(self, query: str) -> int:
        """The one number that the query gives."""
        ...


class Filled(NamedTuple):
    """A staging table that tasks have filled, which attempts (part, attempt) of them count, and how many rows it got
    from those."""

    staging: str
    attempts: tuple[tuple[int, int], ...]
    row_count: int


class Staging(Protocol):
    """Rows written by tasks, outside of the sink's transaction, and taken over inside of it."""

    def clean(self) -> None:
        """Removes what batches that never ended have left."""
        ...

    def fill(self, frame: DataFrame, table: str) -> Filled: ...

    def take_over(
        self, session: Session, filled: Filled, table: str, names: Sequence[str], keys: Sequence[str]
    ) -> None:
        """Moves the rows into `table`; with keys as an upsert."""
        ...

    def drop(self, filled: Filled) -> None: ...


class Database(Protocol):
    dialect: Dialect
    shown_url: str
    """The address without its password, for messages."""

    def transaction(self, *, read_only: bool = False) -> AbstractContextManager[Session]:
        """Committed at the end of the block, rolled back if it raises. DatabaseError if there is no connection."""
        ...

    def exists(self) -> bool:
        """False if a transaction would create the database itself; DatabaseError if it could not."""
        ...

    def staging(self, sink: str) -> Staging | None:
        """How tasks write big batches; None where only the driver can write."""
        ...


def open_database(url: str, *, directory: Path | None = None) -> Database:
    """`sqlite:path` (also `sqlite:///path`; relative to `directory`), `postgresql://user@host:port/name` or
    `mysql://user@host:port/name` (also `mariadb://`)."""
    scheme, colon, rest = url.partition(":")
    if scheme == "sqlite" and rest.removeprefix("///"):
        from ottla.spark.connect.sqlite import SqliteDatabase

        return SqliteDatabase((directory or Path()) / Path(rest.removeprefix("///")).expanduser())
    if scheme in ("postgresql", "postgres") and colon:
        with driver_of("PostgreSQL"):
            from ottla.spark.connect.postgresql import PostgresDatabase
        return PostgresDatabase(url)
    if scheme in ("mysql", "mariadb") and colon:
        with driver_of("MySQL"):
            from ottla.spark.connect.mysql.database import MysqlDatabase
        return MysqlDatabase(url)
    raise DatabaseError(
        f"{scheme!r} is no database that is known here: write sqlite:path, postgresql://user@host/name or "
        "mysql://user@host/name"
    )


@contextmanager
def driver_of(name: str) -> Iterator[None]:
    """Around the import of a module that needs it."""
    try:
        yield
    except ImportError as e:
        raise DatabaseError(f"{name} needs its driver: pip install 'ottla[connect]'") from e


def without_password(url: str) -> str:
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    query = "&".join(item for item in parts.query.split("&") if not item.startswith("password="))
    return parts._replace(netloc=f"{user.partition(':')[0]}{at}{host}", query=query).geturl()


def at_most(batches: Iterable[pa.RecordBatch], max_rows: int | None) -> Iterator[pa.RecordBatch]:
    """The batches, until they hold more than `max_rows` rows: then TooManyRowsError."""
    count = 0
    for batch in batches:
        count += batch.num_rows
        if max_rows is not None and count > max_rows:
            raise TooManyRowsError(f"more than {max_rows} rows")
        yield batch
