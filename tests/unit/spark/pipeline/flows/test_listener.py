"""What is heard of the flows of a pipeline, and what is not about them. Reports are Spark's own, as JSON."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from ottla.base.types import TopicPartition
from ottla.spark.pipeline.flows.listener import FlowListener
from ottla.spark.progress import QueryProgress
from tests.waiting import join


class World:
    def __init__(self) -> None:
        self.done: list[tuple[str, QueryProgress]] = []
        self.committed: list[tuple[str, dict[TopicPartition, int]]] = []
        flows: Any = {"f": SimpleNamespace(name="f", group_id="g")}
        commits: Any = SimpleNamespace(put=lambda group, offsets: self.committed.append((group, dict(offsets))))
        self.listener = FlowListener(flows, lambda flow, progress: self.done.append((flow, progress)), commits)

    def report(self, name: str | None, *, run: str = "r", rows: int = 5, end: object = None) -> None:
        told = {
            "id": "q",
            "runId": run,
            "name": name,
            "batchId": 3,
            "timestamp": "1970-01-01T00:00:07Z",
            "numInputRows": rows,
            "sources": [{"endOffset": end}],
        }
        event: Any = SimpleNamespace(progress=SimpleNamespace(json=json.dumps(told)))
        self.listener.onQueryProgress(event)


def test_reports_of_flows_are_handed_on_and_committed() -> None:
    world = World()
    world.report("f", end={"t": {"0": 9}})
    ((flow, progress),) = world.done
    assert (flow, progress.batch_id, progress.started_ms, progress.input_rows) == ("f", 3, 7000, 5)
    assert world.committed == [("g", {TopicPartition("t", 0): 9})]
    world.report("f", end=7)
    assert len(world.done) == 2 and len(world.committed) == 1, "there is nothing to commit of what is no topic"


@pytest.mark.parametrize("name", [None, "", "another"])
def test_other_queries_of_the_session_are_left_alone(name: str | None) -> None:
    world = World()
    world.report(name, end={"t": {"0": 9}})
    assert (world.done, world.committed) == ([], [])
    assert not world.listener.has_finished_batch("r")


def test_rows_and_batches_are_counted_by_run() -> None:
    world = World()
    for run, rows in (("r", 5), ("r", 0), ("s", 7), ("r", 3), ("t", 0)):
        world.report("f", run=run, rows=rows)
    assert [world.listener.rows_of(run) for run in "rstu"] == [8, 7, 0, 0]
    assert [world.listener.has_finished_batch(run) for run in "rstu"] == [True, True, True, False]


def test_who_waits_is_told_of_the_end_of_its_run() -> None:
    world = World()
    thread = threading.Thread(target=world.listener.wait_until_heard, args=("r", 600.0))
    thread.start()
    world.listener.onQueryTerminated(SimpleNamespace(runId="another"))  # type: ignore[arg-type]
    thread.join(0.02)
    assert thread.is_alive()
    world.listener.onQueryTerminated(SimpleNamespace(runId="r"))  # type: ignore[arg-type]
    join(thread)
    world.listener.wait_until_heard("r", 600.0)
    world.listener.wait_until_heard("never", 0.0)
    world.listener.onQueryStarted(None)  # type: ignore[arg-type]
    world.listener.onQueryIdle(None)  # type: ignore[arg-type]
    assert world.done == []
