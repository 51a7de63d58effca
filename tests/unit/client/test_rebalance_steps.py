"""Partitions that change hands: in which steps, what listeners are told, and what is committed before."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from typing import Any

import pytest

import ottla
from ottla import TopicPartition, aio
from ottla.client.aio.consumer.engine import ConsumerEngine
from ottla.client.aio.group.runner import GroupRunner, RebalanceStep
from ottla.client.core.consumer.options import ConsumerSettings
from ottla.client.core.group.rebalance import Change, RebalanceListener
from ottla.errors import ConcurrentUseError
from ottla.testing import EmbeddedBroker
from tests.waiting import PATIENCE_S, run_async, until

FIRST, SECOND, THIRD = (TopicPartition("t", number) for number in range(3))


class Group(GroupRunner):
    """Of a consumer that holds two partitions and has told nobody."""

    def __init__(self, *, is_member: bool = False) -> None:
        settings = ConsumerSettings.parse({"bootstrap.servers": "x:1", "group.id": "g"})
        super().__init__(ConsumerEngine(settings), ())
        self.engine.subscription.subscribe(["t"])
        self.engine.cursors.replace([FIRST, SECOND])
        if is_member:
            member: Any = self._protocol._member  # type: ignore[union-attr]
            member.member_id, member.generation = "m", 3

    async def begin(self, change: Change, *partitions: TopicPartition) -> asyncio.Task[None]:
        task = asyncio.create_task(self.step(change, partitions))
        await asyncio.sleep(0)
        return task


@pytest.mark.parametrize("change", Change)
def test_a_step_waits_for_a_poll_and_partitions_are_gone_when_it_is_finished(change: Change) -> None:
    async def scenario() -> None:
        group = Group()
        waiting = await group.begin(change, SECOND, THIRD)
        (step,) = group.steps
        assert step.partitions == {SECOND, THIRD} and group.engine._news.is_set() and not waiting.done()
        group.before_step(step)
        is_coming = change is Change.ASSIGNED
        assert group.engine.cursors.partitions == ({FIRST, SECOND, THIRD} if is_coming else {FIRST, SECOND})
        step.finish()
        await waiting
        assert not group.steps
        assert group.engine.cursors.partitions == ({FIRST, SECOND, THIRD} if is_coming else {FIRST})

    run_async(scenario())


def test_nothing_that_goes_is_no_step_and_nothing_that_comes_is_one() -> None:
    async def scenario() -> None:
        group = Group()
        for change in (Change.REVOKED, Change.LOST):
            await group.step(change, [])
            assert not group.steps
        waiting = await group.begin(Change.ASSIGNED)
        assert len(group.steps) == 1
        group.stop()
        await waiting
        assert not group.steps, "who stops finishes what nobody will poll for"

    run_async(scenario())


def test_what_was_to_be_given_up_is_lost_with_the_rest() -> None:
    async def scenario() -> None:
        group = Group()
        tasks = [
            await group.begin(Change.REVOKED, FIRST),
            await group.begin(Change.ASSIGNED, THIRD),
            await group.begin(Change.ASSIGNED, SECOND),
        ]
        assert group.partitions_lost() == {SECOND}
        await tasks[1]
        assert [(step.change, set(step.partitions)) for step in group.steps] == [
            (Change.LOST, {FIRST}),
            (Change.ASSIGNED, {SECOND}),
        ], "of what no poll has begun with, the application knows nothing"
        group.stop()
        await asyncio.gather(*tasks)

    run_async(scenario())


@pytest.mark.parametrize(("is_member", "change"), [(True, Change.REVOKED), (False, Change.LOST)])
def test_who_leaves_gives_up_what_is_held_and_was_not_told_of(is_member: bool, change: Change) -> None:
    async def scenario() -> None:
        group = Group(is_member=is_member)
        step = group.step_before_leaving()
        assert step is not None and step.change is change and step.partitions == {FIRST, SECOND}
        waiting = await group.begin(Change.REVOKED, FIRST)
        group.steps[0].is_told = True
        step = group.step_before_leaving()
        assert step is not None and step.partitions == {SECOND}
        step.is_told = True
        assert group.step_before_leaving() is None, "a listener may ask while it is told"
        step.finish()
        assert group.engine.cursors.partitions == {FIRST}
        group.stop()
        await waiting
        assert group.step_before_leaving() is None, "nothing is held"
        group.engine.cursors.replace([FIRST])
        group.engine.subscription.unsubscribe()
        assert group.step_before_leaving() is None, "what was assigned by hand is nobody else's"

    run_async(scenario())


def test_a_listener_that_is_told_is_not_waited_for_unless_a_poll_does() -> None:
    async def scenario() -> None:
        for is_awaited in (True, False):
            step = RebalanceStep(Change.REVOKED, [FIRST])
            telling: Any = asyncio.ensure_future(asyncio.sleep(60))
            step.telling, step.is_awaited = telling, is_awaited
            step.break_off()
            await asyncio.sleep(0)
            assert telling.cancelled() is not is_awaited
            telling.cancel()
        commit: Any = asyncio.ensure_future(asyncio.sleep(60))
        step = RebalanceStep(Change.REVOKED, [FIRST])
        step.commit = commit
        step.finish()
        await asyncio.wait([commit])
        assert commit.cancelled(), "it is too late for it"
        await step.wait_finished()

    run_async(scenario())


# With a broker


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    quick = {"group.consumer.min.heartbeat.interval.ms": 20, "group.consumer.heartbeat.interval.ms": 20}
    with EmbeddedBroker(config=quick) as running:
        yield running


class Telling(RebalanceListener):
    def __init__(self, told: list[tuple[str, str, int]], who: str) -> None:
        self.told = told
        self.who = who

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.told.append((self.who, "revoked", len(partitions)))

    async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.told.append((self.who, "assigned", len(partitions)))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"partition_assignment_strategy": "range"},
            [("a", "assigned", 2), ("a", "revoked", 2), ("a", "assigned", 1), ("b", "assigned", 1)],
        ),
        (
            {"partition_assignment_strategy": "cooperative-sticky"},
            [("a", "assigned", 2), ("a", "revoked", 1), ("b", "assigned", 1)],
        ),
        ({"group_protocol": "consumer"}, [("a", "assigned", 2), ("a", "revoked", 1), ("b", "assigned", 1)]),
    ],
    ids=["eager", "cooperative", "consumer protocol"],
)
def test_whoever_comes_gets_a_share_and_reads_on_where_the_other_was(
    broker: EmbeddedBroker, settings: Any, expected: list[tuple[str, str, int]]
) -> None:
    topic = broker.new_topic("shared", partitions=2)
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for partition in (0, 1):
            producer.send(topic, b"v", partition=partition)
    given = {"group_id": topic, "auto_offset_reset": "earliest", "retry_backoff_ms": 5, **settings}
    if "group_protocol" not in settings:
        given["heartbeat_interval_ms"] = 10

    async def scenario() -> None:
        told: list[tuple[str, str, int]] = []
        seen: list[Any] = []
        first: Any = aio.Consumer(bootstrap_servers=broker.bootstrap_servers, **given)
        second: Any = aio.Consumer(bootstrap_servers=broker.bootstrap_servers, **given)
        async with first, second:
            first.subscribe([topic], listener=Telling(told, "a"))
            while len(seen) < 2:
                seen += await first.poll(PATIENCE_S)
            second.subscribe([topic], listener=Telling(told, "b"))

            async def poll(consumer: Any) -> None:
                while not (len(first.assignment) == len(second.assignment) == 1):
                    seen.extend(await consumer.poll(0.01))

            await asyncio.gather(poll(first), poll(second))
            await until(lambda: len(told) >= 3)
            assert first.assignment.isdisjoint(second.assignment)
            (partition,) = second.assignment
            assert await second.position(partition, PATIENCE_S) == 1, "it was committed before it went"
            assert len(seen) == 2
            said = [event for event in told if event[2]]
            assert sorted(said) == sorted(expected) and said[0] == expected[0]

    run_async(scenario())


def test_a_listener_must_not_poll_and_is_waited_for_by_the_next_poll(broker: EmbeddedBroker) -> None:
    topic = broker.new_topic("listening")

    async def scenario() -> None:
        may_end = asyncio.Event()
        errors: list[BaseException] = []
        begun = 0

        class Slow(RebalanceListener):
            async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
                nonlocal begun
                begun += 1
                try:
                    await consumer.poll(0)
                except ConcurrentUseError as e:
                    errors.append(e)
                await may_end.wait()

        settings: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers, "group_id": topic}
        consumer: Any
        async with aio.Consumer(**settings) as consumer:
            consumer.subscribe([topic], listener=Slow())
            polling = asyncio.create_task(consumer.poll(PATIENCE_S))
            await until(lambda: bool(errors))
            polling.cancel()
            await asyncio.wait([polling])
            again = asyncio.create_task(consumer.poll(0.01))
            await asyncio.sleep(0.02)
            assert not again.done() and begun == 1, "the listener goes on, and is not called anew"
            may_end.set()
            assert await again == []
            assert consumer.assignment == {TopicPartition(topic, 0)}

    run_async(scenario())
