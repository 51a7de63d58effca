"""A mirror with accidents. What goes wrong is told as to other drivers (`faults`), by the mirror's name and a batch, or
by a file, for the next batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ottla.spark import sink_transactions
from ottla.spark.mirror.data_source import MirrorDataSource
from ottla.spark.mirror.writer import MirrorWriter
from tests.spark.drivers.faults import commit_some_and_die, fault_of, hold, pausing, place

IN_MID_COMMIT, AFTER_COMMIT, BROKERS = "in mid-commit", "after commit", "brokers"
NEXT_FAULT = "fault of the next commit"


class FaultyMirror(MirrorDataSource):
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        made = super().streamWriter(schema, overwrite)
        made.__class__ = FaultyMirrorWriter
        return made


class FaultyMirrorWriter(MirrorWriter):
    def _fault(self, batch_number: int) -> str:
        if place(NEXT_FAULT).exists():
            return place(NEXT_FAULT).read_text()
        return fault_of(self._map_topic.split(".")[2], batch_number)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        kind = self._fault(int(context.getLocalProperty("streaming.sql.batchId") or -1))
        if context.partitionId() == 0 and kind == BROKERS:
            iterator = pausing(iterator, "restart the brokers", "the brokers are back")
        return super().write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        kind = self._fault(batchId)
        if kind == IN_MID_COMMIT:
            sink_transactions.commit_prepared = commit_some_and_die
        super().commit(messages, batchId)
        if kind == AFTER_COMMIT:
            hold("the mirror")
