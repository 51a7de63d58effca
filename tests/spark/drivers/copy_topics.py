"""Copies topics, each by a stream of its own, to their present ends: `python -m tests.spark.drivers.copy_topics JOB`.

JOB is JSON: the broker, a directory for checkpoints, and steps, one after the other. A step is a list of copies that
run side by side. What became of each is a line of JSON on the standard output.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.spark.drivers.faults import FaultyDataSource, place


def main(job: dict[str, Any]) -> None:
    spark = (
        SparkSession.Builder()
        .master("local[2,3]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    assert spark.sparkContext._jvm is not None
    place("jvm.pid").write_text(str(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()))
    spark.dataSource.register(FaultyDataSource)
    for step in job["steps"]:
        queries = [(copy, start(spark, job, **copy)) for copy in step]
        for copy, query in queries:
            report(copy, query)


def start(
    spark: SparkSession, job: dict[str, Any], source: str, target: str, source_options: dict[str, str]
) -> StreamingQuery:
    servers = {"kafka.bootstrap.servers": job["bootstrap"]}
    reader = spark.readStream.format("ottla").options(**servers, subscribe=source, startingOffsets="earliest")
    frame = reader.options(**source_options).load().select("value")
    checkpoint = str(Path(job["checkpoints"]) / target)
    writer = frame.writeStream.format("ottla-faulty").options(**servers, topic=target, sinkId=target)
    return writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()


def report(copy: dict[str, Any], query: StreamingQuery) -> None:
    try:
        query.awaitTermination()
        outcome = ""
    except StreamingQueryException as e:
        outcome = str(e)
    print(json.dumps({"target": copy["target"], "error": outcome}), flush=True)
    place(f"{copy['target']} is done").touch()


main(json.loads(sys.argv[1]))
