"""Replicas that plans send to log directories: what is asked of brokers, in which order it is told, when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.cli.reassign import directories
from ottla.cli.reassign.directories import (
    DirectoryError,
    Place,
    cancel,
    find_places,
    named_directories,
    send,
    send_all,
    verify,
    watch,
)
from ottla.cli.reassign.plan_file import ANY_DIR, PlannedPartition
from ottla.client.core.admin.types import TopicPartitionReplica
from tests.own_thread import patch_own_thread
from tests.waiting import run_async

A0, A1, B0 = TopicPartitionReplica("a", 0, 1), TopicPartitionReplica("a", 1, 1), TopicPartitionReplica("b", 0, 1)
OTHER_BROKER = TopicPartitionReplica("a", 0, 2)
WANTED = {OTHER_BROKER: "/x", B0: "/x", A1: "/y", A0: "/x"}
"""Not in the order in which it is told."""


class Brokers:
    """What brokers answer to the two requests there are; each look at directories takes the next of `looks`."""

    def __init__(self, *looks: Mapping[TopicPartitionReplica, Place]) -> None:
        self.looks = list(looks)
        self.errors: list[dict[TopicPartitionReplica, KafkaError]] = []
        self.sent: list[dict[TopicPartitionReplica, str]] = []
        self.asked: list[list[int]] = []
        self.silent: set[int] = set()

    async def alter_replica_log_dirs(self, wanted: Mapping[TopicPartitionReplica, str]) -> Any:
        self.sent.append(dict(wanted))
        return SimpleNamespace(errors=self.errors.pop(0) if self.errors else {})

    async def describe_log_dirs(self, node_ids: list[int]) -> Any:
        self.asked.append(node_ids)
        places = self.looks.pop(0)
        return SimpleNamespace(results={n: self._described(n, places) for n in node_ids if n not in self.silent})

    def _described(self, node_id: int, places: Mapping[TopicPartitionReplica, Place]) -> dict[str, Any]:
        found: dict[str, Any] = {path: SimpleNamespace(path=path, replicas={}) for path in ("/x", "/y", "/z")}
        for replica, place in places.items():
            for path, is_future in ((place.current, False), (place.future, True)):
                if path is not None and replica.node_id == node_id:
                    tp = TopicPartition(replica.topic, replica.partition)
                    found[path].replicas[tp] = SimpleNamespace(is_future=is_future)
        return found


def act(brokers: Brokers, action: Callable[[Any], Awaitable[Any]]) -> Any:
    async def scenario() -> Any:
        return await action(brokers)

    return run_async(scenario())


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was slept between two tries; nobody waits for it."""
    slept: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        slept.append(seconds)
        await sleep(0)

    patch_own_thread(monkeypatch, directories.asyncio, "sleep", note)
    return slept


def not_there(*replicas: TopicPartitionReplica) -> dict[TopicPartitionReplica, KafkaError]:
    return {replica: KafkaError(code=ErrorCode.REPLICA_NOT_AVAILABLE) for replica in replicas}


def started(replica: TopicPartitionReplica, path: str) -> str:
    place = f"{replica.topic}-{replica.partition} with broker {replica.node_id}"
    return f"Successfully started moving log directory to {path} for replica {place} "


def test_replicas_for_which_any_directory_will_do_are_not_sent_anywhere() -> None:
    plan = [
        PlannedPartition(TopicPartition("a", 0), (1, 2), ("/x", ANY_DIR), 1),
        PlannedPartition(TopicPartition("a", 1), (1,), ("/y",), 2),
    ]
    assert named_directories(plan) == {A0: "/x", A1: "/y"}


def test_nothing_is_asked_of_brokers_for_no_replicas() -> None:
    brokers = Brokers()
    assert act(brokers, lambda admin: send(admin, {})) == {}
    assert act(brokers, lambda admin: find_places(admin, [])) == {}
    assert (brokers.sent, brokers.asked) == ([], [])


def test_replicas_that_are_not_on_their_brokers_yet_are_pending() -> None:
    brokers = Brokers()
    brokers.errors = [not_there(A0)]
    assert act(brokers, lambda admin: send(admin, WANTED)) == {A0: "/x"}
    assert brokers.sent == [WANTED]


def test_any_other_refusal_is_an_error() -> None:
    brokers = Brokers()
    brokers.errors = [not_there(A0) | {B0: KafkaError("no such dir", code=ErrorCode.LOG_DIR_NOT_FOUND)}]
    with pytest.raises(DirectoryError) as refused:
        act(brokers, lambda admin: send(admin, WANTED))
    summary = "Failed to alter dir for b-0-1"
    assert (refused.value.message, refused.value.summary) == (f"{summary}: no such dir", summary)
    assert refused.value.code == ErrorCode.LOG_DIR_NOT_FOUND


def test_what_was_sent_is_told_by_broker_topic_and_partition(
    capsys: pytest.CaptureFixture[str], pauses: list[float]
) -> None:
    brokers = Brokers()
    brokers.errors = [not_there(A0)]
    act(brokers, lambda admin: send_all(admin, WANTED, {A0: "/x", B0: "/x"}))
    assert brokers.sent == [{A0: "/x", B0: "/x"}, {A0: "/x"}]
    said = [(A1, "/y"), (OTHER_BROKER, "/x"), (B0, "/x"), (A0, "/x")]
    assert capsys.readouterr().out.splitlines() == [started(*each) for each in said]
    assert len(pauses) == 2
    act(brokers, lambda admin: send_all(admin, WANTED, {}))
    said = [(A0, "/x"), (A1, "/y"), (B0, "/x"), (OTHER_BROKER, "/x")]
    assert capsys.readouterr().out.splitlines() == [started(*each) for each in said]


@pytest.mark.parametrize(
    ("pending", "what"),
    [((A1,), "move could be started for: a-1-1"), ((B0, A1, A0), "moves could be started for: a-0-1,a-1-1,b-0-1")],
)
def test_replicas_that_do_not_come_in_time_are_named(pending: tuple[TopicPartitionReplica, ...], what: str) -> None:
    waiting = dict.fromkeys(pending, "/x")
    with pytest.raises(KafkaError) as late:
        act(Brokers(), lambda admin: send_all(admin, waiting, waiting, timeout_ms=0))
    assert late.value.message == f"Timed out before log directory {what}"
    assert late.value.code == ErrorCode.REQUEST_TIMED_OUT


def test_where_replicas_are_and_where_they_go() -> None:
    places = {A0: Place("/x", "/y"), A1: Place("/x"), OTHER_BROKER: Place("/z")}
    brokers = Brokers(places, places)
    assert act(brokers, lambda admin: find_places(admin, [OTHER_BROKER, A0, B0])) == {
        OTHER_BROKER: Place("/z"),
        A0: Place("/x", "/y"),
        B0: Place(),
    }
    brokers.silent = {2}
    assert act(brokers, lambda admin: find_places(admin, [OTHER_BROKER, A1])) == {A1: Place("/x")}
    assert brokers.asked == [[1, 2], [1, 2]]


@pytest.mark.parametrize(
    ("place", "is_at_rest"),
    [
        (Place("/x"), True),
        (Place("/z"), True),
        (Place("/z", "/x"), False),
        (Place(), False),
        (Place(None, "/x"), False),
    ],
)
def test_a_plan_is_done_when_no_replica_is_under_way_any_more(
    capsys: pytest.CaptureFixture[str], place: Place, is_at_rest: bool
) -> None:
    places = {A1: Place("/y"), OTHER_BROKER: Place("/x"), B0: Place("/x"), A0: place}
    assert act(Brokers(places), lambda admin: verify(admin, WANTED)) is is_at_rest
    said = capsys.readouterr().out.splitlines()
    assert [next(name for name in ("a-0", "a-1", "b-0") if name in line) for line in said] == [
        "a-0",
        "a-1",
        "b-0",
        "a-0",
    ]
    assert said[1:] == [
        f"Reassignment of replica {name} completed successfully." for name in ("a-1-1", "b-0-1", "a-0-2")
    ]


def test_a_replica_of_a_silent_broker_is_not_at_rest(capsys: pytest.CaptureFixture[str]) -> None:
    brokers = Brokers({A0: Place("/x")})
    brokers.silent = {2}
    assert act(brokers, lambda admin: verify(admin, {A0: "/x", OTHER_BROKER: "/x"})) is False
    assert "cannot be found in any live log directory on broker 2" in capsys.readouterr().out


def test_copies_are_watched_until_the_last_is_done(pauses: list[float]) -> None:
    brokers = Brokers({A0: Place("/y", "/x"), A1: Place("/x", "/y")}, {A0: Place("/y", "/x"), A1: Place("/y")}, {})
    act(brokers, lambda admin: watch(admin, {A0: "/x", A1: "/y"}))
    assert brokers.looks == []
    assert len(pauses) == 2


def test_only_replicas_under_way_are_called_back(capsys: pytest.CaptureFixture[str]) -> None:
    brokers = Brokers({A0: Place("/y", "/x"), A1: Place("/z"), B0: Place(None, "/x")}, {A0: Place("/x")})
    assert act(brokers, lambda admin: cancel(admin, {A0: "/x", A1: "/y", B0: "/x"})) is True
    assert brokers.sent == [{A0: "/y"}]
    assert capsys.readouterr().out.splitlines() == [started(A0, "/y")]
    assert act(brokers, lambda admin: cancel(admin, {A0: "/x"})) is False
    assert brokers.sent == [{A0: "/y"}]
