"""What a client says of brokers it cannot reach: at once, with pauses that double, and when they are back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.core.outages import FIRST_PAUSE_MS, FLAPPING_MS, LONGEST_PAUSE_MS, Outages

A, B = "a:9092", "b:9092"


def test_the_first_failure_is_told_at_once_and_others_with_pauses_that_double() -> None:
    outages = Outages("me")
    told_ms = [now_ms for now_ms in range(0, 200_000, 100) if outages.failed(A, "refused", now_ms)]
    assert told_ms == [0, 1000, 3000, 7000, 15_000, 31_000, 63_000, 123_000, 183_000]


def test_what_is_told() -> None:
    outages = Outages("me")
    assert outages.failed(A, "refused", 500) == "me cannot reach a:9092: refused. Trying again"
    assert outages.failed(A, "no answer", 1400) is None
    assert outages.failed(A, "no answer", 1500) == (
        "me still cannot reach a:9092: no answer. Trying again, for 1 s now"
    )
    assert outages.causes() == "a:9092: no answer"
    assert outages.reached(A, 8500) == "me has reached a:9092, after 8 s"
    assert outages.causes() == ""
    assert outages.reached(A, 8600) is None


def test_brokers_that_are_gone_together_share_their_lines() -> None:
    outages = Outages("me")
    assert outages.failed(A, "refused", 0) == "me cannot reach a:9092: refused. Trying again"
    assert outages.failed(B, "unknown", 10) is None
    assert outages.failed(A, "refused", 50) is None
    assert outages.failed(B, "unknown", 1000) == (
        "me still cannot reach a:9092: refused; b:9092: unknown. Trying again, for 1 s now"
    )
    assert outages.causes() == "a:9092: refused; b:9092: unknown"
    # The line was for both.
    assert outages.failed(A, "refused", 1500) is None


def test_another_broker_is_told_of_at_once_however_long_the_first_is_gone() -> None:
    outages = Outages("me")
    for now_ms in range(0, 130_001, 100):
        outages.failed(A, "refused", now_ms)
    assert outages.failed(B, "refused", 130_000) == (
        "me still cannot reach a:9092: refused; b:9092: refused. Trying again, for 130 s now"
    )


def test_the_end_is_told_only_if_the_beginning_was() -> None:
    outages = Outages("me")
    assert outages.reached(A, 0) is None
    outages.failed(A, "refused", 0)
    assert outages.failed(B, "refused", 1) is None
    assert outages.reached(B, 2) is None
    assert outages.reached(A, 3) == "me has reached a:9092, after 3 ms"


def test_an_address_that_is_tried_no_more_is_no_cause_once_another_was_reached() -> None:
    outages = Outages("me")
    outages.failed(A, "unknown", 0)
    outages.failed(B, "refused", 5)
    assert outages.reached(B, 10) is None
    assert outages.causes() == ""
    # Nor is it told of with the next outage.
    assert outages.failed(B, "refused", 20_000) == "me cannot reach b:9092: refused. Trying again"


def test_an_outage_after_a_long_time_is_another_one() -> None:
    outages = Outages("me")
    outages.failed(A, "refused", 0)
    later_ms = 300_001
    assert outages.failed(A, "refused", later_ms) == "me cannot reach a:9092: refused. Trying again"
    assert outages.reached(A, later_ms + 2000) == "me has reached a:9092, after 2 s"


def test_five_minutes_without_a_word_are_still_the_same_outage() -> None:
    outages = Outages("me")
    outages.failed(A, "refused", 0)
    assert outages.failed(A, "refused", 300_000) == (
        "me still cannot reach a:9092: refused. Trying again, for 300 s now"
    )


def test_a_broker_that_comes_and_goes_is_told_of_every_ten_seconds() -> None:
    outages = Outages("me")
    outages.failed(A, "refused", 0)
    outages.reached(A, 2000)
    assert outages.failed(A, "refused", 9_999) is None
    assert outages.failed(A, "refused", 10_000) == "me cannot reach a:9092: refused. Trying again"


@pytest.mark.parametrize(("lasting_ms", "told"), [(999, "999 ms"), (1000, "1 s"), (1600, "2 s")])
def test_how_long_an_outage_was_is_told_in_seconds_from_one_on(lasting_ms: int, told: str) -> None:
    outages = Outages("me")
    outages.failed(A, "refused", 0)
    assert outages.reached(A, lasting_ms) == f"me has reached a:9092, after {told}"


steps = st.lists(st.tuples(st.integers(1, 5000), st.sampled_from([A, B]), st.booleans()), max_size=200)


@given(steps)
def test_lines_are_few_and_every_outage_that_lasts_is_told(steps: list[tuple[int, str, bool]]) -> None:
    outages = Outages("me")
    now_ms = 0
    warned_ms: list[int] = []
    failing_since_ms: dict[str, int] = {}
    for pause_ms, address, is_up in steps:
        now_ms += pause_ms
        if is_up:
            failing_since_ms.pop(address, None)
            outages.reached(address, now_ms)
            continue
        failing_since_ms.setdefault(address, now_ms)
        if line := outages.failed(address, "refused", now_ms):
            assert address in line
            # No two lines close together.
            assert not warned_ms or now_ms - warned_ms[-1] >= FIRST_PAUSE_MS
            warned_ms.append(now_ms)
        # Whatever came before: what fails now is told of, if not now then by a line that is not long ago.
        assert warned_ms and now_ms - warned_ms[-1] < LONGEST_PAUSE_MS
        if now_ms - failing_since_ms[address] >= FLAPPING_MS + FIRST_PAUSE_MS:
            assert warned_ms[-1] >= failing_since_ms[address]


def test_what_failed_in_the_millisecond_in_which_another_was_reached_is_no_cause() -> None:
    outages = Outages("me")
    outages.failed(A, "refused", 10)
    outages.reached(B, 10)
    assert outages.causes() == ""
    outages.failed(A, "refused", 11)
    assert outages.causes() == "a:9092: refused"


def test_a_line_comes_after_a_second_a_minute_at_the_latest_or_ten_seconds() -> None:
    assert (FIRST_PAUSE_MS, LONGEST_PAUSE_MS, FLAPPING_MS) == (1000, 60_000, 10_000)
