"""The thread that commits offsets of groups: what it asks which cluster, what it waits for, and how it ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import OttlaError
from ottla.base.types import TopicPartition
from ottla.spark import group_commits
from ottla.spark.group_commits import GroupCommits
from tests.log_lines import lines_of
from tests.waiting import PATIENCE_S, join, repeat_until

A, B, C = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class Cluster:
    """Of an admin client with these settings."""

    made: list[Cluster]

    def __init__(self, settings: dict[str, str]) -> None:
        self.settings = settings
        self.told: list[tuple[object, ...]] = []
        self.fails: list[str] = []
        self.closed = 0
        self.made.append(self)

    def alter_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, Any], *, timeout_ms: int) -> Any:
        self.told.append((group_id, dict(offsets), timeout_ms))
        return SimpleNamespace(check=lambda: self._check(group_id))

    def _check(self, group_id: str) -> None:
        if group_id in self.fails:
            raise OttlaError("away")

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> list[Cluster]:
    made: list[Cluster] = []
    monkeypatch.setattr(Cluster, "made", made, raising=False)
    monkeypatch.setattr(group_commits, "ottla", SimpleNamespace(Admin=Cluster))
    return made


@pytest.fixture
def commits(clusters: list[Cluster]) -> Iterator[GroupCommits]:
    def find(group_id: str, topic: str) -> Mapping[str, str] | None:
        if group_id == "nowhere":
            return None
        return {"fetch.max.bytes": "5", "client.id": "c", "bootstrap.servers": f"{topic}:1"}

    made = GroupCommits(find)
    yield made
    made.close()


def test_each_cluster_is_told_what_is_in_it(commits: GroupCommits, clusters: list[Cluster]) -> None:
    with commits._changed:
        commits.put("g", {A: 1, B: 2, C: 3})
        commits.put("nowhere", {A: 9})
        commits.put("h", {A: 4})
        commits.put("g", {B: 5})
    commits.flush()
    commits.put("g", {C: 6})
    commits.flush()
    assert [cluster.settings for cluster in clusters] == [
        {"bootstrap.servers": "a:1", "client.id": "c"},
        {"bootstrap.servers": "b:1", "client.id": "c"},
    ]
    assert [cluster.told for cluster in clusters] == [
        [("g", {A: 1, B: 5}, 10_000), ("h", {A: 4}, 10_000)],
        [("g", {C: 3}, 10_000), ("g", {C: 6}, 10_000)],
    ]
    assert [cluster.closed for cluster in clusters] == [0, 0]
    commits.close()
    assert [cluster.closed for cluster in clusters] == [1, 1]
    assert not commits._thread.is_alive()


def test_what_is_left_is_tried_before_the_end(commits: GroupCommits, clusters: list[Cluster]) -> None:
    commits.put("g", {A: 1})
    commits.close()
    assert [(cluster.told, cluster.closed) for cluster in clusters] == [([("g", {A: 1}, 10_000)], 1)]


def test_a_group_that_fails_is_told_once_until_it_succeeds(
    commits: GroupCommits, clusters: list[Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    commits.put("g", {A: 1})
    commits.flush()
    (cluster,) = clusters
    for fails, group_id in ((["g"], "g"), (["g"], "g"), ([], "g"), (["g"], "g"), (["g", "h"], "h"), (["h"], "h")):
        cluster.fails = fails
        commits.put(group_id, {A: 2})
        commits.flush()
    told = [record.getMessage() for record in lines_of(caplog, group_commits.__name__)]
    assert told == [f"the position of group {group_id} is not visible for now: away" for group_id in ("g", "g", "h")]
    assert len(cluster.told) == 7 and clusters == [cluster]


def test_who_waits_is_told_when_all_has_been_tried(clusters: list[Cluster]) -> None:
    may_go_on = threading.Event()
    busy: list[bool] = []

    def find(group_id: str, topic: str) -> None:
        busy.append(made._is_busy)
        assert may_go_on.wait(PATIENCE_S)

    made = GroupCommits(find)
    made.put("g", {A: 1})
    repeat_until(lambda: bool(busy))
    waiting = threading.Thread(target=made.flush, args=(10 * PATIENCE_S,), daemon=True)
    waiting.start()
    repeat_until(lambda: bool(made._changed._waiters))  # type: ignore[attr-defined]
    made.flush(0.0)
    assert waiting.is_alive(), "what was put is being tried"
    may_go_on.set()
    join(waiting)
    assert busy == [True]
    made.close()
    assert not made._thread.is_alive() and clusters == []


def test_the_thread_waits_without_holding_up_the_end_of_the_process(commits: GroupCommits) -> None:
    assert commits._thread.daemon and commits._thread.name == "ottla-group-commits"
