"""A running pipeline in lines: of JSON for programs, of text for people who read them later.

Lines are for logs, so they come with the batches, but not more often than anybody would read them.
"""

from __future__ import annotations

import json
import threading
import time
from math import inf
from typing import Self, TextIO

from ottla.spark.offsets import to_json
from ottla.spark.pipeline.flows.report import FlowReport, Rows

_LINE_EVERY_S = 1.0
"""Batches that end sooner after the last line are told with the next one: counts are sums."""
_STATUS_EVERY_S = 5.0


class _LinesDisplay:
    """One line for each thing that happens; several threads tell of them."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._last_s: dict[str, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass

    def _print(self, flow: str, line: str) -> None:
        with self._lock:
            self._last_s[flow] = time.monotonic()
            print(line, file=self._out, flush=True)

    def _is_due(self, flow: str, every_s: float) -> bool:
        return time.monotonic() - self._last_s.get(flow, -inf) >= every_s


class JsonDisplay(_LinesDisplay):
    def __init__(self, pipeline: str, out: TextIO) -> None:
        super().__init__(out)
        self._pipeline = pipeline

    def _tell(self, event: str, flow: str, **facts: object) -> None:
        told = {"event": event, "pipeline": self._pipeline, "flow": flow, "at_ms": time.time_ns() // 1_000_000, **facts}
        self._print(flow, json.dumps(told))

    def flow_started(self, flow: str) -> None:
        self._tell("started", flow)

    def flow_progressed(self, flow: str, report: FlowReport) -> None:
        assert report.last is not None
        batch_id, rows, duration_ms = report.last
        self._tell("progress", flow, batch=batch_id, **rows._asdict(), duration_ms=duration_ms, **_facts(report))

    def flow_watched(self, flow: str, report: FlowReport) -> None:
        if self._is_due(flow, _STATUS_EVERY_S):
            at_work = None if report.at_work is None else report.at_work._asdict()
            self._tell("status", flow, at_work=at_work, **_facts(report))

    def flow_restarting(self, flow: str, error: str, *, failures: int, wait_ms: int) -> None:
        self._tell("restarting", flow, error=error, failures=failures, wait_ms=wait_ms)

    def flow_failed(self, flow: str, error: str) -> None:
        self._tell("failed", flow, error=error)

    def flow_ended(self, flow: str, report: FlowReport) -> None:
        self._tell("ended", flow, **_facts(report))


def _facts(report: FlowReport) -> dict[str, object]:
    ends = report.ends
    return {
        "total": {**report.rows._asdict(), "batches": report.batches},
        "rows_per_second": round(report.rows_per_second, 1),
        "lag": report.lag,
        "position": to_json(report.position),
        "end_offsets": None if ends is None else to_json(ends.offsets),
        "end_offsets_asked_ms": None if ends is None else ends.asked_ms,
        "state_rows": report.state_rows,
        "watermark": report.watermark,
    }


class LineDisplay(_LinesDisplay):
    def __init__(self, out: TextIO) -> None:
        super().__init__(out)
        self._unsaid: set[str] = set()

    def flow_started(self, flow: str) -> None:
        self._print(flow, f"{flow}: started")
        self._last_s.pop(flow)

    def flow_progressed(self, flow: str, report: FlowReport) -> None:
        assert report.last is not None
        if any(report.last.rows):
            self._unsaid.add(flow)
        if self._is_due(flow, _LINE_EVERY_S):
            self._say(flow, report)

    def flow_watched(self, flow: str, report: FlowReport) -> None:
        self._say(flow, report)
        if report.at_work is not None and self._is_due(flow, _STATUS_EVERY_S):
            self._print(flow, f"{flow}: {describe_work(report)}, {_describe(report)}")

    def _say(self, flow: str, report: FlowReport) -> None:
        if flow in self._unsaid and report.last is not None:
            self._unsaid.discard(flow)
            self._print(flow, f"{flow}: batch {report.last.batch_id}, {_describe(report)}")

    def flow_restarting(self, flow: str, error: str, *, failures: int, wait_ms: int) -> None:
        self._print(flow, describe_restart(flow, error, failures=failures, wait_ms=wait_ms))

    def flow_failed(self, flow: str, error: str) -> None:
        self._print(flow, f"{flow}: failed: {error}")

    def flow_ended(self, flow: str, report: FlowReport) -> None:
        batches = f"{report.batches} batch{'es' if report.batches != 1 else ''}"
        lag = "" if report.lag is None else f", lag {report.lag:,}"
        self._print(flow, f"{flow}: ended after {batches}: {_describe_rows(report.rows)}{lag}")


def describe_restart(flow: str, error: str, *, failures: int, wait_ms: int) -> str:
    return f"{flow}: {error}; failure {failures} in a row, starts again in {wait_ms / 1000:g} s"


def _describe(report: FlowReport) -> str:
    lag = "" if report.lag is None else f", lag {report.lag:,}"
    return f"{_describe_rows(report.rows)}, {report.rows_per_second:,.0f} rows/s{lag}"


def _describe_rows(rows: Rows) -> str:
    return f"{rows.read:,} read, {rows.written:,} written, {rows.bad:,} bad"


def describe_work(report: FlowReport) -> str:
    """A batch that takes long: `batch 0: 12 s, 3/8 tasks`."""
    work = report.at_work
    assert work is not None
    tasks = f", {work.tasks_done}/{work.tasks} tasks" if work.tasks else ""
    return f"batch {work.batch_id}: {work.elapsed_ms // 1000} s{tasks}"
