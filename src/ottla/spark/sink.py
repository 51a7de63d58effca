"""The writers Spark asks for: rows of a batch job or of micro-batches into topics.

Turns what Spark calls into what `sink_transactions` does. Nothing here connects before a task has rows, for Spark makes
these objects several times for each batch.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ottla.base.errors import InvalidConfigError, OttlaError
from ottla.client import sync
from ottla.spark.connections import FAIL_FAST, admin_for
from ottla.spark.sink_options import Delivery, SinkOptions
from ottla.spark.sink_rows import Rows
from ottla.spark.sink_transactions import (
    Batch,
    TaskResult,
    abort_batch,
    commit_batch,
    commit_prepared,
    write_task,
    write_task_once,
)
from ottla.spark.worker_memory import set_imports_aside

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"
_RUN = "spark.jobGroup.id"


@dataclass
class TaskMessage(WriterCommitMessage):
    """From a task to the driver, which knows of the batch only what tasks tell it."""

    result: TaskResult
    batch: Batch | None = None


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    if overwrite:
        raise InvalidConfigError("mode", 'a topic cannot be overwritten: write to it with mode("append")')
    parsed = SinkOptions.parse(options, schema, default=Delivery.AT_LEAST_ONCE)
    set_imports_aside()
    if parsed.delivery is Delivery.EXACTLY_ONCE:
        return TransactionalBatchWriter(parsed)
    return PlainBatchWriter(parsed)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
    """Spark asks to overwrite in the output mode complete. As in its Kafka sink, all rows are appended then."""
    parsed = SinkOptions.parse(options, schema, default=Delivery.EXACTLY_ONCE)
    set_imports_aside()
    if parsed.delivery is Delivery.EXACTLY_ONCE:
        return TransactionalStreamWriter(parsed)
    return PlainStreamWriter(parsed)


class PlainBatchWriter(DataSourceArrowWriter):
    """At least once: rows are visible as they are written, and written again by a task that is tried again."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _task_message(_write_plainly(self._options, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing is left to do. Spark keeps a process for this question all the same."""
        set_imports_aside()


class PlainStreamWriter(DataSourceStreamArrowWriter):
    """At least once."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _task_message(_write_plainly(self._options, iterator))


class TransactionalBatchWriter(DataSourceArrowWriter):
    """Nothing is visible before all tasks are done, and nothing twice.

    A driver that dies while it commits leaves the transactions of some tasks committed: unlike a stream, a job has
    no checkpoint from which to go on. Inside `foreachBatch` it has one, and is part of the stream.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._job = f"{options.sink_id}-{uuid.uuid4()}"
        self._planned_ms = _now_ms()

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        options, context = self._options, _task_context()
        rows = Rows(iterator, options.topic)
        task = context.partitionId()
        batch = _micro_batch(options, context, self._planned_ms)
        if batch is None:
            result = write_task_once(options.producer, options.admin, self._job, self._planned_ms, task, rows)
            return _task_message(result)
        if not options.names_sink:
            raise InvalidConfigError(
                "sinkId", "exactly once inside foreachBatch needs the option sinkId: a name of its own for each write"
            )
        return _task_message(write_task(options.producer, options.admin, batch, task, rows), batch)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        results = [result for result in _results(messages) if result is not None]
        batch = _batch_of(messages)
        prepared = [result.transaction for result in results if result.transaction is not None]
        if batch is not None:
            commit_batch(self._options.admin, batch, results)
        elif prepared:
            commit_prepared(admin_for(self._options.admin), prepared)
        set_imports_aside()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        batch = _batch_of(messages)
        abort_batch(self._options.admin, self._job if batch is None else batch.sink, _results(messages))


class TransactionalStreamWriter(DataSourceStreamArrowWriter):
    """Exactly once, over restarts from the checkpoint: see `sink_transactions`."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._planned_ms = _now_ms()

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        options, context = self._options, _task_context()
        batch = _micro_batch(options, context, self._planned_ms)
        if batch is None:
            raise OttlaError("the task is not part of a micro-batch: Spark has given it no query id or no batch id")
        rows = self._rows(iterator)
        return _task_message(write_task(options.producer, options.admin, batch, context.partitionId(), rows), batch)

    def _rows(self, batches: Iterable[Any]) -> Rows:
        return Rows(batches, self._options.topic)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        batch = _batch_of(messages)
        if batch is not None:
            commit_batch(self._options.admin, batch, [result for result in _results(messages) if result is not None])

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        batch = _batch_of(messages)
        query = query_id_of(self._options.checkpoint) if self._options.checkpoint is not None else None
        known = None if query is None else _sink_name(self._options, query)
        sink = known if batch is None else batch.sink
        abort_batch(self._options.admin, sink, _results(messages))


def _write_plainly(options: SinkOptions, batches: Iterable[Any]) -> TaskResult:
    rows = Rows(batches, options.topic)
    if rows.are_none:
        return TaskResult(0)
    with sync.Producer({**FAIL_FAST, **options.producer}) as producer:
        return TaskResult(rows.send(producer))


def _task_message(result: TaskResult, batch: Batch | None = None) -> TaskMessage:
    """The last thing a task does here."""
    set_imports_aside()
    return TaskMessage(result, batch)


def _task_context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise OttlaError("rows can only be written by a task of Spark")
    return context


def _now_ms() -> int:
    return int(time.time() * 1000)


def _micro_batch(options: SinkOptions, context: TaskContext, planned_ms: int) -> Batch | None:
    """The micro-batch that a task is part of, directly or by way of `foreachBatch`."""
    query, number = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
    if query is None or number is None:
        return None
    return Batch(_sink_name(options, query), context.getLocalProperty(_RUN) or "", int(number), planned_ms)


def _sink_name(options: SinkOptions, query: str) -> str:
    """The query's id is kept in its checkpoint: a new checkpoint counts batches from 0 again, and is a new sink."""
    return f"{options.sink_id}-{query}"


def _results(messages: Iterable[WriterCommitMessage | None]) -> list[TaskResult | None]:
    """By the number of the task. Tasks that have failed or were stopped have no message."""
    return [message.result if isinstance(message, TaskMessage) else None for message in messages]


def _batch_of(messages: Iterable[WriterCommitMessage | None]) -> Batch | None:
    found = (message.batch for message in messages if isinstance(message, TaskMessage))
    return next((batch for batch in found if batch is not None), None)


def query_id_of(checkpoint: str) -> str | None:
    """The id of the query a checkpoint belongs to, if it lies in a directory of this machine."""
    try:
        found = json.loads((Path(checkpoint.removeprefix("file:")) / "metadata").read_text())
        return str(found["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
