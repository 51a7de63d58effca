"""Spark's reports as values: positions in topics, and rows in and out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.types import TopicPartition
from ottla.spark.offsets import to_placed_json
from ottla.spark.progress import BAD_ROWS, WRITTEN_ROWS, QueryProgress, parse_offsets

REPORT = {
    "id": "6dfd70cd",
    "runId": "e6d3cc18",
    "name": "counts",
    "timestamp": "2026-01-01T00:00:00.000Z",
    "batchId": 4,
    "batchDuration": 548,
    "numInputRows": 30,
    "processedRowsPerSecond": 54.7,
    "eventTime": {"watermark": "2026-01-01T00:00:00.000Z"},
    "stateOperators": [{"numRowsTotal": 5}, {"numRowsTotal": 2}],
    "sources": [
        {"description": "a", "endOffset": {"t": {"0": 10, "1": 7}}, "latestOffset": {"t": {"0": 15, "1": 7, "2": 3}}},
        {"description": "b", "endOffset": {"u": {"0": 1}}, "latestOffset": None},
        {"description": "rate", "endOffset": 5, "latestOffset": 9},
    ],
}


def test_a_report() -> None:
    progress = QueryProgress.parse(json.dumps(REPORT))
    assert (progress.name, progress.batch_id, progress.input_rows, progress.state_rows) == ("counts", 4, 30, 7)
    assert progress.end_offsets == {
        TopicPartition("t", 0): 10,
        TopicPartition("t", 1): 7,
        TopicPartition("u", 0): 1,
    }
    assert (progress.started_ms, progress.duration_ms) == (1_767_225_600_000, 548)
    assert not progress.reads_only_topics
    assert progress.watermark == "2026-01-01T00:00:00.000Z"


def test_a_query_without_topics_has_no_position() -> None:
    progress = QueryProgress.parse(json.dumps({**REPORT, "sources": REPORT["sources"][2:]}))  # type: ignore[index]
    assert progress.end_offsets == {}
    assert not progress.reads_only_topics
    alone = QueryProgress.parse(json.dumps({**REPORT, "sources": REPORT["sources"][:2]}))  # type: ignore[index]
    assert alone.reads_only_topics


@pytest.mark.parametrize(
    ("sink", "observed", "written", "bad"),
    [
        ({"numOutputRows": 12}, {}, 12, 0),
        ({"numOutputRows": 12}, {f"{BAD_ROWS}source a": {"rows": 3}, f"{BAD_ROWS}source b": {"rows": 1}}, 12, 4),
        ({"numOutputRows": -1}, {WRITTEN_ROWS: {"rows": 7}, "of my own": {"sum": 1}}, 7, 0),
        ({"numOutputRows": -1}, None, 0, 0),
        (None, {WRITTEN_ROWS: {"rows": 7}}, 7, 0),
    ],
)
def test_rows_out(sink: object, observed: object, written: int, bad: int) -> None:
    progress = QueryProgress.parse(json.dumps({**REPORT, "sink": sink, "observedMetrics": observed}))
    assert (progress.written_rows, progress.bad_rows) == (written, bad)


@pytest.mark.parametrize(
    "position", [None, 5, "x", "5", {}, {"logOffset": 3}, {"t": {"x": 1}}, {"t": {"0": "1"}}, {"t": [1]}]
)
def test_positions_of_other_sources(position: object) -> None:
    assert parse_offsets(position) is None


@given(
    st.dictionaries(
        st.text(min_size=1), st.dictionaries(st.integers(0, 99), st.integers(0, 2**62), min_size=1), min_size=1
    )
)
def test_offsets_come_back_as_they_were(offsets: dict[str, dict[int, int]]) -> None:
    wanted = {TopicPartition(topic, p): o for topic, partitions in offsets.items() for p, o in partitions.items()}
    assert parse_offsets(json.dumps(offsets)) == wanted
    assert parse_offsets(json.loads(json.dumps(offsets))) == wanted


def test_the_mark_of_a_query_that_was_moved_is_no_position() -> None:
    assert parse_offsets(json.dumps(to_placed_json({TopicPartition("t", 1): 5}))) == {TopicPartition("t", 1): 5}
