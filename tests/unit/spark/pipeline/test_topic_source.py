"""A topic as a source, as far as it needs no Spark: what is fetched, what is told of bad records, what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from ottla.spark.pipeline import Pipeline, topic_source
from ottla.spark.pipeline.topic_source import TopicSource

JSON = {"format": "json", "schema": "id BIGINT"}


def source(**options: Any) -> TopicSource:
    pipeline = Pipeline("p", kafka={"bootstrap.servers": "nowhere:1"})
    named = {} if "topics" in options else {"topic": "orders"}
    pipeline.source("in", kind="topic", **named, **options)
    pipeline.sink("out", kind="console")
    pipeline.flow("in", "out")
    part = pipeline.model().sources["in"].part
    assert isinstance(part, TopicSource)
    return part


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({}, ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]),
        (JSON, ["value", "partition", "offset"]),
        ({**JSON, "metadata": ["key", "timestamp"]}, ["key", "value", "partition", "offset", "timestamp"]),
        ({**JSON, "topics": ["a", "b"]}, ["value", "topic", "partition", "offset"]),
        ({**JSON, "topics": ["a"]}, ["value", "partition", "offset"]),
        (
            {**JSON, "dead_letter": "bad", "redrive_topic": "again"},
            ["value", "topic", "partition", "offset"],
        ),
    ],
)
def test_only_columns_that_somebody_looks_at_are_fetched(options: dict[str, Any], columns: list[str]) -> None:
    assert source(**options)._columns().names == columns


class Rows:
    """A data frame that is what was done with it."""

    def __init__(self, is_streaming: bool) -> None:
        self.isStreaming = is_streaming
        self.observed: list[str] = []
        self.filters = 0

    def where(self, condition: object) -> Rows:
        self.filters += 1
        return self

    def select(self, *columns: object) -> Rows:
        return self


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[MagicMock]:
    def observe(rows: Rows, condition: object, *, source: str) -> Rows:
        rows.observed.append(source)
        return rows

    functions = MagicMock()
    monkeypatch.setattr(topic_source, "f", functions)
    monkeypatch.setattr(topic_source, "evaluated_once", lambda column: column)
    monkeypatch.setattr(topic_source, "observe_bad", observe)
    yield functions


def good_rows(part: TopicSource, rows: Any) -> None:
    part._format = SimpleNamespace(decode=lambda records: records, has_columns=True)  # type: ignore[assignment]
    part._good_rows(rows)


@pytest.mark.parametrize("is_streaming", [True, False], ids=["a stream", "a table"])
@pytest.mark.parametrize("options", [{"bad_records": "skip"}, {"dead_letter": "bad"}])
def test_bad_records_that_are_left_out_of_a_stream_are_counted(
    no_spark: MagicMock, options: dict[str, str], is_streaming: bool
) -> None:
    rows = Rows(is_streaming)
    good_rows(source(**JSON, **options), rows)
    assert rows.observed == (["source in"] if is_streaming else [])
    assert rows.filters == 1
    assert not no_spark.raise_error.called


@pytest.mark.parametrize("is_streaming", [True, False], ids=["a stream", "a table"])
@pytest.mark.parametrize("topics", [["one"], ["one", "other"]])
def test_otherwise_a_bad_record_is_an_error_that_names_its_place(
    no_spark: MagicMock, topics: list[str], is_streaming: bool
) -> None:
    rows = Rows(is_streaming)
    good_rows(source(**JSON, topics=topics), rows)
    assert rows.observed == []
    assert no_spark.raise_error.call_count == 1
    named = no_spark.format_string.call_args.args
    assert named[0] == "topic %s, partition %d, offset %d: "
    assert named[2:] == ("partition", "offset")
    no_topic_column = ("one",) in [call.args for call in no_spark.lit.call_args_list]
    assert no_topic_column is (len(topics) == 1)


def test_a_table_is_read_as_a_whole() -> None:
    part = source(max_offsets_per_trigger="5")
    assert part.stream_options["maxOffsetsPerTrigger"] == "5"
    spark = MagicMock()
    part.load_table(spark)
    (given,) = spark.read.format.return_value.options.call_args_list
    assert given.kwargs == {
        name: value for name, value in part.stream_options.items() if name != "maxOffsetsPerTrigger"
    }


@pytest.mark.parametrize(
    ("missing", "expected", "told"),
    [
        ((), (), []),
        (("orders",), (), ["orders is missing"]),
        (("orders",), ("orders",), []),
        (("again",), (), ["again is missing"]),
        (("again",), ("again",), []),
        (("orders", "again"), (), ["orders is missing"]),
    ],
)
def test_topics_that_are_not_there(
    monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...], expected: tuple[str, ...], told: list[str]
) -> None:
    def find(options: object, topics: list[str]) -> list[str]:
        return [f"{topic} is missing" for topic in topics if topic in missing]

    monkeypatch.setattr(topic_source, "find_missing_topics", find)
    part = source(**JSON, dead_letter="bad", redrive_topic="again")
    part.expect_topics(expected)
    found = part.check()
    assert [str(finding).rpartition(": ")[2] for finding in found] == told


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        ({}, "earliest"),
        ({"starting_offsets": "latest"}, "latest"),
        ({"options": {"startingOffsets": "latest"}}, "latest"),
        ({"options": {"startingTimestamp": "5"}}, None),
    ],
)
def test_a_flow_starts_at_the_beginning_unless_told_otherwise(options: dict[str, Any], offsets: str | None) -> None:
    assert source(**options).stream_options.get("startingOffsets") == offsets


def test_headers_are_always_there() -> None:
    assert source().stream_options["includeHeaders"] == "true"
