"""The format "ottla": which reader Spark gets, what a batch query reads, and what queries of one source share."""

from __future__ import annotations

import gc
import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StringType, StructField, StructType

import ottla.spark
from ottla.base.errors import InvalidConfigError
from ottla.base.types import TopicPartition
from ottla.client.core.admin.outcomes import Outcomes
from ottla.spark import progress, sessions, topic_offsets, worker_memory
from ottla.spark.batch_reader import BatchReader
from ottla.spark.data_loss import DataLossError
from ottla.spark.data_source import OttlaDataSource
from ottla.spark.offset_places import EARLIEST, LATEST
from ottla.spark.range_reader import RangeReader
from ottla.spark.shared_environment import settle_environment, stream_reader
from ottla.spark.sink import PlainBatchWriter, TransactionalStreamWriter
from ottla.spark.source_schema import source_schema
from ottla.spark.stream_reader import StreamReader
from ottla.spark.topic_offsets import MissingTopicError

BOUNDS = {TopicPartition("t", 0): (10, 30), TopicPartition("t", 1): (0, 9), TopicPartition("t", 2): (4, 4)}
PLAIN = source_schema(include_headers=False)


class Brokers:
    """An admin client of one topic, whose partitions begin and end as `BOUNDS` say."""

    def describe_topics(self, names: list[str]) -> Outcomes[str, Any]:
        partitions = [SimpleNamespace(partition=one.partition) for one in reversed(BOUNDS)]
        found = {"t": SimpleNamespace(name="t", topic_id="id", is_internal=False, partitions=partitions)}
        return Outcomes({name: found[name] for name in names if name in found})

    def list_offsets(
        self, places: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> Outcomes[TopicPartition, Any]:
        return Outcomes({one: SimpleNamespace(offset=BOUNDS[one][place == LATEST]) for one, place in places.items()})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, str]]:
    """Of which clusters a client was asked for."""
    asked: list[Mapping[str, str]] = []

    def admin_for(client: Mapping[str, str]) -> Brokers:
        asked.append(client)
        return Brokers()

    monkeypatch.setattr(topic_offsets, "admin_for", admin_for)
    return asked


def source(**options: str) -> OttlaDataSource:
    return OttlaDataSource({"kafka.bootstrap.servers": "h:1", "subscribe": "t", **options})


def ranges(**options: str) -> list[list[tuple[int, int, int]]]:
    """What each task of a batch query reads: partitions, and offsets from and to."""
    tasks: list[Any] = list(source(**options).reader(PLAIN).partitions())
    assert all(one.topic_partition.topic == "t" for task in tasks for one in task.ranges)
    return [
        [(one.topic_partition.partition, one.start_offset, one.end_offset) for one in task.ranges] for task in tasks
    ]


def at(first: int, second: int, third: int) -> str:
    return json.dumps({"t": {"0": first, "1": second, "2": third}})


# A batch query


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [[(0, 10, 30)], [(1, 0, 9)]]),
        ({"minPartitions": "1"}, [[(0, 10, 30)], [(1, 0, 9)]]),
        ({"minPartitions": "3"}, [[(0, 10, 20)], [(0, 20, 30)], [(1, 0, 9)]]),
        ({"maxRecordsPerPartition": "10"}, [[(0, 10, 20)], [(0, 20, 30)], [(1, 0, 9)]]),
        (
            {"maxRecordsPerPartition": "9"},
            [[(0, 10, 16)], [(0, 16, 23)], [(0, 23, 30)], [(1, 0, 9)]],
        ),
        ({"startingOffsets": at(12, 9, 4), "endingOffsets": at(13, 9, 4)}, [[(0, 12, 13)]]),
        ({"startingOffsets": at(EARLIEST, 1, 4), "endingOffsets": at(10, LATEST, 4)}, [[(1, 1, 9)]]),
        ({"startingOffsets": at(30, 9, 4)}, []),
    ],
)
def test_what_the_tasks_of_a_batch_query_read(
    asked: list[Mapping[str, str]], options: dict[str, str], expected: list[list[tuple[int, int, int]]]
) -> None:
    assert ranges(**options) == expected
    assert asked and all(client == {"bootstrap.servers": "h:1"} for client in asked)


def test_a_batch_query_does_not_end_before_it_starts(asked: list[Mapping[str, str]]) -> None:
    with pytest.raises(InvalidConfigError) as refusal:
        ranges(startingOffsets=at(12, 5, 4), endingOffsets=at(12, 4, 4))
    assert str(refusal.value) == "INVALID_CONFIG: t-1 would end at 4, before its start at 5"
    assert refusal.value.key == "endingOffsets"


def test_what_a_batch_query_names_has_to_be_there(asked: list[Mapping[str, str]]) -> None:
    with pytest.raises(MissingTopicError, match="there is no u"):
        ranges(subscribe="t,u")
    with pytest.raises(DataLossError, match="startingOffsets has 9 for t-0, which holds 10 to 30"):
        ranges(startingOffsets=at(9, 0, 4))
    assert ranges(startingOffsets=at(9, 0, 4), failOnDataLoss="false") == [[(0, 10, 30)], [(1, 0, 9)]]


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_task_reads_its_ranges_with_the_settings_of_the_query(
    monkeypatch: pytest.MonkeyPatch, is_stream: bool
) -> None:
    wanted: list[tuple[RangeReader, InputPartition]] = []

    def read(self: RangeReader, partition: InputPartition) -> list[str]:
        wanted.append((self, partition))
        return ["rows"]

    monkeypatch.setattr(RangeReader, "read", read)
    made = source(**{"kafkaConsumer.pollTimeoutMs": "77", "failOnDataLoss": "false", "kafka.client.id": "c"})
    columns = StructType([PLAIN["offset"], PLAIN["key"]])
    partition = InputPartition("somewhere")
    reader: Any = made.streamReader(columns) if is_stream else made.reader(columns)
    assert reader.read(partition) == ["rows"]
    ((ranges, given),) = wanted
    assert given is partition
    assert (ranges.columns.names, ranges.poll_timeout_ms, ranges.fail_on_data_loss) == (("offset", "key"), 77, False)
    assert ranges.consumer == {
        "bootstrap.servers": "h:1",
        "client.id": "c",
        "max.partition.fetch.bytes": "4194304",
        "fetch.max.wait.ms": "5",
        "auto.offset.reset": "none",
        "allow.auto.create.topics": "false",
    }


def test_settings_of_a_query_come_before_those_for_tasks_but_not_how_a_lost_range_is_told() -> None:
    reader: Any = source(**{"kafka.fetch.max.wait.ms": "9", "kafka.max.partition.fetch.bytes": "1000"}).reader(PLAIN)
    assert reader._ranges.consumer == {
        "bootstrap.servers": "h:1",
        "max.partition.fetch.bytes": "1000",
        "fetch.max.wait.ms": "9",
        "auto.offset.reset": "none",
        "allow.auto.create.topics": "false",
    }
    assert (reader._ranges.poll_timeout_ms, reader._ranges.fail_on_data_loss) == (120_000, True)


# What Spark asks the format for


def test_the_readers_of_the_format() -> None:
    made = source()
    assert OttlaDataSource.name() == "ottla"
    assert type(made.reader(PLAIN)) is BatchReader
    assert type(made.streamReader(PLAIN)) is StreamReader


def test_the_writers_of_the_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.spark.sink.set_imports_aside", lambda: None)
    sink = OttlaDataSource({"kafka.bootstrap.servers": "h:1", "topic": "t"})
    rows = StructType([StructField("value", StringType())])
    assert type(sink.writer(rows, overwrite=False)) is PlainBatchWriter
    assert type(sink.streamWriter(rows, overwrite=True)) is TransactionalStreamWriter
    with pytest.raises(InvalidConfigError, match="cannot be overwritten"):
        sink.writer(rows, overwrite=True)


@pytest.mark.parametrize("has_headers", [True, False])
def test_the_columns_of_a_source_are_known_before_it_is_whether_the_query_is_a_stream(has_headers: bool) -> None:
    for more in ({}, {"endingOffsets": "latest"}, {"maxOffsetsPerTrigger": "5"}):
        found = source(includeHeaders=str(has_headers), **more).schema()
        assert found == source_schema(include_headers=has_headers)
    with pytest.raises(InvalidConfigError, match="unknown source option"):
        source(nonsense="1").schema()
    for make, more in (
        (OttlaDataSource.reader, {"maxOffsetsPerTrigger": "5"}),
        (OttlaDataSource.streamReader, {"endingOffsets": "latest"}),
    ):
        with pytest.raises(InvalidConfigError, match="is for"):
            make(source(**more), PLAIN)


def test_what_the_package_offers_is_loaded_when_it_is_asked_for() -> None:
    assert ottla.spark.session is sessions.session
    assert ottla.spark.track_lag is progress.track_lag
    with pytest.raises(AttributeError, match=r"module 'ottla\.spark' has no attribute 'sessions_'"):
        _ = ottla.spark.sessions_


def test_imports_are_set_aside_once_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append(True))
    worker_memory.set_imports_aside.cache_clear()
    worker_memory.set_imports_aside()
    worker_memory.set_imports_aside()
    assert calls == [True]


# What queries of a source share


class SparkSession:
    """Java's side of one, as far as it knows data sources: a map of variables for those written in Python."""

    def __init__(self, **formats: dict[str, str]) -> None:
        self._formats = formats
        self._jsparkSession = self
        self.readStream = self

    def sessionState(self) -> Any:
        return self

    def dataSourceManager(self) -> Any:
        return self

    def dataSourceExists(self, name: str) -> bool:
        return name in self._formats

    def lookupDataSource(self, name: str) -> Any:
        variables = self._formats[name]
        environment = SimpleNamespace(putIfAbsent=variables.setdefault)
        return SimpleNamespace(dataSourceCls=lambda: SimpleNamespace(envVars=lambda: environment))

    def format(self, name: str) -> str:
        return f"reader of {name} with {len(self._formats.get(name, {}))}"


COMPLETE = dict.fromkeys(
    ("SPARK_LOCAL_DIRS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_PYTHON_RUNTIME"), ""
)


def test_all_that_queries_would_put_there_is_there_before_them() -> None:
    ours: dict[str, str] = {}
    used = {"SPARK_BUFFER_SIZE": "65536", "MINE": "1"}
    spark: Any = SparkSession(ottla=ours, used=used)
    settle_environment(spark, "ottla")
    assert (ours, used) == (COMPLETE, {"SPARK_BUFFER_SIZE": "65536", "MINE": "1"})
    settle_environment(spark, "used")
    assert used == {**COMPLETE, "SPARK_BUFFER_SIZE": "65536", "MINE": "1"}, "what is there stays"


def test_a_stream_is_read_once_its_environment_is_complete() -> None:
    spark: Any = SparkSession(ottla={})
    read: Any = stream_reader(spark, "ottla")
    assert read == "reader of ottla with 4"
    other: Any = stream_reader(spark, "rate")
    assert other == "reader of rate with 0", "a format of Java has no such map"
