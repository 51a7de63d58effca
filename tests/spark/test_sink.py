"""Writing to topics from a real Spark, judged by what a foreign client reads."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import ottla
from tests.broker_process import BrokerProcess
from tests.interop.transactions.readers import read_all

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

PARTITIONS = (0, 1, 2)
MANY = 120_000


@pytest.fixture(scope="module")
def admin(spark_broker: BrokerProcess) -> Iterator[ottla.Admin]:
    with ottla.Admin(bootstrap_servers=spark_broker.bootstrap) as admin:
        yield admin


@pytest.fixture
def topic(admin: ottla.Admin, new_topic: str) -> str:
    admin.create_topics([ottla.NewTopic(new_topic, len(PARTITIONS))]).check()
    return new_topic


Write = Callable[..., None]


@pytest.fixture
def write(spark_broker: BrokerProcess) -> Write:
    def write(frame: DataFrame, mode: str = "append", **options: str) -> None:
        servers = {"kafka.bootstrap.servers": spark_broker.bootstrap}
        frame.write.format("ottla").options(**servers, **options).mode(mode).save()

    return write


def values_in(broker: BrokerProcess, topic: str) -> Counter[bytes]:
    return Counter(value for records in read_all(broker.bootstrap, topic, PARTITIONS).values() for _, value in records)


def numbers(count: int) -> Counter[bytes]:
    return Counter(b"%d" % number for number in range(count))


def nothing_is_open(admin: ottla.Admin, topic: str) -> bool:
    latest = {ottla.TopicPartition(topic, partition): ottla.OffsetSpec.LATEST for partition in PARTITIONS}
    return dict(admin.list_offsets(latest)) == dict(admin.list_offsets(latest, read_committed=True))


def fails_in_task_1(
    attempts: int, wait_before: Callable[[], None] | None = None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Passes rows on, but fails in the middle of task 1, the first so many times."""

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for index, batch in enumerate(batches):
            if index == 1 and context.partitionId() == 1 and context.attemptNumber() < attempts:
                if wait_before is not None:
                    wait_before()
                raise RuntimeError("an accident in a task")
            yield batch

    return pass_on


# Batch jobs


def test_every_column_reaches_the_record(
    spark: SparkSession, spark_broker: BrokerProcess, topic: str, write: Write
) -> None:
    when = datetime(2024, 5, 1, 12, 30, 0, 123000, UTC)
    rows = [
        (topic, "k1", "v1", [("h", b"1"), ("n", None)], 2, when),
        (topic, None, None, None, 1, when),
        (topic, "", "", [], None, None),
    ]
    schema = (
        "topic string, key string, value string, headers array<struct<key:string,value:binary>>, "
        "partition int, timestamp timestamp"
    )
    write(spark.createDataFrame(rows, schema).coalesce(1))
    found = {message.key(): message for message in consume(spark_broker, topic, 3)}
    full, empty, bare = found[b"k1"], found[None], found[b""]
    assert (full.value(), full.partition(), full.headers()) == (b"v1", 2, [("h", b"1"), ("n", None)])
    assert full.timestamp() == (confluent_kafka.TIMESTAMP_CREATE_TIME, int(when.timestamp() * 1000))
    assert (empty.value(), empty.partition(), empty.headers()) == (None, 1, None)
    assert (bare.value(), bare.headers()) == (b"", None)
    assert bare.timestamp()[1] > when.timestamp() * 1000


def consume(broker: BrokerProcess, topic: str, count: int) -> list[Any]:
    reader = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"reader-of-{topic}"})
    reader.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in PARTITIONS])
    try:
        found = reader.consume(count, 30)
        assert [message.error() for message in found] == [None] * count
        return list(found)
    finally:
        reader.close()


def test_rows_choose_their_topics_and_the_option_overrules_them(
    spark: SparkSession, spark_broker: BrokerProcess, admin: ottla.Admin, topic: str, write: Write
) -> None:
    other = f"{topic}-other"
    admin.create_topics([ottla.NewTopic(other, len(PARTITIONS))]).check()
    frame = spark.range(100).selectExpr(
        f"CASE WHEN id % 2 = 0 THEN '{topic}' ELSE '{other}' END AS topic",
        "CAST(CAST(id AS STRING) AS BINARY) AS value",
        "id AS of_no_interest",
    )
    write(frame)
    assert values_in(spark_broker, topic) == Counter(b"%d" % number for number in range(0, 100, 2))
    assert values_in(spark_broker, other) == Counter(b"%d" % number for number in range(1, 100, 2))
    write(frame.limit(2), topic=other)
    assert values_in(spark_broker, other)[b"0"] == 1


def test_keys_decide_on_partitions_as_in_any_client(
    spark: SparkSession, spark_broker: BrokerProcess, topic: str, write: Write
) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": spark_broker.bootstrap, "partitioner": "murmur2_random"})
    for number in range(300):
        producer.produce(topic, b"theirs-%d" % number, key=b"%d" % number)
    assert producer.flush(30) == 0
    write(spark.range(300).selectExpr("CAST(id AS STRING) AS key", "CONCAT('ours-', id) AS value"), topic=topic)
    for records in read_all(spark_broker.bootstrap, topic, PARTITIONS).values():
        by_whom: dict[bytes, set[bytes]] = {b"theirs": set(), b"ours": set()}
        for _, value in records:
            whose, _, number_text = value.partition(b"-")
            by_whom[whose].add(number_text)
        assert by_whom[b"theirs"] == by_whom[b"ours"]


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_task_that_fails_once_is_tried_again(
    spark: SparkSession, spark_broker: BrokerProcess, admin: ottla.Admin, topic: str, write: Write, guarantee: str
) -> None:
    frame = spark.range(0, 60_000, 1, 2).selectExpr("CAST(id AS STRING) AS value")
    write(frame.mapInArrow(fails_in_task_1(1), "value string"), topic=topic, deliveryGuarantee=guarantee)
    found = values_in(spark_broker, topic)
    assert found.keys() == numbers(60_000).keys()
    if guarantee == "exactly-once":
        assert set(found.values()) == {1}
    assert nothing_is_open(admin, topic)


def test_a_job_that_fails_leaves_nothing_visible_and_nothing_open(
    spark: SparkSession, spark_broker: BrokerProcess, admin: ottla.Admin, topic: str, write: Write
) -> None:
    servers = spark_broker.bootstrap

    def wait_for_the_other_task() -> None:
        latest = {ottla.TopicPartition(topic, partition): ottla.OffsetSpec.LATEST for partition in PARTITIONS}
        with ottla.Admin(bootstrap_servers=servers) as asking:
            wait_until(lambda: sum(end.offset for end in asking.list_offsets(latest).values()) >= 30_000)

    frame = spark.range(0, 60_000, 1, 2).selectExpr("CAST(id AS STRING) AS value")
    failing = frame.mapInArrow(fails_in_task_1(99, wait_for_the_other_task), "value string")
    with pytest.raises(PySparkException, match="an accident in a task"):
        write(failing, topic=topic, deliveryGuarantee="exactly-once")
    assert values_in(spark_broker, topic) == Counter()
    assert nothing_is_open(admin, topic)
    read = read_all(spark_broker.bootstrap, topic, PARTITIONS, "read_uncommitted")
    assert sum(map(len, read.values())) >= 30_000, "the tasks had written all the same"


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (["id AS value"], {"topic": "t"}, "the column value must be a string or binary, but is bigint"),
        (["'v' AS value"], {}, "neither an option topic nor a column topic"),
        (["'v' AS value"], {"topic": "t", "tpoic": "t"}, "unknown sink option tpoic"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is(
    spark: SparkSession, write: Write, columns: list[str], options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        write(spark.range(1).selectExpr(*columns), **options)


def test_a_topic_cannot_be_overwritten(spark: SparkSession, topic: str, write: Write) -> None:
    with pytest.raises(PySparkException, match=r"a topic cannot be overwritten: write to it with mode\(\"append\"\)"):
        write(spark.range(1).selectExpr("'v' AS value"), mode="overwrite", topic=topic)


def test_a_row_without_a_topic_fails_the_job(spark: SparkSession, write: Write) -> None:
    with pytest.raises(PySparkException, match="a row has no topic: its column topic is null"):
        write(spark.range(1).selectExpr("'v' AS value", "CAST(NULL AS STRING) AS topic"))


# Streams


@pytest.fixture
def stream(spark: SparkSession, spark_broker: BrokerProcess) -> Callable[..., DataFrame]:
    def read(topic: str, **options: str) -> DataFrame:
        servers = {"kafka.bootstrap.servers": spark_broker.bootstrap, "startingOffsets": "earliest"}
        return spark.readStream.format("ottla").options(**servers, subscribe=topic, **options).load()

    return read


@pytest.fixture
def start(spark_broker: BrokerProcess, tmp_path: Path) -> Callable[..., StreamingQuery]:
    def start(frame: DataFrame, output_mode: str = "append", **options: str) -> StreamingQuery:
        given = {
            "kafka.bootstrap.servers": spark_broker.bootstrap,
            "checkpointLocation": str(tmp_path / "checkpoint"),
            **options,
        }
        writer = frame.writeStream.format("ottla").options(**given).outputMode(output_mode)
        return writer.trigger(availableNow=True).start()

    return start


def fill(broker: BrokerProcess, topic: str, count: int) -> None:
    with ottla.Producer(bootstrap_servers=broker.bootstrap) as producer:
        values = pa.array([b"%d" % number for number in range(count)], pa.binary())
        partitions = pa.array([number % len(PARTITIONS) for number in range(count)], pa.int32())
        table = pa.table({"value": values, "partition": partitions})
        producer.send_arrow(topic, table, partition_column="partition").result(60)


@pytest.fixture
def source_topic(spark_broker: BrokerProcess, admin: ottla.Admin, topic: str) -> str:
    name = f"{topic}-in"
    admin.create_topics([ottla.NewTopic(name, len(PARTITIONS))]).check()
    return name


def test_a_stream_is_copied_once_though_tasks_fail(
    spark_broker: BrokerProcess,
    admin: ottla.Admin,
    source_topic: str,
    topic: str,
    stream: Callable[..., DataFrame],
    start: Callable[..., StreamingQuery],
) -> None:
    fill(spark_broker, source_topic, MANY)
    # The columns partition and timestamp of the source make the copy one of partitions and times as well.
    frame = stream(source_topic, maxOffsetsPerTrigger="60000").select("value", "partition", "timestamp")
    schema = "value binary, partition int, timestamp timestamp"
    query = start(frame.mapInArrow(fails_in_task_1(1), schema), topic=topic)
    assert query.awaitTermination(120)
    assert query.exception() is None
    there, here = (read_all(spark_broker.bootstrap, name, PARTITIONS) for name in (source_topic, topic))
    assert len(query.recentProgress) >= 2
    for partition in PARTITIONS:
        assert [value for _, value in here[partition]] == [value for _, value in there[partition]]
    assert sum(map(len, here.values())) == MANY
    assert nothing_is_open(admin, topic)


def test_a_stream_that_is_stopped_leaves_nothing_open(
    spark_broker: BrokerProcess,
    admin: ottla.Admin,
    source_topic: str,
    topic: str,
    stream: Callable[..., DataFrame],
    start: Callable[..., StreamingQuery],
    tmp_path: Path,
) -> None:
    go_on = tmp_path / "go on"

    def hang(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        deadline_s = time.monotonic() + 400
        while not go_on.exists() and time.monotonic() < deadline_s:
            time.sleep(0.05)

    # Spark holds back what is less than an Arrow batch and what is less than a buffer: let there be more of both.
    fill(spark_broker, source_topic, 60_000)
    long = stream(source_topic).selectExpr("CONCAT(CAST(value AS STRING), REPEAT('x', 200)) AS value")
    query = start(long.mapInArrow(hang, "value string"), topic=topic)
    try:
        wait_until(lambda: not nothing_is_open(admin, topic), query)
        query.stop()
        wait_until(lambda: nothing_is_open(admin, topic))
    finally:
        go_on.touch()
    assert values_in(spark_broker, topic) == Counter()


def wait_until(condition: Callable[[], bool], query: StreamingQuery | None = None) -> None:
    deadline_s = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        assert query is None or query.isActive, query.exception()
        time.sleep(0.1)


def test_the_results_of_a_complete_aggregation_are_appended(
    spark_broker: BrokerProcess,
    source_topic: str,
    topic: str,
    stream: Callable[..., DataFrame],
    start: Callable[..., StreamingQuery],
) -> None:
    fill(spark_broker, source_topic, 3000)
    counted = stream(source_topic).groupBy("partition").count()
    query = start(counted.selectExpr("CONCAT(partition, '=', count) AS value"), "complete", topic=topic)
    assert query.awaitTermination(120)
    assert query.exception() is None
    assert values_in(spark_broker, topic) == Counter(b"%d=1000" % partition for partition in PARTITIONS)


def test_inside_foreach_batch_a_job_is_part_of_the_stream(
    spark_broker: BrokerProcess,
    source_topic: str,
    topic: str,
    stream: Callable[..., DataFrame],
    write: Write,
    tmp_path: Path,
) -> None:
    """So that the output mode update, which Spark allows no sink in Python, is written exactly once as well."""
    fill(spark_broker, source_topic, 3000)
    counted = stream(source_topic).groupBy("partition").count().selectExpr("CONCAT(partition, '=', count) AS value")

    def run(each: Callable[[DataFrame, int], None]) -> StreamingQuery:
        checkpoint = {"checkpointLocation": str(tmp_path / "checkpoint")}
        writer = counted.writeStream.outputMode("update").options(**checkpoint).foreachBatch(each)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(120)
        return query

    def write_and_die(frame: DataFrame, _: int) -> None:
        write(frame, topic=topic, deliveryGuarantee="exactly-once", sinkId="counts")
        raise RuntimeError("an accident after the commit")

    def write_twice(frame: DataFrame, _: int) -> None:
        for _ in range(2):
            write(frame, topic=topic, deliveryGuarantee="exactly-once", sinkId="counts")

    def write_nameless(frame: DataFrame, _: int) -> None:
        write(frame, topic=topic, deliveryGuarantee="exactly-once")

    with pytest.raises(PySparkException, match="an accident after the commit"):
        run(write_and_die)
    with pytest.raises(PySparkException, match="each write inside foreachBatch needs a sinkId of its own"):
        run(write_twice)
    with pytest.raises(PySparkException, match="needs the option sinkId: a name of its own for each write"):
        run(write_nameless)
    assert values_in(spark_broker, topic) == Counter(b"%d=1000" % partition for partition in PARTITIONS)


def test_a_stream_may_be_written_at_least_once(
    spark_broker: BrokerProcess,
    admin: ottla.Admin,
    source_topic: str,
    topic: str,
    stream: Callable[..., DataFrame],
    start: Callable[..., StreamingQuery],
) -> None:
    fill(spark_broker, source_topic, 3000)
    query = start(stream(source_topic).select("value"), topic=topic, deliveryGuarantee="at-least-once")
    assert query.awaitTermination(120)
    assert query.exception() is None
    assert values_in(spark_broker, topic) == numbers(3000)
    assert not [entry for entry in admin.list_groups() if str(query.id) in entry.group_id]


def test_a_stream_with_bad_columns_says_so(
    source_topic: str, topic: str, stream: Callable[..., DataFrame], start: Callable[..., StreamingQuery]
) -> None:
    with pytest.raises(PySparkException, match="the column value must be a string or binary, but is bigint"):
        start(stream(source_topic).selectExpr("offset AS value"), topic=topic).awaitTermination(60)
