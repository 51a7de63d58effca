"""Readers of tables, called as Spark calls them, against a real MariaDB."""

from __future__ import annotations

import itertools
import threading
import time
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from ottla.spark.connect.database import DatabaseError
from ottla.spark.connect.table_server import open_table_server, spark_schema
from ottla.spark.connect.table_window import Order, TablePositionError
from tests.spark.connect.readers import Row, all_batches, rows_between, table_reader
from tests.spark.mariadb import MariadbProcess
from tests.waiting import join, repeat_until

pytestmark = pytest.mark.xdist_group("spark")

_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    return f"read_{next(_numbers)}"


def test_a_table_by_its_incrementing_column(mariadb: MariadbProcess, name: str) -> None:
    mariadb.rows(f"CREATE TABLE {name} (id bigint unsigned AUTO_INCREMENT PRIMARY KEY, text text)")
    mariadb.rows(f"INSERT INTO {name} (text) SELECT concat('row ', seq) FROM seq_1_to_25")
    reader = table_reader(mariadb.url, name, Order("id", None), max_rows=10)
    batches = list(all_batches(reader, reader.initialOffset()))
    assert [[int(row["id"]) for row in rows] for _, rows in batches] == [
        list(range(1, 11)),
        list(range(11, 21)),
        list(range(21, 26)),
    ]
    assert batches[0][0] == {"incrementing": 10, "timestamp": None}
    mariadb.rows(f"INSERT INTO {name} (text) VALUES ('late')")
    again = table_reader(mariadb.url, name, Order("id", None))
    ((end, rows),) = all_batches(again, batches[-1][0])
    assert [row["text"] for row in rows] == ["late"]
    assert rows_between(again, batches[0][0], batches[1][0]) == batches[1][1], "a window can be read again"
    assert again.latestOffset(end, ReadAllAvailable()) == end


def test_rows_that_are_committed_late_are_waited_for(mariadb: MariadbProcess, name: str) -> None:
    mariadb.rows(f"CREATE TABLE {name} (id serial PRIMARY KEY, text text)")
    patient = table_reader(mariadb.url, name, Order("id", None))
    hasty = table_reader(mariadb.url, name, Order("id", None), wait_for_writers=False)
    start = patient.initialOffset()
    with mariadb.connect(autocommit=False) as slow, mariadb.connect(autocommit=False) as reading:
        with reading.cursor() as cursor:
            # One that only reads is none to wait for.
            cursor.execute(f"SELECT count(*) FROM {name}")
        with slow.cursor() as cursor:
            cursor.execute(f"INSERT INTO {name} (text) VALUES ('first number, last commit')")
        mariadb.rows(f"INSERT INTO {name} (text) VALUES ('second number')")
        assert patient.latestOffset(start, ReadAllAvailable()) == start
        assert hasty.latestOffset(start, ReadAllAvailable())["incrementing"] == 2
        slow.commit()
        end = patient.latestOffset(start, ReadAllAvailable())
    assert [row["id"] for row in rows_between(patient, start, end)] == [1, 2]


def test_no_row_of_many_writers_is_missed(mariadb: MariadbProcess, name: str) -> None:
    """Writers whose transactions overlap in every way, some rolled back, while a reader follows."""
    mariadb.rows(f"CREATE TABLE {name} (id bigint AUTO_INCREMENT PRIMARY KEY, writer int, changed datetime)")
    enough = threading.Event()

    def write(writer: int) -> None:
        with mariadb.connect(autocommit=False) as connection, connection.cursor() as cursor:
            for number in itertools.count():
                for _ in range(3):
                    cursor.execute(f"INSERT INTO {name} (writer, changed) VALUES ({writer}, now())")
                time.sleep((writer * 7 + number * 3) % 5 * 0.3)
                if number % 5 == 4:
                    connection.rollback()
                else:
                    connection.commit()
                if enough.is_set():
                    return

    orders = [Order("id", None), Order("id", "changed")]
    readers = [table_reader(mariadb.url, name, order) for order in orders]
    offsets = [reader.initialOffset() for reader in readers]
    read: list[list[Row]] = [[], []]
    windows = [0, 0]

    def follow() -> None:
        for which, reader in enumerate(readers):
            end = reader.latestOffset(offsets[which], ReadAllAvailable())
            read[which] += rows_between(reader, offsets[which], end)
            windows[which] += end != offsets[which]
            offsets[which] = end

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    try:
        repeat_until(lambda: min(windows) >= 3, follow)
    finally:
        enough.set()
        join(*threads)
    there = sorted(mariadb.rows(f"SELECT id FROM {name}"))
    repeat_until(lambda: all(offset["incrementing"] == there[-1][0] for offset in offsets), follow)
    for rows in read:
        assert sorted((row["id"],) for row in rows) == there


@pytest.mark.parametrize("kind", ["datetime(6)", "timestamp(6) NULL"])
def test_a_table_by_its_timestamp_and_number(mariadb: MariadbProcess, name: str, kind: str) -> None:
    mariadb.rows(f"CREATE TABLE {name} (id bigint, changed {kind}, text text)")
    moment = datetime.now(UTC).replace(tzinfo=None) - timedelta(hours=1)
    for number in (3, 1, 2):
        mariadb.rows(f"INSERT INTO {name} VALUES (%s, %s, 'old')", number, moment)
    mariadb.rows(f"INSERT INTO {name} VALUES (4, NULL, 'never'), (5, now() + INTERVAL 1 DAY, 'not yet')")
    reader = table_reader(mariadb.url, name, Order("id", "changed"), max_rows=2)
    batches = list(all_batches(reader, reader.initialOffset()))
    assert [[row["id"] for row in rows] for _, rows in batches] == [[1, 2], [3]]
    end = batches[-1][0]
    assert end == {"incrementing": 3, "timestamp": moment.replace(tzinfo=UTC).isoformat(timespec="microseconds")}
    mariadb.rows(f"UPDATE {name} SET changed = now(6), text = 'new' WHERE id = 1")
    reader = table_reader(mariadb.url, name, Order("id", "changed"))
    ((_, rows),) = all_batches(reader, end)
    assert [(row["id"], row["text"]) for row in rows] == [(1, "new")]


def test_a_second_is_read_when_it_is_over(mariadb: MariadbProcess, name: str) -> None:
    """A column without fractions: another change may get the time of one that was read."""
    mariadb.rows(f"CREATE TABLE {name} (id int, changed datetime)")
    mariadb.rows(f"INSERT INTO {name} VALUES (1, now() + INTERVAL 1 SECOND)")
    reader = table_reader(mariadb.url, name, Order(None, "changed"), wait_for_writers=False)
    start = reader.initialOffset()
    repeat_until(lambda: reader.latestOffset(start, ReadAllAvailable()) != start)
    assert mariadb.rows(f"SELECT changed + INTERVAL 1 SECOND <= now(6) FROM {name}") == [(1,)]


def test_a_checkpoint_of_other_columns_is_refused(mariadb: MariadbProcess, name: str) -> None:
    mariadb.rows(f"CREATE TABLE {name} (id bigint, changed datetime)")
    reader = table_reader(mariadb.url, name, Order("id", "changed"))
    with pytest.raises(TablePositionError, match="other columns"):
        reader.latestOffset({"incrementing": 4, "timestamp": None}, ReadAllAvailable())


def test_values_of_a_table(mariadb: MariadbProcess, name: str) -> None:
    mariadb.rows(
        f"CREATE TABLE {name} (id int, b boolean, bit1 bit, bits bit(10), n decimal(12,2), wide decimal(60,2), d date, "
        "raw varbinary(9), `at` timestamp(6) NULL, local datetime(3), doc json, u bigint unsigned, f float, g double, "
        "`odd ``name` tinyint, e enum('x', 'y'), t time, y year, zero date, latin varchar(9) CHARACTER SET latin1)"
    )
    with (
        mariadb.connect(init_command="SET time_zone = '+01:00', sql_mode = ''") as connection,
        connection.cursor() as c,
    ):
        c.execute(
            f"INSERT INTO {name} VALUES (1, true, 1, 513, 1.50, 3.5, '2024-02-29', x'00ff', "
            "'2024-02-29 01:00:00.000004', '2024-02-29 01:02:03.004', '{\"a\": 1}', 18446744073709551615, 0.1, 1e300, "
            "-3, 'y', '01:02:03', 2024, '0000-00-00', 'ä')"
        )
        c.execute(f"INSERT INTO {name} (id, `at`) VALUES (2, NULL)")
    reader = table_reader(mariadb.url, name, Order("id", None))
    ((_, (row, empty)),) = all_batches(reader, reader.initialOffset())
    assert row.pop("f") == pytest.approx(0.1, rel=1e-7)
    expected: dict[str, Any] = {
        "id": 1,
        "b": True,
        "bit1": True,
        "bits": 513,
        "n": Decimal("1.50"),
        "wide": "3.50",
        "d": date(2024, 2, 29),
        "raw": b"\x00\xff",
        "at": datetime(2024, 2, 29, 0, 0, 0, 4, tzinfo=UTC),
        "local": datetime(2024, 2, 29, 1, 2, 3, 4000),
        "doc": '{"a": 1}',
        "u": Decimal(18446744073709551615),
        "g": 1e300,
        "odd `name": -3,
        "e": "y",
        "t": "01:02:03",
        "y": 2024,
        "zero": None,
        "latin": "ä",
    }
    assert row == expected
    assert set(empty.values()) == {2, None}
    kinds = {
        field.name: field.dataType.simpleString()
        for field in spark_schema(open_table_server(mariadb.url).columns(name))
    }
    assert (kinds["at"], kinds["local"], kinds["u"]) == ("timestamp", "timestamp_ntz", "decimal(20,0)")


def test_transactions_of_others_are_seen_only_with_a_right(mariadb: MariadbProcess, name: str) -> None:
    mariadb.rows(f"CREATE TABLE {name} (id serial)")
    mariadb.rows(f"CREATE USER {name}@'127.0.0.1' IDENTIFIED BY 'x'")
    mariadb.rows(f"GRANT SELECT ON {name} TO {name}@'127.0.0.1'")
    server = open_table_server(f"mysql://{name}:x@127.0.0.1:{mariadb.port}/shop")
    assert [column.kind for column in server.columns(name)] == ["bigint"]
    with pytest.raises(DatabaseError, match="PROCESS"):
        server.writers()


def test_the_reader_comes_back_after_its_connection_was_cut(mariadb: MariadbProcess, name: str) -> None:
    mariadb.rows(f"CREATE TABLE {name} (id serial)")
    mariadb.rows(f"INSERT INTO {name} VALUES (1)")
    server = open_table_server(mariadb.url)
    ((mine,),) = server.rows("SELECT connection_id()")
    mariadb.rows(f"KILL {mine}")
    assert server.rows(f"SELECT id FROM {name}") == [(1,)]
    server.close()
