"""What pipelines do with a topic of JSON, and plain Spark with the same one: side after side, round after round.

python -m bench.pipeline_load SERVERS PLACE ROWS ROUNDS PARTS [JAR…]

PARTS are names of `MEASURES`, with commas between them. All run in one Spark, with pipelines' own defaults. With the
jars of Spark's own Kafka source it is measured as well. Prints one line of JSON: for each part its sides and their
rounds, in rows per second.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import ottla
from bench.spark_load import seconds_to_read
from ottla.spark.pipeline import Pipeline
from ottla.spark.pipeline.flows.report import FlowReport
from ottla.spark.pipeline.frames import Frames
from ottla.spark.pipeline.topic_source import TopicSource
from ottla.spark.sessions import build_session

PARTITIONS = 4
SCHEMA = "id BIGINT NOT NULL, customer STRING, amount DECIMAL(12, 2), at TIMESTAMP"
PLAIN_SCHEMA = SCHEMA.replace(" NOT NULL", "")
WINDOW = (
    "SELECT window.start AS minute, customer, sum(amount) AS total FROM recent"
    " GROUP BY window(at, '1 minute'), customer"
)
DELAY = "10 seconds"
AVRO_FILE = "order.avsc"
AVRO_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}
_FIRST_US = 1_767_225_600_000_000
_FILL_ROWS = 50_000
_CUSTOMERS = 1_000
_MINUTES = 60
Sides = dict[str, Callable[[], float]]
"""What each side does, in seconds."""


def main() -> None:
    servers, place, row_count, rounds, parts, *jars = sys.argv[1:]
    chosen = parts.split(",")
    (Path(place) / AVRO_FILE).write_text(json.dumps(AVRO_SCHEMA))
    for source_format in {name for part in chosen for name in FORMATS.get(part, ("json",))}:
        fill(servers, f"bench-{source_format}", int(row_count), VALUES[source_format])
    conf = {"spark.sql.warehouse.dir": f"{place}/warehouse"}
    if jars:
        conf["spark.jars"] = ",".join(jars)
    spark = build_session("bench", master="local[2]", conf=conf)
    try:
        bed = Bed(spark, servers, Path(place), has_kafka=bool(jars))
        measured = {part: run_rounds(MEASURES[part](bed), int(row_count), int(rounds)) for part in chosen}
        print(json.dumps(measured))
    finally:
        spark.stop()


class Bed:
    """Where it is measured."""

    def __init__(self, spark: SparkSession, servers: str, place: Path, *, has_kafka: bool) -> None:
        self.spark = spark
        self.servers = servers
        self.place = place
        self.has_kafka = has_kafka
        self._runs = 0

    def new_name(self, what: str) -> str:
        """For what must not be there yet: a checkpoint, a table, a topic."""
        self._runs += 1
        return f"{what}-{self._runs}"

    def pipeline(self, name: str, source_format: str = "json") -> Pipeline:
        made = Pipeline(
            name,
            directory=self.place,
            checkpoint=str(self.place / "checkpoints" / name),
            kafka={"bootstrap.servers": self.servers},
        )
        options = {"schema_file": AVRO_FILE} if source_format == "avro" else {"schema": SCHEMA}
        return made.source("orders", kind="topic", topic=f"bench-{source_format}", format=source_format, **options)

    def with_window(self, name: str) -> Pipeline:
        made = self.pipeline(name).view(
            "recent", sql="SELECT * FROM orders", watermark={"column": "at", "delay": DELAY}
        )
        made.view("totals", sql=WINDOW)
        return made


def run_rounds(sides: Sides, row_count: int, rounds: int) -> dict[str, list[float]]:
    """Rows per second; a round before that warms up."""
    rates: dict[str, list[float]] = {side: [] for side in sides}
    for round_number in range(-1, rounds):
        for side, work in sides.items():
            rate = row_count / work()
            if round_number >= 0:
                rates[side].append(rate)
    return rates


def fill(servers: str, topic: str, row_count: int, value: Callable[[int, int], bytes]) -> None:
    """Rows of all customers in turn, spread over an hour."""
    with ottla.Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([ottla.NewTopic(topic, PARTITIONS)]).check()
    with ottla.Producer(bootstrap_servers=servers) as producer:
        for first in range(0, row_count, _FILL_ROWS):
            numbers = range(first, min(first + _FILL_ROWS, row_count))
            values = [value(number, number * _MINUTES // row_count) for number in numbers]
            spread = pa.array([number % PARTITIONS for number in numbers], pa.int32())
            table = pa.table({"value": pa.array(values, pa.binary()), "partition": spread})
            producer.send_arrow(topic, table, partition_column="partition").result()


def json_value(number: int, minute: int) -> bytes:
    customer, amount = f"customer-{number % _CUSTOMERS}", number % 10_000 / 100
    at = f"2026-01-01T00:{minute:02}:{number % 60:02}Z"
    return f'{{"id":{number},"customer":"{customer}","amount":{amount},"at":"{at}"}}'.encode()


def _csv_value(number: int, minute: int) -> bytes:
    at = f"2026-01-01T00:{minute:02}:{number % 60:02}Z"
    return f"{number},customer-{number % _CUSTOMERS},{number % 10_000 / 100},{at}".encode()


def _avro_value(number: int, minute: int) -> bytes:
    out = io.BytesIO()
    row = {
        "id": number,
        "customer": f"customer-{number % _CUSTOMERS}",
        "amount": number % 10_000 / 100,
        "at": _FIRST_US + (minute * 60 + number % 60) * 1_000_000,
    }
    fastavro.schemaless_writer(out, AVRO_SCHEMA, row)
    return out.getvalue()


VALUES: dict[str, Callable[[int, int], bytes]] = {"json": json_value, "csv": _csv_value, "avro": _avro_value}
FORMATS = {"csv": ("csv",), "avro": ("avro", "json")}
"""What parts read; the others read JSON."""


# Reading


def parsing(bed: Bed, source_format: str) -> Sides:
    """All rows of the topic as columns, by a pipeline's source and by Spark's own function over the same topic."""
    reader = bed.spark.read.format("ottla").option("kafka.bootstrap.servers", bed.servers)
    records = reader.option("subscribe", f"bench-{source_format}").load()
    text = f.col("value").cast("string")
    parsed = f.from_json(text, PLAIN_SCHEMA) if source_format == "json" else f.from_csv(text, PLAIN_SCHEMA)
    plain = records.select(parsed.alias("row")).select("row.*")
    ours = _source(bed, source_format)
    return {"ottla": partial(seconds_to_read, ours), f"from_{source_format}": partial(seconds_to_read, plain)}


def against_json(bed: Bed) -> Sides:
    """The same rows in Avro and in JSON, both by a pipeline's source."""
    sides = {"ottla": "avro", "json": "json"}
    return {side: partial(seconds_to_read, _source(bed, source_format)) for side, source_format in sides.items()}


def _source(bed: Bed, source_format: str) -> DataFrame:
    made = bed.pipeline("parsed", source_format).sink("out", kind="console").flow("orders", "out")
    part = made.model().sources["orders"].part
    assert isinstance(part, TopicSource)
    return part.load_table(bed.spark)


def windowing(bed: Bed) -> Sides:
    """A window per minute and customer, as a streaming query that ends when it has read what is there."""
    made = bed.with_window("windowed").sink("out", kind="console").flow("totals", "out")
    Frames(made.model(), bed.spark).build()
    sides = {"ottla": bed.spark.table("totals")}
    if bed.has_kafka:
        reader = bed.spark.readStream.format("kafka").option("kafka.bootstrap.servers", bed.servers)
        records = reader.option("subscribe", "bench-json").option("startingOffsets", "earliest").load()
        parsed = f.from_json(f.col("value").cast("string"), PLAIN_SCHEMA).alias("row")
        records.select(parsed).select("row.*").withWatermark("at", DELAY).createOrReplaceTempView("recent")
        sides["kafka"] = bed.spark.sql(WINDOW)
    return {side: partial(_seconds_to_stream, bed, frame) for side, frame in sides.items()}


def _seconds_to_stream(bed: Bed, frame: DataFrame) -> float:
    """The time of the batches alone: what a query takes to start is not its speed."""
    checkpoint = str(bed.place / "checkpoints" / bed.new_name("stream"))
    query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    return _batch_seconds(query.recentProgress)


def _batch_seconds(reports: list[Any]) -> float:
    return float(sum(report["durationMs"]["triggerExecution"] for report in reports)) / 1000


# Whole flows


def flowing(bed: Bed, sink: Callable[[Bed, Pipeline], None]) -> Sides:
    """From a topic by way of windows into a sink, exactly once, by the runner itself."""

    def run() -> float:
        made = bed.with_window(bed.new_name("flow"))
        sink(bed, made)
        stopwatch = _BatchTimes()
        made.flow("totals", "out").run(bed.spark, once=True, observer=stopwatch)
        return stopwatch.seconds

    return {"ottla": run}


class _BatchTimes:
    """An observer that adds up how long batches took."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def flow_progressed(self, flow: str, report: FlowReport) -> None:
        assert report.last is not None
        self.seconds += report.last.duration_ms / 1000

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


def _into_topic(bed: Bed, made: Pipeline) -> None:
    made.sink(
        "out", kind="topic", topic=bed.new_name("bench-totals"), format="json", key="customer", create_partitions=4
    )


def _into_sqlite(bed: Bed, made: Pipeline) -> None:
    url = f"sqlite:{bed.place}/{bed.new_name('totals')}.db"
    made.sink("out", kind="database", url=url, table="totals", mode="append", create=True)


def _into_postgres(bed: Bed, made: Pipeline) -> None:
    url = (bed.place / "postgres.url").read_text()
    table = bed.new_name("totals").replace("-", "_")
    made.sink("out", kind="database", url=url, table=table, mode="append", create=True)


MEASURES: dict[str, Callable[[Bed], Sides]] = {
    "json": partial(parsing, source_format="json"),
    "csv": partial(parsing, source_format="csv"),
    "avro": against_json,
    "window": windowing,
    "to-topic": partial(flowing, sink=_into_topic),
    "to-sqlite": partial(flowing, sink=_into_sqlite),
    "to-postgresql": partial(flowing, sink=_into_postgres),
}

if __name__ == "__main__":
    main()
