"""SQLite, PostgreSQL and MariaDB behind the same interface: rows, keys, types, names, and what is remembered."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from ottla.spark.connect.batch_progress import Progress
from ottla.spark.connect.column_types import TableColumn, TableSchemaError
from ottla.spark.connect.database import Database, DatabaseError, open_database, without_password
from ottla.spark.connect.database_target import Target
from tests.spark.mariadb import MariadbProcess
from tests.spark.postgres import PostgresProcess

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.usefixtures("spark")]

_numbers = itertools.count()


class Place:
    """A database of any kind, looked at with its own driver."""

    def __init__(self, url: str, rows: Callable[[str], list[tuple[object, ...]]]) -> None:
        self.url = url
        self.database: Database = open_database(url)
        self.rows = rows
        self.table = f't "{next(_numbers)}` ? %s'
        self.quoted_table = self.database.dialect.quoted_table(self.table)

    def all(self) -> list[tuple[object, ...]]:
        return self.rows(f"SELECT * FROM {self.quoted_table} ORDER BY 1")

    def create(self, schema: str, *keys: str) -> None:
        with self.database.transaction() as session:
            session.create_table(self.table, StructType.fromDDL(schema), keys)


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        path = tmp_path / "some.db"

        def from_sqlite(query: str) -> list[tuple[object, ...]]:
            with sqlite3.connect(path) as connection:
                return connection.execute(query).fetchall()

        return Place(f"sqlite:{path}", from_sqlite)
    if request.param == "mysql":
        mariadb: MariadbProcess = request.getfixturevalue("mariadb")
        return Place(mariadb.url, mariadb.rows)
    server: PostgresProcess = request.getfixturevalue("postgres")
    return Place(server.url, server.rows)


def batch(**columns: list[object]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_rows_are_appended_in_whole_transactions(place: Place) -> None:
    place.create("`a b` int, text string")
    names = ["a b", "text"]
    with place.database.transaction() as session:
        first = batch(**{"a b": [1, 2], "text": ["", None]})
        session.append(place.table, names, [first, batch(**{"a b": [3], "text": ['x,"y"\n\\.']})])
    with pytest.raises(ZeroDivisionError), place.database.transaction() as session:
        session.append(place.table, names, [batch(**{"a b": [4], "text": ["lost"]})])
        raise ZeroDivisionError
    assert place.all() == [(1, ""), (2, None), (3, 'x,"y"\n\\.')]


def test_an_upsert_keeps_the_last_row_of_a_key(place: Place) -> None:
    place.create("k int, part string, v string", "k", "part")
    names = ["k", "part", "v"]
    for values in (["a", "b", "c"], ["d", "e", "f"]):
        with place.database.transaction() as session:
            rows = batch(k=[1, 1, 2], part=["x", "x", "x"], v=values)
            session.upsert(place.table, names, ["part", "k"], [rows, batch(k=[3], part=["x"], v=values[:1])])
        assert place.all() == [(1, "x", values[1]), (2, "x", values[2]), (3, "x", values[0])]


def test_an_upsert_of_keys_alone(place: Place) -> None:
    place.create("k int", "k")
    for _ in range(2):
        with place.database.transaction() as session:
            session.upsert(place.table, ["k"], ["k"], [batch(k=[1, 1, 2])])
    assert place.all() == [(1,), (2,)]


def test_values_of_every_type(place: Place) -> None:
    place.create(
        "i bigint, b boolean, s smallint, f float, d double, t string, raw binary, day date, at timestamp, "
        "local timestamp_ntz, n decimal(20,3)"
    )
    moment = datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC)
    columns = {
        "i": pa.array([1, None], pa.int64()),
        "b": pa.array([True, None]),
        "s": pa.array([-5, None], pa.int16()),
        "f": pa.array([0.5, None], pa.float32()),
        "d": pa.array([1e300, None], pa.float64()),
        "t": pa.array(["ä\t'", None]),
        "raw": pa.array([b"\x00\xff\\", None]),
        "day": pa.array([date(2024, 2, 29), None]),
        "at": pa.array([moment, None], pa.timestamp("us", tz="UTC")),
        "local": pa.array([moment.replace(tzinfo=None), None], pa.timestamp("us")),
        "n": pa.array([Decimal("12345678901234567.100"), None], pa.decimal128(20, 3)),
    }
    with place.database.transaction() as session:
        session.append(place.table, list(columns), [pa.record_batch(columns)])
    row = next(row for row in place.all() if row[0] == 1)
    if place.url.startswith("sqlite"):
        assert row[7:] == (
            "2024-02-29",
            "2024-02-29 01:02:03.000004+00:00",
            "2024-02-29 01:02:03.000004",
            "12345678901234567.100",
        )
    elif place.url.startswith("mysql"):
        local = moment.replace(tzinfo=None)
        assert row[7:] == (date(2024, 2, 29), local, local, Decimal("12345678901234567.100"))
    else:
        assert row[7:] == (date(2024, 2, 29), moment, moment.replace(tzinfo=None), Decimal("12345678901234567.100"))
    assert row[:7] == (1, True, -5, 0.5, 1e300, "ä\t'", b"\x00\xff\\")
    assert (None,) * 11 in place.all()


def test_progress_is_remembered_per_sink_and_with_the_rows(place: Place) -> None:
    sink = f"sink {place.table}"
    first, second = Progress("q", 1, ('{"a":1}', '{"b":2}')), Progress("q", 2, ("{}", "{}"))
    with place.database.transaction() as session:
        session.claim(sink)
        assert session.progress(sink) is None
        session.save_progress(sink, first)
    with pytest.raises(ZeroDivisionError), place.database.transaction() as session:
        session.claim(sink)
        session.save_progress(sink, second)
        raise ZeroDivisionError
    with place.database.transaction() as session:
        assert session.progress(sink) == first
        session.save_progress(sink, second)
        session.save_progress(sink + "2", first)
        assert session.progress(sink) == second


def test_the_shape_of_a_table(place: Place) -> None:
    assert Target(place.database, place.table, create=True).check() is None
    with place.database.transaction() as session:
        assert session.columns("no such table") is None
        session.run(
            f"CREATE TABLE {place.quoted_table} (id integer NOT NULL, a varchar(9) NOT NULL, "
            "b varchar(9) NOT NULL DEFAULT 'x', c varchar(9), PRIMARY KEY (id, a), UNIQUE (c))"
        )
        index = place.database.dialect.quoted(f"only some {place.table}")
        some = "(b(3))" if place.url.startswith("mysql") else "(b) WHERE b > 'a'"
        session.run(f"CREATE UNIQUE INDEX {index} ON {place.quoted_table} {some}")
    with place.database.transaction() as session:
        columns = session.columns(place.table)
        assert columns == [
            TableColumn("id", True),
            TableColumn("a", True),
            TableColumn("b", False),
            TableColumn("c", False),
        ]
        assert set(session.unique_keys(place.table)) == {frozenset({"id", "a"}), frozenset({"c"})}


@pytest.mark.parametrize(
    ("schema", "options", "words"),
    [
        ("id int, a string, colour string", {}, "no column 'colour'"),
        ("id int", {}, "insists on a value for 'a'"),
        ("id int, a string", {"mode": "upsert"}, "needs keys"),
        ("id int, a string", {"mode": "upsert", "keys": ("id",)}, "unique index on exactly id"),
        ("id int, a string", {"mode": "upsert", "keys": ("ident",)}, "'ident' is missing"),
        ("id int, a string", {"mode": "merge"}, "no mode 'merge'"),
        ("id int, a string", {"mode": "changes", "keys": ("id", "a")}, "op, key, before, after is missing"),
        ("id int, a string", {"mode": "changes", "keys": ("id",), "create": True}, "cannot be created"),
        ("id int, a string", {"table": "elsewhere"}, "no table elsewhere"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused(
    place: Place, schema: str, options: dict[str, object], words: str
) -> None:
    with place.database.transaction() as session:
        session.run(
            f"CREATE TABLE {place.quoted_table} (id integer NOT NULL, a varchar(9) NOT NULL, PRIMARY KEY (id, a))"
        )
    target = Target(place.database, **{"table": place.table, **options})  # type: ignore[arg-type]
    with pytest.raises(TableSchemaError, match=words):
        target.check(StructType.fromDDL(schema), "append")


def test_output_modes_have_their_modes_of_writing(place: Place) -> None:
    with pytest.raises(TableSchemaError, match="use upsert"):
        Target(place.database, place.table, create=True).check(output_mode="update")
    with pytest.raises(TableSchemaError, match="use upsert or replace"):
        Target(place.database, place.table, create=True).check(output_mode="complete")


def test_nested_columns_are_refused_with_advice(place: Place) -> None:
    with pytest.raises(TableSchemaError, match=r"'tags' of type array<string>.*to_json"):
        place.create("id int, tags array<string>")


def test_addresses(tmp_path: Path) -> None:
    assert open_database("sqlite:///a.db", directory=tmp_path).shown_url == f"sqlite:{tmp_path}/a.db"
    assert open_database("sqlite:////abs/a.db", directory=tmp_path).shown_url == "sqlite:/abs/a.db"
    assert without_password("postgresql://me:secret@host:5432/db?sslmode=require") == (
        "postgresql://me@host:5432/db?sslmode=require"
    )
    assert "secret" not in without_password("postgresql://host/db?user=me&password=secret")
    for url in ("oracle://host/db", "sqlite:", "orders.db"):
        with pytest.raises(DatabaseError, match="no database that is known"):
            open_database(url)


def test_a_database_that_cannot_be_reached(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="there is no directory"):
        Target(open_database(f"sqlite:{tmp_path}/missing/a.db"), "t", create=True).check()
    with pytest.raises(TableSchemaError, match="there is no database"):
        Target(open_database(f"sqlite:{tmp_path}/a.db"), "t").check()
    assert not (tmp_path / "a.db").exists()
    with pytest.raises(DatabaseError) as caught, open_database("postgresql://me:secret@127.0.0.1:1/db").transaction():
        pass
    assert "secret" not in str(caught.value)
