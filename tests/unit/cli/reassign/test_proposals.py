"""Plans: even, over racks, and with as few moves as can be."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.cli.reassign.proposals import propose
from ottla.machines.cluster.placement import place_replicas


def placed(topics: int, partitions: int, factor: int, racks: dict[int, str | None]) -> dict[TopicPartition, list[int]]:
    return {
        TopicPartition(f"t{number}", index): replicas
        for number in range(topics)
        for index, replicas in place_replicas(
            racks, partitions=partitions, replication_factor=factor, start=number, shift=number
        ).items()
    }


def no_racks(*brokers: int) -> dict[int, str | None]:
    return dict.fromkeys(brokers)


def copies(before: dict[TopicPartition, list[int]], after: dict[TopicPartition, list[int]]) -> int:
    return sum(len(set(after[tp]) - set(before[tp])) for tp in before)


def span(counts: Counter[int]) -> int:
    return max(counts.values()) - min(counts.values())


def replicas_on(plan: dict[TopicPartition, list[int]], brokers: dict[int, str | None]) -> Counter[int]:
    return Counter({b: sum(b in replicas for replicas in plan.values()) for b in brokers})


def leaders_on(plan: dict[TopicPartition, list[int]], brokers: dict[int, str | None]) -> Counter[int]:
    return Counter({b: sum(b == replicas[0] for replicas in plan.values()) for b in brokers})


def test_a_fourth_broker_gets_its_share_and_no_more_is_moved() -> None:
    before, brokers = placed(4, 12, 3, no_racks(1, 2, 3)), no_racks(1, 2, 3, 4)
    after = propose(before, brokers)
    assert replicas_on(after, brokers) == Counter(dict.fromkeys(brokers, 36))
    assert leaders_on(after, brokers) == Counter(dict.fromkeys(brokers, 12))
    assert copies(before, after) == 36, "only what goes to the new one"
    for topic in {tp.topic for tp in after}:
        assert span(replicas_on({tp: r for tp, r in after.items() if tp.topic == topic}, brokers)) <= 1


def test_a_broker_that_goes_leaves_nothing_and_the_others_keep_what_they_have() -> None:
    before, brokers = placed(3, 8, 2, no_racks(1, 2, 3, 4)), no_racks(1, 2, 3)
    after = propose(before, brokers)
    assert span(replicas_on(after, brokers)) <= 1 and span(leaders_on(after, brokers)) <= 1
    assert copies(before, after) == replicas_on(before, no_racks(4))[4]


def test_what_is_even_stays_as_it_is() -> None:
    before = placed(1, 6, 2, no_racks(1, 2, 3))
    assert propose(before, no_racks(1, 2, 3)) == before


@pytest.mark.parametrize(("factor", "new"), [(1, 3), (3, 1), (2, 3)])
def test_numbers_of_replicas_change_with_the_leaders_kept(factor: int, new: int) -> None:
    brokers = no_racks(1, 2, 3)
    before = placed(1, 6, factor, brokers)
    after = propose(before, brokers, replication_factor=new)
    assert {len(replicas) for replicas in after.values()} == {new}
    assert span(replicas_on(after, brokers)) == 0
    assert copies(before, after) == max(new - factor, 0) * 6


def test_every_rack_has_a_copy() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    before = {TopicPartition("t", index): [1, 2, 3] for index in range(12)}
    after = propose(before, racks)
    assert all({racks[b] for b in replicas} == {"a", "b", "c"} for replicas in after.values())
    assert span(replicas_on(after, racks)) <= 1 and span(leaders_on(after, racks)) <= 1


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(KafkaError, match="Replication factor: 2 larger than available brokers: 1"):
        propose({TopicPartition("t", 0): [1, 2]}, no_racks(3))


def of(topic: str, *replicas: list[int]) -> dict[TopicPartition, list[int]]:
    return {TopicPartition(topic, index): brokers for index, brokers in enumerate(replicas)}


RACKS: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b"}
FIVE = {**RACKS, 5: "c"}


@pytest.mark.parametrize(
    ("before", "brokers", "factor", "after"),
    [
        (of("t", [1, 2], [1, 2], [1, 2], [1, 2]), no_racks(1, 2, 3), None, [[2, 1], [1, 2], [3, 2], [1, 3]]),
        (of("t", [4, 1], [4, 2], [4, 3], [1, 4]), no_racks(1, 2, 3), None, [[1, 2], [2, 3], [3, 1], [1, 2]]),
        (
            of("t", [1, 2], [1, 3], [1, 2], [1, 3], [2, 3]),
            no_racks(1, 2, 3),
            None,
            [[2, 1], [3, 1], [1, 2], [1, 3], [2, 3]],
        ),
        (
            of("t", [1, 2], [1, 2], [1, 2]) | of("u", [2, 1], [2, 1], [2, 1]),
            no_racks(1, 2, 3),
            None,
            [[1, 2], [3, 2], [1, 3], [2, 1], [3, 1], [2, 3]],
        ),
        (of("t", [1], [1], [1], [1]) | of("u", [1], [2]), no_racks(1, 2), None, [[1], [1], [2], [2], [1], [2]]),
        (of("t", [1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 3, 2]), no_racks(1, 2, 3), 2, [[1, 2], [2, 3], [3, 1], [1, 2]]),
        (of("t", [1], [1], [1], [2]), no_racks(1, 2, 3, 4), 3, [[3, 1, 4], [1, 2, 3], [4, 1, 2], [2, 3, 4]]),
        (of("t", [1, 2], [3, 4], [2, 1], [4, 3]), RACKS, None, [[3, 2], [1, 4], [2, 3], [4, 1]]),
        (of("t", [1, 2, 3], [1, 2, 3], [1, 2, 3]), FIVE, 2, [[3, 1], [1, 5], [2, 4]]),
        (of("t", [1], [3], [1]), FIVE, 3, [[4, 1, 5], [3, 2, 5], [1, 3, 5]]),
        (of("t", [4, 3], [1, 4]), RACKS, None, [[2, 3], [1, 4]]),
        (of("t", [2, 1], [3, 1]), FIVE, None, [[2, 4], [3, 1]]),
        (of("t", [3, 4], [5, 1], [2, 1]), FIVE, None, [[4, 2], [5, 1], [2, 3]]),
        (of("t", [1, 3], [1, 3]), {**RACKS, 4: None}, None, [[1, 3], [4, 2]]),
        ({}, no_racks(1), None, []),
    ],
)
def test_the_same_plan_is_made_each_time(
    before: dict[TopicPartition, list[int]],
    brokers: dict[int, str | None],
    factor: int | None,
    after: list[list[int]],
) -> None:
    assert list(propose(before, brokers, replication_factor=factor).values()) == after


def test_a_refused_plan_has_kafkas_code() -> None:
    with pytest.raises(KafkaError) as refusal:
        propose(of("t", [1]), no_racks(1, 2), replication_factor=3)
    assert refusal.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert refusal.value.message == "Replication factor: 3 larger than available brokers: 2."
    assert propose(of("t", [1]), no_racks(1, 2), replication_factor=2) == of("t", [1, 2])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_plan_is_valid_and_level(data: st.DataObject) -> None:
    old, brokers = no_racks(1, 2, 3, 4, 5), data.draw(st.lists(st.integers(1, 7), min_size=3, max_size=7, unique=True))
    before = {
        TopicPartition("t" if index % 2 else "u", index): data.draw(
            st.lists(st.sampled_from(sorted(old)), min_size=1, max_size=3, unique=True)
        )
        for index in range(data.draw(st.integers(1, 15)))
    }
    given_racks = data.draw(st.sampled_from([None, "ab", "abc"]))
    racks = {b: given_racks[b % len(given_racks)] if given_racks else None for b in brokers}
    after = propose(before, racks)
    assert {tp: len(replicas) for tp, replicas in after.items()} == {tp: len(r) for tp, r in before.items()}
    for replicas in after.values():
        assert len(set(replicas)) == len(replicas) and set(replicas) <= set(brokers)
        if given_racks:
            spread = len({racks[b] for b in replicas})
            assert spread == min(len(replicas), len(set(racks.values())))
    if not given_racks:
        assert span(replicas_on(after, racks)) <= 1
    assert propose(after, racks) == after, "nothing is left to do"
