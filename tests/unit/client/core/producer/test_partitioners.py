from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from ottla.client.core.producer.partitioners import NO_BACKLOG, Backlog, RoundRobin, StickyChoice, key_partition
from ottla.records.hashing import partition_for_key


class EveryNumber:
    """Randomness that is none: each number below the bound is to be drawn once."""

    def __init__(self) -> None:
        self.number = 0
        self.bound = 1

    def __call__(self, bound: int) -> int:
        self.bound = bound
        return self.number


def shares(backlog: Backlog, candidates: Sequence[int], *, last: int = -1) -> Counter[int]:
    """How often each partition is chosen if every random number is drawn once."""
    drawn = EveryNumber()
    chosen: Counter[int] = Counter()
    while drawn.number < drawn.bound:
        choice = StickyChoice(0, drawn)
        choice.partition = last
        chosen[choice.choose(candidates, 100, lambda: backlog)] += 1
        drawn.number += 1
    return chosen


def test_partitions_are_chosen_less_often_the_more_batches_wait_for_them() -> None:
    assert shares(Backlog({1: 3, 2: 1}, ()), (0, 1, 2)) == {0: 4, 1: 1, 2: 3}


def test_with_two_partitions_the_last_one_is_chosen_again_if_the_other_is_slow() -> None:
    assert shares(Backlog({1: 4}, ()), (0, 1), last=0) == {0: 5, 1: 1}


def test_all_others_are_chosen_equally_often_if_as_many_batches_wait_for_each() -> None:
    assert shares(NO_BACKLOG, (0, 1, 2), last=1) == {0: 1, 2: 1}
    assert shares(Backlog({0: 2, 1: 2, 2: 2}, ()), (0, 1, 2), last=1) == {0: 1, 2: 1}


def test_what_waits_for_a_partition_without_leader_does_not_count() -> None:
    assert shares(Backlog({0: 9}, ()), (1, 2)) == {1: 1, 2: 1}


def test_an_unavailable_partition_is_chosen_only_if_there_is_no_other() -> None:
    assert shares(Backlog({0: 1, 1: 9}, {1}), (0, 1, 2)) == {0: 1, 2: 2}
    assert shares(Backlog({1: 1}, {1}), (0, 1), last=0) == {0: 1}
    assert shares(Backlog({0: 2, 1: 1}, {0, 1}), (0, 1)) == {0: 1, 1: 2}


@given(st.lists(st.integers(0, 6), min_size=2, max_size=8), st.sets(st.integers(0, 7)), st.integers(-1, 7))
def test_every_partition_has_the_share_of_the_kip(lengths: list[int], unavailable: set[int], last: int) -> None:
    waiting = {partition: length for partition, length in enumerate(lengths) if length}
    found = shares(Backlog(waiting, unavailable & waiting.keys()), range(len(lengths)), last=last)
    usable = [number for number in range(len(lengths)) if number not in waiting or number not in unavailable]
    usable = usable or list(range(len(lengths)))
    longest = max(lengths[number] for number in usable)
    if any(lengths[number] < longest for number in usable):
        assert found == {number: longest + 1 - lengths[number] for number in usable}
    else:
        assert found == dict.fromkeys([number for number in usable if number != last] or usable, 1)


def test_nobody_asks_what_waits_before_it_is_time_for_another_partition() -> None:
    asked = []

    def backlog() -> Backlog:
        asked.append(True)
        return NO_BACKLOG

    choice = StickyChoice(100, lambda bound: 0)
    for _ in range(10):
        choice.choose((0, 1), 2, backlog)
        choice.produced(10)
    assert len(asked) == 1
    choice.choose((0, 1), 2, backlog)
    assert len(asked) == 2
    choice.choose((5,), 6, backlog)
    assert len(asked) == 2, "there is no choice"


def test_a_sticky_choice_leaves_a_partition_without_leader() -> None:
    choice = StickyChoice(100, lambda bound: 0)
    assert choice.choose((0, 1), 2, lambda: NO_BACKLOG) == 0
    assert choice.choose((1,), 2, lambda: NO_BACKLOG) == 1
    choice.produced(100)
    assert choice.choose((1,), 2, lambda: NO_BACKLOG) == 1
    assert choice.choose((), 2, lambda: NO_BACKLOG) in (0, 1)


def test_round_robin_and_keys() -> None:
    turns = RoundRobin()
    assert Counter(turns("t", None, None, 4, (0, 2, 3)) for _ in range(9)) == {0: 3, 2: 3, 3: 3}
    assert turns("u", None, None, 2, ()) == 0
    assert all(key_partition(b"%d" % key, 7) == partition_for_key(b"%d" % key, 7) for key in range(100))
