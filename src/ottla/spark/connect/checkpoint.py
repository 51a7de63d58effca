"""What a query's checkpoint says of a batch: whose it is and how far it reaches.

Reads through Hadoop's file systems, as Spark does, so a checkpoint may be anywhere Spark can keep one.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import SparkSession

from ottla.base.errors import OttlaError
from ottla.spark.connect.batch_progress import Progress

_FORMAT_LINES = 2
"""The offsets of the sources follow a line with the format's version and one with the query's own state."""


class CheckpointError(OttlaError):
    """A checkpoint that does not hold what Spark writes before it runs a batch."""


def batch_progress(spark: SparkSession, checkpoint: str, batch_id: int) -> Progress:
    """The progress that this batch will have made once it is written."""
    metadata = _read(spark, f"{checkpoint}/metadata")
    planned = _read(spark, f"{checkpoint}/offsets/{batch_id}")
    try:
        query_id = str(json.loads(metadata)["id"])
    except (ValueError, KeyError, TypeError):
        raise CheckpointError(f"{checkpoint}/metadata does not name the query") from None
    offsets = planned.strip("\n").split("\n")[_FORMAT_LINES:]
    if not offsets:
        raise CheckpointError(f"{checkpoint}/offsets/{batch_id} names no offsets")
    return Progress(query_id, batch_id, tuple(offsets))


def _read(spark: SparkSession, path: str) -> str:
    context = spark.sparkContext
    jvm: Any = context._jvm
    where = jvm.org.apache.hadoop.fs.Path(path)
    files = where.getFileSystem(context._jsc.hadoopConfiguration())
    if not files.exists(where):
        raise CheckpointError(f"the checkpoint has no {path}: give the sink the query's own checkpointLocation")
    stream = files.open(where)
    try:
        text: str = jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
    finally:
        stream.close()
    return text
