"""The source on a real Spark. What its readers answer is tested without one in `test_readers`."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import ottla
from ottla.client.sync import Admin, Producer
from tests.broker_process import BrokerProcess
from tests.spark.sources import offsets_of, query, send
from tests.waiting import join

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

BASE_MS = 1_700_000_000_000
ROWS = 60
WAIT_S = 60


@pytest.fixture(scope="session")
def admin(spark_broker: BrokerProcess) -> Iterator[Admin]:
    with Admin(bootstrap_servers=spark_broker.bootstrap) as admin:
        yield admin


@pytest.fixture(scope="session")
def filled(spark_broker: BrokerProcess, admin: Admin) -> str:
    """A topic of three partitions with twenty records each, a second apart."""
    name = "spark-source"
    admin.create_topics([ottla.NewTopic(name, 3)]).check()
    with Producer(bootstrap_servers=spark_broker.bootstrap) as producer:
        for index in range(ROWS):
            producer.send(
                name,
                value=f"value {index}".encode(),
                key=None if index % 5 == 0 else f"key {index}".encode(),
                partition=index % 3,
                timestamp_ms=BASE_MS + index * 1000,
                headers=[("trace", b"%d" % index)] if index % 4 == 0 else [],
            )
        producer.flush()
    return name


@pytest.fixture
def topic(admin: Admin, new_topic: str) -> str:
    admin.create_topics([ottla.NewTopic(new_topic, 2)]).check()
    return new_topic


# Batch


def test_a_batch_query_has_every_column_of_every_record(
    spark: SparkSession, spark_broker: BrokerProcess, filled: str
) -> None:
    found = query(spark, spark_broker, subscribe=filled, includeHeaders="true", minPartitions=5)
    assert found.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    rows = sorted(found.collect(), key=lambda row: row["timestamp"])
    assert len(rows) == ROWS
    for index, row in enumerate(rows):
        assert bytes(row["value"]) == f"value {index}".encode()
        assert row["key"] is None if index % 5 == 0 else bytes(row["key"]) == f"key {index}".encode()
        assert (row["topic"], row["partition"], row["offset"]) == (filled, index % 3, index // 3)
        assert row["timestamp"].replace(tzinfo=UTC) == datetime.fromtimestamp(BASE_MS / 1000 + index, UTC)
        headers = None if row["headers"] is None else [(one["key"], bytes(one["value"])) for one in row["headers"]]
        assert headers == ([("trace", b"%d" % index)] if index % 4 == 0 else None)


def test_a_schema_chooses_columns_and_their_order(
    spark: SparkSession, spark_broker: BrokerProcess, filled: str
) -> None:
    rows = query(spark, spark_broker, "offset bigint, value binary", assign=json.dumps({filled: [1]}))
    found = rows.collect()
    assert rows.columns == ["offset", "value"]
    assert [(row["offset"], bytes(row["value"])) for row in found] == [
        (index // 3, f"value {index}".encode()) for index in range(1, ROWS, 3)
    ]


def test_sql_finds_the_format_and_nothing_is_read_of_an_empty_range(
    spark: SparkSession, spark_broker: BrokerProcess, filled: str
) -> None:
    start = json.dumps({filled: {"0": 20, "1": 20, "2": 20}})
    for options, expected in ("", 20), (f", startingOffsets '{start}'", 0):
        servers = f"`kafka.bootstrap.servers` '{spark_broker.bootstrap}'"
        spark.sql(f"CREATE TEMPORARY VIEW events USING ottla OPTIONS ({servers}, subscribe '{filled}'{options})")
        try:
            (row,) = spark.sql("SELECT count(*) AS n FROM events WHERE partition = 2").collect()
        finally:
            spark.catalog.dropTempView("events")
        assert row["n"] == expected


def test_bad_options_are_told_when_the_query_is_made(
    spark: SparkSession, spark_broker: BrokerProcess, filled: str
) -> None:
    with pytest.raises(AnalysisException, match="unknown source option startingofsets; did you mean startingOffsets"):
        query(spark, spark_broker, subscribe=filled, startingOfsets="earliest")
    with pytest.raises(PySparkException, match="records have no column timestamptype; did you mean timestampType"):
        query(spark, spark_broker, "timestamptype int", subscribe=filled).collect()
    with pytest.raises(PySparkException, match="there is no nothing-here"):
        query(spark, spark_broker, subscribe="nothing-here").collect()


def test_a_task_that_fails_and_is_tried_again_gives_its_rows_once(
    spark: SparkSession, spark_broker: BrokerProcess, filled: str
) -> None:
    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            yield batch
            if context.attemptNumber() == 0:
                raise RuntimeError("the first attempt fails after its rows were read")

    rows = query(spark, spark_broker, "partition int, offset bigint", subscribe=filled)
    found = rows.mapInArrow(fail_once, rows.schema).collect()
    assert offsets_of(found) == {partition: list(range(20)) for partition in range(3)}


# Streams


class Rows:
    """What a stream's micro-batches brought."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self._changed = threading.Condition()

    def take(self, frame: DataFrame, batch_id: int) -> None:
        rows = frame.select("partition", "offset").collect()
        with self._changed:
            self.batches.append(rows)
            self._changed.notify_all()

    @property
    def offsets(self) -> dict[int, list[int]]:
        return offsets_of(row for batch in self.batches for row in batch)

    def wait_for(self, done: Callable[[dict[int, list[int]]], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: done(self.offsets), WAIT_S), self.offsets


def start_stream(
    spark: SparkSession, broker: BrokerProcess, checkpoint: Path, rows: Rows, *, once: bool = True, **options: object
) -> StreamingQuery:
    reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap)
    stream = reader.options(**{name: str(value) for name, value in options.items()}).load()
    writer = stream.writeStream.foreachBatch(rows.take).option("checkpointLocation", str(checkpoint))
    return (writer.trigger(availableNow=True) if once else writer).start()


def run_stream(spark: SparkSession, broker: BrokerProcess, checkpoint: Path, **options: object) -> Rows:
    rows = Rows()
    started = start_stream(spark, broker, checkpoint, rows, **options)
    assert started.awaitTermination(WAIT_S)
    return rows


def test_a_stream_goes_on_where_its_checkpoint_says(
    spark: SparkSession, spark_broker: BrokerProcess, admin: Admin, topic: str, tmp_path: Path
) -> None:
    """All that is there now in micro-batches of ten; then what came since, in a new partition too; then a loss."""
    send(spark_broker, topic, 0, 14)
    send(spark_broker, topic, 1, 7)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 10}
    first = run_stream(spark, spark_broker, tmp_path, **options)
    assert [len(batch) for batch in first.batches] == [10, 10, 1]
    assert first.offsets == {0: list(range(14)), 1: list(range(7))}

    admin.create_partitions({topic: 3}).check()
    send(spark_broker, topic, 0, 2)
    send(spark_broker, topic, 2, 3)
    second = run_stream(spark, spark_broker, tmp_path, **options)
    assert second.offsets == {0: [14, 15], 2: [0, 1, 2]}

    send(spark_broker, topic, 1, 5)
    admin.delete_records({ottla.TopicPartition(topic, 1): 9}).check()
    with pytest.raises(StreamingQueryException, match=f"{topic}-1 was read up to offset 7 and now begins at 9"):
        run_stream(spark, spark_broker, tmp_path, **options)
    third = run_stream(spark, spark_broker, tmp_path, **options, failOnDataLoss="false")
    assert third.offsets == {1: [9, 10, 11]}


def test_a_stream_that_starts_at_the_end_of_a_growing_log_misses_nothing(
    spark: SparkSession, spark_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    rows = Rows()
    stop = threading.Event()

    def trickle() -> None:
        with Producer(bootstrap_servers=spark_broker.bootstrap) as producer:
            while not stop.wait(0.01):
                producer.send(topic, b"x", partition=0)

    thread = threading.Thread(target=trickle)
    thread.start()
    started = None
    try:
        started = start_stream(spark, spark_broker, tmp_path, rows, once=False, subscribe=topic)
        rows.wait_for(lambda offsets: len(offsets.get(0, ())) > 50)
    finally:
        stop.set()
        join(thread)
        if started is not None:
            started.stop()
    assert started.exception() is None
    (seen,) = rows.offsets.values()
    assert seen == list(range(seen[0], seen[0] + len(seen)))


def test_a_stream_notices_records_and_partitions_that_come_while_it_runs(
    spark: SparkSession, spark_broker: BrokerProcess, admin: Admin, topic: str, tmp_path: Path
) -> None:
    rows = Rows()
    level = {"kafka.isolation.level": "read_committed"}
    started = start_stream(
        spark, spark_broker, tmp_path, rows, once=False, subscribe=topic, startingOffsets="earliest", **level
    )
    try:
        with Producer(bootstrap_servers=spark_broker.bootstrap, transactional_id=topic) as producer:
            producer.init_transactions()
            for ends in producer.abort_transaction, producer.commit_transaction:
                producer.begin_transaction()
                for _ in range(3):
                    producer.send(topic, b"x", partition=0)
                producer.flush()
                ends()
        rows.wait_for(lambda offsets: offsets == {0: [4, 5, 6]})
        admin.create_partitions({topic: 3}).check()
        send(spark_broker, topic, 2, 2)
        rows.wait_for(lambda offsets: offsets == {0: [4, 5, 6], 2: [0, 1]})
        progress = started.lastProgress
        assert progress is not None
        assert progress["sources"][0]["endOffset"] is not None
    finally:
        started.stop()
    assert started.exception() is None
