"""Plans on a cluster of several brokers: what is asked of them, what is told while replicas move. Both are scripted."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition, Uuid
from ottla.cli.reassign import moves
from ottla.cli.reassign.plan_file import plan_json
from ottla.client.core.admin.outcomes import Outcomes
from ottla.client.core.admin.types import (
    ConfigResource,
    LogDirDescription,
    PartitionReassignment,
    ReplicaInfo,
    TopicDescription,
)
from ottla.client.core.topic_info import PartitionInfo
from ottla.client.errors import ClientError
from tests.own_thread import patch_own_thread
from tests.unit.cli.scripted import Answering, Scripted

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
MB = 1_000_000
MOVES = PartitionReassignment((1, 2, 3), (3,), (1,))
KAFKA = "kafka-reassign-partitions.sh"
CLEARED = "Clearing broker-level throttles on brokers 1,2,3\nClearing topic-level throttles on topic t\n"
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
DIRECTORY_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


class Cluster:
    """Brokers 1 to 3; t-0 and t-1 are on 1 and 2. What moves is asked for again and again, and is the next of `running`
    each time; to each belongs how much broker 3 has copied of t-0 by then."""

    def __init__(self) -> None:
        self.replicas = {T0: (1, 2), T1: (2, 1)}
        self.running: list[Mapping[TopicPartition, PartitionReassignment]] = []
        self.copied: list[int] = []
        self.size = 2 * MB
        self.future: dict[TopicPartition, str] = {}
        self.calls: list[Any] = []
        self.errors: dict[Any, ClientError] = {}
        self.throttles: dict[str, dict[str, str | None]] = {}

    async def describe_cluster(self) -> Any:
        return SimpleNamespace(brokers={number: SimpleNamespace(rack=None) for number in (2, 1, 3)})

    async def describe_topics(self) -> Any:
        infos = [PartitionInfo(tp.partition, has[0], 0, has, has, ()) for tp, has in self.replicas.items()]
        return Outcomes({"t": TopicDescription("t", Uuid(bytes(16)), False, tuple(infos))})

    async def list_partition_reassignments(self, wanted: Collection[TopicPartition] | None = None) -> Any:
        return self.running.pop(0) if self.running else {}

    async def alter_partition_reassignments(self, wanted: Mapping[TopicPartition, Any]) -> Any:
        self.calls.append(dict(wanted))
        if not self.errors:
            self.replicas |= {tp: replicas for tp, replicas in wanted.items() if replicas is not None}
        return Outcomes({tp: self.errors.get(tp) for tp in wanted})

    async def describe_log_dirs(self, brokers: list[int] | None = None) -> Any:
        copied = self.copied.pop(0) if self.copied else 0
        found = {}
        for number in (1, 2, 3):
            sizes = dict.fromkeys((T0, T1), self.size) if number < 3 else {T0: copied}
            here = {tp: ReplicaInfo(size, 0, False) for tp, size in sizes.items()}
            new = {tp: ReplicaInfo(9 * MB, 0, True) for tp in self.future} if number == 1 else {}
            found[number] = {
                "/x": LogDirDescription("/x", None, None, None, here),
                "/y": LogDirDescription("/y", None, None, None, new),
            }
        return Outcomes(found)

    async def alter_replica_log_dirs(self, wanted: Mapping[Any, str]) -> Any:
        self.calls.append({str(replica): path for replica, path in wanted.items()})
        return Outcomes(dict.fromkeys(wanted))

    async def incremental_alter_configs(self, changes: Mapping[ConfigResource, Any]) -> Any:
        self.calls.append("limits")
        self.throttles = {str(one): {name: value for name, value, _ in each} for one, each in changes.items()}
        return Outcomes({one: self.errors.get(str(one)) for one in changes})

    async def elect_leaders(self, partitions: Collection[TopicPartition]) -> Any:
        self.calls.append(("elect", *partitions))
        return Outcomes(dict.fromkeys(partitions))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def run(cluster: Cluster, answering: Answering) -> Scripted:
    return answering(cluster)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was slept; nobody waits for it."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    patch_own_thread(monkeypatch, asyncio, "sleep", sleep)
    return slept


def plan(tmp_path: Path, wanted: Mapping[TopicPartition, tuple[int, ...]], *log_dirs: str) -> str:
    path = tmp_path / "plan.json"
    content = json.loads(plan_json(wanted))
    if log_dirs:
        content["partitions"][0]["log_dirs"] = log_dirs
    path.write_text(json.dumps(content))
    return str(path)


# What is under way


def test_what_is_under_way_is_listed(run: Scripted, cluster: Cluster) -> None:
    running = {T0: MOVES, T1: PartitionReassignment((2, 3), (3,), ()), U0: PartitionReassignment((), (), ())}
    cluster.running = [running, running]
    shown = [
        "Current partition reassignments:",
        "t-0: replicas: 1,2,3. adding: 3. removing: 1.",
        "t-1: replicas: 2,3. adding: 3.",
        "u-0: ",
    ]
    assert run("reassign", "list") == (0, "\n".join(shown) + "\n", "")
    rows = json.loads(run("reassign", "list", "-o", "json")[1])
    assert list(rows[0].values()) == ["t", 0, [1, 2, 3], [3], [1]] and len(rows) == 3


# Beginning


def test_a_plan_is_begun(run: Scripted, cluster: Cluster, tmp_path: Path) -> None:
    code, shown, error = run("reassign", "execute", plan(tmp_path, {T0: (2, 3)}))
    assert (code, error) == (0, "")
    assert shown.splitlines() == [
        "Current partition replica assignment",
        "",
        plan_json({T0: (1, 2)}),
        "",
        "Save this to use as the --reassignment-json-file option during rollback",
        "Successfully started partition reassignment for t-0",
    ]
    assert cluster.calls == [{T0: (2, 3)}]


def test_several_begin_only_besides_others_if_that_is_meant(run: Scripted, cluster: Cluster, tmp_path: Path) -> None:
    path = plan(tmp_path, {T0: (2, 3), T1: (3, 1)})
    cluster.running = [{U0: MOVES}, {U0: MOVES}, {U0: MOVES}]
    code, shown, error = run("reassign", "execute", path)
    assert (code, shown) == (1, "")
    assert error.startswith("Cannot execute because there is an existing partition assignment: 1 partitions are being")
    code, shown, error = run(KAFKA, "--execute", "--reassignment-json-file", path)
    assert (code, error) == (1, "") and "there is an existing partition assignment.  Use --additional" in shown
    assert cluster.calls == []
    code, shown, _ = run("reassign", "execute", path, "--additional")
    assert code == 0 and shown.endswith("Successfully started partition reassignments for t-0,t-1\n")


def test_what_brokers_refuse_is_told_of_each_partition(run: Scripted, cluster: Cluster, tmp_path: Path) -> None:
    cluster.errors = {tp: ClientError(f"no room for {tp}") for tp in (T0, T1)}
    code, _, error = run("reassign", "execute", plan(tmp_path, {T0: (2, 3), T1: (3, 1)}))
    told = "Error reassigning partition(s):\nt-0: no room for t-0\nt-1: no room for t-1\n"
    assert (code, error) == (1, told)


def test_copying_is_limited_before_it_begins(run: Scripted, cluster: Cluster, tmp_path: Path) -> None:
    limits = ("--throttle", "1000", "--replica-alter-log-dirs-throttle", "7")
    code, shown, _ = run("reassign", "execute", plan(tmp_path, {T0: (2, 3)}), "--throttle", "1000")
    assert code == 0 and "throttle limit was set to 1000 B/s" in shown and "replica-alter-dir" not in shown
    assert cluster.calls == ["limits", {T0: (2, 3)}]
    rates = dict.fromkeys(RATES, 1000)
    assert cluster.throttles == {
        **{f"broker {number}": rates for number in (1, 2, 3)},
        "topic t": dict(zip(REPLICAS, ("0:1,0:2", "0:3"), strict=True)),
    }
    shown = run("reassign", "execute", plan(tmp_path, {T1: (2, 1)}, "any", "/y"), *limits[2:])[1]
    assert shown.count("Warning: You must run --verify periodically") == 1
    assert "inter-broker" not in shown and "The replica-alter-dir throttle limit was set to 7 B/s" in shown
    assert cluster.throttles == {"broker 1": {DIRECTORY_RATE: 7}}
    assert cluster.calls[2:] == ["limits", {"t-1 on broker 1": "/y"}, {T1: (2, 1)}]


def test_a_plan_is_watched_until_it_is_done(
    run: Scripted, cluster: Cluster, tmp_path: Path, pauses: list[float]
) -> None:
    one, two = {T0: MOVES}, {T0: MOVES, T1: MOVES}
    cluster.running = [{}, two, one, one, {}]
    cluster.copied = [0, 0, MB, MB, 9 * MB]
    code, shown, error = run("reassign", "execute", plan(tmp_path, {T0: (2, 3), T1: (2, 1)}), "--wait")
    assert (code, error.splitlines()) == (
        0,
        [
            "0 of 2 partitions moved, 0.0 MB of 2.0 MB copied",
            "1 of 2 partitions moved, 1.0 MB of 2.0 MB copied",
            "2 of 2 partitions moved, 2.0 MB of 2.0 MB copied",
        ],
    )
    assert pauses == [1.0, 1.0, 1.0]
    assert shown.endswith(CLEARED)
    assert cluster.throttles["topic t"] == dict.fromkeys(REPLICAS)
    assert cluster.throttles["broker 3"] == dict.fromkeys((*RATES, DIRECTORY_RATE))


class Bar:
    def __init__(self) -> None:
        self.total = 0
        self.shown: list[tuple[int, str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def add_task(self, description: str, *, total: int) -> int:
        self.total = total
        return 0

    def update(self, task: int, *, completed: int, description: str) -> None:
        self.shown.append((completed, description))


@pytest.mark.parametrize(
    ("size", "copied", "total", "completed"),
    [
        # The end is reached when brokers say so, not when as much was copied as there was at the beginning.
        (2 * MB, [0, MB, 2 * MB, 3 * MB, 0], 2 * MB, [0, MB, 2 * MB - 1, 2 * MB - 1, 2 * MB]),
        (1, [0, 1, 1, 1, 0], 1, [0, 0, 0, 0, 1]),
        (0, [0, 0, 0, 0, 0], 1, [0, 0, 0, 0, 1]),
    ],
)
def test_at_a_terminal_a_bar_grows(
    run: Scripted, cluster: Cluster, tmp_path: Path, pauses: list[float], monkeypatch: pytest.MonkeyPatch,
    size: int, copied: list[int], total: int, completed: list[int],
) -> None:  # fmt: skip
    bar = Bar()
    monkeypatch.setattr(moves, "_progress", lambda: bar)
    cluster.running = [{}, *[{T0: MOVES}] * 4, {}]
    cluster.size = size
    cluster.copied = [0, *copied]
    code, _, error = run("reassign", "execute", plan(tmp_path, {T0: (2, 3)}), "--wait")
    assert (code, error) == (0, "")
    assert bar.total == total
    assert bar.shown == list(zip(completed, [*["0 of 1 partitions"] * 4, "1 of 1 partitions"], strict=True))


def test_the_bar_is_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    with moves._progress() as nothing:
        assert nothing is None
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    with moves._progress() as bar:
        assert bar is not None
        bar.add_task("3 of 4 partitions", total=10)
    assert "3 of 4 partitions" in terminal.getvalue()


# How far it is


def test_how_far_each_partition_is(run: Scripted, cluster: Cluster, tmp_path: Path) -> None:
    path = plan(tmp_path, {T0: (2, 3), T1: (2, 1)})
    cluster.running = [{T0: MOVES}]
    head = "Status of partition reassignment:\n"
    active = "Reassignment of partition t-0 is still in progress.\n"
    done = "Reassignment of partition t-1 is completed.\n"
    assert run("reassign", "verify", path) == (0, f"{head}{active}{done}\n", "")
    assert cluster.calls == []
    away = "There is no active reassignment of partition t-0, but replica set is 1,2 rather than 2,3.\n"
    # Something else still moves, and may need its limits.
    cluster.running = [{U0: MOVES}]
    assert run("reassign", "verify", path)[1] == f"{head}{away}{done}\n"
    assert run("reassign", "verify", path, "--preserve-throttles")[1] == f"{head}{away}{done}\n"
    assert cluster.calls == []
    assert run("reassign", "verify", path)[1] == f"{head}{away}{done}\n{CLEARED}"
    assert cluster.calls == ["limits"]


def test_limits_stay_while_directories_are_filled(run: Scripted, cluster: Cluster, tmp_path: Path) -> None:
    path = plan(tmp_path, {T0: (1, 2)}, "/y", "any")
    cluster.future = {T0: "/y"}
    shown = run("reassign", "verify", path)[1].splitlines()
    assert shown[1:] == [
        "Reassignment of partition t-0 is completed.",
        "Reassignment of replica t-0-1 is still in progress.",
    ]
    cluster.future = {}
    assert run("reassign", "verify", path)[1].endswith(CLEARED)


def test_limits_that_cannot_be_cleared_are_told_of(run: Scripted, cluster: Cluster, tmp_path: Path) -> None:
    cluster.errors = {name: ClientError(f"{name} is away") for name in ("broker 1", "broker 3")}
    code, _, error = run("reassign", "verify", plan(tmp_path, {T0: (1, 2)}))
    assert (code, error) == (1, "broker 1 is away; broker 3 is away\n")


# The end of it


def test_only_what_is_under_way_is_cancelled(run: Scripted, cluster: Cluster, tmp_path: Path) -> None:
    path = plan(tmp_path, {T1: (2, 3), T0: (2, 3)})
    cluster.running = [{T1: MOVES, U0: MOVES}, {T1: MOVES, T0: MOVES}]
    told = "Successfully cancelled partition reassignment for: t-1\n"
    assert run("reassign", "cancel", path) == (0, told + CLEARED, "")
    assert cluster.calls == [{T1: None}, "limits"]
    told = "Successfully cancelled partition reassignments for: t-0,t-1\n"
    assert run("reassign", "cancel", path, "--preserve-throttles") == (0, told, "")
    assert cluster.calls[2:] == [{T0: None, T1: None}]


def test_what_kafkas_tool_says_of_directories_it_does_not_fill(run: Scripted, cluster: Cluster, tmp_path: Path) -> None:
    path = plan(tmp_path, {T0: (1, 2)}, "/y", "any")
    cancel = (KAFKA, "--cancel", "--reassignment-json-file", path, "--preserve-throttles")
    none = "None of the specified partition reassignments are active.\n"
    assert run(*cancel) == (0, f"{none}None of the specified partition moves are active.", "")
    assert run("reassign", "cancel", path, "--preserve-throttles")[1] == none
    cluster.future = {T0: "/y"}
    told = "Successfully started moving log directory to /x for replica t-0 with broker 1 \n"
    assert run(*cancel)[1] == none + told
    assert cluster.calls[-1] == {"t-0 on broker 1": "/x"}


def test_a_move_that_cannot_be_cancelled(run: Scripted, cluster: Cluster, tmp_path: Path) -> None:
    cluster.running = [{T0: MOVES}]
    cluster.errors = {T0: ClientError("done already", code=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)}
    assert run("reassign", "cancel", plan(tmp_path, {T0: (2, 3)})) == (1, "", "done already\n")


# Brokers that come and go


def moved(cluster: Cluster) -> dict[TopicPartition, tuple[int, ...]]:
    (wanted,) = [call for call in cluster.calls if isinstance(call, dict)]
    return wanted  # type: ignore[no-any-return]


def test_a_new_broker_gets_its_share(run: Scripted, cluster: Cluster, pauses: list[float]) -> None:
    code, shown, _ = run("cluster", "add-broker", "3", "--yes", "--throttle", "500")
    assert code == 0
    wanted = moved(cluster)
    assert cluster.calls == ["limits", wanted, "limits", ("elect", *wanted)]
    assert cluster.throttles["topic t"] == dict.fromkeys(REPLICAS)
    lines = shown.splitlines()
    assert any("broker" in line and "replicas now" in line for line in lines)
    assert lines[-1] == "Done: broker 3 holds 1 of 4 replicas."
    assert sum(3 in replicas for replicas in wanted.values()) == 1


def test_without_a_limit_none_is_set_nor_cleared(run: Scripted, cluster: Cluster, pauses: list[float]) -> None:
    code, shown, _ = run("cluster", "remove-broker", "1", "-y")
    assert code == 0 and shown.endswith("Done: broker 1 holds 0 of 4 replicas.\n")
    wanted = moved(cluster)
    assert cluster.calls == [wanted, ("elect", *wanted)] and all(1 not in replicas for replicas in wanted.values())


def test_limits_go_even_if_nothing_could_be_begun(run: Scripted, cluster: Cluster) -> None:
    cluster.errors = {tp: ClientError("no room") for tp in (T0, T1)}
    code, _, error = run("cluster", "add-broker", "3", "--yes", "--throttle", "500")
    assert code == 1 and error.startswith("Error reassigning partition(s):")
    assert cluster.calls == ["limits", moved(cluster), "limits"]


def test_a_plan_can_be_kept_for_later(run: Scripted, cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    code, shown, _ = run("cluster", "add-broker", "3", "--plan", str(path), "--yes")
    assert code == 0 and cluster.calls == []
    assert shown.endswith(f"The plan is in {path}. `ottla reassign execute {path}` begins it.\n")
    assert path.read_text().endswith("}\n") and json.loads(path.read_text())["partitions"]


@pytest.mark.parametrize(
    ("is_terminal", "answer", "begins"), [(True, "y\n", True), (True, "\n", False), (False, "y\n", False)]
)
def test_nothing_moves_unless_somebody_agrees(
    run: Scripted, cluster: Cluster, pauses: list[float], monkeypatch: pytest.MonkeyPatch,
    is_terminal: bool, answer: str, begins: bool,
) -> None:  # fmt: skip
    stdin = io.StringIO(answer)
    monkeypatch.setattr(stdin, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys, "stdin", stdin)
    code, shown, _ = run("cluster", "add-broker", "3")
    assert (code, bool(cluster.calls)) == (0, begins)
    assert shown.endswith("--yes begins without asking, --plan FILE keeps the plan.\n") is not begins
