"""PostgreSQL as a sink's database: what is said to the server, and what its answers mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

import psycopg
import pyarrow as pa
from pyspark.sql.types import DecimalType, StringType, StructField, StructType

from ottla.spark.connect.batch_progress import Progress
from ottla.spark.connect.column_types import TableColumn
from ottla.spark.connect.copy_rows import copy_batches
from ottla.spark.connect.database import DatabaseError
from ottla.spark.connect.postgresql import PostgresDatabase, PostgresSession
from tests.unit.spark.connect.scripted_postgres import Server

URL = "postgresql://u:secret@h/d"
PROGRESS = Progress("q-1", 7, ('{"a":1}', "x"))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(psycopg, "connect", server.connect)
    return server


@pytest.fixture
def session(server: Server) -> Iterator[PostgresSession]:
    with PostgresDatabase(URL).transaction() as session:
        yield session


def batch(**columns: list[Any]) -> pa.RecordBatch:
    return pa.record_batch(list(map(pa.array, columns.values())), names=list(columns))


@pytest.mark.parametrize(("read_only", "first"), [({"read_only": True}, ["SET TRANSACTION READ ONLY"]), ({}, [])])
def test_a_transaction(server: Server, read_only: Any, first: list[str]) -> None:
    database = PostgresDatabase(URL)
    assert (database.shown_url, database.exists()) == ("postgresql://u@h/d", True)
    with database.transaction(**read_only) as session:
        session.run("DELETE FROM t")
    assert server.told == [
        "SET client_encoding TO 'UTF8'; SET timezone TO 'UTC'; SET datestyle TO ISO",
        *first,
        "DELETE FROM t",
        "COMMIT",
        "CLOSE",
    ]
    options = {"autocommit": False, "connect_timeout": 15, "application_name": "ottla"}
    assert server.opened == [(URL, options)]


def test_errors_say_where_and_no_password(server: Server) -> None:
    server.fails("connect", psycopg.OperationalError(" refused\n"))
    words = r"^no connection to postgresql://u@h/d: refused$"
    with pytest.raises(DatabaseError, match=words), PostgresDatabase(URL).transaction():
        pytest.fail("nobody is connected")
    server.fails("DELETE", psycopg.errors.UndefinedTable("no table\n"))
    words = r"^postgresql://u@h/d: no table$"
    with pytest.raises(DatabaseError, match=words), PostgresDatabase(URL).transaction() as session:
        session.run("DELETE FROM t")
    assert server.told[-2:] == ["ROLLBACK", "CLOSE"]


def test_columns_and_unique_indexes(server: Server, session: PostgresSession) -> None:
    assert session.columns("s.t") is None, "there is no such table"
    server.says("attnotnull", ("id", True), ("name", False))
    assert session.columns("s.t") == [TableColumn("id", True), TableColumn("name", False)]
    assert session.unique_keys("s.t") == []
    server.says("pg_index", (["a", "b"],), (["c"],))
    assert session.unique_keys("s.t") == [{"a", "b"}, {"c"}]
    assert all(each[1:] == ('"s"."t"',) for each in server.told if isinstance(each, tuple))
    assert session.obstacle("t", ["a"], ["a"]) is None, "an upsert names its index"
    assert session.change_converters("t") == {}, "changes are as PostgreSQL writes values"


def test_a_new_table_is_waited_for_by_whoever_else_makes_it(server: Server, session: PostgresSession) -> None:
    schema = StructType([StructField("k", StringType()), StructField("n", DecimalType(10, 2))])
    session.create_table("t", schema, ["k"])
    assert server.statements == [
        ("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", "ottla create t"),
        'CREATE TABLE IF NOT EXISTS "t" ("k" text, "n" numeric(10, 2), PRIMARY KEY ("k"))',
    ]


def test_a_sink_is_claimed_by_a_lock_of_its_own(server: Server, session: PostgresSession) -> None:
    session.claim("s")
    locked = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
    looked, first, created, last = server.statements
    assert (first, last) == ((locked, "ottla create ottla_progress"), (locked, "ottla sink s"))
    assert str(created).startswith("CREATE TABLE IF NOT EXISTS ottla_progress (sink text PRIMARY KEY")
    server.says("attnotnull", ("sink", True))
    server.told.clear()
    session.claim("s")
    assert server.told == [looked, last], "the lock for all sinks is only taken where there is something to create"


def test_progress_is_what_the_sinks_row_says(server: Server, session: PostgresSession) -> None:
    assert session.progress("s") is None
    server.says("FROM ottla_progress", ("q-1", 7, '["{\\"a\\":1}", "x"]'))
    assert session.progress("s") == PROGRESS
    assert server.told[-1] == ("SELECT query_id, batch_id, offsets FROM ottla_progress WHERE sink = %s", "s")


def test_progress_is_saved(server: Server, session: PostgresSession) -> None:
    session.save_progress("s", PROGRESS)
    (saved,) = server.statements
    assert isinstance(saved, tuple) and saved[1:] == ("s", "q-1", 7, '["{\\"a\\":1}", "x"]')
    assert saved[0].startswith("INSERT INTO ottla_progress (sink, query_id, batch_id, offsets) VALUES (%s, %s, %s, %s)")


def test_rows_are_copied(server: Server, session: PostgresSession) -> None:
    """No text stays apart from an empty one."""
    session.append("s.t", ["a", "b"], [batch(a=[1, 2], b=["x", None]), batch(a=[3], b=['say "z"'])])
    assert server.statements == ['COPY "s"."t" ("a", "b") FROM STDIN (FORMAT csv)']
    assert server.copied.decode().splitlines() == ['"1","x"', '"2",', '"3","say ""z"""']


def test_bytes_are_copied_as_hexadecimal_digits(server: Server, session: PostgresSession) -> None:
    values = [b"\x00\xff", None, b""]
    session.append("t", ["a"], [batch(a=values), pa.record_batch([pa.array(values, pa.large_binary())], names=["a"])])
    assert server.copied.decode().splitlines() == ['"\\x00ff"', "", '"\\x"'] * 2


def test_copied_rows_are_counted_and_marked(server: Server) -> None:
    connection: Any = server.connect(URL)
    batches = [batch(a=["x", "y"]), batch(a=["z"])]
    assert copy_batches(connection, "t", ["a"], batches) == 3
    assert server.copied == b'"x"\n"y"\n"z"\n'
    server.copied = b""
    assert copy_batches(connection, "t", ["a"], batches, part=0) == 3
    assert server.copied == b'"x","0","0","0"\n"y","0","0","1"\n"z","0","0","2"\n'
    server.copied = b""
    assert copy_batches(connection, "t", ["a"], batches[1:], part=4, attempt=9) == 1
    assert server.copied == b'"z","4","9","0"\n'
    assert server.told[-1] == 'COPY "t" ("a", "ottla_part", "ottla_attempt", "ottla_row") FROM STDIN (FORMAT csv)'
    assert copy_batches(connection, "t", ["a"], []) == 0


def test_rows_that_replace_those_of_their_keys(server: Server, session: PostgresSession) -> None:
    """They arrive in a table of the transaction's own, and the last row of each key goes on."""
    session.upsert("t", ["a", "b"], ["a"], [batch(a=[1, 1], b=["x", "y"])])
    assert server.statements == [
        "CREATE TEMPORARY TABLE ottla_arrivals ON COMMIT DROP AS "
        'SELECT "a", "b", 0 AS ottla_part, 0::bigint AS ottla_attempt, 0::bigint AS ottla_row FROM "t" WITH NO DATA',
        'COPY "ottla_arrivals" ("a", "b", "ottla_part", "ottla_attempt", "ottla_row") FROM STDIN (FORMAT csv)',
        'INSERT INTO "t" ("a", "b") SELECT DISTINCT ON ("a") "a", "b" FROM "ottla_arrivals" '
        "WHERE (ottla_part, ottla_attempt) IN ((0, 0)) "
        'ORDER BY "a", ottla_part DESC, ottla_row DESC ON CONFLICT ("a") DO UPDATE SET "b" = excluded."b"',
    ]
    assert server.copied == b'"1","x","0","0","0"\n"1","y","0","0","1"\n'


def test_a_statement_runs_for_each_of_its_rows(server: Server, session: PostgresSession) -> None:
    session.run('DELETE FROM t WHERE "?%" = ?', [[1], ["x"]])
    assert server.statements == [('DELETE FROM t WHERE "?%%" = %s', 1), ('DELETE FROM t WHERE "?%%" = %s', "x")]


def test_a_count(server: Server, session: PostgresSession) -> None:
    server.says("count(*)", ("12",))
    assert session.count("SELECT count(*) FROM t") == 12
