from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.client.core.producer.accumulator import Accumulator
from ottla.client.core.producer.batch import Batch
from ottla.client.core.producer.lane import FEWEST_PLACES, MOST_PLACES, Lane


def opened(room: int = 10_000, *, is_timed: bool = False) -> tuple[Batch, Lane]:
    batch = Batch("t", 0, (0,), opened_ms=0, deadline_ms=0)
    batch.room = room
    batch.add((None, b"first", (), 7), 19)
    lane = batch.open_lane(8, 7, 0, is_timed=is_timed)
    assert lane is not None
    return batch, lane


def test_values_become_part_of_the_batch_when_the_lane_is_closed() -> None:
    batch, lane = opened()
    for value in (b"a", b"bb"):
        lane.places[next(lane.numbers)] = value
    assert batch.record_count == 1
    assert batch.add((None, b"last", (), 8), 18) == 3
    assert batch.lane is None and lane.places == []
    assert batch.records() == [
        (None, b"first", (), 7),
        (None, b"a", (), 7),
        (None, b"bb", (), 7),
        (None, b"last", (), 8),
    ]
    assert [lane.index_of(number) for number in (0, 1)] == [1, 2]


def test_the_size_is_a_bound_while_the_lane_is_open_and_exact_when_it_is_not() -> None:
    batch, lane = opened()
    before = batch.size
    lane.places[next(lane.numbers)] = b"abc"
    batch.seal()
    assert batch.size == 61 + 19 + 17 < before
    assert batch.room == 0


def test_a_lane_takes_no_more_than_there_is_room_for() -> None:
    batch, lane = opened(61 + 19 + 3 * 19)
    assert lane.place_count == 3
    batch.add((None, b"x" * 5, (), 7), 3 * 19)
    assert batch.open_lane(8, 7, 0, is_timed=False) is None


def test_a_batch_of_whole_records_has_no_lane() -> None:
    batch, _ = opened()
    batch.add((b"key", b"v", (), 7), 20)
    assert batch.open_lane(8, 7, 0, is_timed=False) is None


def test_a_timed_lane_asks_for_the_time() -> None:
    _, lane = opened(is_timed=True)
    assert lane.length < 0 and lane.timed_length == 5 and lane.stamped_until_s == 0.008


@given(st.lists(st.sampled_from(["in time", "late"]), max_size=8))
def test_whoever_has_drawn_a_number_and_stores_nothing_in_time_leaves_no_gap(fates: list[str]) -> None:
    batch, lane = opened()
    places = lane.places
    numbers = [next(lane.numbers) for _ in fates]
    for number, fate in zip(numbers, fates, strict=True):
        if fate == "in time":
            places[number] = b"%d" % number
    batch.seal()
    for number, fate in zip(numbers, fates, strict=True):
        if fate == "late":
            places[number] = b"late"
    values = [value for _, value, _, _ in batch.records()]
    assert values == [b"first", *(b"%d" % n for n, fate in enumerate(fates) if fate == "in time")]
    for number, fate in zip(numbers, fates, strict=True):
        assert lane.was_in_time(number) == (fate == "in time")
        if fate == "in time":
            assert values[lane.index_of(number)] == b"%d" % number
    assert not lane.was_in_time(next(lane.numbers))


def test_lanes_grow_as_long_as_they_are_used_up_within_a_millisecond() -> None:
    accumulator = Accumulator(
        batch_size=100_000, buffer_memory=100_000, delivery_timeout_ms=1000, random_below=lambda _: 0, steady_ms=5
    )
    accumulator.lanes = {}

    def most(now_ms: int) -> int:
        add(now_ms)
        accumulator.open_lane("t", now_ms + 100, now_ms)
        assert accumulator.lanes is not None
        return accumulator.lanes["t"].most

    def add(now_ms: int) -> None:
        assert accumulator.append_sticky("t", (0,), 1, (None, b"v", (), now_ms + 100), 15, now_ms) is not None

    assert most(0) == FEWEST_PLACES
    assert [most(0) for _ in range(9)][-1] == MOST_PLACES
    assert most(1) == MOST_PLACES
    add(2)
    assert most(9) == MOST_PLACES, "what counts is when it was used up, not when there was memory for the next"
    assert most(11) == MOST_PLACES // 2
    assert most(211) == FEWEST_PLACES


def test_values_of_a_batch_that_is_overdue_are_timed() -> None:
    accumulator = Accumulator(
        batch_size=100_000, buffer_memory=100_000, delivery_timeout_ms=1000, random_below=lambda _: 0, steady_ms=5
    )
    accumulator.lanes = {}
    for now_ms in (0, 5):
        assert accumulator.append_sticky("t", (0,), 1, (None, b"v", (), now_ms), 15, now_ms) is not None
        accumulator.open_lane("t", now_ms, now_ms)
        if now_ms == 0:
            assert accumulator.lanes["t"].length == 1
            accumulator.close_late_lanes(4)
            assert accumulator.lanes["t"].places
            accumulator.close_late_lanes(5)
            assert not accumulator.lanes["t"].places
    assert accumulator.lanes["t"].length < 0
