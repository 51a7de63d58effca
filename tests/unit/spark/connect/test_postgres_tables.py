"""Tables of PostgreSQL as a source, and staging tables: what is asked of the server, and what its answers mean."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

import psycopg
import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ottla.spark.connect import postgres_rows
from ottla.spark.connect.postgres_rows import PgColumn
from ottla.spark.connect.postgres_staging import PostgresStagingTables
from ottla.spark.connect.postgres_tables import PostgresTableServer
from tests.unit.spark.connect.scripted_postgres import Server

URL = "postgresql://u@h/d"
STAGED = "ottla_staging_1"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(psycopg, "connect", server.connect)
    return server


def test_what_a_table_can_be_followed_by() -> None:
    assert PostgresTableServer.number_kinds == ("bigint", "integer", "smallint")
    assert PostgresTableServer.moment_kinds == ("timestamp", "timestamp with time zone")


def test_columns(server: Server) -> None:
    tables = PostgresTableServer(URL)
    assert tables.columns("s.t") == []
    server.says("atttypid", ("id", 20, -1), ("n", 1700, 589_830))
    assert tables.columns("s.t") == [PgColumn("id", 20, -1), PgColumn("n", 1700, 589_830)]
    assert [each[1:] for each in server.told if isinstance(each, tuple)] == [('"s"."t"',)] * 2


def test_one_connection_answers_until_it_is_closed(server: Server) -> None:
    tables = PostgresTableServer(URL)
    tables.close()
    assert server.connections == [], "there was none to close"
    server.says("SELECT", (5,))
    assert tables.rows("SELECT max(id) FROM t WHERE a = %s", ("x",)) == [(5,)]
    assert tables.rows("SELECT 1") == [(5,)]
    assert server.statements == [("SELECT max(id) FROM t WHERE a = %s", "x"), "SELECT 1"]
    assert [options["autocommit"] for _, options in server.opened] == [True], "each statement sees what is committed"
    tables.close()
    assert server.told[-1] == "CLOSE"
    tables.rows("SELECT 1")
    assert len(server.connections) == 2


def test_a_connection_that_was_cut_is_made_once_more(server: Server) -> None:
    tables = PostgresTableServer(URL)
    server.says("SELECT", (5,))
    tables.rows("SELECT 1")
    server.fails("SELECT", psycopg.OperationalError("gone"))
    assert tables.rows("SELECT 1") == [(5,)]
    assert len(server.connections) == 2
    for _ in range(2):
        server.fails("SELECT", psycopg.OperationalError("gone"))
    with pytest.raises(psycopg.OperationalError):
        tables.rows("SELECT 1")


def test_a_row_is_old_by_the_servers_clock() -> None:
    text, parameters = PostgresTableServer(URL).is_older("t", 'a"t', 1500)
    assert text == '"a""t" <= now() - %s * interval \'1 millisecond\''
    assert parameters == (1500,)


@pytest.mark.parametrize(("oldest", "are_done"), [(6, False), (7, True), (8, True)])
def test_writers_are_done_once_all_that_run_came_later(server: Server, oldest: int, are_done: bool) -> None:
    tables = PostgresTableServer(URL)
    server.says("snapshot_xmax", (7,))
    server.says("snapshot_xmin", (oldest,))
    assert tables.writers() == 7
    assert tables.are_done(7) is are_done


def test_rows_come_as_batches(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_rows, "BATCH_ROWS", 2)
    server.says("SELECT", (1, "a"), (2, None), (3, "c"))
    schema = StructType([StructField("id", LongType()), StructField("s", StringType())])
    batches = list(PostgresTableServer(URL).fetch("SELECT id, s FROM t WHERE id > %s", (0,), schema))
    assert [batch.to_pydict() for batch in batches] == [{"id": [1, 2], "s": ["a", None]}, {"id": [3], "s": ["c"]}]
    assert server.statements == [("SELECT id, s FROM t WHERE id > %s", 0), "COMMIT", "CLOSE"]
    ((_, options),) = server.opened
    assert options["autocommit"] is False, "rows stay on the server until the end of the transaction"


def test_staging_tables_by_the_beginning_of_their_names(server: Server) -> None:
    staging = PostgresStagingTables(URL)
    assert staging.named("pre") == []
    server.says("pg_class", ("pre1",), ("pre2",))
    assert staging.named("pre") == ["pre1", "pre2"]
    assert isinstance(server.told[-3], tuple) and server.told[-3][1:] == ("pre",)
    assert [options["autocommit"] for _, options in server.opened] == [True, True]


def test_a_staging_table_has_the_tables_columns_and_the_marks(server: Server) -> None:
    PostgresStagingTables(URL).create(STAGED, "s.t", ["a"])
    assert server.statements[0] == (
        f'CREATE UNLOGGED TABLE "{STAGED}" AS SELECT "a", 0 AS ottla_part, 0::bigint AS ottla_attempt, '
        '0::bigint AS ottla_row FROM "s"."t" WITH NO DATA'
    )
    assert server.opened[0][1]["autocommit"] is True


def test_staged_rows_say_where_they_stood(server: Server) -> None:
    batches = [pa.record_batch([pa.array(values)], names=["a"]) for values in (["x", "y"], ["z"])]
    assert PostgresStagingTables(URL).write(STAGED, ["a"], batches, part=4, attempt=9) == 3
    assert server.copied == b'"x","4","9","0"\n"y","4","9","1"\n"z","4","9","2"\n'
    assert server.told[-2:] == ["COMMIT", "CLOSE"]
    assert server.opened[0][1]["autocommit"] is False, "all rows of the attempt or none"


def test_a_staging_table_that_is_held_stays(server: Server) -> None:
    staging = PostgresStagingTables(URL)
    assert staging.drop(STAGED) is True
    assert server.statements[:2] == ["SET lock_timeout = '5000ms'", f'DROP TABLE IF EXISTS "{STAGED}"']
    assert server.opened[0][1]["autocommit"] is True
    server.fails("DROP", psycopg.errors.LockNotAvailable("held"))
    assert staging.drop(STAGED) is False
