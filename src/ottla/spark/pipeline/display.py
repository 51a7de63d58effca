"""Shows how a pipeline runs: a live table for people, lines of JSON or plain lines for whatever reads a pipe."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table

from ottla.spark.pipeline.observer import Observer
from ottla.spark.progress import QueryProgress

_REFRESHES_PER_SECOND = 4


class Display(Observer, Protocol):
    """An observer with a beginning and an end."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


def choose_display(pipeline: str, flows: Iterable[str], *, as_json: bool) -> Display:
    if as_json:
        return JsonDisplay(pipeline, sys.stdout)
    return TableDisplay(pipeline, flows, Console()) if sys.stdout.isatty() else LineDisplay(sys.stdout)


class _LinesDisplay:
    """One line for each thing that happens; several threads tell of them."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass

    def _print(self, line: str) -> None:
        with self._lock:
            print(line, file=self._out, flush=True)


class JsonDisplay(_LinesDisplay):
    def __init__(self, pipeline: str, out: TextIO) -> None:
        super().__init__(out)
        self._pipeline = pipeline

    def _tell(self, event: str, flow: str, **facts: object) -> None:
        told = {"event": event, "pipeline": self._pipeline, "flow": flow, "at_ms": time.time_ns() // 1_000_000, **facts}
        self._print(json.dumps(told))

    def flow_started(self, flow: str) -> None:
        self._tell("started", flow)

    def flow_progressed(self, flow: str, progress: QueryProgress) -> None:
        self._tell(
            "progress",
            flow,
            batch=progress.batch_id,
            rows=progress.input_rows,
            rows_per_second=round(progress.rows_per_second, 1),
            duration_ms=progress.duration_ms,
            lag=progress.lag,
            state_rows=progress.state_rows,
            watermark=progress.watermark,
        )

    def flow_restarting(self, flow: str, error: str, *, failures: int, wait_ms: int) -> None:
        self._tell("restarting", flow, error=error, failures=failures, wait_ms=wait_ms)

    def flow_failed(self, flow: str, error: str) -> None:
        self._tell("failed", flow, error=error)

    def flow_ended(self, flow: str) -> None:
        self._tell("ended", flow)


class LineDisplay(_LinesDisplay):
    def flow_started(self, flow: str) -> None:
        self._print(f"{flow}: started")

    def flow_progressed(self, flow: str, progress: QueryProgress) -> None:
        if progress.input_rows:
            lag = "" if progress.lag is None else f", lag {progress.lag}"
            rate = f"{progress.rows_per_second:.0f} rows/s"
            self._print(f"{flow}: batch {progress.batch_id}, {progress.input_rows} rows, {rate}{lag}")

    def flow_restarting(self, flow: str, error: str, *, failures: int, wait_ms: int) -> None:
        self._print(f"{flow}: {error}; failure {failures} in a row, starts again in {wait_ms / 1000:g} s")

    def flow_failed(self, flow: str, error: str) -> None:
        self._print(f"{flow}: failed: {error}")

    def flow_ended(self, flow: str) -> None:
        self._print(f"{flow}: ended")


@dataclass
class _Row:
    state: str = "starting"
    batch: str = ""
    rows: int = 0
    rate: str = ""
    lag: str = ""
    state_rows: str = ""
    last_error: str = ""


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
        for name in ("batch", "rows", "rows/s", "lag", "state rows"):
            table.add_column(name, justify="right")
        table.add_column("last error", overflow="fold")
        with self._lock:
            for flow, row in self._rows.items():
                facts = (row.batch, str(row.rows), row.rate, row.lag, row.state_rows, row.last_error)
                table.add_row(flow, row.state, *facts)
        return table

    def flow_started(self, flow: str) -> None:
        with self._lock:
            self._rows[flow].state = "running"

    def flow_progressed(self, flow: str, progress: QueryProgress) -> None:
        with self._lock:
            row = self._rows[flow]
            row.batch = str(progress.batch_id)
            row.rows += progress.input_rows
            row.rate = f"{progress.rows_per_second:.0f}"
            row.lag = "" if progress.lag is None else str(progress.lag)
            row.state_rows = str(progress.state_rows) if progress.state_rows else ""

    def flow_restarting(self, flow: str, error: str, *, failures: int, wait_ms: int) -> None:
        with self._lock:
            row = self._rows[flow]
            row.state, row.last_error = f"waits {wait_ms / 1000:g} s", error

    def flow_failed(self, flow: str, error: str) -> None:
        with self._lock:
            row = self._rows[flow]
            row.state, row.last_error = "failed", error

    def flow_ended(self, flow: str) -> None:
        with self._lock:
            self._rows[flow].state = "ended"
