"""A driver of its own: copies a topic into SQLite and PostgreSQL, and can be told to die at the worst moment.

Run as a program with a JSON object of settings as its argument.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from ottla.spark.connect.batch_writer import BatchWriter
from ottla.spark.connect.database import open_database
from ottla.spark.connect.database_target import Target

WAIT_S = 120
SCHEMA = "id bigint, text string"


@dataclass
class Settings:
    bootstrap: str
    topic: str
    sqlite: str
    postgres: str
    directory: str
    dies_after_batch: int | None = None
    """Both queries commit this batch to their databases, and then the driver is killed."""
    waits_in_batch: int | None = None
    """Both queries begin this batch, and then wait until the test has restarted the broker."""


class Dying:
    """Writes as it is told to, and then holds the batch back from Spark until all others are as far, and dies."""

    def __init__(self, writer: BatchWriter, settings: Settings, all_there: threading.Barrier) -> None:
        self._writer = writer
        self._settings = settings
        self._all_there = all_there

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        if batch_id == self._settings.waits_in_batch:
            self._all_there.wait(WAIT_S)
            wait_for_restart(Path(self._settings.directory))
        self._writer(frame, batch_id)
        if batch_id == self._settings.dies_after_batch:
            self._all_there.wait(WAIT_S)
            os.kill(os.getpid(), signal.SIGKILL)


def wait_for_restart(directory: Path) -> None:
    (directory / "here").touch()
    deadline_s = time.monotonic() + WAIT_S
    while not (directory / "restarted").exists():
        if time.monotonic() > deadline_s:
            raise TimeoutError("the broker was not restarted")
        time.sleep(0.05)


def wait_for_sources(query: StreamingQuery) -> None:
    """Spark gives the process of a source ten seconds to report; on a busy machine two at once do not make it."""
    while query.isActive and query.status["message"].startswith("Initializing"):
        time.sleep(0.05)


def failing_once(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first attempt of the second task of each stage fails after it has handed on rows."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    for batch in batches:
        yield batch
        if context.partitionId() == 1 and context.attemptNumber() == 0:
            raise RuntimeError("an attempt that fails on purpose")


def copy(settings: Settings) -> None:
    spark = (
        SparkSession.Builder()
        .master("local[2,3]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    rows = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", settings.bootstrap)
        .option("subscribe", settings.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 30_000)
        .load()
        .selectExpr("CAST(CAST(value AS STRING) AS BIGINT) AS id", "concat('row ', CAST(value AS STRING)) AS text")
    )
    targets = {
        "to-sqlite": (rows, Target(open_database(settings.sqlite), "copied", create=True)),
        "to-postgres": (
            rows.mapInArrow(failing_once, SCHEMA),
            Target(open_database(settings.postgres), "copied", create=True, staging_rows=20_000),
        ),
    }
    all_there = threading.Barrier(len(targets))
    queries = []
    for name, (frame, target) in targets.items():
        checkpoint = f"{settings.directory}/{name}"
        writer = Dying(BatchWriter(target, name, checkpoint), settings, all_there)
        stream = frame.writeStream.foreachBatch(writer).option("checkpointLocation", checkpoint)
        queries.append(stream.trigger(availableNow=True).start())
        wait_for_sources(queries[-1])
    for query in queries:
        query.awaitTermination()


if __name__ == "__main__":
    arguments: dict[str, Any] = json.loads(sys.argv[1])
    copy(Settings(**arguments))
