"""Totals and next offsets in one database, SQLite or MySQL: what was counted and how far are written together."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from ottla import TopicPartition

TABLES = (
    "CREATE TABLE IF NOT EXISTS totals (customer VARCHAR(100) PRIMARY KEY, orders BIGINT NOT NULL, "
    "cents BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS consumer_offsets (group_id VARCHAR(100), topic VARCHAR(249), part INT, "
    "next_offset BIGINT NOT NULL, PRIMARY KEY (group_id, topic, part))",
)


class Total(NamedTuple):
    orders: int
    cents: int


class OvertakenError(Exception):
    """Somebody else has gone on from the same place: nothing was written."""


class StoreError(Exception):
    """The database has failed, in the words of its driver."""


class Store:
    def __init__(self, url: str, group_id: str) -> None:
        self._group_id = group_id
        self._is_mysql = url.startswith(("mysql://", "mariadb://"))
        connect, self._driver_errors = _mysql() if self._is_mysql else (_connect_sqlite, sqlite3.Error)
        try:
            self._connection: Any = connect(url)
        except self._driver_errors as e:
            raise StoreError(str(e)) from e
        with self._transaction() as cursor:
            for statement in TABLES:
                # In MySQL a table of InnoDB's, or there would be no transactions.
                cursor.execute(statement + (" ENGINE = InnoDB COLLATE utf8mb4_bin" if self._is_mysql else ""))

    def close(self) -> None:
        self._connection.close()

    def next_offset(self, partition: TopicPartition, first: int) -> int:
        """Where to go on; at `first` if this group has never read the partition."""
        insert = "INSERT IGNORE INTO" if self._is_mysql else "INSERT OR IGNORE INTO"
        with self._transaction() as cursor:
            self._run(cursor, f"{insert} consumer_offsets VALUES (?, ?, ?, ?)", *self._key(partition), first)
            query = "SELECT next_offset FROM consumer_offsets WHERE group_id = ? AND topic = ? AND part = ?"
            self._run(cursor, query, *self._key(partition))
            return int(cursor.fetchone()[0])

    def add(self, totals: Mapping[str, Total], partition: TopicPartition, *, before: int, after: int) -> None:
        """Adds the totals of the records from `before` up to `after`, unless they were added already."""
        with self._transaction() as cursor:
            # First the offset: its row is locked until the end, and whoever comes second finds it changed. So a
            # consumer that lost its partition without noticing writes nothing.
            move = (
                "UPDATE consumer_offsets SET next_offset = ? "
                "WHERE group_id = ? AND topic = ? AND part = ? AND next_offset = ?"
            )
            self._run(cursor, move, after, *self._key(partition), before)
            if cursor.rowcount != 1:
                raise OvertakenError
            if self._is_mysql:
                change = "ON DUPLICATE KEY UPDATE orders = orders + VALUES(orders), cents = cents + VALUES(cents)"
            else:
                change = "ON CONFLICT DO UPDATE SET orders = orders + excluded.orders, cents = cents + excluded.cents"
            # In one order for all, or two consumers with the same customers would deadlock.
            for customer, total in sorted(totals.items()):
                self._run(cursor, f"INSERT INTO totals VALUES (?, ?, ?) {change}", customer, *total)

    def _key(self, partition: TopicPartition) -> tuple[str, str, int]:
        return self._group_id, partition.topic, partition.partition

    def _run(self, cursor: Any, statement: str, *values: object) -> None:
        cursor.execute(statement.replace("?", "%s") if self._is_mysql else statement, values)

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        cursor = self._connection.cursor()
        try:
            # SQLite would otherwise begin as a reader, and could find the file changed when it wants to write.
            cursor.execute("BEGIN" if self._is_mysql else "BEGIN IMMEDIATE")
            yield cursor
            self._connection.commit()
        except BaseException as e:
            with suppress(self._driver_errors):
                self._connection.rollback()
            if isinstance(e, self._driver_errors):
                raise StoreError(str(e)) from e
            raise


def _connect_sqlite(url: str) -> sqlite3.Connection:
    connection = sqlite3.connect(url.removeprefix("sqlite:"), timeout=60, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    return connection


def _mysql() -> tuple[Callable[[str], Any], type[Exception]]:
    import pymysql

    def connect(url: str) -> Any:
        parts = urlsplit(url)
        return pymysql.connect(
            host=parts.hostname or "127.0.0.1",
            port=parts.port or 3306,
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            database=parts.path.removeprefix("/"),
            charset="utf8mb4",
            # A consumer that has waited for another one sees what that one committed.
            init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        )

    return connect, pymysql.Error
