"""SQLite as a sink's database, without Spark: tables as they are, rows as they are stored, and all or nothing."""

from __future__ import annotations

import datetime
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.types import DecimalType, FloatType, StringType, StructType  # noqa: E402

from ottla.spark.connect.batch_progress import Progress  # noqa: E402
from ottla.spark.connect.column_types import TableColumn  # noqa: E402
from ottla.spark.connect.database import (  # noqa: E402
    DatabaseError,
    TooManyRowsError,
    at_most,
    without_password,
)
from ottla.spark.connect.sqlite import SqliteDatabase  # noqa: E402


@pytest.fixture
def database(tmp_path: Path) -> SqliteDatabase:
    return SqliteDatabase(tmp_path / "x.db")


def rows_of(database: SqliteDatabase, query: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(database.path) as connection:
        return connection.execute(query).fetchall()


def test_a_transaction_is_all_or_nothing(database: SqliteDatabase) -> None:
    assert not database.exists()
    with database.transaction() as session:
        session.run("CREATE TABLE t (a INTEGER)")
        session.run("INSERT INTO t VALUES (?)", [(1,), (2,)])
    assert database.exists()
    with pytest.raises(LookupError), database.transaction() as session:
        session.run("INSERT INTO t VALUES (?)", [(3,)])
        assert session.count("SELECT count(*) FROM t") == 3
        raise LookupError
    with database.transaction(read_only=True) as session:
        assert session.count("SELECT count(*) FROM t") == 2
    with pytest.raises(DatabaseError, match=r"x\.db.*no such table"), database.transaction() as session:
        session.count("SELECT count(*) FROM nowhere")


def test_a_file_that_cannot_be_made_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="there is no directory"):
        SqliteDatabase(tmp_path / "nowhere" / "x.db").exists()
    with pytest.raises(DatabaseError, match="cannot be opened"), SqliteDatabase(tmp_path).transaction():
        pass


def test_progress_is_that_of_the_last_batch_of_each_sink(database: SqliteDatabase) -> None:
    with database.transaction() as session:
        session.claim("a")
        assert session.progress("a") is None
        for number in (1, 2):
            session.save_progress("a", Progress("query", number, ("one", "two")))
        session.save_progress("b", Progress("other", 9, ()))
    with database.transaction() as session:
        session.claim("a")
        assert session.progress("a") == Progress("query", 2, ("one", "two"))
        assert session.progress("b") == Progress("other", 9, ())
        assert session.progress("c") is None


def test_which_columns_a_row_must_have(database: SqliteDatabase) -> None:
    with database.transaction() as session:
        session.run("CREATE TABLE numbered (id INTEGER PRIMARY KEY NOT NULL, a TEXT NOT NULL, b TEXT)")
        session.run("CREATE TABLE paired (x INTEGER NOT NULL, y INTEGER NOT NULL DEFAULT 5, PRIMARY KEY (x, y))")
        session.run("CREATE TABLE named (id TEXT PRIMARY KEY NOT NULL)")
        assert session.columns("numbered") == [
            TableColumn("id", False),
            TableColumn("a", True),
            TableColumn("b", False),
        ]
        assert session.columns("main.paired") == [TableColumn("x", True), TableColumn("y", False)]
        assert session.columns("named") == [TableColumn("id", True)]
        assert session.columns("nowhere") is None


def test_what_is_unique(database: SqliteDatabase) -> None:
    with database.transaction() as session:
        session.run("CREATE TABLE t (a INTEGER, b INTEGER, c INTEGER UNIQUE, PRIMARY KEY (a, b))")
        session.run("CREATE UNIQUE INDEX partial ON t (b) WHERE b > 5")
        session.run("CREATE INDEX plain ON t (b)")
        for name in ("t", "main.t"):
            assert set(session.unique_keys(name)) == {frozenset({"a", "b"}), frozenset({"c"})}
        session.run("CREATE TABLE u (a INTEGER)")
        assert session.unique_keys("u") == []


def test_values_are_stored_as_text_that_sorts(database: SqliteDatabase) -> None:
    moment = datetime.datetime(2024, 2, 29, 1, 2, 3)
    batch = pa.RecordBatch.from_pydict(
        {
            "moment": pa.array([moment, None], pa.timestamp("us")),
            "day": pa.array([moment.date(), None], pa.date32()),
            "price": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
            "count": pa.array([7, None], pa.int64()),
            "raw": pa.array([b"x", None], pa.binary()),
        }
    )
    with database.transaction() as session:
        session.run("CREATE TABLE t (moment, day, price, count, raw)")
        session.append("t", batch.schema.names, [batch])
    assert rows_of(database, "SELECT * FROM t") == [
        ("2024-02-29 01:02:03.000000", "2024-02-29", "1.50", 7, b"x"),
        (None,) * 5,
    ]


def test_rows_replace_those_of_the_same_key(database: SqliteDatabase) -> None:
    batches = [pa.RecordBatch.from_pydict({"k": [1, 2], "v": [value, value]}) for value in ("old", "new")]
    with database.transaction() as session:
        session.run("CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT)")
        session.upsert("t", ["k", "v"], ["k"], batches[:1])
        session.upsert("t", ["k", "v"], ["k"], [batches[1].slice(1)])
    assert rows_of(database, "SELECT * FROM t ORDER BY k") == [(1, "old"), (2, "new")]


@pytest.mark.parametrize(
    ("max_rows", "is_fine"), [(None, True), (6, True), (5, True), (4, False), (2, False), (0, False)]
)
def test_rows_are_counted_over_all_batches(max_rows: int | None, is_fine: bool) -> None:
    batches = [pa.RecordBatch.from_pydict({"a": [0] * count}) for count in (2, 3)]
    if is_fine:
        assert list(at_most(batches, max_rows)) == batches
    else:
        with pytest.raises(TooManyRowsError, match=f"more than {max_rows} rows"):
            list(at_most(batches, max_rows))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@host:5432/db?a=1", "postgresql://me@host:5432/db?a=1"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("postgresql://host/db?password=secret&b=2", "postgresql://host/db?b=2"),
        ("postgresql://me:p@ss@host/db", "postgresql://me@host/db"),
    ],
)
def test_passwords_are_not_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_readers_go_on_while_a_batch_is_written(database: SqliteDatabase) -> None:
    with database.transaction(read_only=True) as session:
        assert session.count("SELECT count(*) FROM pragma_journal_mode WHERE journal_mode = 'delete'") == 1
    with database.transaction() as session:
        session.run("CREATE TABLE t (a INTEGER)")
    assert rows_of(database, "PRAGMA journal_mode") == [("wal",)]
    with database.transaction() as writer:
        writer.run("INSERT INTO t VALUES (1)")
        with database.transaction(read_only=True) as first, database.transaction(read_only=True) as second:
            assert first.count("SELECT count(*) FROM t") == second.count("SELECT count(*) FROM t") == 0
    assert rows_of(database, "SELECT a FROM t") == [(1,)]


def test_a_writer_has_the_file_for_itself_from_the_beginning(database: SqliteDatabase) -> None:
    def begin() -> None:
        with closing(sqlite3.connect(database.path, timeout=0, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")

    with database.transaction(), pytest.raises(sqlite3.OperationalError, match="locked"):
        begin()
    with database.transaction(read_only=True):
        begin()


def test_how_long_another_writer_is_waited_for(database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []
    connect: Any = sqlite3.connect

    def noted(path: Path, **options: Any) -> Any:
        asked.append(options)
        return connect(path, **options)

    monkeypatch.setattr(sqlite3, "connect", noted)
    with database.transaction():
        pass
    assert asked == [{"timeout": 600, "isolation_level": None}]


def test_a_new_table_has_the_columns_and_the_key(database: SqliteDatabase) -> None:
    schema = StructType().add("k", StringType()).add("n", DecimalType(5, 2)).add("f", FloatType())
    with database.transaction() as session:
        for keys in (["k", "n"], []):
            session.create_table("t", schema, keys)
        session.create_table("u", schema, [])
        assert session.unique_keys("t") == [{"k", "n"}, {"k", "n"}]
        assert session.unique_keys("u") == []
        assert session.change_converters("t") == {}
    assert [row[1:3] for row in rows_of(database, "PRAGMA table_info(t)")] == [
        ("k", "TEXT"),
        ("n", "TEXT"),
        ("f", "REAL"),
    ]
    assert database.shown_url == f"sqlite:{database.path}"


def test_a_statement_is_run_for_each_row_and_once_without_any(database: SqliteDatabase) -> None:
    with database.transaction() as session:
        session.run("CREATE TABLE t (a INTEGER)")
        session.run("INSERT INTO t VALUES (1)")
        session.run("INSERT INTO t VALUES (?)", [])
        session.run("INSERT INTO t VALUES (?)", [(2,), (3,)])
        assert session.count("SELECT sum(a) FROM t") == 6


@pytest.mark.parametrize(
    ("value", "kind", "stored"),
    [
        (Decimal("1E+3"), pa.decimal128(10, 0), "1000"),
        (Decimal("0.0000001"), pa.decimal128(10, 7), "0.0000001"),
        (datetime.datetime(2024, 1, 2, 3, 4, 5, 6), pa.timestamp("us"), "2024-01-02 03:04:05.000006"),
        (
            datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC),
            pa.timestamp("us", "UTC"),
            "2024-01-02 00:00:00.000000+00:00",
        ),
        (datetime.date(2024, 1, 2), pa.date64(), "2024-01-02"),
        (True, pa.bool_(), 1),
        (1.5, pa.float64(), 1.5),
        ("x", pa.string(), "x"),
    ],
)
def test_how_a_value_is_stored(database: SqliteDatabase, value: object, kind: Any, stored: object) -> None:
    with database.transaction() as session:
        session.run("CREATE TABLE t (a)")
        session.append("t", ["a"], [pa.record_batch([pa.array([value, None], kind)], names=["a"])])
    assert rows_of(database, "SELECT a FROM t") == [(stored,), (None,)]


def test_an_open_transaction_of_a_caller_that_fails_leaves_nothing(database: SqliteDatabase) -> None:
    with pytest.raises(DatabaseError, match=r"^sqlite:.*x\.db: near"), database.transaction() as session:
        session.run("CREATE TABLE t (a INTEGER)")
        session.run("nonsense")
    with database.transaction() as session:
        assert session.columns("t") is None
