"""MySQL as a sink's database: what is said to the server, and what its answers mean."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

import pyarrow as pa
import pymysql
from pyspark.sql.types import BinaryType, DecimalType, IntegerType, StringType, StructField, StructType

from ottla.spark.connect.batch_progress import Progress
from ottla.spark.connect.column_types import TableColumn
from ottla.spark.connect.database import DatabaseError
from ottla.spark.connect.mysql.database import MysqlDatabase, MysqlSession, exact_collation
from ottla.spark.connect.mysql.values import STATEMENT_BYTES
from tests.unit.spark.connect.scripted_mysql import Server

PROGRESS = Progress("q-1", 7, ('{"a":1}', "x"))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    server.says("version()", ("8.0.36",))
    monkeypatch.setattr(pymysql, "connect", server.connect)
    return server


@pytest.fixture
def session(server: Server) -> Iterator[MysqlSession]:
    with MysqlDatabase("mysql://u@h/d").transaction() as session:
        yield session


def batch(**columns: list[Any]) -> pa.RecordBatch:
    return pa.record_batch(list(map(pa.array, columns.values())), names=list(columns))


@pytest.mark.parametrize(("read_only", "first"), [(True, ["START TRANSACTION READ ONLY"]), (False, [])])
def test_a_transaction(server: Server, read_only: bool, first: list[str]) -> None:
    database = MysqlDatabase("mysql://u:secret@h/d")
    assert database.shown_url == "mysql://u@h/d"
    with database.transaction(read_only=read_only) as session:
        session.run("DELETE FROM t")
    assert server.statements == [*first, "DELETE FROM t", "COMMIT", "ROLLBACK", "CLOSE"]


def test_a_transaction_is_for_writing_if_nothing_else_is_said(server: Server) -> None:
    with MysqlDatabase("mysql://u@h/d").transaction():
        assert server.statements == []


@pytest.mark.parametrize(("table", "place"), [("t", (None, "t")), ("s.t", ("s", "t"))])
def test_columns_and_unique_indexes(server: Server, session: MysqlSession, table: str, place: Any) -> None:
    assert session.columns(table) is None, "there is no such table"
    server.says("information_schema.columns", ("id", 1), ("name", 0))
    assert session.columns(table) == [TableColumn("id", True), TableColumn("name", False)]
    assert server.told[-1][1:] == place  # type: ignore[index]
    server.says("statistics", ("PRIMARY", "a", 1), ("PRIMARY", "b", 1), ("part", "c", 0), ("part", "d", 1))
    assert session.unique_keys(table) == [{"a", "b"}], "an index on the beginning of a text keeps no text unique"


@pytest.mark.parametrize(
    ("keys", "indexes", "words"),
    [
        ([], [("u", "name", 1)], None),
        (["id"], [("PRIMARY", "id", 1)], None),
        (["id"], [("PRIMARY", "id", 1), ("u", "name", 1), ("u", "id", 1)], None),
        (["id"], [("u", "elsewhere", 1)], None),
        (["id"], [("PRIMARY", "id", 1), ("u", "name", 1)], "has another unique index, on name: .* look at id alone"),
        (["id"], [("u", "name", 0)], "another unique index, on name"),
        (["id", "name"], [("u", "name", 1)], "another unique index, on name: .* look at id, name alone"),
        (["id"], [("u", "zone", 1), ("u", "name", 1)], "another unique index, on name, zone"),
    ],
)
def test_an_upsert_must_not_meet_another_unique_index(
    server: Server, session: MysqlSession, keys: list[str], indexes: list[tuple[object, ...]], words: str | None
) -> None:
    server.says("statistics", *indexes)
    obstacle = session.obstacle("t", ["id", "name"], keys)
    if words is None:
        assert obstacle is None
    else:
        assert obstacle is not None
        assert re.search(words, obstacle)


def test_a_table_without_transactions_cannot_be_written_to(server: Server, session: MysqlSession) -> None:
    server.says("COALESCE(engine, table_type)", ("MyISAM",))
    for keys in ([], ["id"]):
        obstacle = session.obstacle("s.t", ["id"], keys)
        assert obstacle is not None and "kept by MyISAM" in obstacle
        assert "ALTER TABLE `s`.`t` ENGINE = InnoDB" in obstacle
    with pytest.raises(DatabaseError, match=r"ottla_progress is kept by MyISAM, .* ALTER TABLE ottla_progress ENGINE"):
        session.claim("s")


def test_a_new_table(server: Server, session: MysqlSession) -> None:
    """Its keys are short enough for an index."""
    fields = {"k": StringType(), "b": BinaryType(), "text": StringType(), "n": DecimalType(10, 2), "i": IntegerType()}
    schema = StructType([StructField(name, kind) for name, kind in fields.items()])
    session.create_table("t", schema, ["k", "b"])
    assert server.told[-1] == (
        "CREATE TABLE IF NOT EXISTS `t` (`k` varchar(255), `b` varbinary(255), `text` longtext, `n` decimal(10, 2), "
        "`i` int, PRIMARY KEY (`k`, `b`)) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin"
    )


@pytest.mark.parametrize(
    ("version", "collation"),
    [
        ("8.0.36", "utf8mb4_0900_bin"),
        ("5.7.44-log", "utf8mb4_bin"),
        ("10.11.6-MariaDB-0+deb12u1", "utf8mb4_nopad_bin"),
        ("5.5.5-10.11.6-MariaDB", "utf8mb4_nopad_bin"),
    ],
)
def test_texts_are_the_same_only_if_they_are(version: str, collation: str) -> None:
    assert exact_collation(version) == collation


def test_a_sink_is_claimed_by_its_row(server: Server, session: MysqlSession) -> None:
    session.claim("s")
    created, claimed = [each for each in server.statements if "CREATE" in str(each) or "INSERT" in str(each)]
    assert str(created).startswith("CREATE TABLE IF NOT EXISTS ottla_progress (sink varchar(512) PRIMARY KEY")
    claim = "INSERT INTO `ottla_progress` (`sink`) VALUES (%s) ON DUPLICATE KEY UPDATE `sink` = VALUES(`sink`)"
    assert claimed == (claim, "s")
    server.told.clear()
    server.says("information_schema.columns", ("sink", 1))
    session.claim("s")
    assert server.told[-1] == (claim, "s")
    assert not any("CREATE" in str(each) for each in server.told), "the table is there"


def test_progress_is_what_the_sinks_row_says(server: Server, session: MysqlSession) -> None:
    assert session.progress("s") is None
    server.says("FROM ottla_progress", (None, None, None))
    assert session.progress("s") is None, "claimed, and nothing written yet"
    server.says("FROM ottla_progress", ("q-1", 7, '["{\\"a\\":1}", "x"]'))
    assert session.progress("s") == PROGRESS
    assert server.told[-1] == ("SELECT query_id, batch_id, offsets FROM ottla_progress WHERE sink = %s", "s")


def test_progress_is_saved_with_its_time(server: Server, session: MysqlSession) -> None:
    session.save_progress("s", PROGRESS)
    assert server.statements == [
        (
            "INSERT INTO `ottla_progress` (`sink`, `query_id`, `batch_id`, `offsets`) VALUES (%s, %s, %s, %s) "
            "ON DUPLICATE KEY UPDATE `query_id` = VALUES(`query_id`), `batch_id` = VALUES(`batch_id`), "
            "`offsets` = VALUES(`offsets`)",
            "s",
            "q-1",
            7,
            '["{\\"a\\":1}", "x"]',
        ),
        ("UPDATE ottla_progress SET written_at = now(6) WHERE sink = %s", "s"),
    ]


def test_rows_are_inserted_batch_by_batch(server: Server, session: MysqlSession) -> None:
    session.append("s.t", ["a", "b"], [batch(a=[1, 2], b=["x", None]), batch(a=[3], b=["z"])])
    assert server.statements == [
        "INSERT INTO `s`.`t` (`a`, `b`) VALUES (1,'x'),(2,NULL) ",
        "INSERT INTO `s`.`t` (`a`, `b`) VALUES (3,'z') ",
    ]


def test_rows_that_replace_those_of_their_keys(server: Server, session: MysqlSession) -> None:
    session.upsert("t", ["a", "b"], ["a"], [batch(a=[1], b=["x"]), batch(a=[1], b=["y"])])
    assert server.statements == [
        f"INSERT INTO `t` (`a`, `b`) VALUES (1,'{b}') ON DUPLICATE KEY UPDATE `b` = VALUES(`b`)" for b in "xy"
    ]


def test_a_row_the_server_cannot_take(server: Server, session: MysqlSession) -> None:
    """Only of rows of more than a megabyte is it asked how much that is."""
    head, end = "INSERT INTO `t` (`a`) VALUES (", "')"
    session.append("t", ["a"], [batch(a=["x" * (2 * STATEMENT_BYTES - 4)])])
    assert not any("max_allowed_packet" in str(each) for each in server.told)
    rows = batch(a=["x" * (2 * STATEMENT_BYTES - 3)])
    size = len(f"{head}'{'x' * (2 * STATEMENT_BYTES - 3)}{end} ")
    server.says("@@max_allowed_packet", (size + 1,))
    session.append("t", ["a"], [rows])
    assert len(str(server.told[-1])) == size
    server.says("@@max_allowed_packet", (size,))
    with pytest.raises(DatabaseError, match=f"a row for table t takes {size} bytes, and the server takes {size} at"):
        session.append("t", ["a"], [rows])
    assert len(str(server.told[-1])) < 100, "it would have hung up"


def test_a_statement_runs_for_each_of_its_rows(server: Server, session: MysqlSession) -> None:
    session.run("DELETE FROM t WHERE `?` = ?", [[1], ["x"]])
    session.run("DELETE FROM `5%` WHERE a = ?", [[1], [2]])
    session.run("DELETE FROM `5%`")
    assert server.statements == [
        ("DELETE FROM t WHERE `?` = %s", 1),
        ("DELETE FROM t WHERE `?` = %s", "x"),
        ("DELETE FROM `5%%` WHERE a = %s", 1),
        ("DELETE FROM `5%%` WHERE a = %s", 2),
        "DELETE FROM `5%%`",
    ]


def test_a_percent_sign_is_not_left_to_the_drivers_way_with_many_rows(
    server: Server, session: MysqlSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It joins them into one statement, in which what stands behind the values stays doubled."""
    many: list[str] = []
    cursor = type(server.connections[0].cursor())
    monkeypatch.setattr(cursor, "executemany", lambda self, statement, rows: many.append(statement))
    session.run("INSERT INTO `5%` VALUES (?)", [[1], [2]])
    session.run("INSERT INTO t VALUES (?)", [[1], [2]])
    assert many == ["INSERT INTO t VALUES (%s)"]


def test_which_columns_take_changes_as_something_else(server: Server, session: MysqlSession) -> None:
    server.says("data_type", ("a", "datetime"), ("b", "int"), ("c", "longblob"))
    converters = session.change_converters("t")
    assert sorted(converters) == ["a", "c"]
    assert converters["c"]("\\x00ff") == b"\x00\xff"
    assert converters["a"]("2026-01-01 12:00:00+02") == "2026-01-01 10:00:00"


def test_a_count(server: Server, session: MysqlSession) -> None:
    server.says("count(*)", ("12",))
    assert session.count("SELECT count(*) FROM t") == 12
