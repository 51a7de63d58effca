"""Replies that wait for the high watermark: which move answers which of them, and whose time is up when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.broker.uncommitted_replies import UncommittedReplies

E = ErrorCode


class Timer:
    def __init__(self, at_s: float, call: Any) -> None:
        self.at_s = at_s
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """Its time is what the test says; of its timers, those that are not cancelled go off."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, at_s: float, call: Any) -> Timer:
        timer = Timer(at_s, call)
        self.timers.append(timer)
        return timer

    @property
    def pending(self) -> list[float]:
        return [timer.at_s for timer in self.timers if not timer.is_cancelled]

    def go_on_until(self, now_s: float) -> None:
        self.now_s = now_s
        due = [timer for timer in self.timers if not timer.is_cancelled and timer.at_s <= now_s]
        for timer in due:
            self.timers.remove(timer)
            timer.call()


class Connection:
    def __init__(self) -> None:
        self.calls = 0

    def late_replies_came(self) -> None:
        self.calls += 1


class Form:
    """An error says for which request it is."""

    def encode_error(self, correlation_id: int, error: ErrorCode) -> bytes:
        return b"%d %s" % (correlation_id, error.name.encode())


class World:
    def __init__(self) -> None:
        self.loop: Any = Loop()
        self.leader = SimpleNamespace(high_watermark=0, has_enough_replicas=True)
        self.partition: Any = SimpleNamespace(
            leader=self.leader, leads_since=4, waiters={}, log=SimpleNamespace(log_end_offset=100)
        )
        self.connections = [Connection(), Connection()]
        self.waiting = UncommittedReplies(self.partition, self.loop)
        self.replies: list[Any] = []

    def add(self, last_offset: int, late_s: float = 9.0, connection: int = 0) -> None:
        number = len(self.replies)
        self.replies.append(
            self.waiting.add(
                last_offset,
                late_s,
                self.connections[connection],  # type: ignore[arg-type]
                b"fine",
                Form(),  # type: ignore[arg-type]
                number,
            )
        )

    def told(self) -> list[str]:
        """What each has been told so far, without its number; nothing while it waits."""
        found = []
        for number, reply in enumerate(self.replies):
            words = b"".join(reply).decode()
            assert words in ("", "fine") or words.startswith(f"{number} ")
            found.append(words.removeprefix(f"{number} "))
        return found

    def move(self, high_watermark: int) -> list[str]:
        self.leader.high_watermark = high_watermark
        self.waiting.try_complete()
        return self.told()


def test_a_move_answers_what_lies_below_it() -> None:
    world = World()
    assert world.waiting in world.partition.waiters
    for last_offset in (0, 4, 5, 9):
        world.add(last_offset)
    assert world.move(0) == ["", "", "", ""] and len(world.waiting) == 4
    assert world.move(5) == ["fine", "fine", "", ""] and len(world.waiting) == 2
    assert world.move(10) == ["fine"] * 4
    assert world.move(11) == ["fine"] * 4, "once"
    assert [each.calls for each in world.connections] == [2, 0]


def test_each_connection_is_told_once_for_all_its_replies() -> None:
    world = World()
    for connection in (0, 1, 0):
        world.add(0, connection=connection)
    world.move(1)
    assert [each.calls for each in world.connections] == [1, 1]
    for connection in (1, 0, 1):
        world.add(7, connection=connection)
    world.waiting.time_is_up()
    assert world.told()[3:] == ["REQUEST_TIMED_OUT"] * 3 and len(world.waiting) == 0
    assert [each.calls for each in world.connections] == [2, 2]


def test_where_replicas_became_too_few_only_those_are_told_that_are_below_the_high_watermark() -> None:
    world = World()
    for last_offset in (3, 4, 5):
        world.add(last_offset)
    world.leader.has_enough_replicas = False
    assert world.move(3) == ["", "", ""]
    few = "NOT_ENOUGH_REPLICAS_AFTER_APPEND"
    assert world.move(5) == [few, few, ""]
    world.leader.has_enough_replicas = True
    assert world.move(6) == [few, few, "fine"]


@pytest.mark.parametrize("event", ["it follows", "it leads again"])
def test_who_leads_no_more_answers_everybody(event: str) -> None:
    world = World()
    world.add(1)
    world.add(2)
    if event == "it follows":
        world.partition.leader = None
    else:
        world.partition.leads_since = 5
        world.leader.high_watermark = 9
    world.waiting.try_complete()
    assert world.told() == ["NOT_LEADER_OR_FOLLOWER"] * 2 and len(world.waiting) == 0


def test_whoever_comes_after_the_role_was_lost_and_won_waits_for_a_move_of_its_own() -> None:
    world = World()
    world.add(1)
    world.partition.leads_since = 5
    world.add(1)
    assert world.told() == ["NOT_LEADER_OR_FOLLOWER", ""]
    assert world.move(2) == ["NOT_LEADER_OR_FOLLOWER", "fine"]


def test_what_was_not_written_is_taken_out_again() -> None:
    world = World()
    for last_offset in (3, 4, 5, 6):
        world.add(last_offset)
    world.partition.log.log_end_offset = 5
    world.waiting.drop_unwritten()
    assert world.told() == ["", "", "KAFKA_STORAGE_ERROR", "KAFKA_STORAGE_ERROR"]
    assert world.connections[0].calls == 1
    world.waiting.drop_unwritten()
    assert world.connections[0].calls == 1, "there is nothing more to tell"
    assert world.move(9)[:2] == ["fine", "fine"]
    world.waiting.drop_unwritten()


# Time


def test_time_is_up_for_each_at_its_own() -> None:
    world = World()
    world.add(0, 5.0)
    world.add(0, 5.0)
    world.add(0, 7.0)
    assert [timer.at_s for timer in world.loop.timers] == [5.0], "one timer, for whoever is first"
    world.add(0, 3.0)
    assert world.loop.pending == [3.0]
    late = "REQUEST_TIMED_OUT"
    world.loop.go_on_until(3.0)
    assert (world.told(), world.loop.pending) == (["", "", "", late], [5.0])
    world.loop.go_on_until(6.0)
    assert (world.told(), world.loop.pending) == ([late, late, "", late], [7.0])
    world.add(0, 8.0)
    assert world.loop.pending == [7.0]
    world.loop.go_on_until(8.0)
    assert (world.told(), world.loop.pending) == ([late] * 5, [])
    assert len(world.waiting) == 0
    world.add(0, 20.0)
    assert world.loop.pending == [20.0]


def test_nobody_is_late_who_was_answered_in_time() -> None:
    world = World()
    world.add(0, 5.0)
    world.add(1, 7.0)
    world.move(1)
    world.loop.go_on_until(5.0)
    assert (world.told(), world.loop.pending) == (["fine", ""], [7.0])
    world.move(2)
    world.loop.go_on_until(7.0)
    assert (world.told(), world.loop.pending, world.connections[0].calls) == (["fine", "fine"], [], 2)
