"""Queries that show as groups: which offsets are committed under which names, and what is waited for at the end."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

import ottla
from ottla.base.types import TopicPartition
from ottla.spark import group_commits
from ottla.spark.group_commits import GroupCommits
from ottla.spark.pipeline.flows.listener import FlowListener
from ottla.spark.progress import LagTracker, QueryProgress, track_lag
from ottla.testing import EmbeddedBroker
from tests.log_lines import lines_of


@pytest.fixture
def settings(cluster: EmbeddedBroker) -> dict[str, str]:
    return {"bootstrap.servers": cluster.bootstrap_servers, "fetch.max.bytes": "5"}


@pytest.fixture
def topic(cluster: EmbeddedBroker) -> str:
    return cluster.new_topic(partitions=2)


def position(admin: ottla.Admin, group_id: str) -> dict[int, int]:
    return {one.partition: at.offset for one, at in admin.list_group_offsets([group_id])[group_id].items()}


def report(offsets: Mapping[str, Mapping[str, int]], *, run: str = "run-1", **more: Any) -> Any:
    told = {
        "id": "query-1",
        "runId": run,
        "name": None,
        "timestamp": "2026-01-01T00:00:00.000Z",
        "batchId": 4,
        "numInputRows": 3,
        "sources": [{"endOffset": offsets or 5}],
        **more,
    }
    return SimpleNamespace(progress=SimpleNamespace(json=json.dumps(told)))


class Streams:
    def __init__(self) -> None:
        self.active: list[Any] = []
        self.listeners: list[Any] = []

    def addListener(self, listener: Any) -> None:
        self.listeners.append(listener)

    def removeListener(self, listener: Any) -> None:
        self.listeners.remove(listener)


class Session:
    def __init__(self) -> None:
        self.streams = Streams()

    def tracker(self, settings: Mapping[str, str], **more: Any) -> LagTracker:
        spark: Any = self
        return track_lag(spark, settings, **more)


@pytest.mark.parametrize(
    ("name", "group_id", "shown_as"),
    [
        (None, None, "ottla-spark-query-{topic}"),
        ("counts-{topic}", None, "ottla-spark-counts-{topic}"),
        ("counts", "mine-{topic}", "mine-{topic}"),
        ("counts", lambda progress: f"by-{progress.query_id}", "by-query-{topic}"),
    ],
)
def test_a_query_shows_as_a_group(
    admin: ottla.Admin,
    settings: dict[str, str],
    topic: str,
    name: str | None,
    group_id: str | Callable[[QueryProgress], str] | None,
    shown_as: str,
) -> None:
    session = Session()
    if isinstance(group_id, str):
        group_id = group_id.format(topic=topic)
    tracker = session.tracker(settings, group_id=group_id)
    assert session.streams.listeners == [tracker]
    query: dict[str, Any] = {"id": f"query-{topic}", "name": name and name.format(topic=topic)}
    tracker.onQueryProgress(report({topic: {"0": 7, "1": 2}}, **query))
    tracker.onQueryProgress(report({topic: {"0": 8}}, **query))
    tracker.onQueryProgress(report({}, **query))
    tracker.close()
    assert session.streams.listeners == []
    assert position(admin, shown_as.format(topic=topic)) == {0: 8, 1: 2}


def test_a_query_may_be_left_out(admin: ottla.Admin, settings: dict[str, str], topic: str) -> None:
    chosen = {"run-1": None, "run-2": f"g-{topic}"}
    tracker = Session().tracker(settings, group_id=lambda progress: chosen[progress.run_id])
    for run in chosen:
        tracker.onQueryProgress(report({topic: {"0": 7}}, run=run))
    tracker.close()
    groups = [one.group_id for one in admin.list_groups()]
    assert f"g-{topic}" in groups and "None" not in groups


class Condition:
    """Asked whether it would go on waiting."""

    def __init__(self) -> None:
        self.waits: list[bool] = []
        self.notified = 0

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def wait_for(self, is_so: Callable[[], bool], timeout_s: float) -> None:
        assert timeout_s > 1
        self.waits.append(not is_so())

    def notify_all(self) -> None:
        self.notified += 1


def test_the_end_waits_for_the_last_word_of_queries_that_have_ended() -> None:
    closed: list[bool] = []
    commits: Any = SimpleNamespace(close=lambda: closed.append(True))
    session: Any = Session()
    tracker = LagTracker(session, commits, lambda progress: None)
    changed: Any = Condition()
    tracker._changed = changed
    for run in ("a", "b"):
        tracker.onQueryStarted(SimpleNamespace(runId=run))  # type: ignore[arg-type]
    session.streams.active = [SimpleNamespace(runId="b"), SimpleNamespace(runId="of another tracker")]
    for ended, is_waited_for in (([], True), (["a"], False), (["unknown"], False)):
        for run in ended:
            tracker.onQueryTerminated(SimpleNamespace(runId=run))  # type: ignore[arg-type]
        session.streams.listeners = [tracker]
        tracker.close()
        assert changed.waits[-1] is is_waited_for
    assert changed.notified == 2 and len(closed) == 3


def test_what_flows_report_is_counted_by_their_runs() -> None:
    put: list[tuple[str, Any]] = []
    done: list[tuple[str, int]] = []
    commits: Any = SimpleNamespace(put=lambda group_id, offsets: put.append((group_id, offsets)))
    flows: Any = {"f": SimpleNamespace(name="f", group_id="g")}
    listener = FlowListener(flows, lambda name, progress: done.append((name, progress.batch_id)), commits)
    assert (listener.rows_of("run-1"), listener.has_finished_batch("run-1")) == (0, False)
    for batch, rows in ((1, 3), (2, 4)):
        listener.onQueryProgress(report({"t": {"0": batch}}, name="f", batchId=batch, numInputRows=rows))
    listener.onQueryProgress(report({}, name="f", run="run-2", batchId=3))
    for name in ("other", None):
        listener.onQueryProgress(report({"t": {"0": 9}}, name=name, run="run-3"))
    assert [(listener.rows_of(run), listener.has_finished_batch(run)) for run in ("run-1", "run-2", "run-3")] == [
        (7, True),
        (3, True),
        (0, False),
    ]
    assert put == [("g", {TopicPartition("t", 0): 1}), ("g", {TopicPartition("t", 0): 2})]
    assert done == [("f", 1), ("f", 2), ("f", 3)]
    changed: Any = Condition()
    listener._changed = changed
    listener.wait_until_heard("run-1")
    listener.onQueryTerminated(SimpleNamespace(runId="run-1"))  # type: ignore[arg-type]
    listener.wait_until_heard("run-1")
    listener.wait_until_heard("run-2")
    assert changed.waits == [True, False, True] and changed.notified == 1


# Commits


def test_only_the_newest_offsets_of_a_group_are_committed(
    admin: ottla.Admin, settings: dict[str, str], topic: str, cluster: EmbeddedBroker
) -> None:
    asked: list[tuple[str, str]] = []
    unknown = cluster.new_topic()

    def find(group_id: str, topic: str) -> Mapping[str, str] | None:
        asked.append((group_id, topic))
        return None if topic == unknown else settings

    commits = GroupCommits(find)
    with commits._changed:  # nothing is taken up before all of it is there
        commits.put(f"a-{topic}", {TopicPartition(topic, 0): 1, TopicPartition(topic, 1): 5})
        commits.put(f"a-{topic}", {TopicPartition(topic, 0): 2, TopicPartition(unknown, 0): 9})
        commits.put(f"b-{topic}", {TopicPartition(topic, 0): ottla.OffsetAndMetadata(3, metadata="note")})
    commits.flush()
    assert position(admin, f"a-{topic}") == {0: 2, 1: 5}
    noted = admin.list_group_offsets([f"b-{topic}"])[f"b-{topic}"][TopicPartition(topic, 0)]
    assert (noted.offset, noted.metadata) == (3, "note")
    assert len(asked) == 4 and (f"a-{topic}", unknown) in asked
    (kept,) = commits._admins.values()
    commits.put(f"a-{topic}", {TopicPartition(topic, 0): 4})
    commits.close()
    assert position(admin, f"a-{topic}") == {0: 4, 1: 5}
    assert list(commits._admins.values()) == [kept] and not commits._thread.is_alive()


def test_a_group_that_cannot_be_committed_is_told_once_until_it_can(
    settings: dict[str, str], topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    commits = GroupCommits(lambda group_id, topic: settings)
    missing, there = TopicPartition("not-there", 0), TopicPartition(topic, 0)
    for one in (missing, missing, there, missing):
        commits.put(f"g-{topic}", {one: 1})
        commits.flush()
    commits.put(f"h-{topic}", {missing: 1})
    commits.close()
    told = lines_of(caplog, group_commits.__name__)
    assert [record.levelno for record in told] == [logging.WARNING] * 3
    assert [f"group {name}-{topic}" in record.getMessage() for name, record in zip("ggh", told, strict=True)] == [
        True
    ] * 3
