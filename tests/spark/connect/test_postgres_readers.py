"""Readers of tables and of changes, called as Spark calls them, against a real PostgreSQL."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from ottla.spark.connect import change_source
from ottla.spark.connect.change_source import ChangeOptions, ChangeStreamReader
from ottla.spark.connect.replication_slot import ChangesLostError, ReplicationSlot
from ottla.spark.connect.table_window import Order, TablePositionError
from tests.spark.connect.readers import Row, all_batches, rows_between, table_reader
from tests.spark.postgres import PostgresProcess

_numbers = itertools.count()


@pytest.fixture
def database(postgres: PostgresProcess) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with postgres.connect() as connection:
        yield connection


@pytest.fixture
def name() -> str:
    return f"read_{next(_numbers)}"


# Tables


def test_a_table_by_its_incrementing_column(
    postgres: PostgresProcess, database: psycopg.Connection[Any], name: str
) -> None:
    database.execute(f"CREATE TABLE {name} (id serial PRIMARY KEY, text text)")
    database.execute(f"INSERT INTO {name} (text) SELECT 'row ' || i FROM generate_series(1, 25) i")
    reader = table_reader(postgres.url, name, Order("id", None), max_rows=10)
    batches = list(all_batches(reader, reader.initialOffset()))
    assert [[row["id"] for row in rows] for _, rows in batches] == [
        list(range(1, 11)),
        list(range(11, 21)),
        list(range(21, 26)),
    ]
    assert batches[0][0] == {"incrementing": 10, "timestamp": None}
    database.execute(f"INSERT INTO {name} (text) VALUES ('late')")
    again = table_reader(postgres.url, name, Order("id", None))
    ((end, rows),) = all_batches(again, batches[-1][0])
    assert [row["text"] for row in rows] == ["late"]
    assert rows_between(again, batches[0][0], batches[1][0]) == batches[1][1], "a window can be read again"
    assert again.latestOffset(end, ReadAllAvailable()) == end


def test_rows_that_are_committed_late_are_waited_for(
    postgres: PostgresProcess, database: psycopg.Connection[Any], name: str
) -> None:
    database.execute(f"CREATE TABLE {name} (id serial PRIMARY KEY, text text)")
    patient = table_reader(postgres.url, name, Order("id", None))
    hasty = table_reader(postgres.url, name, Order("id", None), wait_for_writers=False)
    start = patient.initialOffset()
    with psycopg.connect(postgres.url) as slow:
        slow.execute(f"INSERT INTO {name} (text) VALUES ('first number, last commit')")
        database.execute(f"INSERT INTO {name} (text) VALUES ('second number')")
        assert patient.latestOffset(start, ReadAllAvailable()) == start
        assert hasty.latestOffset(start, ReadAllAvailable())["incrementing"] == 2
    end = patient.latestOffset(start, ReadAllAvailable())
    assert [row["id"] for row in rows_between(patient, start, end)] == [1, 2]


@pytest.mark.parametrize("kind", ["timestamp", "timestamptz"])
def test_a_table_by_its_timestamp_and_number(
    postgres: PostgresProcess, database: psycopg.Connection[Any], name: str, kind: str
) -> None:
    database.execute(f"CREATE TABLE {name} (id bigint, changed {kind}, text text)")
    moment = datetime.now(UTC) - timedelta(hours=1)
    for number in (3, 1, 2):
        database.execute(f"INSERT INTO {name} VALUES (%s, %s, 'old')", (number, moment))
    database.execute(f"INSERT INTO {name} VALUES (4, NULL, 'never'), (5, now() + interval '1 day', 'not yet')")
    reader = table_reader(postgres.url, name, Order("id", "changed"), max_rows=2)
    batches = list(all_batches(reader, reader.initialOffset()))
    assert [[row["id"] for row in rows] for _, rows in batches] == [[1, 2], [3]]
    database.execute(f"UPDATE {name} SET changed = %s, text = 'new' WHERE id = 1", (moment + timedelta(seconds=1),))
    again = table_reader(postgres.url, name, Order("id", "changed"), max_rows=2)
    ((_, rows),) = all_batches(again, batches[-1][0])
    assert [(row["id"], row["text"]) for row in rows] == [(1, "new")]
    delayed = table_reader(postgres.url, name, Order("id", "changed"), delay_ms=2 * 3_600_000)
    assert list(all_batches(delayed, delayed.initialOffset())) == []


def test_rows_of_one_timestamp_stay_together(
    postgres: PostgresProcess, database: psycopg.Connection[Any], name: str
) -> None:
    database.execute(f"CREATE TABLE {name} (id bigint, changed timestamptz)")
    database.execute(f"INSERT INTO {name} SELECT i, timestamptz '2024-01-01' FROM generate_series(1, 5) i")
    database.execute(f"INSERT INTO {name} VALUES (6, '2024-01-02')")
    reader = table_reader(postgres.url, name, Order(None, "changed"), max_rows=2)
    batches = [sorted(row["id"] for row in rows) for _, rows in all_batches(reader, reader.initialOffset())]
    assert batches == [[1, 2, 3, 4, 5], [6]]


def test_a_checkpoint_of_other_columns_is_refused(
    postgres: PostgresProcess, database: psycopg.Connection[Any], name: str
) -> None:
    database.execute(f"CREATE TABLE {name} (id bigint, changed timestamptz)")
    reader = table_reader(postgres.url, name, Order("id", "changed"))
    with pytest.raises(TablePositionError, match="other columns"):
        reader.latestOffset({"incrementing": 4, "timestamp": None}, ReadAllAvailable())
    with pytest.raises(TablePositionError, match="another source"):
        reader.latestOffset({"t": {"0": 1}}, ReadAllAvailable())


def test_values_of_a_table(postgres: PostgresProcess, database: psycopg.Connection[Any], name: str) -> None:
    database.execute(
        f"CREATE TABLE {name} (id int, b bool, n numeric(12,2), free numeric, wide numeric(60,2), d date, raw bytea, "
        '"at" timestamptz, doc jsonb, tags text[], u uuid, f real, "odd ""name" smallint)'
    )
    uuid = "6f1e2ad4-2f0b-4f2e-8a31-0f3f6a1f7a10"
    database.execute(
        f"INSERT INTO {name} VALUES (1, true, 1.50, 2.25, 3.5, '2024-02-29', '\\x00ff', '2024-02-29 01:00+01', "
        f"'{{\"a\": 1}}', '{{x,y}}', '{uuid}', 0.5, -3)"
    )
    database.execute(f"INSERT INTO {name} (id) VALUES (2)")
    reader = table_reader(postgres.url, name, Order("id", None))
    ((_, (row, empty)),) = all_batches(reader, reader.initialOffset())
    assert row == {
        "id": 1,
        "b": True,
        "n": Decimal("1.50"),
        "free": Decimal("2.25"),
        "wide": "3.50",
        "d": date(2024, 2, 29),
        "raw": b"\x00\xff",
        "at": datetime(2024, 2, 29, tzinfo=UTC),
        "doc": '{"a": 1}',
        "tags": "{x,y}",
        "u": uuid,
        "f": 0.5,
        'odd "name': -3,
    }
    assert set(empty.values()) == {2, None}


# Changes


class Changes:
    """A table that is followed, with a slot and a publication of its own."""

    def __init__(self, server: PostgresProcess, database: psycopg.Connection[Any], name: str) -> None:
        self.server, self.database, self.name = server, database, name
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, text text, big text)")
        database.execute(f"ALTER TABLE {name} ALTER big SET STORAGE EXTERNAL")
        database.execute(f"CREATE TABLE other_{name} (id int)")
        ReplicationSlot(database, name, name).create_publication([f"public.{name}"])

    def reader(self, **options: Any) -> ChangeStreamReader:
        settings = {"snapshot": False, "poll_interval_ms": 0, **options}
        return ChangeStreamReader(ChangeOptions(self.server.url, self.name, self.name, **settings))

    def run(self, statement: str) -> None:
        self.database.execute(statement.replace("TABLE_", self.name).encode())

    def confirmed_lsn(self) -> int:
        state = ReplicationSlot(self.database, self.name, self.name).state()
        assert state is not None
        return state.confirmed_lsn


@pytest.fixture
def changes(postgres: PostgresProcess, database: psycopg.Connection[Any], name: str) -> Iterator[Changes]:
    yield Changes(postgres, database, name)
    database.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", (name,)
    )


def brief(rows: list[Row]) -> list[tuple[str, object]]:
    return [(row["op"], json.loads(row["key"])["id"] if row["key"] else None) for row in rows]


def test_changes_come_in_whole_transactions_and_can_be_read_again(changes: Changes) -> None:
    reader = changes.reader(max_changes=3)
    start = reader.initialOffset()
    changes.run("INSERT INTO TABLE_ SELECT i, 'a' FROM generate_series(1, 4) i")
    changes.run("UPDATE TABLE_ SET text = 'b' WHERE id = 2; DELETE FROM TABLE_ WHERE id = 3")
    changes.run("INSERT INTO other_TABLE_ VALUES (1)")
    changes.run("TRUNCATE TABLE_")
    batches = list(all_batches(reader, start))
    assert [brief(rows) for _, rows in batches] == [
        [("insert", 1), ("insert", 2), ("insert", 3), ("insert", 4)],
        [("update", 2), ("delete", 3), ("truncate", None)],
    ]
    first_end, first_rows = batches[0]
    assert [row["seq"] for row in first_rows] == [0, 1, 2, 3]
    assert len({row["xid"] for row in first_rows}) == 1
    assert first_rows[0]["lsn"] < batches[1][1][0]["lsn"]
    before = changes.confirmed_lsn()
    assert rows_between(changes.reader(), start, first_end) == first_rows
    assert rows_between(changes.reader(), first_end, batches[1][0]) == batches[1][1]
    assert changes.confirmed_lsn() == before, "reading moves nothing"
    reader.commit(first_end)
    assert changes.confirmed_lsn() > before
    assert rows_between(changes.reader(), first_end, batches[1][0]) == batches[1][1]


def test_a_batch_that_was_not_confirmed_does_not_hide_the_next(changes: Changes) -> None:
    reader = changes.reader(max_changes=2)
    start = reader.initialOffset()
    changes.run("INSERT INTO TABLE_ SELECT i, 'a' FROM generate_series(1, 50) i")
    end = reader.latestOffset(start, ReadAllAvailable())
    changes.run("INSERT INTO TABLE_ VALUES (51, 'a')")
    after = reader.latestOffset(end, ReadAllAvailable())
    assert brief(rows_between(reader, end, after)) == [("insert", 51)]


def test_interleaved_transactions_come_in_the_order_of_their_commits(changes: Changes) -> None:
    reader = changes.reader()
    start = reader.initialOffset()
    with psycopg.connect(changes.server.url) as slow:
        slow.execute(f"INSERT INTO {changes.name} VALUES (1, 'begun first')".encode())
        changes.run("INSERT INTO TABLE_ VALUES (2, 'committed first')")
        end = reader.latestOffset(start, ReadAllAvailable())
        assert brief(rows_between(reader, start, end)) == [("insert", 2)]
    after = reader.latestOffset(end, ReadAllAvailable())
    assert brief(rows_between(reader, end, after)) == [("insert", 1)]


def test_large_values_that_an_update_left_alone(changes: Changes) -> None:
    reader = changes.reader()
    start = reader.initialOffset()
    changes.run("INSERT INTO TABLE_ VALUES (1, 'a', repeat('x', 10000))")
    changes.run("UPDATE TABLE_ SET text = 'b'")
    changes.run("ALTER TABLE TABLE_ REPLICA IDENTITY FULL")
    changes.run("UPDATE TABLE_ SET text = 'c'")
    changes.run("UPDATE TABLE_ SET id = 2")
    ((_, rows),) = all_batches(reader, start)
    assert brief(rows) == [("insert", 1), ("update", 1), ("update", 1), ("delete", 1), ("insert", 2)]
    assert json.loads(rows[1]["after"]) == {"id": 1, "text": "b"}
    assert json.loads(rows[2]["after"]) == {"id": 1, "text": "c", "big": "x" * 10000}
    assert json.loads(rows[4]["after"]) == {"id": 2, "text": "c", "big": "x" * 10000}


def test_a_snapshot_comes_first_and_looks_like_changes(changes: Changes) -> None:
    changes.run("INSERT INTO TABLE_ VALUES (1, E'tab\\t', NULL), (2, '', 'b')")
    reader = changes.reader(snapshot=True)
    start = reader.initialOffset()
    assert start["snapshot"] == "pending"
    end = reader.latestOffset(start, ReadAllAvailable())
    rows = rows_between(reader, start, end)
    assert brief(rows) == [("snapshot", 1), ("snapshot", 2)]
    assert json.loads(rows[0]["after"]) == {"id": 1, "text": "tab\t", "big": None}
    assert json.loads(rows[1]["after"]) == {"id": 2, "text": "", "big": "b"}
    changes.run("INSERT INTO TABLE_ VALUES (3)")
    ((_, after),) = all_batches(reader, end)
    assert brief(after) == [("insert", 3)]
    assert rows[0]["lsn"] <= after[0]["lsn"]


def test_lost_changes_are_reported(changes: Changes) -> None:
    reader = changes.reader()
    start = reader.initialOffset()
    changes.run("INSERT INTO TABLE_ VALUES (1)")
    end = reader.latestOffset(start, ReadAllAvailable())
    reader.commit(end)
    with pytest.raises(ChangesLostError, match="past the checkpoint"):
        changes.reader().latestOffset(start, ReadAllAvailable())
    changes.database.execute("SELECT pg_drop_replication_slot(%s)", (changes.name,))
    with pytest.raises(ChangesLostError, match="is gone"):
        changes.reader().latestOffset(end, ReadAllAvailable())


def test_the_slot_moves_past_a_log_of_other_tables(changes: Changes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_source, "MARK_AFTER_BYTES", 10_000)
    reader = changes.reader()
    start = reader.initialOffset()
    changes.run("INSERT INTO other_TABLE_ SELECT generate_series(1, 1000)")
    end = start
    for _ in range(200):
        # The server writes the mark out when it likes.
        changes.run("CHECKPOINT")
        end = reader.latestOffset(start, ReadAllAvailable())
        if end != start:
            break
    assert end != start
    assert rows_between(reader, start, end) == []
    reader.commit(end)
    changes.run("INSERT INTO TABLE_ VALUES (1)")
    after = reader.latestOffset(end, ReadAllAvailable())
    assert brief(rows_between(reader, end, after)) == [("insert", 1)]
