"""Stream readers called as Spark calls them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from ottla.spark.connect.change_source import ChangeStreamReader
from ottla.spark.connect.table_follower import TableOptions
from ottla.spark.connect.table_server import open_table_server, spark_schema
from ottla.spark.connect.table_source import TableStreamReader
from ottla.spark.connect.table_window import Order

Row = dict[str, Any]
Reader = TableStreamReader | ChangeStreamReader


def table_reader(url: str, table: str, order: Order, **options: Any) -> TableStreamReader:
    schema = spark_schema(open_table_server(url).columns(table))
    return TableStreamReader(TableOptions(url, table, order, poll_interval_ms=0, **options), schema)


def rows_between(reader: Reader, start: dict[str, Any], end: dict[str, Any]) -> list[Row]:
    """What the tasks of a micro-batch read."""
    return [
        row
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def all_batches(reader: Reader, start: dict[str, Any]) -> Iterator[tuple[dict[str, Any], list[Row]]]:
    """Micro-batches after `start`, until there is nothing more now."""
    reader.prepareForTriggerAvailableNow()
    while (end := reader.latestOffset(start, ReadAllAvailable())) != start:
        yield end, rows_between(reader, start, end)
        start = end
