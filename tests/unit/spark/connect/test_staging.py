"""What tasks have staged is taken over once, whole, or not at all."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import cast

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

import pyarrow as pa

from ottla.spark.connect.database import DatabaseAwayError, Filled, Session
from ottla.spark.connect.sql import STANDARD
from ottla.spark.connect.staging import TaskStaging
from ottla.spark.connect.staging_sql import staging_prefix


class Tables:
    """Staging tables by name. `held` ones cannot be dropped."""

    dialect = STANDARD

    def __init__(self, *names: str, held: Iterable[str] = ()) -> None:
        self.names = list(names)
        self.held = set(held)

    def named(self, prefix: str) -> list[str]:
        return [name for name in self.names if name.startswith(prefix)]

    def create(self, staging: str, table: str, names: Sequence[str]) -> None:
        raise NotImplementedError

    def write(
        self, staging: str, names: Sequence[str], batches: Iterable[pa.RecordBatch], *, part: int, attempt: int
    ) -> int:
        raise NotImplementedError

    def drop(self, staging: str) -> bool:
        if staging in self.held:
            return False
        self.names.remove(staging)
        return True


class Server:
    """A session of a database with so many staged rows."""

    def __init__(self, row_count: int) -> None:
        self.row_count = row_count
        self.counted: list[str] = []
        self.ran: list[str] = []

    def count(self, query: str) -> int:
        self.counted.append(query)
        return self.row_count

    def run(self, statement: str) -> None:
        self.ran.append(statement)


def taken_over(filled: Filled, row_count: int) -> Server:
    server = Server(row_count)
    TaskStaging(Tables(), "s").take_over(cast(Session, server), filled, "t", ["a", "b"], [])
    return server


ROWS = 'FROM "staged" WHERE (ottla_part, ottla_attempt) IN ((0, 7), (1, 9))'


def test_the_rows_of_the_attempts_that_count_are_taken_over() -> None:
    server = taken_over(Filled("staged", ((0, 7), (1, 9)), 5), 5)
    assert server.counted == [f"SELECT count(*) {ROWS}"]
    assert server.ran == [f'INSERT INTO "t" ("a", "b") SELECT "a", "b" {ROWS}']


def test_a_batch_without_tasks_asks_nothing_of_the_database() -> None:
    server = taken_over(Filled("staged", (), 0), 0)
    assert (server.counted, server.ran) == ([], [])


@pytest.mark.parametrize("left", [0, 4, 6])
def test_a_batch_of_which_rows_are_lost_is_not_taken_over(left: int) -> None:
    with pytest.raises(DatabaseAwayError, match=f"{left} of the 5 rows that were staged are left"):
        taken_over(Filled("staged", ((0, 7), (1, 9)), 5), left)


def test_what_earlier_batches_have_left_is_removed_unless_somebody_holds_it(caplog: pytest.LogCaptureFixture) -> None:
    prefix = staging_prefix("s")
    tables = Tables(prefix + "1", prefix + "2", staging_prefix("other") + "1", held=[prefix + "1"])
    with caplog.at_level(logging.WARNING):
        TaskStaging(tables, "s").clean()
    assert tables.names == [prefix + "1", staging_prefix("other") + "1"]
    assert [record.getMessage() for record in caplog.records] == [
        f"the staging table {prefix}1 is in use and stays until the next start"
    ]


def test_a_staging_table_that_has_served_is_dropped() -> None:
    tables = Tables("staged", "another")
    TaskStaging(tables, "s").drop(Filled("staged", (), 0))
    assert tables.names == ["another"]
