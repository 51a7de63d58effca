"""Which display a pipeline gets, and what a row says at which time."""

from __future__ import annotations

import io
import sys

import pytest

from ottla.spark.pipeline.display import TableDisplay, _Row, choose_display
from ottla.spark.pipeline.flows.report import FlowReport, Rows
from ottla.spark.pipeline.line_displays import JsonDisplay, LineDisplay
from tests.unit.spark.pipeline.test_display import report


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("output", "in_terminal", "elsewhere"),
    [
        ("json", JsonDisplay, JsonDisplay),
        ("lines", LineDisplay, LineDisplay),
        ("table", TableDisplay, TableDisplay),
        ("auto", TableDisplay, LineDisplay),
    ],
)
def test_a_terminal_gets_a_table_unless_told_otherwise(
    output: str, in_terminal: type, elsewhere: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    for stream, expected in ((Terminal(), in_terminal), (io.StringIO(), elsewhere)):
        monkeypatch.setattr(sys, "stdout", stream)
        assert type(choose_display("p", ["f"], output=output)) is expected


def test_a_flow_that_has_not_reported_yet() -> None:
    row = _Row()
    assert row.cells(0) == ["starting", "", "", "", "", "", "", "", ""]
    row.last_error = "it is broken"
    assert row.cells(0)[-1] == "it is broken"


@pytest.mark.parametrize(
    ("age_ms", "lag"), [(0, "7,000"), (4999, "7,000"), (5000, "7,000 (5 s ago)"), (61_999, "7,000 (61 s ago)")]
)
def test_an_old_lag_is_shown_with_its_age(age_ms: int, lag: str) -> None:
    asked_ms = 5
    row = _Row("running", report(3, Rows(), lag=7000))
    assert row.cells(asked_ms + age_ms) == ["running", "3", "1,665", "4", "4", "1,235", lag, "5", ""]


def test_what_is_not_known_is_not_shown() -> None:
    unknown = FlowReport(None, None, Rows(), 0, 0.0, None, None, {}, 0, None)
    assert _Row("running", unknown).cells(0) == ["running", "", "0", "0", "0", "0", "", "", ""]
