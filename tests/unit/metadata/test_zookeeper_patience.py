"""How long requests to ZooKeeper wait for it: one clock runs at a time, and none when nobody waits for its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.metadata.zookeeper.requests import Requests


class Timer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    def __init__(self) -> None:
        self.delays_s: list[float] = []
        self.timers: list[Timer] = []

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        self.delays_s.append(delay_s)
        self.timers.append(Timer(callback))
        return self.timers[-1]

    @property
    def running(self) -> list[Timer]:
        return [timer for timer in self.timers if not timer.is_cancelled]


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def requests(loop: Loop) -> Iterator[Requests]:
    fake: Any = loop
    made = Requests(fake, max_in_flight=1, patience_ms=2_500, is_live=lambda: True, say_why=lambda: "away")
    made.connected()
    yield made


def test_the_clock_starts_with_the_first_word_of_a_lost_connection(loop: Loop, requests: Requests) -> None:
    assert loop.timers == []
    requests.disconnected()
    requests.disconnected()
    assert loop.delays_s == [2.5]


def test_a_connection_stops_the_clock_and_the_next_loss_starts_another(loop: Loop, requests: Requests) -> None:
    requests.disconnected()
    requests.connected()
    assert loop.running == []
    requests.connected()
    requests.disconnected()
    assert len(loop.running) == 1 and loop.delays_s == [2.5, 2.5]


def test_who_has_given_up_does_so_once_until_there_is_a_connection(loop: Loop, requests: Requests) -> None:
    requests.disconnected()
    loop.timers[0].callback()
    requests.disconnected()
    assert len(loop.timers) == 1
    requests.connected()
    requests.disconnected()
    assert len(loop.timers) == 2


@pytest.mark.parametrize("end", [Requests.close, Requests.refused])
def test_who_waits_in_vain_stops_the_clock(loop: Loop, requests: Requests, end: Callable[[Requests], None]) -> None:
    requests.disconnected()
    end(requests)
    assert loop.running == []
    requests.disconnected()
    assert loop.running == []
