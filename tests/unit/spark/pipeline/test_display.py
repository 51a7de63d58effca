"""What people and programs get to see of a running pipeline."""

from __future__ import annotations

import io
import json

from rich.console import Console

from ottla.spark.pipeline.display import JsonDisplay, LineDisplay, TableDisplay
from ottla.spark.pipeline.observer import Observer
from ottla.spark.progress import QueryProgress


def progress(batch_id: int, rows: int, lag: int | None = 7) -> QueryProgress:
    return QueryProgress("id", "run", "counts", batch_id, rows, 1234.56, 80, 5, None, {}, lag)


def tell_all(observer: Observer) -> None:
    observer.flow_started("counts")
    observer.flow_progressed("counts", progress(0, 100))
    observer.flow_progressed("counts", progress(1, 0, lag=None))
    observer.flow_restarting("counts", "the broker is away", failures=1, wait_ms=1500)
    observer.flow_failed("counts", "it is broken")
    observer.flow_ended("others")


def test_lines() -> None:
    out = io.StringIO()
    tell_all(LineDisplay(out))
    assert out.getvalue().splitlines() == [
        "counts: started",
        "counts: batch 0, 100 rows, 1235 rows/s, lag 7",
        "counts: the broker is away; failure 1 in a row, starts again in 1.5 s",
        "counts: failed: it is broken",
        "others: ended",
    ]


def test_json() -> None:
    out = io.StringIO()
    tell_all(JsonDisplay("orders", out))
    told = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [entry["event"] for entry in told] == ["started", "progress", "progress", "restarting", "failed", "ended"]
    assert all(entry["pipeline"] == "orders" and isinstance(entry["at_ms"], int) for entry in told)
    assert told[1]["batch"] == 0 and told[1]["rows"] == 100 and told[1]["rows_per_second"] == 1234.6
    assert (told[1]["lag"], told[2]["lag"]) == (7, None)
    assert told[3] | {"error": "the broker is away", "failures": 1, "wait_ms": 1500} == told[3]


def shown(display: TableDisplay) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(display.render())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_table() -> None:
    display = TableDisplay("orders", ["counts", "others"], Console(file=io.StringIO()))
    assert shown(display).count("starting") == 2
    display.flow_started("counts")
    display.flow_progressed("counts", progress(0, 100))
    display.flow_progressed("counts", progress(1, 20))
    (line,) = [line for line in shown(display).splitlines() if "counts" in line]
    assert [cell.strip() for cell in line.strip("│").split("│")] == [
        "counts",
        "running",
        "1",
        "120",
        "1235",
        "7",
        "5",
        "",
    ]
    display.flow_restarting("counts", "the broker is away", failures=1, wait_ms=1500)
    assert "waits 1.5 s" in shown(display) and "the broker is away" in shown(display)
    display.flow_ended("others")
    display.flow_failed("counts", "it is broken")
    assert "failed" in shown(display) and "ended" in shown(display)
