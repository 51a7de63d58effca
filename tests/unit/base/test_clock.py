"""Where time comes from: the machine's clocks, and one that a test moves."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base import clock
from ottla.base.clock import ManualClock, SystemClock
from tests.own_thread import patch_own_thread


def test_the_machines_clocks_in_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    patch_own_thread(monkeypatch, clock.time, "time_ns", lambda: 1_700_000_000_123_999_999)
    patch_own_thread(monkeypatch, clock.time, "monotonic_ns", lambda: 7_000_000_005_999_999)
    assert (SystemClock().wall_ms(), SystemClock().monotonic_ms()) == (1_700_000_000_123, 7_000_000_005)


def test_a_clock_moves_only_when_told_to() -> None:
    moved = ManualClock(50)
    assert (moved.wall_ms(), moved.monotonic_ms()) == (50, 0)
    moved.advance(7)
    moved.advance(0)
    assert (moved.wall_ms(), moved.monotonic_ms()) == (57, 7)
    assert ManualClock().monotonic_ms() == 0


@pytest.mark.parametrize("step", [-1, 0.5, "1"])
def test_a_clock_goes_forward_by_whole_milliseconds(step: Any) -> None:
    moved = ManualClock(50)
    with pytest.raises(ValueError, match="whole milliseconds"):
        moved.advance(step)
    assert (moved.wall_ms(), moved.monotonic_ms()) == (50, 0)
