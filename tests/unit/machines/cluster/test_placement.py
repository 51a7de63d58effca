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
