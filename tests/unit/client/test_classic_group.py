"""When a member of a classic group joins again because of what it has learnt about topics."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.types import NIL_UUID, TopicPartition
from ottla.client.aio.group.classic import ClassicGroup
from ottla.client.core.consumer.options import ConsumerSettings
from ottla.client.core.group.classic_member import Verdict
from ottla.client.core.group.rebalance import Change
from ottla.client.core.metadata import PartitionLeader, TopicMetadata
from tests.waiting import run_async


def topic(name: str, partitions: int) -> TopicMetadata:
    leaders = {number: PartitionLeader(0, 0) for number in range(partitions)}
    return TopicMetadata(name, NIL_UUID, False, leaders, tuple(leaders), 0)


def group(known: dict[str, int], topics: frozenset[str] = frozenset({"t"})) -> ClassicGroup:
    """One that has joined, in a world of these topics."""
    engine = SimpleNamespace(
        metadata=SimpleNamespace(topics={name: topic(name, count) for name, count in known.items()}),
        subscription=SimpleNamespace(topics=topics),
    )
    settings = ConsumerSettings.parse({"bootstrap.servers": "x:1", "group.id": "g"})
    runner: Any = SimpleNamespace(engine=engine, settings=settings)
    made = ClassicGroup(runner, ())
    made._must_join = False
    made._joined_topics = frozenset({"t"})
    return made


@pytest.mark.parametrize(
    ("is_leader", "counted", "known", "joins"),
    [
        (True, {"t": 1}, {"t": 1}, False),
        (True, {"t": 1}, {"t": 2}, True),
        (True, {"t": 1}, {}, True),
        (True, {"t": 1}, {"t": 1, "u": 5}, False),
        (True, {}, {"t": 2}, False),
        (False, {"t": 1}, {"t": 2}, False),
        (False, {}, {"t": 2}, False),
    ],
)
def test_the_leader_joins_again_if_its_topics_have_grown(
    is_leader: bool, counted: dict[str, int], known: dict[str, int], joins: bool
) -> None:
    async def test() -> None:
        made = group(known)
        made._member = SimpleNamespace(is_leader=is_leader)  # type: ignore[assignment]
        made._counted = counted
        made.metadata_changed()
        assert made._must_join is joins
        assert made._changed.is_set() is joins

    run_async(test())


@pytest.mark.parametrize(
    ("topics", "must_join", "joins"),
    [({"t"}, False, False), ({"t", "u"}, False, True), (set(), False, True), ({"t"}, True, True)],
)
def test_a_member_joins_again_with_other_topics(topics: set[str], must_join: bool, joins: bool) -> None:
    async def test() -> None:
        made = group({}, frozenset(topics))
        made._must_join = must_join
        made.subscription_changed()
        assert made._must_join is joins
        assert made._changed.is_set() is joins

    run_async(test())


@pytest.mark.parametrize(("topics", "has_expired"), [(set(), False), ({"t"}, True), (set(), True)])
def test_nobody_joins_without_topics_or_while_nobody_polls(topics: set[str], has_expired: bool) -> None:
    async def test() -> None:
        made = group({}, frozenset(topics))
        made._must_join = True
        made._runner.poll_timer = SimpleNamespace(has_expired=lambda now_ms: has_expired)  # type: ignore[assignment]
        made._engine.now_ms = lambda: 0  # type: ignore[method-assign]
        # There is nobody to ask: an attempt would fail.
        assert await made._join() is None
        assert made._must_join and not made.is_joining

    run_async(test())


@pytest.mark.parametrize(
    ("verdict", "goes_on", "forgets", "looks_for_coordinator", "waits"),
    [
        (Verdict.FINE, True, "", False, False),
        (Verdict.AGAIN_AT_ONCE, False, "", False, False),
        (Verdict.AGAIN, False, "", False, True),
        (Verdict.REJOIN, False, "", False, False),
        (Verdict.FIND_COORDINATOR, False, "", True, True),
        (Verdict.LOST, False, "member", False, False),
        (Verdict.OUTDATED, False, "generation", False, False),
    ],
)
def test_what_an_answer_to_a_join_means(
    monkeypatch: pytest.MonkeyPatch,
    verdict: Verdict,
    goes_on: bool,
    forgets: str,
    looks_for_coordinator: bool,
    waits: bool,
) -> None:
    done: list[str] = []
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def test() -> None:
        made = group({})
        made._engine.cursors = SimpleNamespace(partitions={TopicPartition("t", 0)})  # type: ignore[assignment]
        made._engine.coordinator = SimpleNamespace(forget=lambda: done.append("coordinator"))  # type: ignore[assignment]
        made._member = SimpleNamespace(  # type: ignore[assignment]
            forget=lambda: done.append("member"), forget_generation=lambda: done.append("generation")
        )
        # In that module alone: loops of other threads sleep, too.
        monkeypatch.setattr("ottla.client.aio.group.classic.asyncio", SimpleNamespace(sleep=sleep))
        assert await made._go_on(verdict) is goes_on
        assert made._must_join is not goes_on
        assert made._is_lost is bool(forgets)

    run_async(test())
    assert done == ["coordinator"] * looks_for_coordinator + [forgets] * bool(forgets)
    assert slept == [0.1] * waits, "retry.backoff.ms"


def test_a_leader_counts_the_partitions_of_all_topics_and_leaves_out_those_that_are_not_there() -> None:
    used: list[str] = []

    async def test() -> None:
        made = group({"t": 2})
        made._engine.group_topics = frozenset({"t", "u", "gone"})
        made._engine.now_ms = lambda: 7  # type: ignore[method-assign]
        made._engine.metadata.use = lambda name, now_ms: used.append(f"{name} at {now_ms}")  # type: ignore[method-assign]

        async def learn() -> None:
            made._engine.metadata.topics["u"] = topic("u", 3)

        made._engine.wait_for_metadata = learn  # type: ignore[method-assign,assignment]
        assert await made._partition_counts() == {"t": 2, "u": 3}
        assert made._counted == {"t": 2, "u": 3, "gone": 0}, "if it comes into being, that is news"

    run_async(test())
    assert sorted(used) == ["gone at 7", "t at 7", "u at 7"]


def test_what_was_given_up_makes_a_member_join_again() -> None:
    """Whoever is to get it waits for that (KIP-429)."""
    steps: list[tuple[Change, set[int]]] = []

    async def step(change: Change, partitions: Collection[TopicPartition]) -> None:
        steps.append((change, {partition.partition for partition in partitions}))

    async def test() -> None:
        made = group({})
        made._runner.step = step  # type: ignore[assignment,method-assign]
        made._member = SimpleNamespace(is_member=True)  # type: ignore[assignment]
        held = frozenset(TopicPartition("t", number) for number in range(2))
        made._engine.cursors = SimpleNamespace(partitions=held)  # type: ignore[assignment]
        await made._apply([TopicPartition("t", number) for number in range(3)])
        assert steps == [(Change.ASSIGNED, {2})] and not made._must_join
        steps.clear()
        await made._apply([TopicPartition("t", 1), TopicPartition("t", 5)])
        assert steps == [(Change.REVOKED, {0}), (Change.ASSIGNED, {5})] and made._must_join
        steps.clear()
        made._member = SimpleNamespace(is_member=False)  # type: ignore[assignment]
        await made._apply([TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)])
        assert steps == [], "it was thrown out meanwhile: nothing of that is its own"

    run_async(test())
