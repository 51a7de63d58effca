"""Avro values of a topic: read with a schema that is given or asked for, and written under an id of the registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastavro")
pytest.importorskip("pyspark")

from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructField, StructType

from ottla.spark.pipeline.formats import arrow_values, value_format
from ottla.spark.pipeline.formats.avro import format as avro_format
from ottla.spark.pipeline.formats.avro.format import AvroFormat, AvroRows
from ottla.spark.pipeline.formats.framing import frame_head
from ottla.spark.pipeline.formats.value_format import ERROR, VALUE
from ottla.spark.pipeline.problems import Place, SpecError
from ottla.spark.pipeline.section import Section
from tests.schema_registry import Registry, running_registry
from tests.unit.spark.pipeline.formats.avro_values import written
from tests.unit.spark.pipeline.plain_columns import ArrayFunction, Frame, use_plain_columns


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


OLD = record(id="long")
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "note", "type": "string", "default": "none"}]}


@pytest.fixture(autouse=True)
def plain_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    use_plain_columns(monkeypatch, arrow_values, avro_format, value_format)
    monkeypatch.setattr(arrow_values, "array_function", ArrayFunction)
    monkeypatch.setattr(avro_format, "array_function", ArrayFunction)


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running_registry() as running:
        yield running


def section(**values: object) -> Section:
    return Section.of({"topic": "orders", **values}, Place("p.yaml", 7), "part x", directory=Path("/"))


def decoded(made: AvroFormat, value: bytes | None) -> Any:
    frame: Any = made.decode(Frame({"value": value, "offset": 3}))  # type: ignore[arg-type]
    assert frame.columns == ["value", "offset", VALUE, ERROR]
    return frame.rows[0][VALUE] if frame.rows[0][ERROR] is None else frame.rows[0][ERROR]


def test_values_without_a_registry_were_written_with_the_schema() -> None:
    made = AvroFormat.from_section(section(schema=json.dumps(OLD)))
    (value,) = written(OLD, [{"id": 5}])
    assert decoded(made, value) == {"id": 5}
    assert decoded(made, None) == "the value is null"


def test_values_are_read_by_the_id_they_begin_with(registry: Registry) -> None:
    old, new = registry.add("orders-value", json.dumps(OLD)), registry.add("orders-value", json.dumps(NEW))
    made = AvroFormat.from_section(section(registry={"url": registry.url}))
    assert decoded(made, frame_head(old) + written(OLD, [{"id": 5}])[0]) == {"id": 5, "note": "none"}
    assert decoded(made, frame_head(new) + written(NEW, [{"id": 6, "note": "x"}])[0]) == {"id": 6, "note": "x"}
    foreign = registry.add("another", 'syntax = "proto3";', schemaType="PROTOBUF")
    for schema_id in (foreign, 99):
        assert str(schema_id) in decoded(made, frame_head(schema_id) + b"\x02")


def test_a_pipeline_reads_with_one_schema_for_as_long_as_it_runs(registry: Registry) -> None:
    old = registry.add("orders-value", json.dumps(OLD))
    made = AvroFormat.from_section(section(registry={"url": registry.url}))
    assert list(made.check()) == []
    registry.add("orders-value", json.dumps(NEW))
    assert decoded(made, frame_head(old) + written(OLD, [{"id": 5}])[0]) == {"id": 5}


def columns(**kinds: Any) -> Any:
    return SimpleNamespace(schema=StructType([StructField(name, kind, False) for name, kind in kinds.items()]))


ROWS = columns(id=LongType())


def encoded(sink: AvroRows, rows: Any = ROWS, **row: Any) -> bytes:
    column: Any = sink.encode(rows)
    found: bytes = column.of(row)
    return found


def test_rows_without_a_registry_are_values_alone() -> None:
    sink = AvroRows.from_section(section())
    sink.prepare()
    assert encoded(sink, id=5) == written(OLD, [{"id": 5}])[0]
    given = AvroRows.from_section(section(schema=json.dumps(record(id=["null", "long"]))))
    assert encoded(given, id=5) == b"\x02\x0a", "which branch of the union it is"


def test_rows_are_written_under_the_id_of_their_schema(registry: Registry) -> None:
    sink = AvroRows.from_section(section(registry={"url": registry.url}, register=True, topic="a.b-c"))
    assert encoded(sink, id=5)[:5] == frame_head(0), "nobody has been asked"
    assert registry.subjects == {}
    sink.prepare()
    (schema_id,) = registry.subjects["a.b-c-value"]
    assert encoded(sink, id=5) == frame_head(schema_id) + b"\x0a"
    assert json.loads(registry.schemas[schema_id]["schema"])["name"] == "a_b_c"


@pytest.mark.parametrize(("values", "name"), [({"topic": "..."}, "row"), ({"record_name": "Order"}, "Order")])
def test_what_a_record_is_called(registry: Registry, values: dict[str, object], name: str) -> None:
    subject = {"subject": "of {record}"}
    sink = AvroRows.from_section(section(registry={"url": registry.url}, register=True, **values, **subject))
    encoded(sink, id=5)
    sink.prepare()
    ((said, (schema_id,)),) = registry.subjects.items()
    assert said.replace("%20", " ") == f"of {name}"
    assert json.loads(registry.schemas[schema_id]["schema"])["name"] == name


def test_schemas_that_are_there_are_only_looked_up(registry: Registry) -> None:
    sink = AvroRows.from_section(section(registry={"url": registry.url}, schema=json.dumps(OLD)))
    encoded(sink, id=5)
    with pytest.raises(SpecError, match="has not got this schema under 'orders-value'; 'register: true' adds it"):
        sink.prepare()
    assert registry.subjects == {}
    schema_id = registry.add("orders-value", json.dumps(OLD))
    sink.prepare()
    assert encoded(sink, id=5)[:5] == frame_head(schema_id)


def test_a_schema_that_the_registry_refuses(registry: Registry) -> None:
    values = {"registry": {"url": registry.url}, "subject": "bad"}
    sink = AvroRows.from_section(section(**values, register=True))
    encoded(sink, id=5)
    with pytest.raises(SpecError, match="Schema is incompatible"):
        sink.prepare()


@pytest.mark.parametrize(
    ("values", "rows", "words"),
    [
        ({}, columns(m=MapType(LongType(), StringType())), "part x: .*m"),
        ({"schema": json.dumps(record(id="string"))}, columns(id=ArrayType(LongType())), "part x: .*id"),
        ({"schema": json.dumps(record(id="string", other="string"))}, columns(id=StringType()), "part x: .*other"),
        ({"schema": "{"}, ROWS, "the schema is not JSON"),
    ],
)
def test_rows_that_do_not_fit(values: dict[str, object], rows: Any, words: str) -> None:
    sink = AvroRows.from_section(section(**values))
    with pytest.raises(SpecError, match=words):
        sink.encode(rows)
