"""Tables of MySQL and MariaDB as a source."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import cast

import pyarrow as pa
from pymysql.converters import conversions
from pyspark.sql.types import StructType

from ottla.spark.connect.database import DatabaseAwayError
from ottla.spark.connect.mysql import catalogue
from ottla.spark.connect.mysql.address import Address
from ottla.spark.connect.mysql.connection import Connection, Conversions, connect, connected, translated
from ottla.spark.connect.mysql.rows import MysqlColumn, fetch_batches, table_columns
from ottla.spark.connect.sql import MYSQL
from ottla.spark.connect.table_window import Condition

_AS_TEXT: Conversions = {kind: convert for kind, convert in conversions.items() if not isinstance(kind, int)}
"""The driver's conversions of parameters, without those of results."""
_LOOK_AGAIN_S = 0.25
"""InnoDB renews its list of transactions only if nobody has asked for a tenth of a second. And a statement takes its
AUTO_INCREMENT numbers a moment before its transaction is on the list."""
_READ_ONLY_IDS = 1 << 48
"""MySQL shows transactions that have written nothing with numbers from here on, MariaDB with 0."""


class MysqlTableServer:
    dialect = MYSQL
    number_kinds: tuple[str, ...] = ("bigint", "int", "mediumint", "smallint", "tinyint")
    moment_kinds: tuple[str, ...] = ("datetime", "timestamp")

    def __init__(self, url: str) -> None:
        self._address = Address.parse(url)
        self._connection: Connection | None = None
        self._second_digits: dict[str, int] = {}

    def columns(self, table: str) -> list[MysqlColumn]:
        with connected(self._address) as connection:
            return table_columns(connection, table)

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        try:
            return self._rows(query, parameters)
        except DatabaseAwayError:
            # The server was restarted or the connection cut; a second failure is the query's.
            self._connection = None
            return self._rows(query, parameters)

    def _rows(self, query: str, parameters: Sequence[object]) -> list[tuple[object, ...]]:
        with translated(self._address):
            return catalogue.rows(self._connected(), query, parameters)

    def fetch(self, query: str, parameters: Sequence[object], schema: StructType) -> Iterator[pa.RecordBatch]:
        with connected(self._address, autocommit=True, conv=_AS_TEXT) as connection:
            yield from fetch_batches(connection, query, parameters, schema)

    def is_older(self, table: str, column: str, delay_ms: int) -> Condition:
        # By one unit of the column at least: a time without fractions is that of every row of its second.
        if column not in self._second_digits:
            self._second_digits = {found.name: found.second_digits for found in self.columns(table)}
        unit_us: int = 10 ** (6 - self._second_digits.get(column, 0))
        text = f"{MYSQL.quoted(column)} <= now(6) - INTERVAL %s MICROSECOND"
        return Condition(text, (delay_ms * 1000 + unit_us,))

    def writers(self) -> frozenset[int]:
        time.sleep(_LOOK_AGAIN_S)
        found = self.rows("SELECT CAST(trx_id AS UNSIGNED) FROM information_schema.innodb_trx")
        ids = (int(cast(int, number)) for (number,) in found)
        return frozenset(number for number in ids if 0 < number < _READ_ONLY_IDS)

    def are_done(self, writers: object) -> bool:
        waited_for = cast(frozenset[int], writers)
        return not waited_for or waited_for.isdisjoint(self.writers())

    def close(self) -> None:
        if self._connection is not None and self._connection.open:
            self._connection.close()

    def _connected(self) -> Connection:
        if self._connection is None or not self._connection.open:
            self._connection = connect(self._address, autocommit=True)
        return self._connection
