"""What becomes of records on their way from a topic into rows, and of rows on their way into one. No Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from ottla.spark.pipeline import Pipeline, dead_letters, topic_sink, topic_source
from ottla.spark.pipeline.formats import json, value_format
from ottla.spark.pipeline.formats.value_format import ERROR, VALUE
from ottla.spark.pipeline.problems import Place, SpecError
from ottla.spark.pipeline.section import Section
from ottla.spark.pipeline.topic_sink import TopicSink
from ottla.spark.pipeline.topic_source import TopicSource
from tests.unit.spark.pipeline.plain_columns import Frame, RaisedError, use_plain_columns

RECORD = {
    "key": b"k",
    "value": b"v",
    "topic": "orders",
    "partition": 2,
    "offset": 17,
    "timestamp": SimpleNamespace(timestamp=lambda: 5.0),
    "headers": None,
}


class Format:
    """Reads what is given with the record."""

    inputs = ("value",)

    def __init__(self, has_columns: bool) -> None:
        self.has_columns = has_columns

    def decode(self, records: Any) -> Any:
        return records


class Reader:
    """A stream or a table of some records, which notes what it was asked for."""

    def __init__(self, *records: dict[str, Any], is_streaming: bool = True) -> None:
        self.told: dict[str, Any] = {}
        self._frame = Frame(*records, is_streaming=is_streaming)

    def format(self, name: str) -> Reader:
        self.told["format"] = name
        return self

    def options(self, **options: str) -> Reader:
        self.told["options"] = options
        return self

    def schema(self, schema: Any) -> Reader:
        self.told["columns"] = schema.names
        return self

    def load(self) -> Frame:
        return self._frame


@pytest.fixture(autouse=True)
def observed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[object]]]:
    """What is counted as bad, by what is told of its source."""
    use_plain_columns(monkeypatch, topic_source, topic_sink, dead_letters, json, value_format)
    found: list[tuple[str, list[object]]] = []

    def observe(rows: Any, is_bad: Any, *, source: str) -> Any:
        found.append((source, [row[ERROR] for row in rows.rows if is_bad.of(row)]))
        return rows

    monkeypatch.setattr(topic_source, "observe_bad", observe)
    monkeypatch.setattr(topic_source, "stream_reader", lambda reader, name: reader.format(name))
    return found


def source(has_columns: bool = True, **options: Any) -> Any:
    made = Pipeline("p", kafka={"bootstrap.servers": "nowhere:1"})
    named = {} if {"topics", "pattern"} & options.keys() else {"topic": "orders"}
    made.source("in", kind="topic", format="json", schema="id BIGINT", **named, **options)
    made.sink("out", kind="console")
    part: Any = made.flow("in", "out").model().sources["in"].part
    assert isinstance(part, TopicSource)
    part._format = Format(has_columns)  # type: ignore[assignment]
    return part


def record(read: Any, error: str | None = None, **more: Any) -> dict[str, Any]:
    return {**RECORD, VALUE: read, ERROR: error, **more}


GOOD, OTHER, BAD = record({"id": 1, "n": 2}), record({"id": 3, "n": 4}, offset=19), record(None, "no JSON", offset=18)


def rows(frame: Any) -> list[dict[str, Any]]:
    return [dict(row) for row in frame.rows]


def test_fields_become_columns() -> None:
    assert rows(source().load(Reader(GOOD, OTHER))) == [{"id": 1, "n": 2}, {"id": 3, "n": 4}]
    named = source(metadata=["key", "offset", "topic"]).load(Reader(GOOD))
    assert rows(named) == [{"id": 1, "n": 2, "_key": b"k", "_offset": 17, "_topic": "orders"}]


def test_what_has_no_fields_is_one_column() -> None:
    assert rows(source(has_columns=False).load(Reader(record("x")))) == [{"value": "x"}]
    named = source(has_columns=False, metadata=["partition"]).load(Reader(record("x")))
    assert rows(named) == [{"value": "x", "_partition": 2}]


@pytest.mark.parametrize("options", [{}, {"topics": ["orders", "other"]}, {"pattern": "o.*"}])
def test_a_bad_record_fails_with_its_place(options: dict[str, Any], observed: list[object]) -> None:
    with pytest.raises(RaisedError) as raised:
        source(**options).load(Reader(GOOD, BAD))
    assert str(raised.value) == "a record cannot be read: topic orders, partition 2, offset 18: no JSON"
    assert observed == []


@pytest.mark.parametrize("options", [{"bad_records": "skip"}, {"dead_letter": "bad"}])
def test_bad_records_are_counted_and_left_out(options: dict[str, Any], observed: list[object]) -> None:
    assert rows(source(**options).load(Reader(GOOD, BAD, OTHER))) == [{"id": 1, "n": 2}, {"id": 3, "n": 4}]
    assert observed == [("source in", ["no JSON"])]
    observed.clear()
    spark: Any = SimpleNamespace(read=Reader(GOOD, BAD, OTHER, is_streaming=False))
    assert rows(source(**options).load_table(spark)) == [{"id": 1, "n": 2}, {"id": 3, "n": 4}]
    assert observed == [], "a table is read again and again"


def test_what_is_asked_of_the_topic() -> None:
    part = source(metadata=["headers"], max_offsets_per_trigger="9", kafka={"fetch.max.bytes": "7"})
    every = {
        "kafka.bootstrap.servers": "nowhere:1",
        "kafka.isolation.level": "read_committed",
        "kafka.fetch.max.bytes": "7",
        "subscribe": "orders",
        "startingOffsets": "earliest",
        "includeHeaders": "true",
    }
    columns = ["value", "partition", "offset", "headers"]
    reader = Reader(GOOD)
    part.load(reader)
    options = {**every, "maxOffsetsPerTrigger": "9"}
    assert reader.told == {"format": "ottla", "options": options, "columns": columns}
    assert part.stream_options == options
    table = Reader(GOOD)
    part.load_table(SimpleNamespace(read=table))
    assert table.told == {"format": "ottla", "options": every, "columns": columns}


def test_raw_records_are_as_they_are() -> None:
    part = source()
    part._format = None
    assert part.load(Reader(RECORD)).rows == [RECORD]


def test_dead_letters_are_what_is_left_out() -> None:
    part = source(dead_letter="bad", dead_letter_partitions=2, redrive_topic="again")
    reader = Reader(GOOD, BAD, record(None, "no", topic="again", value=b"w"))
    letters = rows(part.load_dead_letters(reader))
    assert [letter["value"] for letter in letters] == [b"v", b"w"]
    facts = {header["key"]: header["value"] for header in letters[0]["headers"]}
    assert facts["ottla.dead-letter.source"] == b"source in" and facts["ottla.dead-letter.offset"] == b"18"
    assert "columns" not in reader.told, "all there is of a record"
    assert reader.told["options"] == dict(part.stream_options)
    sink = part.dead_letter_sink()
    assert [(topic.name, topic.partitions) for topic in sink.new_topics] == [("bad", 2), ("again", 2)]
    assert sink.topics == ["bad"] and source().dead_letter_sink() is None


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"options": {"subscribe": "a"}}, "options: subscribe is said twice, once in options"),
        ({"options": {"SUBSCRIBE": "a"}}, "options: subscribe is said twice, once in options"),
        ({"starting_offsets": "latest", "options": {"startingOffsets": "latest"}}, "options: startingOffsets is said"),
        ({"starting_offsets": "soon"}, "starting_offsets: startingOffsets "),
        ({"max_offsets_per_trigger": "many"}, "max_offsets_per_trigger: maxOffsetsPerTrigger "),
        ({"options": {"failOnDataLoss": "maybe"}}, "options: failOnDataLoss "),
        ({"kafka": {"fetch.max.bytes": "many"}}, "kafka: "),
        ({"pattern": "("}, "pattern: subscribePattern "),
        ({"metadata": ["key", "size"]}, "metadata: records have no 'size'; there is key, topic, partition, offset, "),
        ({"bad_records": "skip", "dead_letter": "bad"}, "bad_records: bad records cannot be both skipped and set asi"),
        ({"bad_records": "keep"}, "bad_records: 'bad_records' cannot be 'keep'. There is 'fail', 'skip'."),
        ({"redrive_topic": "again"}, "redrive_topic: without a 'dead_letter' topic there is nothing to send back"),
        ({"format": "raw", "metadata": ["key"]}, "metadata: format raw has all columns of a record as they are"),
        ({"format": "raw", "dead_letter": "bad"}, "dead_letter: format raw reads every record; there are no bad ones"),
        ({"topic": "a", "pattern": "b"}, "pattern: give it one of 'topic', 'topics' or 'pattern'"),
        ({"topics": ["a"], "topic": "b"}, "topics: give it one of 'topic', 'topics' or 'pattern'"),
    ],
)
def test_what_cannot_be_asked(options: dict[str, Any], told: str) -> None:
    """With the key that it is about."""
    keys = [*options, "topic"]
    values: dict[str, Any] = {"format": "json", **({} if options.get("format") == "raw" else {"schema": "id BIGINT"})}
    if "topics" not in options and "pattern" not in options:
        values["topic"] = "orders"
    section = Section.of({**values, **options}, Place("p.yaml", 1), "source in", kafka={"bootstrap.servers": "h:1"})
    for line, key in enumerate(keys, 2):
        if key in section:
            section.put(key, section._entries[key]._replace(place=Place("p.yaml", line)))
    with pytest.raises(SpecError) as caught:
        TopicSource(section)
    ((place, message),) = caught.value.problems
    key, _, sentence = told.partition(": ")
    assert (keys[place.line - 2], message.startswith(f"source in: {sentence}")) == (key, True), message


# Sinks


def records(frame: Frame, **options: Any) -> list[dict[str, Any]]:
    values = {"topic": "t", "kafka": {"bootstrap.servers": "h:1"}, **options}
    part: Any = TopicSink.from_section(Section.of(values, Place("p.yaml", 3), "sink out"))
    return rows(part._records(frame))


def test_what_becomes_of_rows() -> None:
    frame = Frame({"id": 7, "value": "x"})
    assert records(frame, format="json") == [{"value": '{"id": 7, "value": "x"}'}]
    assert records(frame, format="json", key="id") == [{"key": "7", "value": '{"id": 7, "value": "x"}'}]
    assert records(frame, format="raw", key="id") == [{"id": 7, "value": "x", "key": "7"}]
    assert records(frame, format="raw") == [{"id": 7, "value": "x"}]
    with pytest.raises(SpecError, match=r"p\.yaml:3: sink out: the rows have no column 'idd'. Did you mean 'id'?"):
        records(frame, key="idd")
