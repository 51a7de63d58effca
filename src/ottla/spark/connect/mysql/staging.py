"""Staging tables of MySQL and MariaDB: tasks fill them by INSERTs of many rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from ottla.spark.connect.database import DatabaseAwayError
from ottla.spark.connect.mysql import catalogue
from ottla.spark.connect.mysql.address import Address
from ottla.spark.connect.mysql.connection import connected
from ottla.spark.connect.mysql.database import insert_columns
from ottla.spark.connect.sql import MYSQL
from ottla.spark.connect.staging_sql import ATTEMPT, MARKS, PART, ROW, marked

_LOCK_WAIT_S = 5


class MysqlStagingTables:
    dialect = MYSQL

    def __init__(self, address: Address) -> None:
        self._address = address

    def named(self, prefix: str) -> list[str]:
        with connected(self._address) as connection:
            found = catalogue.rows(
                connection,
                "SELECT table_name FROM information_schema.tables "
                "WHERE table_schema = DATABASE() AND LEFT(table_name, %s) = %s",
                (len(prefix), prefix),
            )
        return [str(name) for (name,) in found]

    def create(self, staging: str, table: str, names: Sequence[str]) -> None:
        # In the order in which the rows will be taken over, so that nothing has to be sorted then.
        key = f"PRIMARY KEY ({PART}, {ROW}, {ATTEMPT})"
        marks = ", ".join(f"{mark} bigint NOT NULL DEFAULT 0" for mark in MARKS)
        columns = f"SELECT {MYSQL.quoted_list(names)} FROM {MYSQL.quoted_table(table)} WHERE FALSE"
        with connected(self._address) as connection:
            connection.query(
                f"CREATE TABLE {MYSQL.quoted_table(staging)} ({marks}, {key}) ENGINE = InnoDB AS {columns}"
            )

    def write(
        self, staging: str, names: Sequence[str], batches: Iterable[pa.RecordBatch], *, part: int, attempt: int
    ) -> int:
        count = 0
        with connected(self._address) as connection:
            for batch in batches:
                marks = marked(batch.num_rows, part=part, attempt=attempt, first_row=count)
                insert_columns(connection, staging, [*names, *MARKS], [*batch.columns, *marks])
                count += batch.num_rows
        return count

    def drop(self, staging: str) -> bool:
        try:
            with connected(self._address) as connection:
                connection.query(f"SET lock_wait_timeout = {_LOCK_WAIT_S}")
                connection.query(f"DROP TABLE IF EXISTS {MYSQL.quoted_table(staging)}")
        except DatabaseAwayError:
            return False
        return True
