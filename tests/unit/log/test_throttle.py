"""How long who compacts has to wait for what it has read and written, on a clock that only sleep moves."""

from __future__ import annotations

import pytest

from ottla.log.cleaning import throttle
from ottla.log.cleaning.throttle import Throttle


class Sleeper:
    def __init__(self) -> None:
        self.now_s = 1000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


@pytest.fixture
def sleeper(monkeypatch: pytest.MonkeyPatch) -> Sleeper:
    made = Sleeper()
    monkeypatch.setattr(throttle, "time", made)
    return made


def test_bytes_take_the_time_their_rate_gives_them(sleeper: Sleeper) -> None:
    used = Throttle(lambda: 100.0)
    used(25)
    used(10)
    assert sum(sleeper.slept) == pytest.approx(0.35)
    sleeper.now_s += 60
    used(10)
    assert sum(sleeper.slept) == pytest.approx(0.45), "what was not used before is not saved up"


def test_long_waits_are_taken_in_parts(sleeper: Sleeper) -> None:
    Throttle(lambda: 10.0)(12)
    assert sleeper.slept == pytest.approx([0.5, 0.5, 0.2])


@pytest.mark.parametrize(("rate", "seconds"), [(2.0**63, 0), (2.0**62, 0), (0.0, 3), (0.5, 3), (1.0, 3)])
def test_no_limit_and_the_lowest(sleeper: Sleeper, rate: float, seconds: float) -> None:
    Throttle(lambda: rate)(3)
    assert sum(sleeper.slept) == pytest.approx(seconds, abs=1e-6)


def test_without_a_limit_nothing_is_owed_when_there_is_one_again(sleeper: Sleeper) -> None:
    rate = 2.0**63
    used = Throttle(lambda: rate)
    used(1000)
    rate = 100.0
    used(10)
    assert sum(sleeper.slept) == pytest.approx(0.1)


def test_who_is_called_off_does_not_wait(sleeper: Sleeper) -> None:
    Throttle(lambda: 1.0, lambda: len(sleeper.slept) == 2)(100)
    assert len(sleeper.slept) == 2
