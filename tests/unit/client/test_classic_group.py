"""When a member of a classic group joins again because of what it has learnt about topics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.types import NIL_UUID
from ottla.client.aio.group.classic import ClassicGroup
from ottla.client.core.consumer.options import ConsumerSettings
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
