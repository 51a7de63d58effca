"""What flows leave behind, how long they are waited for, and what goes on beside them. Queries are stand-ins."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from pyspark.errors import PySparkException

from ottla.spark.pipeline import runner as runner_module
from ottla.spark.pipeline.model import Restarts
from ottla.spark.pipeline.runner import PipelineFailedError
from tests.unit.spark.pipeline.test_runner import BUSY, LASTING, PASSING, Query, World
from tests.waiting import join, repeat_until


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(runner_module, "_POLL_S", 0.002)
    yield


class Remembering:
    """A sink that remembers batches, and notes what it is asked to give up."""

    def __init__(self) -> None:
        self.given_up: list[object] = []

    def forget_batches(self, sink_id: str, query_id: str, committed: int, *, keep_plan: bool) -> None:
        self.given_up.append((sink_id, query_id, committed))

    def end_left_over(self, sink_id: str) -> None:
        self.given_up.append(sink_id)


@pytest.fixture
def tidied(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """What is put away, instead of putting it away."""
    found: list[tuple[object, ...]] = []

    def tidy_up(spark: object, pipeline: str, flow: Any, part: object, commits: object) -> None:
        assert commits is not None
        found.append((spark, pipeline, flow.name, part))

    monkeypatch.setattr(runner_module, "tidy_up", tidy_up)
    return found


@pytest.mark.parametrize(("has_state", "given_up"), [(False, ["p-f"]), (True, [])])
def test_what_a_flow_without_a_checkpoint_has_left_open_is_given_up_before_it_starts(
    has_state: bool, given_up: list[str], monkeypatch: pytest.MonkeyPatch, tidied: list[tuple[object, ...]]
) -> None:
    world = World("f")
    asked: list[tuple[object, str]] = []

    def checkpoint(spark: object, location: str) -> Any:
        asked.append((spark, location))
        return SimpleNamespace(state=lambda: "some" if has_state else None)

    monkeypatch.setattr(runner_module, "FlowCheckpoint", checkpoint)
    part = Remembering()
    world.sinks.update(sink=SimpleNamespace(part=part), other=SimpleNamespace(part=Remembering()))

    def end(query: Query) -> None:
        assert part.given_up == given_up
        query.end()

    world.on_start = end
    world.run()
    assert part.given_up == given_up and world.sinks["other"].part.given_up == []
    assert asked == [(world.runner._spark, "/c/f")]
    assert tidied == [(world.runner._spark, "p", "f", part)]


def test_a_sink_that_remembers_nothing_is_not_tidied(tidied: list[tuple[object, ...]]) -> None:
    world = World("f")
    world.on_start = lambda query: query.end()
    world.run()
    assert tidied == []


def test_after_a_failure_nothing_is_put_away_and_what_went_on_beside_the_flows_ends(
    monkeypatch: pytest.MonkeyPatch, tidied: list[tuple[object, ...]]
) -> None:
    world = World("f")
    steps: list[str] = []
    part = Remembering()
    beside = SimpleNamespace(start=lambda: SimpleNamespace(close=lambda: steps.append("closed")))
    checkpoint = SimpleNamespace(state=lambda: "some")
    monkeypatch.setattr(runner_module, "FlowCheckpoint", lambda spark, location: checkpoint)
    for name in ("FlowWatch", "GroupCommits"):
        monkeypatch.setattr(runner_module, name, closing(getattr(runner_module, name), name, steps))
    world.sinks.update(sink=SimpleNamespace(part=part), beside=SimpleNamespace(part=beside))
    world.on_start = lambda query: query.end(LASTING)
    failure = world.fails()
    assert (failure.flow, failure.error, failure.details) == ("f", LASTING, LASTING)
    assert str(failure) == f"flow f failed: {LASTING}"
    assert tidied == [] and steps == ["FlowWatch", "GroupCommits", "closed"]


def closing(kind: Any, name: str, steps: list[str]) -> Any:
    """The same class, noting when it is closed."""

    class Noted(kind):  # type: ignore[misc]
        def close(self) -> None:
            steps.append(name)
            super().close()

    return Noted


def test_who_has_been_stopped_starts_nothing() -> None:
    world = World("f")
    world.runner.stop()
    world.run()
    assert world.queries == [] and world.told.events == []


def test_a_flow_waits_before_it_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World("f", attempts=1)
    now_s = [100.0]
    monkeypatch.setattr(runner_module, "time", SimpleNamespace(monotonic=lambda: now_s[0], sleep=lambda s: None))
    world.model.restarts = Restarts(1, 5000, 60_000)
    runner, run = world.runner, runner_module._Run(world.model.flows["f"])
    runner._watch = SimpleNamespace(begin=lambda flow: None, started=lambda flow, query: None)  # type: ignore[assignment]
    runner._handle_failure(run, PASSING)
    assert (run.failures, run.starts_at, run.is_over) == (1, 105.0, False)
    assert world.told.events == [("restarting", "f", 1, 5000)]
    for now, started in ((104.9, 0), (105.0, 1), (106.0, 1)):
        now_s[0] = now
        runner._start_some([run], once=False)
        assert len(world.queries) == started
    run.query = None
    with pytest.raises(PipelineFailedError):
        runner._handle_failure(run, PASSING)
    assert (run.failures, run.is_over) == (2, True)
    assert world.told.events[-1] == ("failed", "f")
    runner._start_some([run], once=False)
    assert len(world.queries) == 1, "it is over"


def test_a_batch_that_does_not_end_is_cut_off_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World("f")
    now_s, slept = [1000.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now_s[0] += 15

    monkeypatch.setattr(runner_module, "time", SimpleNamespace(monotonic=lambda: now_s[0], sleep=sleep))
    query: Any = Query(world, "f", [])
    query.status = BUSY
    world.runner._finish_batch(runner_module._Run(world.model.flows["f"], query))
    assert (len(slept), now_s[0]) == (4, 1060.0)
    assert all(0 < seconds < runner_module._POLL_S for seconds in slept)


def test_what_goes_wrong_while_a_query_is_stopped_is_told() -> None:
    world = World("f")
    query: Any = Query(world, "f", [])
    heard: list[str] = []

    def stop() -> None:
        raise PySparkException("[FAILED] it went wrong. SQLSTATE: 1")

    query.stop = stop
    errors: list[str] = []
    world.told.flow_failed = lambda flow, error: errors.append(f"{flow}: {error}")  # type: ignore[method-assign]
    runner: Any = world.runner
    runner._watch = SimpleNamespace(stopped=lambda flow: "report")
    listener: Any = SimpleNamespace(wait_until_heard=heard.append)
    run = runner_module._Run(world.model.flows["f"], query)
    runner._end(run, listener)
    assert (errors, heard, run.query) == (["f: it went wrong"], [query.runId], None)
    assert world.told.events == [("ended", "f")]
    runner._end(run, listener)
    assert world.told.events == [("ended", "f")], "once"


def test_a_flow_that_was_started_again_still_has_read_rows() -> None:
    """Its rows are those of all its queries: whether a round was the last one depends on it."""
    world = World("f")
    listener: Any = SimpleNamespace(
        wait_until_heard=lambda run_id: None, rows_of=lambda run_id: 1 if run_id == "f-0" else 0
    )
    runner: Any = world.runner
    runner._watch = SimpleNamespace(stopped=lambda flow: "report")
    run = runner_module._Run(world.model.flows["f"])
    for number in range(2):
        query: Any = Query(world, "f", [])
        query.runId, query.isActive = f"f-{number}", False
        run.query = query
        runner._look_after(run, listener)
        assert (run.has_read, run.is_over, run.query) == (True, True, None)


def test_flows_end_one_after_the_other_and_the_rest_goes_on() -> None:
    world = World("a", "b")
    thread = world.in_background()
    repeat_until(lambda: len(world.told.events) == 2)
    world.queries[0].end()
    repeat_until(lambda: ("ended", "a") in world.told.events)
    thread.join(0.02)
    assert thread.is_alive() and world.queries[1].isActive
    world.queries[1].end()
    join(thread)
    assert world.told.events[2:] == [("ended", "a"), ("ended", "b")]
    assert world.stopped == [], "they had ended by themselves"
