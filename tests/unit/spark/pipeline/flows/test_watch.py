"""What is told of running flows, by whom and when; queries and Spark's own counters are stand-ins."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from py4j.protocol import Py4JError

from ottla.base.errors import OttlaError
from ottla.base.types import TopicPartition
from ottla.spark.pipeline.flows import watch as watch_module
from ottla.spark.pipeline.flows.report import BatchAtWork, EndOffsets, FlowReport
from ottla.spark.pipeline.flows.watch import FlowWatch
from ottla.spark.pipeline.observer import SilentObserver
from ottla.spark.progress import QueryProgress
from tests.waiting import repeat_until

A = TopicPartition("a", 0)


def batch(number: int, end: int) -> QueryProgress:
    return QueryProgress("id", "run", "f", number, number * 1000, 500, 10, 2, 0, 0, None, {A: end}, True)


class Told(SilentObserver):
    def __init__(self) -> None:
        self.started: list[str] = []
        self.progressed: list[tuple[str, FlowReport]] = []
        self.watched: list[tuple[str, FlowReport]] = []

    def flow_started(self, flow: str) -> None:
        self.started.append(flow)

    def flow_progressed(self, flow: str, report: FlowReport) -> None:
        self.progressed.append((flow, report))

    def flow_watched(self, flow: str, report: FlowReport) -> None:
        self.watched.append((flow, report))


class Questions:
    """Where the topic ends; how often that was asked."""

    def __init__(self, sources: Any) -> None:
        self.sources = [source.name for source in sources]
        self.asked = 0
        self.end = 50
        self.fails = False
        self.is_closed = False

    def ends(self, source: str) -> dict[TopicPartition, int]:
        self.asked += 1
        if self.fails:
            raise OttlaError("nobody answers")
        return {A: self.end}

    def start(self, source: str) -> dict[TopicPartition, int]:
        if self.fails:
            raise OttlaError("nobody answers")
        return {A: 5}

    def close(self) -> None:
        self.is_closed = True


class World:
    def __init__(self) -> None:
        self.told = Told()
        flow = SimpleNamespace(name="f", takes_dead_letters=False, checkpoint="c")
        source: Any = SimpleNamespace(name="s")
        self.job = SimpleNamespace(stageIds=[1, 2])
        stages = {
            1: SimpleNamespace(numCompletedTasks=3, numTasks=4),
            2: SimpleNamespace(numCompletedTasks=0, numTasks=5),
        }
        tracker = SimpleNamespace(
            getJobIdsForGroup=lambda run_id: [8, 7] if run_id == "run-1" else [],
            getJobInfo=lambda job_id: self.job if job_id == 8 else None,
            getStageInfo=stages.get,
        )
        spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))
        self.watch = FlowWatch(spark, self.told, {"f": flow, "g": flow}, {"f": [source], "g": []})  # type: ignore[dict-item]
        self.questions: Any = self.watch._questions
        self.query = SimpleNamespace(status={"isTriggerActive": False, "isDataAvailable": False}, runId="run-1")

    def start(self) -> None:
        self.watch.started("f", self.query)  # type: ignore[arg-type]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(watch_module, "TopicQuestions", Questions)
    monkeypatch.setattr(watch_module, "_TICK_S", 0.01)
    made = World()
    yield made
    made.watch.close()
    assert made.questions.is_closed and not made.watch._thread.is_alive()


def test_a_batch_is_told_of_when_it_is_done_and_with_the_lag_there_is(world: World) -> None:
    assert world.questions.sources == ["s"]
    world.watch.batch_done("f", batch(0, 40))
    repeat_until(lambda: bool(world.told.progressed))
    ((flow, report),) = world.told.progressed
    assert (flow, report.batches, report.lag, report.position) == ("f", 1, 10, {A: 40})
    assert world.told.watched == [], "it has no query"


def test_between_batches_it_is_told_how_things_are_as_long_as_there_is_a_query(world: World) -> None:
    world.start()
    assert world.told.started == ["f"]
    repeat_until(lambda: len(world.told.watched) > 2)
    assert {flow for flow, _ in world.told.watched} == {"f"}
    assert world.told.watched[-1][1].at_work is None
    assert world.questions.asked < len(world.told.watched), "an answer is good for a while"
    report = world.watch.stopped("f")
    assert report.batches == 0
    told = len(world.told.watched)
    world.watch.batch_done("f", batch(0, 40))
    repeat_until(lambda: bool(world.told.progressed))
    assert len(world.told.watched) == told


def test_who_stops_a_flow_hears_of_all_its_batches_first(world: World) -> None:
    with world.watch._told:
        world.watch._watched["f"].done.extend([batch(0, 30), batch(1, 40)])
        report = world.watch.stopped("f")
    assert (report.batches, report.position) == (2, {A: 40})
    assert [told.batches for _, told in world.told.progressed] == [1, 2]


def test_a_cluster_that_does_not_answer_leaves_the_lag_unknown(world: World) -> None:
    world.questions.fails = True
    world.watch.batch_done("f", batch(0, 40))
    repeat_until(lambda: bool(world.told.progressed))
    assert world.told.progressed[0][1].lag is None


def test_a_flow_without_topics_is_asked_about_nowhere(world: World) -> None:
    world.watch.batch_done("g", batch(0, 40))
    repeat_until(lambda: bool(world.told.progressed))
    assert world.questions.asked == 0


def test_a_long_batch_is_told_of_with_its_tasks(world: World) -> None:
    watched = world.watch._watched["f"]
    watched.query = world.query  # type: ignore[assignment]
    watched.meter.begin_at({A: 0}, 7)
    at_work = world.watch._at_work
    with world.watch._told:
        world.query.status = {"isTriggerActive": True, "isDataAvailable": True}
        assert at_work(watched, 1_000) is None and watched.busy_since_ms == 1_000
        assert at_work(watched, 2_999) is None
        assert at_work(watched, 3_000) == BatchAtWork(7, 2_000, 3, 9)
        world.query.runId = "another"
        assert at_work(watched, 4_000) == BatchAtWork(7, 3_000, 0, 0)
        for status in (
            {"isTriggerActive": True, "isDataAvailable": False},
            {"isTriggerActive": False, "isDataAvailable": True},
        ):
            world.query.status = status
            assert at_work(watched, 9_000) is None and watched.busy_since_ms is None
        world.query.status = {"isTriggerActive": True, "isDataAvailable": True}
        assert at_work(watched, 10_000) is None, "the next one has only begun"
        watched.done.append(batch(7, 40))
        world.watch._tell_batches("f", watched)
        assert watched.busy_since_ms is None
        watched.query = None


def test_where_a_flow_begins(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    state: Any = None
    monkeypatch.setattr(watch_module, "FlowCheckpoint", lambda spark, place: SimpleNamespace(state=lambda: state))
    world.watch.begin("f")
    assert world.watch.stopped("f").position == {A: 5}, "without a checkpoint, where its source starts"
    for committed, expected in ((-1, ({A: 5}, 0)), (0, ({A: 30}, 1)), (4, ({A: 30}, 5))):
        state = SimpleNamespace(committed=committed, position={A: 30})
        world.watch.begin("f")
        meter = world.watch._watched["f"].meter
        assert (world.watch.stopped("f").position, meter.next_batch_id) == expected
    state, world.questions.fails = None, True
    world.watch.begin("f")
    assert world.watch.stopped("f").position == {}, "nobody can say"


def test_an_answer_is_new_enough_for_a_fifth_of_a_second(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = [10_000]
    watched = world.watch._watched["f"]
    with world.watch._told, monkeypatch.context() as patched:
        patched.setattr(watch_module, "_now_ms", lambda: now_ms[0])
        for now, end, asked in ((10_000, 50, 1), (10_199, 60, 1), (10_200, 70, 2), (10_399, 80, 2), (10_400, 90, 3)):
            now_ms[0], world.questions.end = now, end
            world.watch._ask(watched)
            assert world.questions.asked == asked
        assert watched.meter.report(0).ends == EndOffsets(10_400, {A: 90})
        world.questions.fails, now_ms[0] = True, 20_000
        world.watch._ask(watched)
        assert world.questions.asked == 4
        assert watched.meter.report(0).ends == EndOffsets(10_400, {A: 90}), "the last answer stays"


def test_what_is_told_of_a_batch_at_work(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = world.watch._watched["f"]
    with world.watch._told, monkeypatch.context() as patched:
        now_ms = [5_000]
        patched.setattr(watch_module, "_now_ms", lambda: now_ms[0])
        watched.query = world.query  # type: ignore[assignment]
        world.query.status = {"isTriggerActive": True, "isDataAvailable": True}
        told = len(world.told.watched)
        for now in (5_000, 7_500):
            now_ms[0] = now
            world.watch._tell_how_it_is("f", watched)
        (flow, first), (_, second) = world.told.watched[told:]
        assert (flow, first.at_work, second.at_work) == ("f", None, BatchAtWork(0, 2_500, 3, 9))
        assert second.ends == EndOffsets(7_500, {A: 50})
        watched.query = None


def test_jobs_and_stages_that_spark_has_forgotten_count_for_nothing(world: World) -> None:
    world.job.stageIds = [2, 9, 1]
    assert world.watch._tasks("run-1") == (3, 9)
    world.job = None  # type: ignore[assignment]
    assert world.watch._tasks("run-1") == (0, 0)


def test_a_session_that_is_about_to_end_says_nothing_of_its_query(world: World) -> None:
    class Ending:
        @property
        def status(self) -> Any:
            raise Py4JError("gone")

    watched = world.watch._watched["f"]
    with world.watch._told:
        query: Any = Ending()
        watched.query = query
        assert world.watch._at_work(watched, 5) is None
        watched.query = None


@pytest.mark.parametrize("error", [OttlaError("x"), OSError("x"), ValueError("x"), KeyError("x"), Py4JError("x")])
def test_a_beginning_that_cannot_be_read_is_not_known(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail() -> Any:
        raise error

    monkeypatch.setattr(watch_module, "FlowCheckpoint", lambda spark, place: SimpleNamespace(state=fail))
    world.watch._watched["f"].meter.begin_at({A: 9}, 9)
    world.watch.begin("f")
    assert world.watch.stopped("f").position == {}
    assert world.watch._watched["f"].meter.next_batch_id == 0


def test_it_looks_every_second_and_at_once_when_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float | None] = []

    class Event(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout)
            return super().wait(timeout)

    patched = SimpleNamespace(Event=Event, RLock=threading.RLock, Thread=threading.Thread)
    monkeypatch.setattr(watch_module, "threading", patched)
    monkeypatch.setattr(watch_module, "TopicQuestions", Questions)
    watch = FlowWatch(None, Told(), {}, {})  # type: ignore[arg-type]
    repeat_until(lambda: bool(waits))
    watch.close()
    assert set(waits) == {1.0}
