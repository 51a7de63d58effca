"""Who is told how a pipeline runs. The runner knows only this; terminals and files are elsewhere."""

from __future__ import annotations

from typing import Protocol

from ottla.spark.pipeline.flows.report import FlowReport


class Observer(Protocol):
    """Called by several threads, one at a time for each flow. Must not raise, and must not take long."""

    def flow_started(self, flow: str) -> None: ...

    def flow_progressed(self, flow: str, report: FlowReport) -> None:
        """A batch is done."""
        ...

    def flow_watched(self, flow: str, report: FlowReport) -> None:
        """How things are, told again and again between and during batches."""
        ...

    def flow_restarting(self, flow: str, error: str, *, failures: int, wait_ms: int) -> None:
        """It failed for the n-th time in a row, and starts again after a while."""
        ...

    def flow_failed(self, flow: str, error: str) -> None:
        """It failed for good; the others are about to be stopped."""
        ...

    def flow_ended(self, flow: str, report: FlowReport) -> None:
        """Nothing is left to do, or it was stopped."""
        ...


class SilentObserver:
    def flow_started(self, flow: str) -> None:
        pass

    def flow_progressed(self, flow: str, report: FlowReport) -> None:
        pass

    def flow_watched(self, flow: str, report: FlowReport) -> None:
        pass

    def flow_restarting(self, flow: str, error: str, *, failures: int, wait_ms: int) -> None:
        pass

    def flow_failed(self, flow: str, error: str) -> None:
        pass

    def flow_ended(self, flow: str, report: FlowReport) -> None:
        pass
