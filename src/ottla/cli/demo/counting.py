"""The pipeline of the demonstration, in a thread of its own, so that Ctrl-C reaches the screen and not Spark."""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Self

from ottla.base.errors import OttlaError
from ottla.spark.pipeline import Pipeline
from ottla.spark.pipeline.flows.report import FlowReport
from ottla.spark.pipeline.line_displays import describe_restart
from ottla.spark.pipeline.observer import SilentObserver
from ottla.spark.pipeline.runner import Runner


class Progress(SilentObserver):
    """What the screen shows of the pipeline: how far the table is, and which flows have failed and start again."""

    def __init__(self) -> None:
        self.report: FlowReport | None = None
        self.restarts: deque[str] = deque()
        """Sentences; whoever shows one takes it away."""

    def flow_progressed(self, flow: str, report: FlowReport) -> None:
        if flow == "to-table":
            self.report = report

    def flow_watched(self, flow: str, report: FlowReport) -> None:
        self.flow_progressed(flow, report)

    def flow_restarting(self, flow: str, error: str, *, failures: int, wait_ms: int) -> None:
        self.restarts.append(describe_restart(flow, error, failures=failures, wait_ms=wait_ms))


class Counting:
    def __init__(self, pipeline: Path, bootstrap_servers: str, place: Path) -> None:
        self._pipeline = Pipeline.from_file(
            pipeline,
            [
                ("kafka.bootstrap.servers", bootstrap_servers),
                ("checkpoint", str(place / "checkpoints")),
                ("sinks.table.url", f"sqlite:{place / 'demo.db'}"),
            ],
        )
        self._log_file = place / "spark.log"
        self.progress = Progress()
        self._runner: Runner | None = None
        self._is_stopping = threading.Event()
        self._failure: OttlaError | None = None
        self._thread = threading.Thread(target=self._run, name="pipeline", daemon=True)

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self._is_stopping.set()
        if self._runner is not None:
            self._runner.stop()
        self._thread.join()

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._pipeline.run(log_file=self._log_file, observer=self.progress, on_start=self._started)
        except OttlaError as e:
            self._failure = e

    def _started(self, runner: Runner) -> None:
        self._runner = runner
        if self._is_stopping.is_set():
            runner.stop()
