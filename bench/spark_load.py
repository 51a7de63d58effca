"""What Spark does with a topic and with other places, timed in one Spark, side after side, round after round.

python -m bench.spark_load SERVERS PLACE ROWS ROUNDS [JAR…]

With the jars of Spark's own Kafka source it is measured as well. Prints one line of JSON: for each side its rounds,
reads and writes in rows per second, micro-batches in milliseconds.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import ottla
from bench.spark_write import write_rounds

PARTITIONS = 4
VALUE_BYTES = 100
TOPIC = "spark-read"
LATENCY_TOPIC = "spark-latency"
LATENCY_SKIPPED = 5
LATENCY_BATCHES = 10
LATENCY_TURNS = 3
LATENCY_PAUSE_S = 0.02
LATENCY_TIMEOUT_S = 60
_FILL_ROWS = 50_000


def main() -> None:
    servers, place, row_count, rounds, *jars = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    fill(servers, int(row_count))
    spark = make_session(jars)
    try:
        sides = read_sides(spark, servers, Path(place), has_kafka=bool(jars))
        reads: dict[str, list[float]] = {side: [] for side in sides}
        for round_number in range(-1, int(rounds)):
            for side, frame in sides.items():
                rate = int(row_count) / seconds_to_read(frame)
                if round_number >= 0:
                    reads[side].append(rate)
        writes = write_rounds(sides["parquet"], servers, Path(place), int(rounds))
        latencies = micro_batches(spark, servers)
        print(json.dumps({"reads": reads, "writes": writes, "micro_batches_ms": latencies}))
    finally:
        spark.stop()


def make_session(jars: list[str]) -> SparkSession:
    builder = (
        SparkSession.Builder()
        .master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
    )
    if jars:
        builder = builder.config("spark.jars", ",".join(jars))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def fill(servers: str, row_count: int) -> None:
    """Values that no codec makes smaller: otherwise Parquet would read less than it is asked for."""
    with ottla.Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([ottla.NewTopic(name, PARTITIONS) for name in (TOPIC, LATENCY_TOPIC)]).check()
    random = np.random.default_rng(1)
    with ottla.Producer(bootstrap_servers=servers) as producer:
        for first in range(0, row_count, _FILL_ROWS):
            count = min(_FILL_ROWS, row_count - first)
            offsets = np.arange(count + 1, dtype=np.int32) * VALUE_BYTES
            content = random.bytes(count * VALUE_BYTES)
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
            values = pa.Array.from_buffers(pa.binary(), count, buffers)
            spread = pa.array(np.arange(first, first + count, dtype=np.int32) % PARTITIONS)
            table = pa.table({"value": values, "partition": spread})
            producer.send_arrow(TOPIC, table, partition_column="partition").result()


# Batch reads


def topic_frame(spark: SparkSession, source: str, servers: str) -> DataFrame:
    reader = spark.read.format(source).option("kafka.bootstrap.servers", servers)
    return reader.option("subscribe", TOPIC).load()


def read_sides(spark: SparkSession, servers: str, place: Path, *, has_kafka: bool) -> dict[str, DataFrame]:
    parquet = place / "parquet"
    if not parquet.exists():
        topic_frame(spark, "ottla", servers).write.parquet(str(parquet))
    sides = {"ottla": topic_frame(spark, "ottla", servers), "parquet": spark.read.parquet(str(parquet))}
    if has_kafka:
        sides["kafka"] = topic_frame(spark, "kafka", servers)
    return sides


def seconds_to_read(frame: DataFrame) -> float:
    begun_s = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begun_s


# Micro-batches


def micro_batches(spark: SparkSession, servers: str) -> dict[str, list[float]]:
    """How long micro-batches of a few rows take, all in all, from a topic and from Spark's own clock, in turn."""
    reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", servers)
    stream = reader.option("subscribe", LATENCY_TOPIC).load()
    rate = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    taken: dict[str, list[float]] = {"ottla": [], "rate": []}
    for _ in range(LATENCY_TURNS):
        taken["ottla"] += _durations(stream, lambda: _trickle(servers))
        taken["rate"] += _durations(rate, nullcontext)
    return taken


def _durations(stream: DataFrame, load: Callable[[], AbstractContextManager[None]]) -> list[float]:
    query: StreamingQuery = stream.writeStream.format("noop").start()
    deadline_s = time.monotonic() + LATENCY_TIMEOUT_S
    taken: list[float] = []
    try:
        with load():
            # The first ones also pay for starting processes and for compiling.
            while len(taken) < LATENCY_SKIPPED + LATENCY_BATCHES and time.monotonic() < deadline_s:
                time.sleep(0.5)
                taken = [_duration_ms(one) for one in query.recentProgress if one["numInputRows"]]
    finally:
        query.stop()
    if len(taken) <= LATENCY_SKIPPED:
        raise RuntimeError(f"there were only {len(taken)} micro-batches in {LATENCY_TIMEOUT_S} s")
    return taken[LATENCY_SKIPPED:]


def _duration_ms(progress: Any) -> float:
    return float(progress["durationMs"]["triggerExecution"])


@contextmanager
def _trickle(servers: str) -> Iterator[None]:
    stop = threading.Event()

    def run() -> None:
        with ottla.Producer(bootstrap_servers=servers) as producer:
            while not stop.wait(LATENCY_PAUSE_S):
                producer.send(LATENCY_TOPIC, b"x" * VALUE_BYTES)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


if __name__ == "__main__":
    main()
