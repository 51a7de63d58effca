"""Watches the flows of a running pipeline from a thread of its own, and tells the observer how they are.

Every second, and whenever a batch is done, it asks where the topics of a flow end now: the lag that is shown is the
lag there is, not that of the last batch. A cluster that does not answer delays what is told by two seconds, and
nothing else.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from ottla.base.errors import OttlaError
from ottla.spark.offsets import Offsets
from ottla.spark.pipeline.flows.checkpoints import FlowCheckpoint
from ottla.spark.pipeline.flows.report import BatchAtWork, EndOffsets, FlowMeter, FlowReport
from ottla.spark.pipeline.flows.topics import TopicQuestions
from ottla.spark.pipeline.model import Flow, Source
from ottla.spark.pipeline.observer import Observer
from ottla.spark.progress import QueryProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger(__name__)
_TICK_S = 1.0
_ASK_AGAIN_MS = 200
_LONG_BATCH_MS = 2000
"""Of batches that are done sooner nobody wants to know how far they are."""
_CLOSE_TIMEOUT_S = 10.0


@dataclass
class _Watched:
    """A flow, what was counted of it, and its query while it has one."""

    sources: Sequence[Source]
    meter: FlowMeter
    query: StreamingQuery | None = None
    busy_since_ms: int | None = None
    done: deque[QueryProgress] = field(default_factory=deque)


class FlowWatch:
    def __init__(
        self,
        spark: SparkSession,
        observer: Observer,
        flows: Mapping[str, Flow],
        sources: Mapping[str, Sequence[Source]],
    ) -> None:
        """`sources` are the topics that each flow reads."""
        self._spark = spark
        self._observer = observer
        self._flows = flows
        self._watched = {
            name: _Watched(sources[name], FlowMeter(sets_bad_aside=flow.takes_dead_letters))
            for name, flow in flows.items()
        }
        self._questions = TopicQuestions(source for found in sources.values() for source in found)
        self._told = threading.RLock()
        """Held while the observer is told: one thing at a time, in order."""
        self._wanted = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="ottla-flow-watch", daemon=True)
        self._thread.start()

    # What the runner and Spark's reports say

    def begin(self, flow: str) -> None:
        """A query of the flow is about to be started."""
        watched = self._watched[flow]
        with self._told:
            watched.meter.begin_at(*self._beginning(self._flows[flow], watched))

    def started(self, flow: str, query: StreamingQuery) -> None:
        with self._told:
            self._watched[flow].query = query
        self._observer.flow_started(flow)

    def batch_done(self, flow: str, progress: QueryProgress) -> None:
        """Returns at once; it is told by the thread."""
        self._watched[flow].done.append(progress)
        self._wanted.set()

    def stopped(self, flow: str) -> FlowReport:
        """The flow's query has ended, and all its reports were heard: they are told before this returns."""
        with self._told:
            watched = self._watched[flow]
            watched.query = None
            self._tell_batches(flow, watched)
            self._ask(watched)
            return watched.meter.report(_now_ms())

    def close(self) -> None:
        self._is_closed = True
        self._wanted.set()
        self._thread.join(_CLOSE_TIMEOUT_S)
        self._questions.close()

    def _beginning(self, flow: Flow, watched: _Watched) -> tuple[Offsets, int]:
        """Where its next batch begins, and its number; no offsets if they are not known."""
        try:
            state = FlowCheckpoint(self._spark, flow.checkpoint).state()
            if state is not None and state.committed >= 0:
                return state.position, state.committed + 1
            starts = [self._questions.start(source.name) for source in watched.sources]
        except (OttlaError, OSError, ValueError, KeyError, Py4JError) as e:
            _log.info("it is not known where flow %s starts: %s", flow.name, e)
            return {}, 0
        return {one: offset for start in starts for one, offset in start.items()}, 0

    # The thread

    def _run(self) -> None:
        while not self._is_closed:
            is_tick = not self._wanted.wait(_TICK_S)
            self._wanted.clear()
            for flow, watched in self._watched.items():
                with self._told:
                    self._tell_batches(flow, watched)
                    if is_tick and watched.query is not None:
                        self._tell_how_it_is(flow, watched)

    def _tell_batches(self, flow: str, watched: _Watched) -> None:
        while watched.done:
            watched.meter.add(watched.done.popleft())
            watched.busy_since_ms = None
            self._ask(watched)
            self._observer.flow_progressed(flow, watched.meter.report(_now_ms()))

    def _tell_how_it_is(self, flow: str, watched: _Watched) -> None:
        self._ask(watched)
        now_ms = _now_ms()
        self._observer.flow_watched(flow, watched.meter.report(now_ms, self._at_work(watched, now_ms)))

    def _ask(self, watched: _Watched) -> None:
        """Where its topics end. Of several batches that are told at once, one answer is new enough for all."""
        now_ms = _now_ms()
        if not watched.sources or watched.meter.ends_age_ms(now_ms) < _ASK_AGAIN_MS:
            return
        try:
            ends = {one: end for source in watched.sources for one, end in self._questions.ends(source.name).items()}
        except OttlaError as e:
            _log.info("it is not known where topics end: %s", e)
        else:
            watched.meter.note_ends(EndOffsets(now_ms, ends))

    def _at_work(self, watched: _Watched, now_ms: int) -> BatchAtWork | None:
        query = watched.query
        assert query is not None
        try:
            status = query.status
            if not (status["isTriggerActive"] and status["isDataAvailable"]):
                watched.busy_since_ms = None
                return None
            watched.busy_since_ms = watched.busy_since_ms or now_ms
            elapsed_ms = now_ms - watched.busy_since_ms
            if elapsed_ms < _LONG_BATCH_MS:
                return None
            return BatchAtWork(watched.meter.next_batch_id, elapsed_ms, *self._tasks(str(query.runId)))
        except Py4JError:  # the session is about to end
            return None

    def _tasks(self, run_id: str) -> tuple[int, int]:
        """How many tasks of the query's job are done, and how many there are."""
        tracker = self._spark.sparkContext.statusTracker()
        done = every = 0
        for job_id in sorted(tracker.getJobIdsForGroup(run_id))[-1:]:
            job = tracker.getJobInfo(job_id)
            for stage_id in job.stageIds if job is not None else ():
                stage = tracker.getStageInfo(stage_id)
                if stage is not None:
                    done, every = done + stage.numCompletedTasks, every + stage.numTasks
        return done, every


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
