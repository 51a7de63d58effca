"""Copies a topic to topics and databases, each by a stream of its own: `python -m tests.spark.drivers.copies JOB`.

JOB is JSON: the broker, the topic, a directory for checkpoints, and steps, one after the other. A step is a list of
copies that run side by side. What became of each is a line of JSON on the standard output.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from ottla.spark.connect.database import open_database
from ottla.spark.connect.database_target import Target
from ottla.spark.sessions import build_session
from tests.spark.drivers.faults import PATIENCE_S, FaultyBatchWriter, FaultyDataSource, place
from tests.spark.pipelines import TOO_LATE

ROWS_BY_DRIVER = 20_000
"""A batch that has more of them goes into PostgreSQL or MariaDB by way of the tasks."""


def main(job: dict[str, Any]) -> None:
    spark = build_session("copies", master="local[2]")
    assert spark.sparkContext._jvm is not None
    place("jvm.pid").write_text(str(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()))
    spark.dataSource.register(FaultyDataSource)
    for step in job["steps"]:
        queries = [(copy["target"], start(spark, job, **copy)) for copy in step]
        for target, query in queries:
            report(target, query)


def start(
    spark: SparkSession, job: dict[str, Any], target: str, options: dict[str, str], database: str | None = None
) -> StreamingQuery:
    servers = {"kafka.bootstrap.servers": job["bootstrap"]}
    reader = spark.readStream.format("ottla").options(**servers, subscribe=job["topic"], startingOffsets="earliest")
    frame = reader.options(**options).load()
    checkpoint = str(Path(job["checkpoints"]) / target)
    if database is None:
        writer = frame.select("value").writeStream.format("ottla-faulty")
        writer = writer.options(**servers, topic=target, sinkId=target)
    else:
        writer = into_database(frame, target, database, checkpoint)
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    # Spark gives the process of a source ten seconds to report; on a busy machine several at once do not make it.
    deadline = time.monotonic() + PATIENCE_S
    while True:
        query = writer.start()
        while query.isActive and query.status["message"].startswith("Initializing"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        if query.isActive or TOO_LATE not in str(query.exception()) or time.monotonic() > deadline:
            return query


def into_database(frame: DataFrame, name: str, url: str, checkpoint: str) -> DataStreamWriter:
    numbers = frame.selectExpr("CAST(CAST(value AS STRING) AS BIGINT) AS id", "concat('row ', CAST(value AS STRING)) t")
    target = Target(open_database(url), f"copied_{name}", create=True, staging_rows=ROWS_BY_DRIVER)
    if name == "mysql_upsert":
        target = replace(target, mode="upsert", keys=("id",), staging="never")
    writer = FaultyBatchWriter(target, name, checkpoint)
    return numbers.mapInArrow(failing_once, "id bigint, text string").writeStream.foreachBatch(writer)


def failing_once(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first attempt of the second task of each stage fails after it has handed on rows."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    for batch in batches:
        yield batch
        if context.partitionId() == 1 and context.attemptNumber() == 0:
            raise RuntimeError("an attempt that fails on purpose")


def report(target: str, query: StreamingQuery) -> None:
    try:
        query.awaitTermination()
        outcome = ""
    except StreamingQueryException as e:
        outcome = str(e)
    print(json.dumps({"target": target, "error": outcome}), flush=True)
    place(f"{target} is done").touch()


try:
    main(json.loads(sys.argv[1]))
except Exception:
    # Threads that hold a batch back for ever are left behind with their dead JVM.
    traceback.print_exc()
    os._exit(1)
