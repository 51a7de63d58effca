"""Rows of the output mode `update` into topics, exactly once: by `foreachBatch`, for Spark refuses that mode to sinks
written in Python.

The protocol is that of `sink_transactions`; only the way from tasks to driver is another one.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from ottla.base.errors import OttlaError
from ottla.client.sync import Producer
from ottla.spark.sink_options import Delivery, SinkOptions
from ottla.spark.sink_rows import Rows
from ottla.spark.sink_transactions import Batch, TaskResult, abort_tasks, commit_batch, write_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_QUERY = "sql.streaming.queryId"
_RUN = "spark.jobGroup.id"
_RESULT_COLUMNS = "task INT, result BINARY"


def topic_updates(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """A function for `writeStream.outputMode("update").foreachBatch(…)` that writes each batch once. The options are
    those of the format."""

    def write(frame: DataFrame, batch_id: int) -> None:
        parsed = SinkOptions.parse(options, frame.schema, default=Delivery.EXACTLY_ONCE)
        context = frame.sparkSession.sparkContext
        query = context.getLocalProperty(_QUERY)
        if query is None:
            raise OttlaError("updates of a topic can only be written by foreachBatch: there is no query id")
        batch = Batch(f"{parsed.sink_id}-{query}", context.getLocalProperty(_RUN) or "", batch_id)
        _write_batch(frame, parsed, batch)

    return write


def _write_batch(frame: DataFrame, options: SinkOptions, batch: Batch) -> None:
    is_transactional = options.delivery is Delivery.EXACTLY_ONCE

    def write_rows(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        context = TaskContext.get()
        assert context is not None
        task = context.partitionId()
        rows = Rows(batches, options.topic)
        if is_transactional:
            result = write_task(options.producer, options.admin, batch, task, rows)
        else:
            result = _write_plainly(options, rows)
        yield pyarrow.RecordBatch.from_pylist(
            [{"task": task, "result": pickle.dumps(result)}],
            pyarrow.schema([("task", pyarrow.int32()), ("result", pyarrow.binary())]),
        )

    try:
        answers = frame.mapInArrow(write_rows, _RESULT_COLUMNS).collect()
    except Exception:
        if is_transactional:
            abort_tasks(options.admin, batch.sink)
        raise
    results: list[TaskResult] = [pickle.loads(row.result) for row in sorted(answers, key=lambda row: row.task)]
    if is_transactional:
        commit_batch(options.admin, batch, results)


def _write_plainly(options: SinkOptions, rows: Rows) -> TaskResult:
    if rows.are_none:
        return TaskResult(0)
    with Producer(options.producer) as producer:
        return TaskResult(rows.send(producer))
