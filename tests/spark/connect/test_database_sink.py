"""Streaming into databases on the shared Spark: replays, task retries, big batches, changed checkpoints."""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ottla.spark.connect.batch_writer import BatchWriter
from ottla.spark.connect.database import DatabaseAwayError, open_database
from ottla.spark.connect.database_target import Target
from ottla.spark.pipeline.failures import is_passing
from tests.spark.mariadb import MariadbProcess
from tests.spark.postgres import PostgresProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

_numbers = itertools.count()
ROWS_PER_FILE = 1000


class Feed:
    """A directory of files, one micro-batch each, of rows with ascending ids."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.directory = directory
        self.directory.mkdir()
        self.row_count = 0

    def add(self, files: int = 1) -> None:
        for _ in range(files):
            ids = range(self.row_count, self.row_count + ROWS_PER_FILE)
            self.row_count += ROWS_PER_FILE
            text = "".join(json.dumps({"id": i, "text": f"row {i}"}) + "\n" for i in ids)
            (self.directory / f"{self.row_count:08}.json").write_text(text)

    def frame(self) -> DataFrame:
        return (
            self.spark.readStream.format("json")
            .schema("id bigint, text string")
            .option("maxFilesPerTrigger", 1)
            .load(str(self.directory))
        )


def run(frame: DataFrame, writer: BatchWriter, mode: str = "append") -> None:
    query = (
        frame.writeStream.foreachBatch(writer)
        .outputMode(mode)
        .option("checkpointLocation", writer.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> Feed:
    return Feed(spark, tmp_path / "in")


def counts_in_sqlite(path: Path, table: str) -> tuple[int, int]:
    with sqlite3.connect(path) as connection:
        row: tuple[int, int] = connection.execute(f"SELECT count(*), count(DISTINCT id) FROM {table}").fetchone()
        return row


Server = PostgresProcess | MariadbProcess


@pytest.fixture(params=["postgres", "mariadb"])
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param)
    return found


def counts(server: Server, table: str) -> tuple[object, ...]:
    return server.rows(f"SELECT count(*), count(DISTINCT id) FROM {table}")[0]


def staging_tables(server: Server) -> list[tuple[object, ...]]:
    return server.rows("SELECT table_name FROM information_schema.tables WHERE table_name LIKE 'ottla_staging_%'")


def test_a_batch_that_spark_forgot_is_not_written_again(feed: Feed, tmp_path: Path) -> None:
    feed.add(2)
    path = tmp_path / "out.db"
    target = Target(open_database(f"sqlite:{path}"), "rows", create=True)
    checkpoint = tmp_path / "checkpoint"
    run(feed.frame(), BatchWriter(target, "rows", str(checkpoint)))
    # As if the driver had died between the database's commit and Spark's.
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()
    feed.add()
    run(feed.frame(), BatchWriter(target, "rows", str(checkpoint)))
    assert counts_in_sqlite(path, "rows") == (3000, 3000)
    with sqlite3.connect(path) as connection:
        ((batch_id, offsets),) = connection.execute("SELECT batch_id, offsets FROM ottla_progress").fetchall()
    lines = (checkpoint / "offsets" / "2").read_text().strip().split("\n")
    assert (batch_id, json.loads(offsets)) == (2, lines[2:])


def test_another_checkpoint_is_refused_unless_it_is_accepted(feed: Feed, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    feed.add(1)
    target = Target(open_database(f"sqlite:{tmp_path}/out.db"), "rows", create=True)
    run(feed.frame(), BatchWriter(target, "rows", str(tmp_path / "checkpoint")))
    with pytest.raises(StreamingQueryException, match="another checkpoint") as caught:
        run(feed.frame(), BatchWriter(target, "rows", str(tmp_path / "new")))
    assert not is_passing(str(caught.value))
    assert counts_in_sqlite(tmp_path / "out.db", "rows") == (1000, 1000)
    accepting = Target(target.database, "rows", accept_new_checkpoint=True)
    run(feed.frame(), BatchWriter(accepting, "rows", str(tmp_path / "newer")))
    assert counts_in_sqlite(tmp_path / "out.db", "rows") == (2000, 1000)


def failing_first_attempts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    for batch in batches:
        yield batch
        if context.attemptNumber() == 0:
            raise RuntimeError("the first attempt fails after it has handed on rows")


def test_a_retried_task_doubles_nothing(feed: Feed, server: Server, tmp_path: Path) -> None:
    feed.add()
    table = f"retried_{next(_numbers)}"
    target = Target(open_database(server.url), table, create=True, staging="always")
    frame = feed.frame().repartition(2).mapInArrow(failing_first_attempts, "id bigint, text string")
    run(frame, BatchWriter(target, table, str(tmp_path / "checkpoint")))
    assert counts(server, table) == (1000, 1000)
    assert staging_tables(server) == []


def test_attempts_that_spark_did_not_report_are_not_taken_over(server: Server, spark: SparkSession) -> None:
    table = f"attempts_{next(_numbers)}"
    database = open_database(server.url)
    frame = spark.range(0, 100, 1, 2)
    with database.transaction() as session:
        session.create_table(table, frame.schema, ())
    staging = database.staging(table)
    assert staging is not None
    filled = staging.fill(frame, table)
    assert sorted(part for part, _ in filled.attempts) == [0, 1]
    names = "id, ottla_part, ottla_row, ottla_attempt"
    with server.connect() as connection, connection.cursor() as cursor:
        # What an attempt leaves whose success was lost on the way: its rows, under a number of its own.
        rows = f"SELECT id, ottla_part, ottla_row, ottla_attempt + 1000 FROM {filled.staging}"
        cursor.execute(f"INSERT INTO {filled.staging} ({names}) {rows}")
    with database.transaction() as session:
        staging.take_over(session, filled, table, ["id"], ())
    assert counts(server, table) == (100, 100)
    with server.connect() as connection, connection.cursor() as cursor:
        # What a server that crashes does to a table that is not in its log.
        cursor.execute(f"TRUNCATE TABLE {filled.staging}")
    with pytest.raises(DatabaseAwayError, match="0 of the 100 rows"), database.transaction() as session:
        staging.take_over(session, filled, table, ["id"], ())
    staging.drop(filled)


def test_leftovers_of_killed_runs_are_removed(feed: Feed, server: Server, tmp_path: Path) -> None:
    table = f"leftovers_{next(_numbers)}"
    target = Target(open_database(server.url), table, mode="upsert", keys=("id",), create=True, staging_rows=1500)
    feed.add()
    run(feed.frame(), BatchWriter(target, table, str(tmp_path / "checkpoint")))
    staging = target.database.staging(table)
    assert staging is not None
    filled = staging.fill(feed.spark.range(10).selectExpr("id", "'x' AS text"), table)
    feed.add(1)
    run(feed.frame(), BatchWriter(target, table, str(tmp_path / "checkpoint")))
    assert (filled.staging,) not in staging_tables(server)
    assert counts(server, table) == (2000, 2000)


def test_a_big_batch_goes_over_to_the_tasks(feed: Feed, server: Server, tmp_path: Path) -> None:
    table = f"big_{next(_numbers)}"
    target = Target(open_database(server.url), table, mode="upsert", keys=("id",), create=True, staging_rows=999)
    feed.add(2)
    frame = feed.frame().selectExpr("id % 700 AS id", "text")
    writer = BatchWriter(target, table, str(tmp_path / "checkpoint"))
    run(frame, writer)
    assert writer._by_tasks
    assert counts(server, table) == (700, 700)
    latest = {i % 700: f"row {i}" for i in range(2000)}
    assert dict(server.rows(f"SELECT id, text FROM {table}")) == latest  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_totals_survive_a_replay(feed: Feed, tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    """A query with state: in SQLite its results replace each other, in PostgreSQL its tasks upsert them."""
    feed.add(2)
    if kind == "sqlite":
        target = Target(open_database(f"sqlite:{tmp_path}/out.db"), "totals", mode="replace", create=True)
    else:
        server: PostgresProcess = request.getfixturevalue("postgres")
        database = open_database(server.url)
        target = Target(database, f"totals_{next(_numbers)}", mode="upsert", keys=("id",), create=True, staging_rows=2)
    totals = feed.frame().selectExpr("id % 3 AS id").groupBy("id").count()
    checkpoint = tmp_path / "checkpoint"
    run(totals, BatchWriter(target, target.table, str(checkpoint)), "complete")
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()
    feed.add()
    run(totals, BatchWriter(target, target.table, str(checkpoint)), "complete")
    expected = {0: 1000, 1: 1000, 2: 1000}
    if kind == "sqlite":
        with sqlite3.connect(tmp_path / "out.db") as connection:
            assert dict(connection.execute("SELECT * FROM totals")) == expected
    else:
        assert dict(server.rows(f"SELECT * FROM {target.table}")) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_a_database_that_is_away_is_something_that_passes(feed: Feed, tmp_path: Path, scheme: str) -> None:
    from pyspark.errors import StreamingQueryException

    feed.add()
    target = Target(open_database(f"{scheme}://me:secret@127.0.0.1:1/none"), "rows", create=True)
    with pytest.raises(StreamingQueryException) as caught:
        run(feed.frame(), BatchWriter(target, "rows", str(tmp_path / "checkpoint")))
    assert is_passing(str(caught.value))
    assert "secret" not in str(caught.value)
