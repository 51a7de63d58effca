"""Shows how a pipeline runs: a live table in a terminal, lines for whatever reads a pipe."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from ottla.spark.pipeline.flows.report import FlowReport
from ottla.spark.pipeline.line_displays import JsonDisplay, LineDisplay, describe_work
from ottla.spark.pipeline.observer import Observer

_REFRESHES_PER_SECOND = 4
_STALE_MS = 5000
"""A lag that was true longer ago than this is shown with its age."""


class Display(Observer, Protocol):
    """An observer with a beginning and an end."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


def choose_display(pipeline: str, flows: Iterable[str], *, output: str) -> Display:
    """`output` is json, lines, table, or auto: a table in a terminal, and lines elsewhere."""
    if output == "json":
        return JsonDisplay(pipeline, sys.stdout)
    if output == "table" or (output == "auto" and sys.stdout.isatty()):
        return TableDisplay(pipeline, flows, Console())
    return LineDisplay(sys.stdout)


@dataclass
class _Row:
    state: str = "starting"
    report: FlowReport | None = None
    last_error: str = ""

    def cells(self, now_ms: int) -> list[str]:
        report = self.report
        if report is None:
            return [self.state, *[""] * 7, self.last_error]
        state = describe_work(report) if report.at_work is not None else self.state
        batch = "" if report.last is None else str(report.last.batch_id)
        counts = [f"{count:,}" for count in report.rows]
        rate = f"{report.rows_per_second:,.0f}"
        state_rows = f"{report.state_rows:,}" if report.state_rows else ""
        return [state, batch, *counts, rate, _lag(report, now_ms), state_rows, self.last_error]


def _lag(report: FlowReport, now_ms: int) -> str:
    if report.lag is None:
        return ""
    age_ms = report.age_ms(now_ms)
    return f"{report.lag:,}" if age_ms < _STALE_MS else f"{report.lag:,} ({age_ms // 1000} s ago)"


class TableDisplay:
    """A table that is drawn again and again in the same place, a row for each flow."""

    def __init__(self, pipeline: str, flows: Iterable[str], console: Console) -> None:
        self._pipeline = pipeline
        self._rows = {flow: _Row() for flow in flows}
        self._lock = threading.Lock()
        self._live = Live(
            get_renderable=self.render, console=console, refresh_per_second=_REFRESHES_PER_SECOND, transient=False
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._live.stop()

    def render(self) -> Table:
        table = Table(title=f"pipeline {self._pipeline}", title_justify="left")
        for name in ("flow", "state"):
            table.add_column(name)
        for name in ("batch", "read", "written", "bad", "rows/s", "lag", "state rows"):
            table.add_column(name, justify="right")
        table.add_column("last error", overflow="fold")
        now_ms = time.time_ns() // 1_000_000
        with self._lock:
            for flow, row in self._rows.items():
                table.add_row(flow, *row.cells(now_ms))
        return table

    def flow_started(self, flow: str) -> None:
        with self._lock:
            self._rows[flow].state = "running"

    def flow_progressed(self, flow: str, report: FlowReport) -> None:
        with self._lock:
            self._rows[flow].report = report

    def flow_watched(self, flow: str, report: FlowReport) -> None:
        self.flow_progressed(flow, report)

    def flow_restarting(self, flow: str, error: str, *, failures: int, wait_ms: int) -> None:
        with self._lock:
            row = self._rows[flow]
            row.state, row.last_error = f"waits {wait_ms / 1000:g} s", error

    def flow_failed(self, flow: str, error: str) -> None:
        with self._lock:
            row = self._rows[flow]
            row.state, row.last_error = "failed", error

    def flow_ended(self, flow: str, report: FlowReport) -> None:
        with self._lock:
            row = self._rows[flow]
            row.state, row.report = "ended", report
