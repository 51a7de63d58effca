"""The source of a mirror: reads the chosen topics as any stream does, and keeps the target's topics in step.

Topics come and go while a mirror runs, and the choice of topics may change between two runs of it. What is new is read
from its beginning, wherever that is; what was taken out of the choice is no loss.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import InputPartition

from ottla.spark.mirror.target_topics import TargetTopics, partition_counts
from ottla.spark.offsets import Offsets, from_json, to_json
from ottla.spark.options import SourceOptions
from ottla.spark.source_schema import SourceColumns
from ottla.spark.stream_reader import StreamReader
from ottla.spark.topic_offsets import Logs


class MirrorReader(StreamReader):
    task_rows = 1
    """One partition each: what a task has copied is written down per partition."""

    def __init__(self, options: SourceOptions, columns: SourceColumns, target: TargetTopics) -> None:
        super().__init__(options, columns)
        self._target = target

    def _begins_in(self, start: Offsets, logs: Logs) -> Offsets:
        chosen = {one: offset for one, offset in start.items() if self._target.names.are_copied(one.topic)}
        return {**logs.earliest, **chosen}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begun, ended = from_json(start), from_json(end)
        # Every micro-batch comes by here, those that are planned and those that are repeated after a crash.
        self._target.ensure(partition_counts(ended))
        if begun.keys() != ended.keys():
            known = self._begins_in(begun, self._topics.logs())
            begun = {one: known[one] for one in known if one in ended or one in begun}
        return super().partitions(to_json(begun), end)
