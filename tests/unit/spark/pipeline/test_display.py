"""What people and programs get to see of a running pipeline."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace

import pytest
from rich.console import Console

from ottla.base.types import TopicPartition
from ottla.spark.pipeline import line_displays
from ottla.spark.pipeline.display import TableDisplay
from ottla.spark.pipeline.flows.report import Batch, BatchAtWork, EndOffsets, FlowReport, Rows
from ottla.spark.pipeline.line_displays import JsonDisplay, LineDisplay
from ottla.spark.pipeline.observer import Observer

PARTITION = TopicPartition("t", 0)


def report(batch_id: int, rows: Rows, *, lag: int | None = 7, at_work: BatchAtWork | None = None) -> FlowReport:
    ends = None if lag is None else EndOffsets(5, {PARTITION: 107})
    total = Rows(1665, 4, 4)
    return FlowReport(
        Batch(batch_id, rows, 80), at_work, total, batch_id + 1, 1234.56, lag, ends, {PARTITION: 100}, 5, None
    )


def tell_all(observer: Observer) -> None:
    observer.flow_started("counts")
    observer.flow_progressed("counts", report(0, Rows(100, 1, 2)))
    observer.flow_progressed("counts", report(1, Rows(), lag=None))
    observer.flow_watched("counts", report(1, Rows(), at_work=BatchAtWork(2, 12_400, 3, 8)))
    observer.flow_restarting("counts", "the broker is away", failures=1, wait_ms=1500)
    observer.flow_failed("counts", "it is broken")
    observer.flow_ended("others", report(0, Rows()))


def test_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_displays, "_STATUS_EVERY_S", 0.0)
    out = io.StringIO()
    tell_all(LineDisplay(out))
    assert out.getvalue().splitlines() == [
        "counts: started",
        "counts: batch 0, 1,665 read, 4 written, 4 bad, 1,235 rows/s, lag 7",
        "counts: batch 2: 12 s, 3/8 tasks, 1,665 read, 4 written, 4 bad, 1,235 rows/s, lag 7",
        "counts: the broker is away; failure 1 in a row, starts again in 1.5 s",
        "counts: failed: it is broken",
        "others: ended after 1 batch: 1,665 read, 4 written, 4 bad, lag 7",
    ]


def test_batches_that_follow_at_once_are_told_with_the_next_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_displays, "_LINE_EVERY_S", 3600.0)
    out = io.StringIO()
    display = LineDisplay(out)
    for batch_id in range(3):
        display.flow_progressed("counts", report(batch_id, Rows(1)))
    assert [line[:15] for line in out.getvalue().splitlines()] == ["counts: batch 0"]
    for _ in range(2):
        display.flow_watched("counts", report(2, Rows(1)))
    assert [line[:15] for line in out.getvalue().splitlines()] == ["counts: batch 0", "counts: batch 2"]


def test_a_status_is_told_of_a_long_batch_and_not_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    display = LineDisplay(out)
    at_work = BatchAtWork(2, 9999, 0, 0)
    line = "counts: batch 2: 9 s, 1,665 read, 4 written, 4 bad, 1,235 rows/s"
    monkeypatch.setattr(line_displays, "_STATUS_EVERY_S", 0.0)
    display.flow_watched("counts", report(1, Rows()))
    assert out.getvalue() == "", "no batch is at work"
    display.flow_watched("counts", report(1, Rows(), lag=None, at_work=at_work))
    assert out.getvalue().splitlines() == [line]
    monkeypatch.setattr(line_displays, "_STATUS_EVERY_S", 3600.0)
    display.flow_watched("counts", report(1, Rows(), lag=None, at_work=at_work))
    assert out.getvalue().splitlines() == [line], "a moment later nothing is new"
    display.flow_watched("others", report(1, Rows(), lag=None, at_work=at_work))
    assert len(out.getvalue().splitlines()) == 2, "each flow has lines of its own"


def test_a_batch_without_rows_is_not_worth_a_line() -> None:
    out = io.StringIO()
    display = LineDisplay(out)
    display.flow_progressed("counts", report(0, Rows()))
    assert out.getvalue() == ""
    for number, rows in enumerate((Rows(1, 0, 0), Rows(0, 1, 0), Rows(0, 0, 1))):
        display.flow_started(f"f{number}")
        display.flow_progressed(f"f{number}", report(0, rows, lag=1234))
    assert [line for line in out.getvalue().splitlines() if "started" not in line] == [
        f"f{number}: batch 0, 1,665 read, 4 written, 4 bad, 1,235 rows/s, lag 1,234" for number in range(3)
    ]


@pytest.mark.parametrize(
    ("batches", "lag", "told"),
    [
        (0, None, "f: ended after 0 batches: 1,665 read, 4 written, 4 bad"),
        (1, 0, "f: ended after 1 batch: 1,665 read, 4 written, 4 bad, lag 0"),
        (2, 1000, "f: ended after 2 batches: 1,665 read, 4 written, 4 bad, lag 1,000"),
    ],
)
def test_the_last_line_of_a_flow(batches: int, lag: int | None, told: str) -> None:
    out = io.StringIO()
    display = LineDisplay(out)
    with display as entered:
        assert entered is display
        display.flow_ended("f", report(batches - 1, Rows(1), lag=lag))
    assert out.getvalue() == told + "\n"


def test_how_often_lines_come_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches once a second, and how a flow is every five."""
    now_s = [100.0]
    monkeypatch.setattr(line_displays, "time", SimpleNamespace(monotonic=lambda: now_s[0], time_ns=lambda: 7_654_321))
    out, json_out = io.StringIO(), io.StringIO()
    lines, objects = LineDisplay(out), JsonDisplay("orders", json_out)

    def counts() -> tuple[int, int]:
        return len(out.getvalue().splitlines()), len(json_out.getvalue().splitlines())

    at_work = BatchAtWork(2, 3000, 1, 2)
    for now, batches in ((100.0, 1), (100.9, 1), (101.0, 2), (101.5, 2), (103.0, 3)):
        now_s[0] = now
        lines.flow_progressed("f", report(0, Rows(1)))
        assert counts() == (batches, 0)
    lines.flow_progressed("f", report(1, Rows()))
    for now, statuses in ((104.0, 1), (107.9, 1), (108.9, 1), (109.0, 2), (113.9, 2), (114.0, 3)):
        now_s[0] = now
        lines.flow_watched("g", report(0, Rows(), at_work=at_work))
        objects.flow_watched("g", report(0, Rows(), at_work=at_work))
        assert counts() == (3 + statuses, statuses)
    assert json.loads(json_out.getvalue().splitlines()[0])["at_ms"] == 7


def test_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_displays, "_STATUS_EVERY_S", 0.0)
    out = io.StringIO()
    tell_all(JsonDisplay("orders", out))
    told = [json.loads(line) for line in out.getvalue().splitlines()]
    events = ["started", "progress", "progress", "status", "restarting", "failed", "ended"]
    assert [entry["event"] for entry in told] == events
    assert all(entry["pipeline"] == "orders" and isinstance(entry["at_ms"], int) for entry in told)
    common = {"pipeline": "orders", "flow": "counts"}
    reported = {
        "total": {"read": 1665, "written": 4, "bad": 4, "batches": 1},
        "rows_per_second": 1234.6,
        "lag": 7,
        "position": {"t": {"0": 100}},
        "end_offsets": {"t": {"0": 107}},
        "end_offsets_asked_ms": 5,
        "state_rows": 5,
        "watermark": None,
    }
    unasked = {"lag": None, "end_offsets": None, "end_offsets_asked_ms": None}
    second = {**reported, "total": {**reported["total"], "batches": 2}}  # type: ignore[dict-item]
    counted = {"read": 0, "written": 0, "bad": 0, "duration_ms": 80}
    at_work = {"batch_id": 2, "elapsed_ms": 12_400, "tasks_done": 3, "tasks": 8}
    assert [{name: value for name, value in entry.items() if name != "at_ms"} for entry in told] == [
        {**common, "event": "started"},
        {**common, "event": "progress", "batch": 0, **counted, "read": 100, "written": 1, "bad": 2, **reported},
        {**common, "event": "progress", "batch": 1, **counted, **second, **unasked},
        {**common, "event": "status", "at_work": at_work, **second},
        {**common, "event": "restarting", "error": "the broker is away", "failures": 1, "wait_ms": 1500},
        {**common, "event": "failed", "error": "it is broken"},
        {**common, "flow": "others", "event": "ended", **reported},
    ]


def shown(display: TableDisplay) -> str:
    console = Console(file=io.StringIO(), width=160)
    console.print(display.render())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def cells(display: TableDisplay, flow: str) -> list[str]:
    (line,) = [line for line in shown(display).splitlines() if line.startswith(f"│ {flow}")]
    return [cell.strip() for cell in line.strip("│").split("│")]


def test_a_table() -> None:
    display = TableDisplay("orders", ["counts", "others"], Console(file=io.StringIO()))
    assert shown(display).count("starting") == 2
    display.flow_started("counts")
    display.flow_progressed("counts", report(0, Rows(100)))
    row = cells(display, "counts")
    assert row[:7] == ["counts", "running", "0", "1,665", "4", "4", "1,235"]
    assert row[7].startswith("7 (") and row[7].endswith("s ago)"), "the lag of this report is that of long ago"
    display.flow_watched("counts", report(0, Rows(100), at_work=BatchAtWork(1, 12_400, 3, 8)))
    assert cells(display, "counts")[1] == "batch 1: 12 s, 3/8 tasks"
    display.flow_restarting("counts", "the broker is away", failures=1, wait_ms=1500)
    display.flow_progressed("counts", report(0, Rows(100)))
    assert cells(display, "counts")[1] == "waits 1.5 s" and "the broker is away" in shown(display)
    display.flow_failed("counts", "it is broken")
    display.flow_ended("others", report(0, Rows(1), lag=0))
    assert cells(display, "counts")[1] == "failed" and "it is broken" in shown(display)
    assert cells(display, "others")[1] == "ended"


def test_the_table_says_whose_it_is_and_what_is_in_its_columns() -> None:
    display = TableDisplay("orders", ["counts"], Console(file=io.StringIO()))
    title, _, heads, *_ = shown(display).splitlines()
    assert title.strip() == "pipeline orders" and title.startswith("pipeline")
    assert [head.strip() for head in heads.strip("┃").split("┃")] == [
        "flow",
        "state",
        "batch",
        "read",
        "written",
        "bad",
        "rows/s",
        "lag",
        "state rows",
        "last error",
    ]
    table = display.render()
    assert [column.justify for column in table.columns] == ["left"] * 2 + ["right"] * 7 + ["left"]


def test_the_table_is_drawn_as_long_as_it_is_entered_and_stays() -> None:
    out = io.StringIO()
    display = TableDisplay("orders", ["counts"], Console(file=out, force_terminal=True, width=160))
    hide, show, erase = "\x1b[?25l", "\x1b[?25h", "\x1b[2K"
    with display as entered:
        assert entered is display
        assert hide in out.getvalue() and show not in out.getvalue()
        display.flow_started("counts")
        display.flow_ended("counts", report(3, Rows()))
    drawn = out.getvalue()
    assert drawn.rindex("ended") > drawn.rfind(erase), "the last one stays"
    assert show in drawn
    display.flow_failed("counts", "too late")
    assert out.getvalue() == drawn


def test_a_flow_that_ended_shows_its_last_report() -> None:
    display = TableDisplay("orders", ["counts"], Console(file=io.StringIO()))
    display.flow_restarting("counts", "it was away", failures=1, wait_ms=250)
    assert cells(display, "counts")[1] == "waits 0.25 s"
    display.flow_ended("counts", report(3, Rows(), lag=None))
    assert cells(display, "counts") == ["counts", "ended", "3", "1,665", "4", "4", "1,235", "", "5", "it was away"]
