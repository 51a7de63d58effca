"""When flows are started, started again, given up and ended. Queries are stand-ins, ended by a script."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from ottla.spark.pipeline import runner as runner_module
from ottla.spark.pipeline.flows.report import FlowReport
from ottla.spark.pipeline.model import Restarts
from ottla.spark.pipeline.observer import SilentObserver
from ottla.spark.pipeline.runner import PipelineFailedError, Runner
from tests.waiting import join, repeat_until

PASSING, LASTING = "ConnectionError: the broker is away", "AnalysisException: no such column"
IDLE = {"message": "Waiting for data to arrive", "isTriggerActive": False, "isDataAvailable": False}
BUSY = {"message": "Processing new data", "isTriggerActive": True, "isDataAvailable": True}
INITIALIZING = {"message": "Initializing sources", "isTriggerActive": True, "isDataAvailable": False}


class Told(SilentObserver):
    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []

    def flow_started(self, flow: str) -> None:
        self.events.append(("started", flow))

    def flow_restarting(self, flow: str, error: str, *, failures: int, wait_ms: int) -> None:
        self.events.append(("restarting", flow, failures, wait_ms))

    def flow_failed(self, flow: str, error: str) -> None:
        self.events.append(("failed", flow))

    def flow_ended(self, flow: str, report: FlowReport) -> None:
        self.events.append(("ended", flow))


class Query:
    def __init__(self, world: World, name: str, told: list[tuple[object, ...]]) -> None:
        self.name, self.told = name, told
        self.isActive = True
        self.status: dict[str, Any] = IDLE
        self.lastProgress: Any = None
        self.runId = f"{name}-{len(world.queries)}"
        self._world = world
        self._failure: str | None = None

    def exception(self) -> str | None:
        return self._failure

    def end(self, failure: str | None = None, batches: int = 0) -> None:
        self._failure = failure
        listener = self._world.listeners[0]
        with listener._changed:
            listener._batches_by_run[self.runId] = batches
            listener._rows_by_run[self.runId] = 10 * batches
        self.isActive = False
        listener.onQueryTerminated(SimpleNamespace(runId=self.runId))

    def stop(self) -> None:
        self._world.stopped.append(self.runId)
        if self.isActive:
            self.end()


class Writer:
    """Notes what it is told; `start` gives a query."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self._name = world, name
        self._told: list[tuple[object, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., Writer]:
        def tell(*values: object, **named: object) -> Writer:
            self._told.append((name, *values, *named.items()))
            return self

        return tell

    def start(self) -> Query:
        query = Query(self._world, self._name, self._told)
        self._world.queries.append(query)
        self._world.on_start(query)
        return query


class World:
    def __init__(self, *flows: str, attempts: int = 2, **fields: Any) -> None:
        self.queries: list[Query] = []
        self.stopped: list[str] = []
        self.listeners: list[Any] = []
        self.on_start: Callable[[Query], None] = lambda query: None
        self.told = Told()
        common = {"sink": "sink", "origin": "in", "group_id": "g", "trigger_ms": None, "is_available_now": False}
        made = {
            name: SimpleNamespace(name=name, checkpoint=f"/c/{name}", takes_dead_letters=False, **{**common, **fields})
            for name in flows
        }
        self.sinks: dict[str, Any] = {"sink": SimpleNamespace(part=SimpleNamespace())}
        self.model: Any = SimpleNamespace(
            name="p", flows=made, sinks=self.sinks, sources={}, restarts=Restarts(attempts, 1, 4)
        )
        streams = SimpleNamespace(addListener=self.listeners.append, removeListener=self.listeners.remove)
        spark: Any = SimpleNamespace(streams=streams)
        frames: Any = SimpleNamespace(writer=lambda flow: Writer(self, flow.name))
        self.runner = Runner(self.model, frames, {name: [] for name in flows}, spark, self.told)

    def run(self, *, once: bool = False) -> None:
        self.runner.run(once=once)
        assert self.listeners == [], "nobody listens any more"

    def fails(self, **options: Any) -> PipelineFailedError:
        with pytest.raises(PipelineFailedError) as failure:
            self.runner.run(**options)
        assert self.listeners == [], "nobody listens any more"
        return failure.value

    def in_background(self) -> threading.Thread:
        thread = threading.Thread(target=self.run)
        thread.start()
        return thread


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(runner_module, "_POLL_S", 0.002)
    yield


@pytest.mark.parametrize(
    ("fields", "once", "trigger"),
    [
        ({}, False, []),
        ({"trigger_ms": 250}, False, [("trigger", ("processingTime", "250 milliseconds"))]),
        ({"trigger_ms": 250}, True, [("trigger", ("availableNow", True))]),
        ({"is_available_now": True}, False, [("trigger", ("availableNow", True))]),
    ],
)
def test_how_a_flow_is_started_and_ends(fields: dict[str, Any], once: bool, trigger: list[object]) -> None:
    world = World("f", **fields)
    world.on_start = lambda query: query.end(batches=1)
    world.run(once=once)
    (query,) = world.queries
    assert query.told == [("queryName", "f"), ("option", "checkpointLocation", "/c/f"), *trigger]
    assert world.told.events == [("started", "f"), ("ended", "f")]


def test_what_passes_is_started_again_with_longer_waits_until_it_has_failed_too_often() -> None:
    world = World("f", attempts=3)
    world.on_start = lambda query: query.end(PASSING)
    failure = world.fails()
    assert (failure.flow, len(world.queries)) == ("f", 4)
    assert PASSING in failure.details and str(failure).startswith("flow f failed: ")
    assert [event[2:] for event in world.told.events if event[0] == "restarting"] == [(1, 1), (2, 2), (3, 4)]
    assert world.told.events[-1] == ("failed", "f")


def test_a_finished_batch_makes_good_for_the_failures_before_it() -> None:
    world = World("f", attempts=1)
    ends = iter([(PASSING, 0), (PASSING, 1), (PASSING, 2), (None, 0)])
    world.on_start = lambda query: query.end(*next(ends))
    world.run()
    assert [event[2] for event in world.told.events if event[0] == "restarting"] == [1, 1, 1]


def test_what_lasts_ends_the_pipeline_at_once_and_stops_the_others() -> None:
    world = World("f", "g")
    world.on_start = lambda query: query.end(LASTING) if query.name == "f" else None
    assert world.fails().flow == "f"
    assert [query.name for query in world.queries].count("f") == 1
    assert all(not query.isActive for query in world.queries)
    assert ("failed", "f") in world.told.events
    assert ("ended", "g") in world.told.events or ("started", "g") not in world.told.events


def test_a_query_that_cannot_even_be_started_is_a_failure_like_others() -> None:
    world = World("f", attempts=1)

    def refuse(query: Query) -> None:
        raise runner_module.OttlaError(PASSING)

    world.on_start = refuse
    world.fails()
    assert [event[0] for event in world.told.events] == ["restarting", "failed"]


@pytest.mark.parametrize("batch", [0, 8])
def test_who_stops_waits_for_the_batch_at_work(batch: int) -> None:
    world = World("f")
    thread = world.in_background()
    repeat_until(lambda: ("started", "f") in world.told.events)
    (query,) = world.queries
    query.status = BUSY
    query.lastProgress = SimpleNamespace(batchId=batch - 1) if batch else None
    world.runner.stop()
    thread.join(0.05)
    assert thread.is_alive() and world.stopped == [], "the batch is not done"
    query.lastProgress = SimpleNamespace(batchId=batch)
    join(thread)
    assert world.stopped == [query.runId]
    assert world.told.events == [("started", "f"), ("ended", "f")]


@pytest.mark.parametrize("status", [{**BUSY, "isTriggerActive": False}, {**BUSY, "isDataAvailable": False}])
def test_between_two_batches_nobody_is_waited_for(status: dict[str, Any]) -> None:
    world = World("f")
    thread = world.in_background()
    repeat_until(lambda: ("started", "f") in world.told.events)
    world.queries[0].status = status
    world.runner.stop()
    join(thread)
    assert world.stopped == [world.queries[0].runId]


def test_no_more_flows_come_up_at_once_than_there_are_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    assert os.cpu_count() == runner_module._PROCESSORS
    monkeypatch.setattr(runner_module, "_PROCESSORS", 2)
    world = World("a", "b", "c", "d")

    def initializing(query: Query) -> None:
        query.status = INITIALIZING

    world.on_start = initializing
    thread = world.in_background()
    repeat_until(lambda: len(world.queries) == 2)
    thread.join(0.05)
    assert [query.name for query in world.queries] == ["a", "b"]
    world.queries[0].status = IDLE
    repeat_until(lambda: len(world.queries) == 3)
    world.queries[1].lastProgress = SimpleNamespace(batchId=0)
    repeat_until(lambda: len(world.queries) == 4)
    world.runner.stop()
    join(thread)


class Topic:
    """A source, or a sink, of one topic."""

    def __init__(self, topic: str) -> None:
        self.topics = [topic]
        self.client_options = {"kafka.bootstrap.servers": "h:1", "kafka.client.id": "c"}

    def reads(self, topic: str) -> bool:
        return topic in self.topics


@pytest.mark.parametrize(
    ("reads_own", "batches", "rounds"),
    [(True, [1, 1, 1, 1], 2), (True, [1, 0, 0, 0], 2), (True, [0, 0, 0, 0], 1), (False, [1, 1, 1, 1], 1)],
)
def test_a_pipeline_that_reads_its_own_topics_goes_round_until_nothing_is_left(
    reads_own: bool, batches: list[int], rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "TopicSink", Topic)
    world = World("f", "g")
    world.model.sources["in"] = SimpleNamespace(name="in", part=Topic("own" if reads_own else "other"))
    world.sinks["sink"] = SimpleNamespace(part=Topic("own"))
    found = iter(batches)
    world.on_start = lambda query: query.end(batches=next(found))
    world.run(once=True)
    assert len(world.queries) == 2 * rounds
    world = World("f")
    world.model.sources["in"] = SimpleNamespace(name="in", part=Topic("own"))
    world.sinks["sink"] = SimpleNamespace(part=Topic("own"))
    world.on_start = lambda query: query.end(batches=1)
    world.run()
    assert len(world.queries) == 1, "only who reads once goes round"


def test_parts_are_prepared_before_and_closed_after_the_flows() -> None:
    world = World("f")
    steps: list[str] = []

    class Part:
        def prepare(self) -> None:
            steps.append("prepared")

        def start(self) -> Any:
            steps.append("started")
            return SimpleNamespace(close=lambda: steps.append("closed"))

    class Idle:
        def start(self) -> None:
            steps.append("has nothing to do")

    world.sinks.update(sink=SimpleNamespace(part=Part()), idle=SimpleNamespace(part=Idle()))

    def end(query: Query) -> None:
        steps.append("runs")
        query.end()

    world.on_start = end
    world.run()
    assert steps == ["prepared", "started", "has nothing to do", "runs", "closed"]


def test_the_cluster_of_a_group_is_that_of_its_own_source_first() -> None:
    world = World("f")
    first, second = Topic("t"), Topic("t")
    second.client_options = {"kafka.bootstrap.servers": "other:1"}
    world.model.sources.update(
        a=SimpleNamespace(name="a", part=second), **{"in": SimpleNamespace(name="in", part=first)}
    )
    assert world.runner._find_cluster("g", "t") == {"bootstrap.servers": "h:1", "client.id": "c"}
    assert world.runner._find_cluster("another", "t") == {"bootstrap.servers": "other:1"}
    assert world.runner._find_cluster("g", "unknown") is None
