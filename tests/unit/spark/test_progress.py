"""Spark's reports as values: positions in topics, and rows in and out."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.types import TopicPartition
from ottla.spark.offsets import to_placed_json
from ottla.spark.progress import BAD_ROWS, WRITTEN_ROWS, LagTracker, QueryProgress, parse_offsets

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


def test_a_report_that_says_next_to_nothing() -> None:
    least = {"id": "q", "runId": "r", "batchId": 0, "timestamp": "1970-01-01T00:00:00.0014Z"}
    expected = QueryProgress(
        query_id="q",
        run_id="r",
        name=None,
        batch_id=0,
        started_ms=1,
        duration_ms=0,
        input_rows=0,
        written_rows=0,
        bad_rows=0,
        state_rows=0,
        watermark=None,
        end_offsets={},
        reads_only_topics=False,
    )
    assert QueryProgress.parse(json.dumps(least)) == expected
    nothing: dict[str, object] = {
        "name": None,
        "sources": [],
        "stateOperators": [{}],
        "eventTime": None,
        "sink": {},
        "observedMetrics": {},
    }
    assert QueryProgress.parse(json.dumps({**least, **nothing})) == expected


def test_a_report_with_everything_in_it() -> None:
    report = {
        **REPORT,
        "sink": {"numOutputRows": 0},
        "observedMetrics": {WRITTEN_ROWS: {"rows": 7}, f"{BAD_ROWS}a": {"rows": "2"}},
    }
    assert QueryProgress.parse(json.dumps(report)) == QueryProgress(
        query_id="6dfd70cd",
        run_id="e6d3cc18",
        name="counts",
        batch_id=4,
        started_ms=1_767_225_600_000,
        duration_ms=548,
        input_rows=30,
        written_rows=0,
        bad_rows=2,
        state_rows=7,
        watermark="2026-01-01T00:00:00.000Z",
        end_offsets={TopicPartition("t", 0): 10, TopicPartition("t", 1): 7, TopicPartition("u", 0): 1},
        reads_only_topics=False,
    )


@pytest.mark.parametrize(
    ("reported", "is_put"),
    [
        ({"name": "tracked"}, True),
        ({"name": "untracked"}, False),
        ({"name": "tracked", "sources": []}, False),
        ({"name": "untracked", "sources": []}, False),
    ],
)
def test_only_positions_of_queries_that_are_tracked_are_reported(reported: dict[str, Any], is_put: bool) -> None:
    put: list[tuple[object, object]] = []
    commits: Any = SimpleNamespace(put=lambda *what: put.append(what))
    groups = {"tracked": "g", "untracked": None}
    tracker = LagTracker(SimpleNamespace(), commits, lambda progress: groups[str(progress.name)])  # type: ignore[arg-type]
    event: Any = SimpleNamespace(progress=SimpleNamespace(json=json.dumps({**REPORT, **reported})))
    tracker.onQueryProgress(event)
    ends = {TopicPartition("t", 0): 10, TopicPartition("t", 1): 7, TopicPartition("u", 0): 1}
    assert put == ([("g", ends)] if is_put else [])


@pytest.mark.parametrize(
    ("position", "found"),
    [
        ({"t": {}}, {}),
        ({"t": {"0": 0}, "u": {}}, {TopicPartition("t", 0): 0}),
        ({"t": {"0": 1}, "u": {"x": 1}}, None),
        ({"t": {"0": 1, "1": "2"}}, None),
        ({"t": {"0": 1}, "u": 5}, None),
        ([{"t": {"0": 1}}], None),
        ('{"t": {"0": 1}}', {TopicPartition("t", 0): 1}),
        ("{}", None),
        ("[1]", None),
    ],
)
def test_what_is_a_position_in_topics(position: object, found: object) -> None:
    assert parse_offsets(position) == found
