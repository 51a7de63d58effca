"""A few seeds of what `make sim` runs by the thousand."""

from __future__ import annotations

import pytest

from ottla.testing.sim.world import simulate

EVENTS = 6_000


@pytest.mark.parametrize("seed", range(9_001, 9_006))
def test_no_promise_is_broken(seed: int) -> None:
    outcome = simulate(seed, EVENTS)
    assert outcome.violation is None
    assert outcome.events >= EVENTS
    assert outcome.acknowledged


def test_a_seed_decides_everything() -> None:
    first, second = simulate(9_001, EVENTS), simulate(9_001, EVENTS)
    assert first == second
    assert first.trace != simulate(9_002, EVENTS).trace
