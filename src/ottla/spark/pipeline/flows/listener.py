"""Hears Spark's reports about the flows of one pipeline: hands them on, and has positions committed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from ottla.spark.group_commits import GroupCommits
from ottla.spark.pipeline.model import Flow
from ottla.spark.progress import QueryProgress

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )


class FlowListener(StreamingQueryListener):
    """Spark reports in order, but later and from another thread: a query may have ended before its last report comes.
    `wait_until_heard` waits for that one."""

    def __init__(
        self, flows: Mapping[str, Flow], batch_done: Callable[[str, QueryProgress], None], commits: GroupCommits
    ) -> None:
        self._flows = flows
        self._batch_done = batch_done
        self._commits = commits
        self._changed = threading.Condition()
        self._ended_runs: set[str] = set()
        self._rows_by_run: dict[str, int] = {}
        self._batches_by_run: dict[str, int] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = QueryProgress.parse(event.progress.json)
        flow = self._flows.get(progress.name or "")
        if flow is None:
            return
        with self._changed:
            self._rows_by_run[progress.run_id] = self._rows_by_run.get(progress.run_id, 0) + progress.input_rows
            self._batches_by_run[progress.run_id] = self._batches_by_run.get(progress.run_id, 0) + 1
        if progress.end_offsets:
            self._commits.put(flow.group_id, progress.end_offsets)
        self._batch_done(flow.name, progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        with self._changed:
            self._ended_runs.add(str(event.runId))
            self._changed.notify_all()

    def wait_until_heard(self, run_id: str, timeout_s: float = 10.0) -> None:
        with self._changed:
            self._changed.wait_for(lambda: run_id in self._ended_runs, timeout_s)

    def rows_of(self, run_id: str) -> int:
        with self._changed:
            return self._rows_by_run.get(run_id, 0)

    def has_finished_batch(self, run_id: str) -> bool:
        with self._changed:
            return self._batches_by_run.get(run_id, 0) > 0
