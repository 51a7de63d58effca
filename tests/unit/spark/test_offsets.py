"""Laws of offsets: their text, shares, tasks and losses."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.types import TopicPartition
from ottla.spark.offsets import (
    OffsetRange,
    begin_of,
    from_json,
    gathered,
    is_placed,
    lag,
    losses,
    ranges_between,
    share,
    split,
    take,
    to_json,
    to_placed_json,
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


A, B, C = (TopicPartition("t", index) for index in range(3))


@pytest.mark.parametrize(
    ("lags", "limit", "expected"),
    [
        ([], 5, []),
        ([0, 0], 5, [0, 0]),
        ([4, 3], 7, [4, 3]),
        ([4, 3], 8, [4, 3]),
        ([4, 3], 6, [3, 3]),
        ([4, 0, 3], 2, [1, 0, 1]),
        ([4, 0, 3], 1, [1, 0, 0]),
        ([3, 0, 4], 1, [0, 0, 1]),
        ([5, 5, 5], 2, [1, 1, 0]),
        ([1, 1, 1], 3, [1, 1, 1]),
        ([100, 1, 1], 4, [2, 1, 1]),
        ([100, 1, 10], 12, [9, 1, 2]),
        ([100, 50, 10], 16, [9, 5, 2]),
    ],
)
def test_how_offsets_are_shared(lags: list[int], limit: int, expected: list[int]) -> None:
    found = share({TopicPartition("t", index): lag for index, lag in enumerate(lags)}, limit)
    assert found == {TopicPartition("t", index): part for index, part in enumerate(expected)}


@pytest.mark.parametrize(
    ("start", "earliest", "latest", "most", "expected"),
    [
        ({}, {}, {A: 9}, None, {A: 9}),
        ({}, {}, {A: 9}, 4, {A: 4}),
        ({A: 2}, {}, {A: 9}, 4, {A: 6}),
        ({}, {A: 3}, {A: 9}, 4, {A: 7}),
        ({A: 2}, {A: 3}, {A: 9}, 4, {A: 7}),
        ({A: 5}, {A: 3}, {A: 9}, 4, {A: 9}),
        ({A: 9}, {A: 0}, {A: 9}, 4, {A: 9}),
        ({A: 10}, {A: 0}, {A: 9}, 4, {A: 4}),
        ({A: 1}, {A: 9}, {A: 9}, 4, {A: 9}),
        ({A: 1, B: 7, C: 0}, {A: 0, B: 0}, {A: 3, B: 7}, 1, {A: 2, B: 7}),
    ],
)
def test_where_the_next_micro_batch_ends(
    start: dict[TopicPartition, int],
    earliest: dict[TopicPartition, int],
    latest: dict[TopicPartition, int],
    most: int | None,
    expected: dict[TopicPartition, int],
) -> None:
    assert take(start, earliest, latest, most) == expected


def test_where_a_micro_batch_begins() -> None:
    assert [begin_of(A, start, 5) for start in ({}, {A: 0}, {A: 4}, {A: 5}, {A: 6}, {B: 3})] == [0, 0, 4, 5, 0, 0]
    ends = {C: 9, A: 5, B: 4}
    assert ranges_between({A: 5, B: 3}, ends) == [OffsetRange(B, 3, 4), OffsetRange(C, 0, 9)]
    assert lag({A: 5, B: 3}, ends) == 10


def bounds_of(ranges: list[OffsetRange]) -> list[tuple[int, int, int]]:
    return [(one.topic_partition.partition, one.start_offset, one.end_offset) for one in ranges]


@pytest.mark.parametrize(
    ("sizes", "fewest", "most", "expected"),
    [
        ([10], None, None, [(0, 5, 15)]),
        ([10, 0], None, 10, [(0, 5, 15)]),
        ([10], None, 9, [(0, 5, 10), (0, 10, 15)]),
        ([10], None, 5, [(0, 5, 10), (0, 10, 15)]),
        ([10], None, 4, [(0, 5, 8), (0, 8, 11), (0, 11, 15)]),
        ([10], 1, None, [(0, 5, 15)]),
        ([10], 2, None, [(0, 5, 10), (0, 10, 15)]),
        ([2], 5, None, [(0, 5, 6), (0, 6, 7)]),
        ([10], 2, 4, [(0, 5, 8), (0, 8, 11), (0, 11, 15)]),
        ([4, 4], 2, None, [(0, 5, 9), (1, 5, 9)]),
        ([4, 4], 3, None, [(0, 5, 7), (0, 7, 9), (1, 5, 9)]),
        ([40, 4], 3, None, [(0, 5, 18), (0, 18, 31), (0, 31, 45), (1, 5, 9)]),
        ([40, 4], 3, 20, [(0, 5, 25), (0, 25, 45), (1, 5, 9)]),
    ],
)
def test_how_ranges_are_cut(
    sizes: list[int], fewest: int | None, most: int | None, expected: list[tuple[int, int, int]]
) -> None:
    ranges = [OffsetRange(TopicPartition("t", index), 5, 5 + size) for index, size in enumerate(sizes)]
    assert bounds_of(split(ranges, fewest, most)) == expected


@pytest.mark.parametrize(
    ("sizes", "rows_min", "expected"),
    [
        ([], 5, []),
        ([5, 5], 5, [[5], [5]]),
        ([4, 1, 5], 5, [[4, 1], [5]]),
        ([4, 9, 1], 5, [[4, 9], [1]]),
        ([1, 1, 1], 5, [[1, 1, 1]]),
        ([1, 1], 1, [[1], [1]]),
    ],
)
def test_which_ranges_a_task_reads(sizes: list[int], rows_min: int, expected: list[list[int]]) -> None:
    tasks = gathered([OffsetRange(A, 3, 3 + size) for size in sizes], rows_min)
    assert [[one.size for one in task] for task in tasks] == expected


def test_the_mark_of_a_query_that_was_moved_stands_before_its_offsets() -> None:
    placed = to_placed_json({B: 7, A: 5})
    assert json.dumps(placed) == '{"": {"0": 0}, "t": {"0": 5, "1": 7}}'
    assert from_json(placed) == {A: 5, B: 7}
    assert (is_placed(placed), is_placed(to_json({A: 5})), is_placed({})) == (True, False, False)


@pytest.mark.parametrize(
    ("begin", "earliest", "latest", "told"),
    [
        (None, 0, 0, None),
        (None, 0, 9, None),
        (None, 1, 9, "t-0 is new and now begins at 1"),
        (0, 0, 9, None),
        (0, 1, 9, "t-0 was read up to offset 0 and now begins at 1"),
        (3, 3, 9, None),
        (9, 3, 9, None),
        (10, 3, 9, "t-0 was read up to offset 10 and now ends at 9"),
    ],
)
def test_what_is_lost_of_a_partition(begin: int | None, earliest: int, latest: int, told: str | None) -> None:
    found = losses({} if begin is None else {A: begin}, {A: earliest}, {A: latest})
    assert found == ([] if told is None else [told])
