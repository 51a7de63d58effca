"""Laws of offsets: their text, shares, tasks and losses."""

from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ottla.base.types import TopicPartition
from ottla.spark.offsets import (
    OffsetRange,
    begin_of,
    from_json,
    gathered,
    lag,
    losses,
    ranges_between,
    share,
    split,
    take,
    to_json,
)

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b", "b.c"]), st.integers(0, 12))
counts = st.integers(0, 10_000)
offsets = st.dictionaries(partitions, counts, max_size=8)


@st.composite
def logs(draw: st.DrawFn) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Where reading has come to (of some), where logs begin, and where they end."""
    earliest = draw(offsets)
    latest = {partition: low + draw(counts) for partition, low in earliest.items()}
    start = {partition: draw(counts) for partition in latest if draw(st.booleans())}
    return start, earliest, latest


@given(offsets)
def test_offsets_and_their_json_are_the_same(some: dict[TopicPartition, int]) -> None:
    assert from_json(json.loads(json.dumps(to_json(some)))) == some


@given(offsets, st.randoms())
def test_the_json_does_not_depend_on_any_order(some: dict[TopicPartition, int], random: object) -> None:
    items = list(some.items())
    random.shuffle(items)  # type: ignore[attr-defined]
    assert json.dumps(to_json(dict(items))) == json.dumps(to_json(some))


def test_partitions_are_in_the_order_of_their_numbers() -> None:
    some = {TopicPartition("t", 10): 1, TopicPartition("t", 9): 2}
    assert json.dumps(to_json(some)) == '{"t": {"9": 2, "10": 1}}'


@given(offsets, st.integers(1, 30_000))
def test_shares_add_up_to_the_limit_and_nobody_gets_more_than_its_lag(
    lags: dict[TopicPartition, int], limit: int
) -> None:
    shares = share(lags, limit)
    assert shares.keys() == lags.keys()
    assert sum(shares.values()) == min(limit, sum(lags.values()))
    assert all(0 <= shares[partition] <= lags[partition] for partition in lags)
    waiting = [partition for partition in lags if lags[partition]]
    if limit >= len(waiting):
        assert all(shares[partition] for partition in waiting)


@given(st.integers(1, 1000), st.integers(1, 1000), st.integers(2, 500))
def test_who_has_more_waiting_gets_more(first: int, second: int, limit: int) -> None:
    shares = share({TopicPartition("a", 0): first, TopicPartition("a", 1): second}, limit)
    if first > second:
        assert shares[TopicPartition("a", 0)] >= shares[TopicPartition("a", 1)]


@given(logs(), st.integers(1, 5_000))
def test_micro_batches_follow_one_another_to_the_end_without_gap_or_overlap(
    log: tuple[dict[TopicPartition, int], dict[TopicPartition, int], dict[TopicPartition, int]], limit: int
) -> None:
    start, earliest, latest = log
    position = dict(start)
    taken: dict[TopicPartition, list[tuple[int, int]]] = {}
    for _ in range(200):
        end = take(position, earliest, latest, limit)
        for one in ranges_between(position, end):
            taken.setdefault(one.topic_partition, []).append((one.start_offset, one.end_offset))
        # Offsets before the beginning of a log are passed over and are not part of the limit.
        readable = sum(
            one.end_offset - max(one.start_offset, earliest[one.topic_partition])
            for one in ranges_between(position, end)
            if one.end_offset > earliest[one.topic_partition]
        )
        assert readable <= limit
        position = end
        if end == latest:
            break
        limit *= 2
    assert position == latest
    for partition, pieces in taken.items():
        assert pieces[0][0] == begin_of(partition, start, latest[partition])
        assert pieces[-1][1] == latest[partition]
        assert all(before[1] == after[0] for before, after in pairwise(pieces))


def test_all_is_taken_without_a_limit_and_lag_counts_it() -> None:
    first, second = TopicPartition("a", 0), TopicPartition("a", 1)
    start = {first: 5}
    latest = {first: 25, second: 7}
    assert take(start, {first: 0, second: 0}, latest, None) == latest
    assert lag(start, latest) == 27


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=6),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 300),
)
def test_tasks_cover_every_range_once(
    bounds: list[tuple[int, int]], min_partitions: int | None, max_records: int | None
) -> None:
    ranges = [OffsetRange(TopicPartition("t", index), low, low + size) for index, (low, size) in enumerate(bounds)]
    pieces = split(ranges, min_partitions, max_records)
    for one in ranges:
        own = [piece for piece in pieces if piece.topic_partition == one.topic_partition]
        joined = [offset for piece in own for offset in range(piece.start_offset, piece.end_offset)]
        assert joined == list(range(one.start_offset, one.end_offset))
    assert all(piece.size > 0 for piece in pieces)
    if max_records is not None:
        assert all(piece.size <= max_records for piece in pieces)
    total = sum(one.size for one in ranges)
    if min_partitions is not None:
        assert len(pieces) >= min(min_partitions, total)


@given(st.lists(st.integers(1, 50), max_size=12), st.integers(1, 60))
def test_tasks_have_enough_rows_and_no_more_ranges_than_that_takes(sizes: list[int], rows_min: int) -> None:
    pieces = [OffsetRange(TopicPartition("t", index), 0, size) for index, size in enumerate(sizes)]
    tasks = gathered(pieces, rows_min)
    assert [piece for task in tasks for piece in task] == pieces
    assert all(sum(piece.size for piece in task) >= rows_min for task in tasks[:-1])
    assert all(sum(piece.size for piece in task[:-1]) < rows_min for task in tasks)


def test_larger_ranges_are_cut_into_more_tasks() -> None:
    large = OffsetRange(TopicPartition("t", 0), 0, 900)
    small = OffsetRange(TopicPartition("t", 1), 0, 100)
    pieces = split([large, small], min_partitions=10)
    assert len(pieces) == 10
    assert sum(piece.topic_partition == large.topic_partition for piece in pieces) == 9


def test_a_log_that_became_shorter_is_another_log_and_read_from_its_beginning() -> None:
    partition = TopicPartition("t", 0)
    assert ranges_between({partition: 100}, {partition: 30}) == [OffsetRange(partition, 0, 30)]


def test_nothing_is_lost_of_what_is_still_there() -> None:
    old, new = TopicPartition("t", 0), TopicPartition("t", 1)
    assert losses({old: 5}, {old: 5, new: 0}, {old: 9, new: 4}) == []


def test_every_loss_is_told() -> None:
    cut, gone, shorter, late = (TopicPartition("t", index) for index in range(4))
    told = losses(
        {cut: 5, gone: 7, shorter: 10},
        {cut: 8, shorter: 0, late: 3},
        {cut: 20, shorter: 4, late: 9},
    )
    assert told == [
        "t-0 was read up to offset 5 and now begins at 8",
        "t-1 is gone, and was read up to offset 7",
        "t-2 was read up to offset 10 and now ends at 4",
        "t-3 is new and now begins at 3",
    ]
