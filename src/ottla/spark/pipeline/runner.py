"""Runs the flows of a pipeline: one streaming query each, started again when something passing made it fail.

A pipeline is one job. If a flow fails for good, the others finish the batch they are at and are stopped too: half of a
pipeline would go on giving results that nobody can rely on. Their checkpoints let all go on where they were.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from ottla.base.errors import OttlaError
from ottla.spark.group_commits import GroupCommits
from ottla.spark.options import CLIENT_PREFIX
from ottla.spark.pipeline.failures import is_passing
from ottla.spark.pipeline.flows.checkpoints import FlowCheckpoint
from ottla.spark.pipeline.flows.listener import FlowListener
from ottla.spark.pipeline.flows.tidying import tidy_up
from ottla.spark.pipeline.flows.watch import FlowWatch
from ottla.spark.pipeline.frames import Frames
from ottla.spark.pipeline.model import Flow, Model, Source
from ottla.spark.pipeline.observer import Observer
from ottla.spark.pipeline.parts import Background, BackgroundPart, PreparingPart, RememberingPart, TopicsPart
from ottla.spark.pipeline.sql_errors import shorten
from ottla.spark.pipeline.topic_sink import TopicSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_S = 0.1
_BATCH_END_TIMEOUT_S = 60.0
_INITIALIZING = "Initializing sources"
_PROCESSORS = os.cpu_count() or 1


class PipelineFailedError(OttlaError):
    """A flow failed for good; `flow` is its name, `error` one sentence, `details` all that Spark told."""

    def __init__(self, flow: str, error: str, details: str) -> None:
        self.flow = flow
        self.error = error
        self.details = details
        super().__init__(f"flow {flow} failed: {error}")


@dataclass
class _Run:
    """A flow and the query that works for it at the moment."""

    flow: Flow
    query: StreamingQuery | None = None
    failures: int = 0
    """In a row, without a finished batch in between."""
    starts_at: float = 0.0
    is_over: bool = False
    has_read: bool = False
    """Any rows at all."""

    @property
    def is_initializing(self) -> bool:
        """Its query waits for the processes of its sources."""
        query = self.query
        return (
            query is not None
            and query.isActive
            and query.status["message"] == _INITIALIZING
            and query.lastProgress is None
        )


class Runner:
    """`run` returns when all flows are at their end, and raises PipelineFailedError; `stop` may be called by another
    thread or a signal handler."""

    def __init__(
        self,
        model: Model,
        frames: Frames,
        sources: Mapping[str, Sequence[Source]],
        spark: SparkSession,
        observer: Observer,
    ) -> None:
        """`sources` are the topics that each flow reads."""
        self._model = model
        self._frames = frames
        self._sources = sources
        self._spark = spark
        self._observer = observer
        self._is_stopping = threading.Event()

    def stop(self) -> None:
        self._is_stopping.set()

    def run(self, *, once: bool = False) -> None:
        """With `once`, flows read what is there and end; a pipeline that reads its own topics goes round until nothing
        is left, or once for each flow."""
        self._prepare()
        commits = GroupCommits(self._find_cluster)
        watch = self._watch = FlowWatch(self._spark, self._observer, self._model.flows, self._sources)
        listener = FlowListener(self._model.flows, watch.batch_done, commits)
        self._spark.streams.addListener(listener)
        background = self._start_background()
        try:
            rounds = len(self._model.flows) if once and self._reads_its_own_topics() else 1
            for _ in range(rounds):
                runs = [_Run(flow) for flow in self._model.flows.values()]
                self._run_all(runs, listener, once=once)
                if self._is_stopping.is_set() or not any(run.has_read for run in runs):
                    break
            self._tidy_up(commits)
        finally:
            self._spark.streams.removeListener(listener)
            watch.close()
            commits.close()
            for one in background:
                one.close()

    def _prepare(self) -> None:
        for sink in self._model.sinks.values():
            if isinstance(sink.part, PreparingPart):
                sink.part.prepare()
        for flow in self._model.flows.values():
            part = self._model.sinks[flow.sink].part
            if isinstance(part, RememberingPart) and FlowCheckpoint(self._spark, flow.checkpoint).state() is None:
                part.end_left_over(f"{self._model.name}-{flow.name}")

    def _start_background(self) -> list[Background]:
        parts = [sink.part for sink in self._model.sinks.values()]
        started = [part.start() for part in parts if isinstance(part, BackgroundPart)]
        return [one for one in started if one is not None]

    def _tidy_up(self, commits: GroupCommits) -> None:
        for flow in self._model.flows.values():
            part = self._model.sinks[flow.sink].part
            if isinstance(part, RememberingPart):
                tidy_up(self._spark, self._model.name, flow, part, commits)

    def _find_cluster(self, group_id: str, topic: str) -> dict[str, str] | None:
        """Two clusters may have a topic of this name; that of the flow's own source comes first."""
        origins = {flow.origin for flow in self._model.flows.values() if flow.group_id == group_id}
        for source in sorted(self._model.sources.values(), key=lambda source: source.name not in origins):
            if isinstance(source.part, TopicsPart) and source.part.reads(topic):
                return {name.removeprefix(CLIENT_PREFIX): text for name, text in source.part.client_options.items()}
        return None

    def _reads_its_own_topics(self) -> bool:
        sinks = [sink.part for sink in self._model.sinks.values() if isinstance(sink.part, TopicSink)]
        written = {topic for sink in sinks for topic in sink.topics}
        readers = [source.part for source in self._model.sources.values() if isinstance(source.part, TopicsPart)]
        return any(reader.reads(topic) for reader in readers for topic in written)

    # Running

    def _run_all(self, runs: list[_Run], listener: FlowListener, *, once: bool) -> None:
        try:
            while not self._is_stopping.is_set() and not all(run.is_over for run in runs):
                for run in runs:
                    if run.query is not None:
                        self._look_after(run, listener)
                self._start_some(runs, once=once)
                self._is_stopping.wait(_POLL_S)
        finally:
            for run in runs:
                self._finish_batch(run)
            for run in runs:
                self._end(run, listener)

    def _look_after(self, run: _Run, listener: FlowListener) -> None:
        """Takes note of a query that has come to its end."""
        assert run.query is not None
        if run.query.isActive:
            return
        run_id = str(run.query.runId)
        listener.wait_until_heard(run_id)
        run.has_read |= listener.rows_of(run_id) > 0
        failure = run.query.exception()
        run.query = None
        report = self._watch.stopped(run.flow.name)
        if failure is None:
            run.is_over = True
            self._observer.flow_ended(run.flow.name, report)
            return
        if listener.has_finished_batch(run_id):
            run.failures = 0
        self._handle_failure(run, str(failure))

    def _start_some(self, runs: list[_Run], *, once: bool) -> None:
        """Not all flows begin at once: each starts Python processes, and Spark gives them ten seconds to come up, which
        is too little if more do so than there are processors for."""
        initializing = sum(run.is_initializing for run in runs)
        for run in runs:
            if initializing >= _PROCESSORS:
                return
            if run.query is None and not run.is_over and time.monotonic() >= run.starts_at:
                self._start(run, once=once)
                initializing += 1

    def _start(self, run: _Run, *, once: bool) -> None:
        flow = run.flow
        try:
            writer = self._frames.writer(flow).queryName(flow.name).option("checkpointLocation", flow.checkpoint)
            if once or flow.is_available_now:
                writer = writer.trigger(availableNow=True)
            elif flow.trigger_ms is not None:
                writer = writer.trigger(processingTime=f"{flow.trigger_ms} milliseconds")
            self._watch.begin(flow.name)
            run.query = writer.start()
        except (PySparkException, Py4JError, OttlaError) as e:
            self._handle_failure(run, str(e))
            return
        self._watch.started(flow.name, run.query)

    def _handle_failure(self, run: _Run, details: str) -> None:
        """Raises if the flow is not to be started again."""
        run.failures += 1
        error = shorten(details)
        restarts = self._model.restarts
        if not is_passing(details) or run.failures > restarts.attempts:
            run.is_over = True
            self._observer.flow_failed(run.flow.name, error)
            raise PipelineFailedError(run.flow.name, error, details)
        wait_ms = restarts.wait_ms(run.failures)
        run.starts_at = time.monotonic() + wait_ms / 1000
        self._observer.flow_restarting(run.flow.name, error, failures=run.failures, wait_ms=wait_ms)

    # Ending

    def _finish_batch(self, run: _Run) -> None:
        """Waits until a query is between two batches. A batch that is cut off would be done again after the next start:
        correct, but work for nothing."""
        query = run.query
        if query is None:
            return
        last = _batch_id(query)
        deadline = time.monotonic() + _BATCH_END_TIMEOUT_S
        while query.isActive and time.monotonic() < deadline:
            status = query.status
            if not status["isTriggerActive"] or not status["isDataAvailable"] or _batch_id(query) != last:
                return
            time.sleep(_POLL_S / 5)

    def _end(self, run: _Run, listener: FlowListener) -> None:
        if run.query is None:
            return
        run_id = str(run.query.runId)
        try:
            run.query.stop()
        except PySparkException as e:
            self._observer.flow_failed(run.flow.name, shorten(str(e)))
        listener.wait_until_heard(run_id)
        run.query = None
        self._observer.flow_ended(run.flow.name, self._watch.stopped(run.flow.name))


def _batch_id(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return -1 if progress is None else progress.batchId
