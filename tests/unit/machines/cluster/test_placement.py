"""Replicas are spread over brokers and racks; what is assigned by hand is checked."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ErrorCode, KafkaError
from ottla.machines.cluster.placement import check_assignment, place_replicas


def test_the_published_example_of_ten_partitions_on_five_brokers() -> None:
    placed = place_replicas(dict.fromkeys(range(5)), partitions=10, replication_factor=3, start=0, shift=0)
    assert placed == {
        0: [0, 1, 2],
        1: [1, 2, 3],
        2: [2, 3, 4],
        3: [3, 4, 0],
        4: [4, 0, 1],
        5: [0, 2, 3],
        6: [1, 3, 4],
        7: [2, 4, 0],
        8: [3, 0, 1],
        9: [4, 1, 2],
    }


def test_the_published_example_of_twelve_partitions_in_three_racks() -> None:
    racks = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    placed = place_replicas(racks, partitions=12, replication_factor=3, start=0, shift=0)
    assert placed == {
        0: [0, 3, 1],
        1: [3, 1, 5],
        2: [1, 5, 4],
        3: [5, 4, 2],
        4: [4, 2, 0],
        5: [2, 0, 3],
        6: [0, 4, 2],
        7: [3, 2, 0],
        8: [1, 0, 3],
        9: [5, 3, 1],
        10: [4, 1, 5],
        11: [2, 5, 4],
    }


@pytest.mark.parametrize(
    ("shift", "is_near"), [(0, True), (1, False), (2, True), (3, False), (100, True), (101, False)]
)
def test_the_distance_to_the_second_replica_goes_round(shift: int, is_near: bool) -> None:
    """It grows with every round, and there are only two other brokers."""
    near, far = [[0, 1], [1, 2], [2, 0]], [[0, 2], [1, 0], [2, 1]]
    placed = place_replicas(dict.fromkeys(range(3)), partitions=12, replication_factor=2, start=0, shift=shift)
    assert [placed[index] for index in range(12)] == ([*near, *far] if is_near else [*far, *near]) * 2


def test_racks_of_different_sizes_take_turns_while_they_last() -> None:
    racks = {1: "a", 2: "a", 3: "a", 4: "b", 5: "c", 6: "c"}
    placed = place_replicas(racks, partitions=6, replication_factor=1, start=0, shift=0)
    assert [replicas for _, replicas in sorted(placed.items())] == [[1], [4], [5], [2], [6], [3]]


@pytest.mark.parametrize("racks", [dict.fromkeys(range(5)), {0: "a", 1: "b", 2: "a", 3: "b", 4: "c"}])
@pytest.mark.parametrize(("start", "shift"), [(0, 0), (3, 2)])
def test_later_partitions_are_placed_as_if_all_had_been_placed_at_once(
    racks: dict[int, str | None], start: int, shift: int
) -> None:
    """From a round on; a round begins when every broker has had its turn to be first."""
    whole = place_replicas(racks, partitions=10, replication_factor=3, start=start, shift=shift)
    later = place_replicas(racks, partitions=5, replication_factor=3, start=start, shift=shift, first_partition=5)
    assert later == {index: whole[index] for index in range(5, 10)}


def test_one_broker_without_a_rack_makes_all_racks_void() -> None:
    some = place_replicas({0: "a", 1: None, 2: "b"}, partitions=3, replication_factor=2, start=1, shift=1)
    assert some == place_replicas(dict.fromkeys(range(3)), partitions=3, replication_factor=2, start=1, shift=1)


@given(
    brokers=st.integers(1, 8),
    partitions=st.integers(1, 40),
    start=st.integers(0, 7),
    shift=st.integers(0, 7),
    data=st.data(),
)
def test_every_partition_has_distinct_replicas_and_leaders_are_even(
    brokers: int, partitions: int, start: int, shift: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, brokers))
    placed = place_replicas(
        dict.fromkeys(range(brokers)), partitions=partitions, replication_factor=factor, start=start, shift=shift
    )
    assert sorted(placed) == list(range(partitions))
    assert all(len(set(replicas)) == factor for replicas in placed.values())
    leaders = Counter(replicas[0] for replicas in placed.values())
    assert max(leaders.values()) - min(leaders.get(b, 0) for b in range(brokers)) <= 1


@given(racks=st.integers(1, 4), per_rack=st.integers(1, 3), start=st.integers(0, 11), data=st.data())
def test_copies_are_in_as_many_racks_as_there_are(racks: int, per_rack: int, start: int, data: st.DataObject) -> None:
    brokers = {rack * per_rack + i: f"r{rack}" for rack in range(racks) for i in range(per_rack)}
    factor = data.draw(st.integers(1, len(brokers)))
    placed = place_replicas(dict(brokers), partitions=12, replication_factor=factor, start=start, shift=start)
    for replicas in placed.values():
        assert len(set(replicas)) == factor
        assert len({brokers[b] for b in replicas}) == min(factor, racks)


def code_of(**arguments: object) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        place_replicas({1: None}, partitions=1, start=0, shift=0, **arguments)  # type: ignore[arg-type]
    return caught.value.code


def test_impossible_replication_factors() -> None:
    assert code_of(replication_factor=0) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert code_of(replication_factor=2) == ErrorCode.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize(
    "assignment",
    [
        {0: [1], 2: [1]},
        {1: [1]},
        {0: []},
        {0: [1, 1]},
        {0: [1, 2], 1: [1]},
        {0: [1, 9]},
    ],
)
def test_bad_assignments_are_refused(assignment: dict[int, list[int]]) -> None:
    with pytest.raises(KafkaError) as caught:
        check_assignment(assignment, first_partition=0, live={1: None, 2: None})
    assert caught.value.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_good_assignment_passes() -> None:
    check_assignment({3: [1, 2], 4: [2, 1]}, first_partition=3, live={1: None, 2: None})
