"""What parts that read from a database find out before anything runs, and what they ask Spark to read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

import psycopg

from ottla.spark.connect import changes, files, tables
from ottla.spark.connect.change_source import PostgresChangeSource
from ottla.spark.connect.changes import ChangesSource
from ottla.spark.connect.database import DatabaseError
from ottla.spark.connect.table_source import DatabaseTableSource
from ottla.spark.connect.tables import TableSource
from ottla.spark.pipeline.problems import Place
from ottla.spark.pipeline.section import Section
from tests.unit.spark.connect.scripted_postgres import Server


def section(**values: object) -> Section:
    return Section.of(values, Place("pipeline.yaml", 3), "part x", directory=Path("/pipelines"))


def test_formats_of_files() -> None:
    assert files.FORMATS == ("text", "json", "csv", "parquet")
    assert sorted(files.FORMATS_OF_FILES) == sorted(
        {"text", "json", "csv", "parquet", "orc", "avro", "xml", "binaryFile"}
    )


def told(part: Any) -> list[str]:
    return [problem.message.removeprefix("part x: ") for problem in part.check()]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """One with all that a source of changes needs."""
    server = Server()
    monkeypatch.setattr(psycopg, "connect", server.connect)
    server.says("wal_level", ("logical",))
    server.says("pg_publication", (1,))
    server.says("pg_attribute", ("id", 20, -1))
    return server


def changes_of(**options: object) -> ChangesSource:
    return ChangesSource.from_section(section(url="postgresql://h/d", slot="s", **options))


def test_changes_that_can_be_read(server: Server) -> None:
    assert told(changes_of()) == told(changes_of(tables=["a", "b"])) == []
    assert server.opened[0][1]["autocommit"] is True
    assert server.told[-1] == "CLOSE"


def test_a_server_that_does_not_keep_changes(server: Server) -> None:
    server.says("wal_level", ("replica",))
    assert told(changes_of()) == ["the server must run with wal_level = logical"]


def test_a_publication_that_is_not_there_is_only_made_for_tables(server: Server) -> None:
    server.says("pg_publication")
    assert told(changes_of(publication="p")) == ["there is no publication 'p': make it, or name the 'tables'"]
    assert told(changes_of(publication="p", tables=["a"])) == []


def test_tables_that_are_not_there(server: Server) -> None:
    server.says("pg_attribute")
    assert told(changes_of(tables=["a", "b.c"])) == ["there is no table a, b.c"]


def test_a_slot_of_somebody_else(server: Server) -> None:
    server.says("pg_replication_slots", ("0/1", "reserved", "wal2json", True))
    (problem,) = told(changes_of())
    assert "the replication slot s is not one of pgoutput" in problem


def test_no_connection(server: Server) -> None:
    server.fails("connect", psycopg.OperationalError("refused"))
    assert told(changes_of()) == ["no connection to postgresql://h/d: refused"]


class Tables:
    """A server of tables: a number, a time and a text; `fails` says what it refuses."""

    number_kinds = ("bigint", "int")
    moment_kinds = ("timestamp",)

    def __init__(self, fails: str = "") -> None:
        self._fails = fails
        self.is_closed = False

    def columns(self, table: str) -> Sequence[Any]:
        if self._fails == "columns":
            raise DatabaseError("refused")
        kinds = {"id": "bigint", "at": "timestamp", "name": "text"} if table == "t" else {}
        return [SimpleNamespace(name=name, kind=kind) for name, kind in kinds.items()]

    def writers(self) -> object:
        if self._fails == "writers":
            raise DatabaseError("denied")
        return ()

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize(
    ("options", "fails", "problems"),
    [
        ({}, "", []),
        ({}, "writers", []),
        ({"incrementing": "id"}, "", []),
        ({"timestamp": "at"}, "", []),
        ({"incrementing": "id", "timestamp": "at"}, "", []),
        ({}, "columns", ["refused"]),
        ({"table": "u"}, "", ["there is no table u"]),
        ({"incrementing": "no"}, "", ["table t has no column 'no'; it has id, at, name"]),
        ({"incrementing": "name"}, "", ["column 'name' cannot be used as incrementing: it must be bigint, int"]),
        ({"incrementing": "at"}, "", ["column 'at' cannot be used as incrementing: it must be bigint, int"]),
        ({"timestamp": "id"}, "", ["column 'id' cannot be used as timestamp: it must be timestamp"]),
        (
            {"incrementing": "id"},
            "writers",
            ["denied; grant it to see the transactions of others, or set it to false"],
        ),
        ({"timestamp": "at"}, "writers", ["denied; grant it to see the transactions of others, or set it to false"]),
        ({"incrementing": "id", "wait_for_writers": False}, "writers", []),
    ],
)
def test_whether_a_table_can_be_followed(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], fails: str, problems: list[str]
) -> None:
    server = Tables(fails)
    monkeypatch.setattr(tables, "open_table_server", lambda url: server)
    assert told(TableSource.from_section(section(**{"url": "mysql://h/d", "table": "t", **options}))) == problems
    assert server.is_closed


class Reader:
    """Notes what Spark is told to read, as a stream or as it stands."""

    def __init__(self) -> None:
        self.registered: list[object] = []
        self.dataSource = SimpleNamespace(register=self.registered.append)
        self.read = self
        self.named = ""
        self.told: dict[str, str] = {}

    def format(self, name: str) -> Reader:
        self.named = name
        return self

    def options(self, **options: str) -> Reader:
        self.told = options
        return self

    def load(self) -> str:
        return f"{self.named} of {self.told['url']}"


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Any:
    reader = Reader()
    for module in (changes, tables):
        monkeypatch.setattr(module, "stream_reader", lambda spark, name: spark.format(name))
    return reader


def test_what_spark_is_told_to_read(spark: Any) -> None:
    assert changes_of().load(spark) == "ottla_changes of postgresql://h/d"  # type: ignore[comparison-overlap]
    made = TableSource.from_section(section(url="mysql://h/d", table="t", incrementing="id"))
    assert made.load(spark) == made.load_table(spark) == "ottla_table of mysql://h/d"  # type: ignore[comparison-overlap]
    assert spark.told["incrementing"] == "id"
    assert spark.registered == [PostgresChangeSource, DatabaseTableSource, DatabaseTableSource]
