"""Sinks with accidents: as the format "ottla" and the writer into databases, but they die or wait at a chosen moment.

What happens when is in the variables of the environment, which Spark's processes share; they meet through files in a
directory of the test's.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import ottla
from ottla.client.core.producer.transaction import PreparedTransaction
from ottla.spark import sink, sink_transactions
from ottla.spark.connect.batch_progress import Progress
from ottla.spark.connect.batch_writer import BatchWriter
from ottla.spark.connect.database import Session
from ottla.spark.data_source import OttlaDataSource

PATIENCE_S = 400
FAULTS = "OTTLA_TEST_FAULTS"
"""A JSON object: for each sink the number of a batch and what happens in it."""
PLACE = "OTTLA_TEST_PLACE"


def place(name: str) -> Path:
    return Path(os.environ[PLACE]) / name


def wait_for(name: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not place(name).exists():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"nobody has made {name}")
        time.sleep(0.02)


def fault_of(sink_id: str, batch_number: int) -> str:
    number, kind = json.loads(os.environ[FAULTS]).get(sink_id, (-1, ""))
    return kind if number == batch_number else ""


HELD = "held "
"""How kinds of faults begin in which a sink holds its batch until all die."""


def hold(sink_id: str) -> None:
    place(f"{sink_id} holds its batch").touch()
    wait_for("what never happens")


def wait_for_held() -> None:
    for sink_id, (_, kind) in json.loads(os.environ[FAULTS]).items():
        if kind.startswith(HELD):
            wait_for(f"{sink_id} holds its batch")


class FaultyBatchWriter(BatchWriter):
    """Into a database."""

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        kind = fault_of(self.sink, batch_id)
        if kind == "broker restart":
            place(f"{self.sink} waits for the broker").touch()
            wait_for("the broker is back")
        super().__call__(frame, batch_id)
        if kind == "held after commit":
            hold(self.sink)

    def _begin(self, session: Session, batch: Progress) -> bool:
        kind = fault_of(self.sink, batch.batch_id)
        if kind in ("held before commit", "database restart"):
            save = session.save_progress

            def save_and_pause(sink_id: str, progress: Progress) -> None:
                """The transaction has all it will have, and is open."""
                save(sink_id, progress)
                if kind == "held before commit":
                    hold(sink_id)
                place(f"{sink_id} waits for the database").touch()
                wait_for("the database is back")

            session.save_progress = save_and_pause  # type: ignore[method-assign]
        return super()._begin(session, batch)


class FaultyDataSource(OttlaDataSource):
    @classmethod
    def name(cls) -> str:
        return "ottla-faulty"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return FaultyWriter(sink.SinkOptions.parse(self.options, schema, default=sink.Delivery.EXACTLY_ONCE))


class FaultyWriter(sink.TransactionalStreamWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        kind = fault_of(self._options.sink_id, int(context.getLocalProperty("streaming.sql.batchId") or -1))
        if context.partitionId() == 0 and kind == "orphan":
            return self._write_as_orphan(iterator)
        if context.partitionId() == 0 and kind == "broker restart":
            iterator = pausing(iterator, "restart the broker", "the broker is back")
        return super().write(iterator)

    def _write_as_orphan(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Has all its rows, sends the first of them, and goes on when its driver is long dead.

        Spark's daemon hangs up on its workers when the driver is gone. On another machine, cut off, nobody would.
        """
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        batches = list(iterator)
        try:
            message = super().write(pausing(iter(batches), "the orphan writes", "the orphan may go on"))
        except ottla.errors.ClientError as e:
            place("what became of the orphan").write_text(f"refused: {e.code.name}")
            raise
        place("what became of the orphan").write_text("it could go on")
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        kind = fault_of(self._options.sink_id, batchId)
        if kind == "killed in mid-commit":
            wait_for("the orphan writes")
            wait_for_held()
            sink_transactions.commit_prepared = commit_some_and_die
        super().commit(messages, batchId)
        if kind == "held after commit":
            hold(self._options.sink_id)


def pausing(batches: Iterator[Any], tell: str, wait: str) -> Iterator[Any]:
    """The first batch, then a pause that others are told of, then the rest."""
    yield next(batches)
    place(tell).touch()
    wait_for(wait)
    yield from batches


def commit_some_and_die(admin: ottla.Admin, prepared: list[PreparedTransaction]) -> NoReturn:
    admin.end_transactions(prepared[: len(prepared) // 2 + 1], committed=True).check()
    die()


def die() -> NoReturn:
    """The driver is the JVM. This process is one of its children, and goes with it."""
    os.kill(int(place("jvm.pid").read_text()), signal.SIGKILL)
    os._exit(1)
