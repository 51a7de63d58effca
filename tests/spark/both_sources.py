"""Asks Spark's own Kafka source and ours the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, hex, spark_partition_id

BASE_MS = 1_700_000_000_000


def answers(spark: SparkSession, name: str, servers: str, topic: str, place: Path) -> dict[str, Any]:
    """What the format `name` says."""

    def load(**options: object) -> DataFrame:
        reader = spark.read.format(name).option("kafka.bootstrap.servers", servers).option("subscribe", topic)
        return reader.options(**{option: str(value) for option, value in options.items()}).load()

    offsets = {"startingOffsets": {topic: {"0": 2, "1": -2}}, "endingOffsets": {topic: {"0": 9, "1": -1}}}
    times = {"startingOffsetsByTimestamp": {topic: {"0": BASE_MS + 5_000, "1": BASE_MS + 8_000}}}
    found: dict[str, Any] = {
        "schema": load().schema.jsonValue(),
        "schema with headers": load(includeHeaders="true").schema.jsonValue(),
        "all": rows(load(includeHeaders="true")),
        "offsets": rows(load(**{option: json.dumps(value) for option, value in offsets.items()})),
        "times": rows(load(**{option: json.dumps(value) for option, value in times.items()})),
        "until a time": rows(load(startingTimestamp=BASE_MS + 3_000, endingTimestamp=BASE_MS + 12_000)),
        "committed": rows(load(**{"kafka.isolation.level": "read_committed"})),
        "tasks": sorted(row[0] for row in load(minPartitions=6).groupBy(spark_partition_id()).count().collect()),
    }
    reader = spark.readStream.format(name).option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    stream = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 12).load()
    found["stream schema"] = stream.schema.jsonValue()
    taken: list[Any] = []
    writer = stream.writeStream.foreachBatch(lambda frame, _: taken.extend(rows(frame)))
    query = writer.option("checkpointLocation", str(place)).trigger(availableNow=True).start()
    query.awaitTermination()
    found["stream"] = sorted(taken)
    last = max((place / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    found["checkpoint"] = json.loads(last.read_text().splitlines()[2])
    return found


def rows(frame: DataFrame) -> list[list[Any]]:
    binary = [hex(name).alias(name) if name in ("key", "value") else col(name) for name in frame.columns]
    return sorted([str(value) for value in row] for row in frame.select(*binary).collect())
