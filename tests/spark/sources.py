"""What tests of the source share: readers asked directly, as Spark asks them, and queries."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ottla.client.sync import Producer
from ottla.spark.data_source import OttlaDataSource
from tests.broker_process import BrokerProcess


def data_source(broker: BrokerProcess, **options: object) -> OttlaDataSource:
    """With names in lower case, as Spark hands them over."""
    given = {name.lower(): str(value) for name, value in options.items()}
    return OttlaDataSource({"kafka.bootstrap.servers": broker.bootstrap, **given})


def batch_reader(broker: BrokerProcess, **options: object) -> DataSourceReader:
    source = data_source(broker, **options)
    return source.reader(source.schema())


def stream_reader(broker: BrokerProcess, **options: object) -> Any:
    source = data_source(broker, **options)
    return source.streamReader(source.schema())


def read_tasks(
    reader: DataSourceReader | DataSourceStreamReader, tasks: Iterable[InputPartition]
) -> list[dict[str, Any]]:
    """The rows of all tasks. Reader and tasks are pickled on the way, as they are on their way to workers."""
    shipped: DataSourceReader = pickle.loads(pickle.dumps(reader))
    return [
        row for task in tasks for batch in shipped.read(pickle.loads(pickle.dumps(task))) for row in batch.to_pylist()
    ]


def offsets_of(rows: Iterable[Any]) -> dict[int, list[int]]:
    """By partition, sorted: a row that came twice is there twice."""
    found: dict[int, list[int]] = {}
    for row in rows:
        found.setdefault(row["partition"], []).append(row["offset"])
    return {partition: sorted(found[partition]) for partition in sorted(found)}


def query(
    spark: SparkSession, broker: BrokerProcess, schema: str | StructType | None = None, **options: object
) -> DataFrame:
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap)
    if schema is not None:
        reader = reader.schema(schema)
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def send(broker: BrokerProcess, topic: str, partition: int, count: int, prefix: str = "value") -> None:
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for index in range(count):
            producer.send(topic, f"{prefix} {index}".encode(), partition=partition)
        producer.flush()
