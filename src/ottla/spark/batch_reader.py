"""A batch query's reader: all partitions from where it starts to where it ends, both settled when it is planned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ottla.base.errors import InvalidConfigError
from ottla.spark.offsets import OffsetRange, split
from ottla.spark.options import SourceOptions
from ottla.spark.range_reader import RangePartition, RangeReader
from ottla.spark.source_schema import SourceColumns
from ottla.spark.topic_offsets import TopicOffsets


class BatchReader(DataSourceReader):
    """Made and copied by Spark; holds nothing but what it was asked for."""

    def __init__(self, options: SourceOptions, columns: SourceColumns) -> None:
        self._options = options
        self._ranges = RangeReader.of(options, columns)

    def partitions(self) -> list[InputPartition]:
        topics = TopicOffsets(self._options)
        logs = topics.first_logs()
        start, end = topics.starting(logs), topics.ending(logs)
        for partition in sorted(end):
            if start[partition] > end[partition]:
                raise InvalidConfigError(
                    "endingOffsets",
                    f"{partition} would end at {end[partition]}, before its start at {start[partition]}",
                )
        ranges = [OffsetRange(partition, start[partition], end[partition]) for partition in sorted(end)]
        pieces = split(ranges, self._options.min_partitions, self._options.max_records_per_partition)
        return [RangePartition([piece]) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._ranges.read(partition)
