"""A fetch that waits: tried when something moves and when a throttle leaves room, answered when there is enough."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.handlers.fetch import _WaitingFetch
from ottla.net.service import Deferred


class Attempt:
    """One look at the partitions; the next ones are given."""

    def __init__(self, *later: Attempt, name: bytes = b"", is_enough: bool = False, throttled_ms: int = 0) -> None:
        self.later = list(later)
        self.throttled_ms = throttled_ms
        self.watch: Any = None
        self._name = name
        self._is_enough = is_enough

    def is_satisfied(self) -> bool:
        return self._is_enough

    def again(self) -> Attempt:
        return self.later.pop(0)

    def reply(self) -> tuple[bytes, ...]:
        return (self._name,)


class Parking:
    def __init__(self) -> None:
        self.loop = self
        self.asked: list[Any] = []

    def call_later(self, delay_s: float, *call: Any) -> None:
        self.asked.append((delay_s, *call))

    def soon(self, parked: Any) -> None:
        raise AssertionError("not yet")


def waiting(first: Attempt) -> tuple[_WaitingFetch, Deferred, Parking]:
    deferred, parking = Deferred(), Parking()
    return _WaitingFetch(first, deferred, parking), deferred, parking  # type: ignore[arg-type]


def test_it_is_answered_by_the_first_look_that_finds_enough() -> None:
    fetch, deferred, parking = waiting(Attempt(Attempt(), Attempt(), Attempt(name=b"enough", is_enough=True)))
    assert [(fetch.try_complete(), deferred.is_complete) for _ in range(2)] == [(False, False)] * 2
    assert fetch.try_complete()
    assert (deferred.pieces, parking.asked) == ((b"enough",), [])


def test_when_the_time_is_up_it_is_answered_with_what_there_is_then() -> None:
    last = Attempt(name=b"little")
    last.watch = type("Watch", (), {"on_moved": "somebody"})()
    fetch, deferred, _ = waiting(Attempt(last))
    fetch.expire()
    assert (deferred.pieces, last.watch.on_moved) == ((b"little",), None)


@pytest.mark.parametrize(("throttled_ms", "is_parked"), [(250, True), (0, True), (250, False)])
def test_who_is_held_back_is_looked_at_when_the_throttle_leaves_room(throttled_ms: int, is_parked: bool) -> None:
    held_back = Attempt(throttled_ms=throttled_ms)
    fetch, _, parking = waiting(Attempt(held_back))
    parked: Any = object()
    fetch.parked = parked if is_parked else None
    expected = [(0.25, parking.soon, parked)] if throttled_ms and is_parked else []
    fetch.look_again(held_back)  # type: ignore[arg-type]
    assert parking.asked == expected
    assert not fetch.try_complete()
    assert parking.asked == 2 * expected
