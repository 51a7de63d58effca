"""What people and programs get to see of a running pipeline."""

from __future__ import annotations

import io
import json

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


def test_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_displays, "_STATUS_EVERY_S", 0.0)
    out = io.StringIO()
    tell_all(JsonDisplay("orders", out))
    told = [json.loads(line) for line in out.getvalue().splitlines()]
    events = ["started", "progress", "progress", "status", "restarting", "failed", "ended"]
    assert [entry["event"] for entry in told] == events
    assert all(entry["pipeline"] == "orders" and isinstance(entry["at_ms"], int) for entry in told)
    facts = {"batch": 0, "read": 100, "written": 1, "bad": 2, "rows_per_second": 1234.6, "lag": 7}
    assert told[1] | facts == told[1]
    assert told[1]["total"] == {"read": 1665, "written": 4, "bad": 4, "batches": 1}
    assert (told[1]["position"], told[1]["end_offsets"]) == ({"t": {"0": 100}}, {"t": {"0": 107}})
    assert (told[1]["end_offsets_asked_ms"], told[2]["end_offsets"], told[2]["lag"]) == (5, None, None)
    assert told[3]["at_work"] == {"batch_id": 2, "elapsed_ms": 12_400, "tasks_done": 3, "tasks": 8}
    assert told[4] | {"error": "the broker is away", "failures": 1, "wait_ms": 1500} == told[4]
    assert told[6]["total"]["read"] == 1665


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
