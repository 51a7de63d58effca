"""The rate at which throttled replicas are copied, against a clock that the test moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.machines.replication.throttle import CopyRate

LIMIT = 1_000_000


def copied_in(seconds: int, limit: int, fetch_bytes: int, rate: CopyRate, start_ms: int = 5_000) -> int:
    """As much as passes when somebody asks all the time."""
    copied = 0
    for now_ms in range(start_ms, start_ms + seconds * 1000, 7):
        room = rate.room(limit, now_ms)
        if room > 0:
            rate.record(min(room, fetch_bytes), limit, now_ms)
            copied += min(room, fetch_bytes)
    return copied


@pytest.mark.parametrize("limit", [100_000, LIMIT, 50_000_000])
@pytest.mark.parametrize("seconds", [5, 30, 60])
def test_what_passes_is_what_is_allowed_and_one_burst(limit: int, seconds: int) -> None:
    copied = copied_in(seconds, limit, 1 << 20, CopyRate(burst_ms=500))
    assert copied == pytest.approx(limit * (seconds + 0.5), rel=0.05)


def test_a_rest_is_not_made_up_for() -> None:
    rate = CopyRate(burst_ms=500)
    copied_in(3, LIMIT, 1 << 20, rate)
    copied = copied_in(10, 8 * LIMIT, 1 << 20, rate, start_ms=20_000)
    assert copied == pytest.approx(8 * LIMIT * 10.5, rel=0.05)


def test_a_fetch_that_is_too_large_is_made_up_for() -> None:
    rate = CopyRate(burst_ms=500)
    rate.record(5 * LIMIT, LIMIT, 0)
    assert rate.room(LIMIT, 4_500) == 0
    wait_ms = rate.wait_ms(LIMIT, 4_500)
    assert rate.room(LIMIT, 4_500 + wait_ms) > 0
    assert 4_600 <= 4_500 + wait_ms <= 4_610


def test_a_higher_limit_counts_at_once() -> None:
    rate = CopyRate(burst_ms=500)
    rate.record(LIMIT, 1, 0)
    assert rate.wait_ms(1, 0) > 900_000_000
    assert rate.wait_ms(LIMIT, 0) <= 1_000


@given(st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 2 * LIMIT)), max_size=60), st.integers(1, LIMIT))
def test_a_wait_ends_when_there_is_room(fetches: list[tuple[int, int]], limit: int) -> None:
    rate, now_ms = CopyRate(burst_ms=1000), 0
    for pause_ms, count in fetches:
        now_ms += pause_ms
        rate.record(count, limit, now_ms)
    if rate.room(limit, now_ms) == 0:
        assert rate.room(limit, now_ms + rate.wait_ms(limit, now_ms)) > 0


def test_room_is_given_out_in_portions_of_a_tenth_of_a_second() -> None:
    limit = 9_990
    for missing, room in ((0, 0), (998, 0), (999, 999), (1_000, 1_000)):
        rate = CopyRate(burst_ms=1_000)
        rate.record(limit - missing, limit, 0)
        assert rate.room(limit, 0) == room


def test_a_wait_is_shorter_by_the_time_that_has_passed() -> None:
    rate = CopyRate(burst_ms=1_000)
    rate.record(3_000, 1_000, 0)
    assert rate.wait_ms(1_000, 0) == 2_101, "2000 bytes too many, and a portion of 100"
    assert rate.wait_ms(1_000, 700) == 1_401
    assert rate.wait_ms(1_000, 2_100) == 1
    assert rate.wait_ms(1_000, 9_000) == 1


def test_without_a_limit_above_zero_nothing_passes_and_the_wait_is_a_number() -> None:
    rate = CopyRate(burst_ms=1_000)
    assert rate.room(0, 0) == 0
    assert rate.wait_ms(0, 0) == 1_001
