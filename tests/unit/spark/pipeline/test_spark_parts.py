"""Spark's own formats and the terminal as parts of a pipeline: their options, and what is asked of Spark."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from ottla.spark.pipeline import spark_parts
from ottla.spark.pipeline.problems import Place, SpecError
from ottla.spark.pipeline.section import Section
from ottla.spark.pipeline.spark_parts import ConsoleSink, SparkSink, SparkSource


def section(**values: object) -> Section:
    return Section.of(values, Place("p.yaml", 3), "part x")


@pytest.mark.parametrize(
    ("part", "values", "told"),
    [
        (SparkSource, {"format": "rate", "option": 1}, "there is no option 'option'. Did you mean 'options'?"),
        (SparkSource, {"schema": "id INT"}, "'format' is missing"),
        (SparkSink, {"format": "delta", "path": "/x"}, "there is no option 'path'. There is 'format', 'options'."),
        (SparkSink, {}, "'format' is missing"),
        (ConsoleSink, {"row": 5}, "there is no option 'row'. Did you mean 'rows'?"),
        (ConsoleSink, {"rows": "many"}, "'rows' must be a whole number"),
        (ConsoleSink, {"truncate": 1}, "'truncate' must be true or false"),
    ],
)
def test_options_that_there_are_not(part: Any, values: dict[str, object], told: str) -> None:
    with pytest.raises(SpecError) as refusal:
        part.from_section(section(**values))
    assert str(refusal.value) == f"p.yaml:3: part x: {told}"


def test_nothing_is_looked_for_outside() -> None:
    for part in (SparkSource.from_section(section(format="x")), SparkSink.from_section(section(format="x"))):
        assert part.check() == []
    assert ConsoleSink.from_section(section()).check() == []


@pytest.mark.parametrize("schema", [None, "id INT"])
def test_a_stream_is_read_with_its_options(schema: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []

    class Reader:
        def options(self, **options: str) -> Reader:
            told.append(options)
            return self

        def schema(self, text: str) -> Reader:
            told.append(text)
            return self

        def load(self) -> str:
            return "rows"

    def stream_reader(spark: object, name: str) -> Reader:
        told.append((spark, name))
        return Reader()

    monkeypatch.setattr(spark_parts, "stream_reader", stream_reader)
    given = {} if schema is None else {"schema": schema}
    part: Any = SparkSource.from_section(section(format="rate", options={"rowsPerSecond": 5}, **given))
    assert part.load("session") == "rows"
    assert told == [("session", "rate"), {"rowsPerSecond": "5"}, *([] if schema is None else [schema])]


def test_what_becomes_of_rows_is_up_to_the_format() -> None:
    part = SparkSink.from_section(section(format="delta"))
    assert part.rewritten_rows == "what becomes of their rows is up to the format delta"
    part.flow_moved(None)  # type: ignore[arg-type]
    assert part.obstacle_to_move() is None
