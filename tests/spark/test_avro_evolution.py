"""Avro in and out through a registry, with a schema that changes while the topic lives."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest

from ottla.client.serdes.avro import AvroSerde
from ottla.client.serdes.registry import SchemaRegistry
from ottla.spark.pipeline import Pipeline, PipelineFailedError, SpecError
from ottla.spark.pipeline.formats.avro.format import AvroFormat, AvroRows
from ottla.spark.pipeline.formats.value_format import ERROR, VALUE
from ottla.spark.pipeline.problems import Place
from ottla.spark.pipeline.section import Section
from tests.broker_process import BrokerProcess
from tests.schema_registry import Registry, running_registry
from tests.spark.pipelines import Recorder, Topics

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

FIRST: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "customer", "type": ["null", "string"], "default": None}],
}
SECOND: dict[str, Any] = {
    **FIRST,
    "fields": [
        FIRST["fields"][0],
        {"name": "amount", "type": "double", "default": 0.5},
        {"name": "client", "type": ["null", "string"], "default": None, "aliases": ["customer"]},
    ],
}
OWN_SCHEMA = f"    schema: '{json.dumps(FIRST)}'"
DESCRIPTION = """\
name: {prefix}
checkpoint: state
kafka: {{bootstrap.servers: "{bootstrap}"}}
restart: {{attempts: 5, backoff: 500 ms}}
sources:
  orders:
    kind: topic
    topic: {prefix}-orders
    format: avro
    registry: {{url: "{registry}"}}
{more}
sinks:
  rows:
    kind: topic
    topic: {prefix}-rows
    format: avro
    registry: {{url: "{registry}"}}
    register: true
    create_partitions: 1
flows:
  rows: {{from: orders, to: rows}}
"""


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with running_registry() as running:
        yield running


class Orders:
    def __init__(self, topics: Topics, registry: Registry, directory: Path) -> None:
        self.topics = topics
        self.registry = registry
        self.path = directory / "orders.yaml"
        topics.create(orders=1)

    def register(self, schema: dict[str, Any]) -> int:
        return self.registry.add(f"{self.topics.name('orders')}-value", json.dumps(schema))

    def send(self, schema: dict[str, Any], *rows: dict[str, Any]) -> None:
        schema_id = self.register(schema)
        values = []
        for row in rows:
            out = io.BytesIO(b"\0" + schema_id.to_bytes(4, "big"))
            out.seek(5)
            fastavro.schemaless_writer(out, fastavro.parse_schema(dict(schema)), row)
            values.append(out.getvalue())
        self.topics.send("orders", values)

    def run(self, spark: Any, more: str = "", *, observer: Any = None) -> None:
        text = DESCRIPTION.format(
            prefix=self.topics.prefix, bootstrap=self.topics.bootstrap, registry=self.registry.url, more=more
        )
        self.path.write_text(text)
        Pipeline.from_file(self.path).run(spark, once=True, observer=observer or Recorder())

    def rows(self) -> list[Any]:
        """What is in the topic of the sink, as another client of the registry reads it."""
        serde = AvroSerde(SchemaRegistry(self.registry.url))
        topic = self.topics.name("rows")
        return [serde.deserialize(topic, record.value) for record in self.topics.records("rows")]


@pytest.fixture(scope="module")
def orders(spark_broker: BrokerProcess, registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> Orders:
    return Orders(Topics(spark_broker.bootstrap, "evolving"), registry, tmp_path_factory.mktemp("evolving"))


def test_a_column_that_comes_in_the_middle_of_a_stream(spark: Any, orders: Orders) -> None:
    orders.send(FIRST, {"id": 1, "customer": "ann"}, {"id": 2, "customer": None})
    orders.run(spark)
    first = [{"id": 1, "customer": "ann"}, {"id": 2, "customer": None}]
    assert orders.rows() == first
    # The newest schema is the reader's when the pipeline starts again, from the same checkpoint; records that were
    # written with the old one get the default, and the renamed field is found by its alias.
    orders.register(SECOND)
    orders.send(FIRST, {"id": 3, "customer": "bob"})
    orders.send(SECOND, {"id": 4, "amount": 2.5, "client": "eve"}, {"id": 5, "amount": 0.0, "client": None})
    orders.run(spark)
    second = [
        {"id": 3, "amount": 0.5, "client": "bob"},
        {"id": 4, "amount": 2.5, "client": "eve"},
        {"id": 5, "amount": 0.0, "client": None},
    ]
    assert orders.rows() == first + second
    subject = f"{orders.topics.name('rows')}-value"
    fields = [
        [field["name"] for field in json.loads(orders.registry.schemas[schema_id]["schema"])["fields"]]
        for schema_id in orders.registry.subjects[subject]
    ]
    assert fields == [["id", "customer"], ["id", "amount", "client"]]


def test_a_schema_of_its_own_and_a_registry_that_is_away(spark: Any, orders: Orders) -> None:
    """With its own schema a pipeline takes of each record what it knows. A registry that cannot be asked for a schema
    is waited for, and no record is bad for it."""
    before = len(orders.rows())
    third = {**SECOND, "doc": "asked for while the registry is away"}
    orders.send(SECOND, {"id": 6, "amount": 1.5, "client": "eve"})
    orders.send({**FIRST, "fields": [{"name": "name", "type": "string"}]}, {"name": "no order"})
    with pytest.raises(PipelineFailedError) as failure:
        orders.run(spark, OWN_SCHEMA)
    assert f"topic {orders.topics.name('orders')}, partition 0, offset 6: the schema with the id" in failure.value.error
    assert "id: it is not among what was written, and has no default" in failure.value.error
    orders.send(third, {"id": 7, "amount": 1.0, "client": "zoe"})
    orders.registry.failing_ids.add(orders.register(third))

    class Mending(Recorder):
        def flow_restarting(self, flow: str, error: str, *, failures: int, wait_ms: int) -> None:
            super().flow_restarting(flow, error, failures=failures, wait_ms=wait_ms)
            if "registry" in error:
                orders.registry.failing_ids.clear()

    recorder = Mending()
    orders.run(spark, f"{OWN_SCHEMA}\n    bad_records: skip", observer=recorder)
    events = recorder.of("rows")
    assert (events.count("restarting"), events[-1]) == (1, "ended")
    (error,) = recorder.errors
    assert f"the schema registry at {orders.registry.url} answered 503: Not now" in error
    assert orders.rows()[before:] == [{"id": 6, "customer": None}, {"id": 7, "customer": None}]


def test_a_schema_that_must_be_there_and_columns_that_do_not_suit_it(spark: Any, orders: Orders) -> None:
    text = DESCRIPTION.format(
        prefix=orders.topics.prefix, bootstrap=orders.topics.bootstrap, registry=orders.registry.url, more=""
    )
    orders.path.write_text(text.replace("register: true", 'schema: \'{"type": "int"}\''))
    with pytest.raises(SpecError, match=r"orders.yaml:18: sink rows: the schema has no field for the column id"):
        Pipeline.from_file(orders.path).check(spark)
    orders.path.write_text(text.replace("register: true", "subject: elsewhere"))
    with pytest.raises(
        SpecError, match="the registry has not got this schema under 'elsewhere'; 'register: true' adds"
    ):
        Pipeline.from_file(orders.path).run(spark, once=True)


EVERYTHING: dict[str, Any] = {
    "type": "record",
    "name": "Everything",
    "fields": [
        {"name": "nothing", "type": "null"},
        {"name": "flag", "type": "boolean"},
        {"name": "small", "type": "int"},
        {"name": "large", "type": "long"},
        {"name": "single", "type": "float"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "time", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN"]}},
        {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 2}},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "counts", "type": {"type": "map", "values": {"type": "array", "items": "long"}}},
        {
            "name": "inner",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Inner",
                    "fields": [{"name": "x", "type": ["null", "double"]}, {"name": "y", "type": ["int", "string"]}],
                },
            ],
        },
    ],
}


def test_every_type_goes_through_spark_and_back(spark: Any, tmp_path: Path) -> None:
    row = {
        "nothing": None,
        "flag": True,
        "small": -5,
        "large": 2**60,
        "single": 0.5,
        "price": Decimal("-12.34"),
        "day": date(1, 1, 1),
        "time": time(23, 59, 59, 999999),
        "at": datetime(2026, 1, 1, 12, 0, 0, 5000, UTC),
        "local": datetime(9999, 12, 31, 23, 59, 59, 999999),
        "colour": "GREEN",
        "code": b"ab",
        "tags": ["a", None],
        "counts": {"x": [1, 2], "y": []},
        "inner": {"x": 1.5, "y": "text"},
    }
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(EVERYTHING))), row)
    options = {"topic": "t", "format": "avro", "schema": json.dumps(EVERYTHING)}
    section = Section.of(options, Place("p.yaml"), "part t", directory=tmp_path)
    values = spark.createDataFrame([(bytearray(out.getvalue()),), (bytearray(b"\0"),)], "value BINARY")
    decoded = AvroFormat(section).decode(values)
    good, bad = sorted(decoded.collect(), key=lambda found: found[ERROR] or "")
    assert (bad[VALUE], bad[ERROR]) == (None, "small: the value ends too early")
    read = good[VALUE].asDict(recursive=True)
    at = read.pop("at").astimezone(UTC)
    assert read == {
        **{name: value for name, value in row.items() if name != "at"},
        "inner": {"x": 1.5, "y": {"int": None, "string": "text"}},
    }
    assert at == row["at"]
    rows = decoded.where(f"{ERROR} IS NULL").select(f"{VALUE}.*")
    assert [bytes(each[0]) for each in rows.select(AvroRows(section).encode(rows)).collect()] == [out.getvalue()]
