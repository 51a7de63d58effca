"""A wall clock without jumps."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ottla.base.clock import SteadyClock


class JumpingClock:
    def __init__(self) -> None:
        self.passed_ms = 0
        self.jump_ms = 0

    def wall_ms(self) -> int:
        return 1_000_000 + self.passed_ms + self.jump_ms

    def monotonic_ms(self) -> int:
        return self.passed_ms


@pytest.mark.parametrize("jump_ms", [3_600_000, -3_600_000])
def test_a_jump_is_made_up_for_little_by_little(jump_ms: int) -> None:
    clock = JumpingClock()
    steady = SteadyClock(clock)
    clock.jump_ms = jump_ms
    shown = [steady.wall_ms()]
    assert shown == [1_000_000]
    for _ in range(1000):
        clock.passed_ms += 100
        shown.append(steady.wall_ms())
    steps = [after - before for before, after in pairwise(shown)]
    assert min(steps) > 0, "it never goes back"
    assert 95_000 <= shown[-1] - shown[0] <= 105_000, "a hundred seconds are a hundred seconds"
    assert (shown[-1] - shown[0] > 100_000) == (jump_ms > 0), "it follows"


def test_it_gets_to_the_time_of_the_other_clock() -> None:
    clock = JumpingClock()
    steady = SteadyClock(clock)
    clock.jump_ms = 200
    for _ in range(10):
        clock.passed_ms += 1_000
        steady.wall_ms()
    assert steady.wall_ms() == clock.wall_ms()
    clock.passed_ms += 7
    assert (steady.wall_ms(), steady.monotonic_ms()) == (clock.wall_ms(), 10_007)


@pytest.mark.parametrize(
    ("passed_ms", "jump_ms", "shown_ms"),
    [
        (999, 10_000, 999),
        (1_000, 10_000, 1_050),
        (1_000, -10_000, 950),
        (1_000, 50, 1_050),
        (1_000, 49, 1_049),
        (1_000, -49, 951),
        (2_000, 10_000, 2_100),
    ],
)
def test_it_follows_by_a_twentieth_of_the_time_that_has_passed(passed_ms: int, jump_ms: int, shown_ms: int) -> None:
    clock = JumpingClock()
    steady = SteadyClock(clock)
    clock.jump_ms = jump_ms
    clock.passed_ms = passed_ms
    assert steady.wall_ms() == 1_000_000 + shown_ms
    assert steady.wall_ms() == 1_000_000 + shown_ms, "no time has passed since"
