"""Tables of MySQL as a source, and staging tables: what is asked of the server, and what its answers mean."""

from __future__ import annotations

from typing import Any

import pytest

from tests.own_thread import patch_own_thread

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

import pyarrow as pa
import pymysql
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ottla.spark.connect.database import DatabaseAwayError, DatabaseError
from ottla.spark.connect.mysql import rows as mysql_rows
from ottla.spark.connect.mysql import tables as mysql_tables
from ottla.spark.connect.mysql.address import Address
from ottla.spark.connect.mysql.rows import MysqlColumn
from ottla.spark.connect.mysql.staging import MysqlStagingTables
from ottla.spark.connect.mysql.tables import MysqlTableServer
from tests.unit.spark.connect.scripted_mysql import Server

URL = "mysql://u@h/d"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(pymysql, "connect", server.connect)
    return server


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Those that were made."""
    pauses: list[float] = []
    patch_own_thread(monkeypatch, mysql_tables.time, "sleep", pauses.append)
    return pauses


def test_what_a_table_can_be_followed_by() -> None:
    assert MysqlTableServer.number_kinds == ("bigint", "int", "mediumint", "smallint", "tinyint")
    assert MysqlTableServer.moment_kinds == ("datetime", "timestamp")


def test_columns(server: Server) -> None:
    tables = MysqlTableServer(URL)
    assert tables.columns("t") == []
    server.says("column_type", ("at", "datetime", "datetime(3)", "0", 0, 3), ("n", "decimal", "decimal(9,2)", 9, 2, 0))
    assert tables.columns("s.t") == [
        MysqlColumn("at", "datetime", "datetime(3)", 0, 0, 3),
        MysqlColumn("n", "decimal", "decimal(9,2)", 9, 2, 0),
    ]
    assert server.told.count("CLOSE") == len(server.connections) == 2


def test_one_connection_answers_until_it_is_closed(server: Server) -> None:
    tables = MysqlTableServer(URL)
    tables.close()
    assert server.connections == [], "there was none to close"
    server.says("SELECT", (5,))
    assert tables.rows("SELECT max(id) FROM t WHERE a = %s", ("x",)) == [(5,)]
    assert tables.rows("SELECT 1") == [(5,)]
    assert server.statements == [("SELECT max(id) FROM t WHERE a = %s", "x"), "SELECT 1"]
    assert [options["autocommit"] for options in server.opened] == [True], "each statement sees what is committed"
    tables.close()
    tables.close()
    assert server.told.count("CLOSE") == 1
    tables.rows("SELECT 1")
    assert len(server.connections) == 2


def test_a_connection_that_was_cut_is_made_once_more(server: Server) -> None:
    tables = MysqlTableServer(URL)
    server.says("SELECT", (5,))
    tables.rows("SELECT 1")
    server.fails("SELECT", pymysql.OperationalError(2006, "gone"))
    assert tables.rows("SELECT 1") == [(5,)]
    assert len(server.connections) == 2
    for _ in range(2):
        server.fails("SELECT", pymysql.OperationalError(2006, "gone"))
    with pytest.raises(DatabaseAwayError):
        tables.rows("SELECT 1")
    assert len(server.connections) == 3
    server.fails("SELECT", pymysql.ProgrammingError(1064, "syntax"))
    with pytest.raises(DatabaseError, match="syntax"):
        tables.rows("SELECT 1")
    assert len(server.connections) == 3, "the mistake is the query's"


@pytest.mark.parametrize(("digits", "unit_us"), [(0, 1_000_000), (3, 1000), (6, 1)])
def test_a_row_is_old_once_no_other_can_get_its_time(server: Server, digits: int, unit_us: int) -> None:
    server.says("column_type", ("a`t", "datetime", "datetime", 0, 0, digits))
    tables = MysqlTableServer(URL)
    text, parameters = tables.is_older("t", "a`t", 0)
    assert text == "`a``t` <= now(6) - INTERVAL %s MICROSECOND"
    assert parameters == (unit_us,)
    asked = len(server.told)
    assert tables.is_older("t", "a`t", 3).parameters == (3000 + unit_us,)
    assert len(server.told) == asked, "the column is known"
    assert tables.is_older("t", "nowhere", 0).parameters == (1_000_000,)


def test_transactions_that_write(server: Server, pauses: list[float]) -> None:
    """Those that only read have no number, or one from 2 to the 48th on."""
    tables = MysqlTableServer(URL)
    server.says("innodb_trx", ("0",), (1,), ((1 << 48) - 1,), (1 << 48,), ((1 << 48) + 1,))
    assert tables.writers() == {1, (1 << 48) - 1}
    assert min(pauses) > 0.1, "the server's list is as old as that"


@pytest.mark.parametrize(
    ("waited_for", "running", "are_done"),
    [((), (1,), True), ((1, 2), (2,), False), ((1, 2), (3,), True), ((1,), (), True)],
)
def test_writers_are_done_once_none_of_them_runs(
    server: Server, pauses: list[float], waited_for: tuple[int, ...], running: tuple[int, ...], are_done: bool
) -> None:
    server.says("innodb_trx", *((number,) for number in running))
    assert MysqlTableServer(URL).are_done(frozenset(waited_for)) is are_done
    assert len(pauses) == len(server.connections) == bool(waited_for), "nobody is looked for where there was nobody"


def test_rows_come_as_batches(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mysql_rows, "BATCH_ROWS", 2)
    server.says("SELECT", ("1", "a"), ("2", None), ("3", "c"))
    schema = StructType([StructField("id", LongType()), StructField("s", StringType())])
    batches = list(MysqlTableServer(URL).fetch("SELECT id, s FROM t WHERE id > %s", (0,), schema))
    assert [batch.to_pydict() for batch in batches] == [{"id": [1, 2], "s": ["a", None]}, {"id": [3], "s": ["c"]}]
    assert ("SELECT id, s FROM t WHERE id > %s", 0) in server.told
    (options,) = server.opened
    assert options["autocommit"] is True
    assert options["conv"] and not any(isinstance(kind, int) for kind in options["conv"]), "values come as text"
    assert str in options["conv"], "and parameters go as ever"


STAGED = "ottla_staging_1"


@pytest.fixture
def staging(server: Server) -> MysqlStagingTables:
    return MysqlStagingTables(Address.parse(URL))


def test_staging_tables_by_the_beginning_of_their_names(server: Server, staging: MysqlStagingTables) -> None:
    assert staging.named("pre") == []
    server.says("information_schema.tables", ("pre1",), ("pre2",))
    assert staging.named("pre") == ["pre1", "pre2"]
    assert [each[1:] for each in server.told if isinstance(each, tuple)] == [(3, "pre")] * 2


def test_a_staging_table_has_the_tables_columns_and_the_marks(server: Server, staging: MysqlStagingTables) -> None:
    staging.create(STAGED, "s.t", ["a", "b"])
    assert server.statements[0] == (
        f"CREATE TABLE `{STAGED}` (ottla_part bigint NOT NULL DEFAULT 0, ottla_attempt bigint NOT NULL DEFAULT 0, "
        "ottla_row bigint NOT NULL DEFAULT 0, PRIMARY KEY (ottla_part, ottla_row, ottla_attempt)) ENGINE = InnoDB "
        "AS SELECT `a`, `b` FROM `s`.`t` WHERE FALSE"
    )


def test_staged_rows_say_where_they_stood(server: Server, staging: MysqlStagingTables) -> None:
    batches = [pa.record_batch([pa.array(values)], names=["a"]) for values in (["x", "y"], ["z"])]
    assert staging.write(STAGED, ["a"], batches, part=4, attempt=9) == 3
    head = f"INSERT INTO `{STAGED}` (`a`, `ottla_part`, `ottla_attempt`, `ottla_row`) VALUES "
    assert server.statements[:3] == [f"{head}('x',4,9,0),('y',4,9,1) ", f"{head}('z',4,9,2) ", "COMMIT"]
    assert staging.write(STAGED, ["a"], [], part=4, attempt=9) == 0


def test_a_staging_table_that_is_held_stays(server: Server, staging: MysqlStagingTables) -> None:
    assert staging.drop(STAGED) is True
    assert server.statements[:2] == ["SET lock_wait_timeout = 5", f"DROP TABLE IF EXISTS `{STAGED}`"]
    error: Any = pymysql.OperationalError(1205, "Lock wait timeout exceeded")
    server.fails("DROP", error)
    assert staging.drop(STAGED) is False
    server.fails("DROP", pymysql.OperationalError(1142, "denied"))
    with pytest.raises(DatabaseError, match="denied"):
        staging.drop(STAGED)
