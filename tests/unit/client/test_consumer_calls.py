"""What a consumer for asyncio can be asked besides records, against a broker in this process."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

import ottla
from ottla import TopicPartition, aio
from ottla.client.aio.consumer import consumer
from ottla.client.core.consumer.cursors import OffsetAndMetadata
from ottla.client.core.group.rebalance import RebalanceListener
from ottla.errors import (
    ClientClosedError,
    ClientError,
    CommitFailedError,
    ConcurrentUseError,
    SubscriptionStateError,
    UnassignedPartitionError,
)
from ottla.testing import EmbeddedBroker
from tests.log_lines import messages_of
from tests.waiting import PATIENCE_S, run_async, until

START_MS = 1_700_000_000_000
TOPIC = "calls"
COUNTS = {TopicPartition(TOPIC, 0): 5, TopicPartition(TOPIC, 1): 2, TopicPartition(TOPIC, 2): 0}
FIRST, SECOND, THIRD = COUNTS


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        running.create_topic(TOPIC, partitions=3)
        with ottla.Producer(bootstrap_servers=running.bootstrap_servers) as producer:
            for (_, partition), count in COUNTS.items():
                for number in range(count):
                    producer.send(TOPIC, b"%d" % number, partition=partition, timestamp_ms=START_MS + number)
        yield running


Scenario = Callable[[Any], Awaitable[None]]


@pytest.fixture
def run(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> Callable[..., None]:
    """Runs a scenario with a consumer of a group of its own."""

    def run(scenario: Scenario, **settings: Any) -> None:
        async def wrapped() -> None:
            async with opened(broker, request.node.name, **settings) as consumer:
                await scenario(consumer)

        run_async(wrapped())

    return run


@asynccontextmanager
async def opened(broker: EmbeddedBroker, group_id: str | None, **settings: Any) -> AsyncIterator[Any]:
    given = {"auto_offset_reset": "earliest", "retry_backoff_ms": 5, **settings}
    async with aio.Consumer(bootstrap_servers=broker.bootstrap_servers, group_id=group_id, **given) as consumer:
        yield consumer


async def read(consumer: Any, count: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    while len(found) < count:
        found += [(record.partition, record.offset) for record in await consumer.poll(PATIENCE_S)]
    return sorted(found)


EVERY = [(partition.partition, offset) for partition, count in COUNTS.items() for offset in range(count)]


def test_paused_partitions_stay_assigned_and_give_nothing(run: Callable[..., None]) -> None:
    async def scenario(consumer: Any) -> None:
        consumer.assign(COUNTS)
        consumer.pause([FIRST])
        assert consumer.paused == {FIRST} and consumer.assignment == set(COUNTS)
        assert await read(consumer, 2) == EVERY[5:]
        consumer.pause()
        assert consumer.paused == set(COUNTS)
        consumer.resume([FIRST])
        assert consumer.paused == {SECOND, THIRD}
        assert await read(consumer, 5) == EVERY[:5]
        consumer.resume()
        assert consumer.paused == set()
        for call in (consumer.pause, consumer.resume, consumer.seek_to_end):
            with pytest.raises(UnassignedPartitionError, match="elsewhere-0 is not assigned"):
                call([("elsewhere", 0)])

    run(scenario)


def test_a_waiting_poll_hears_of_what_is_resumed_or_sought(run: Callable[..., None]) -> None:
    async def scenario(consumer: Any) -> None:
        consumer.assign([FIRST])
        await read(consumer, 5)
        changes: list[Callable[[], None]] = [
            lambda: consumer.seek(FIRST, 4),
            lambda: consumer.seek_to_beginning([FIRST]),
        ]
        for change in changes:
            polling = asyncio.create_task(consumer.poll(PATIENCE_S))
            await until(lambda: consumer._is_polling)
            change()
            assert (await polling)[-1].offset == 4

    run(scenario, fetch_max_wait_ms=10)


def test_reading_begins_at_the_end_or_at_the_beginning(run: Callable[..., None]) -> None:
    async def scenario(consumer: Any) -> None:
        consumer.assign(COUNTS)
        consumer.seek_to_end()
        assert [await consumer.position(partition) for partition in COUNTS] == [5, 2, 0]
        consumer.seek_to_beginning([SECOND])
        assert [await consumer.position(partition) for partition in COUNTS] == [5, 0, 0]
        assert await read(consumer, 2) == EVERY[5:]
        assert consumer.lag(SECOND) == 0
        consumer.seek((TOPIC, 0), 3)
        assert await read(consumer, 2) == EVERY[3:5]

    run(scenario)


def test_offsets_of_places_and_times(run: Callable[..., None]) -> None:
    async def scenario(consumer: Any) -> None:
        assert await consumer.beginning_offsets(COUNTS) == dict.fromkeys(COUNTS, 0)
        assert await consumer.end_offsets(COUNTS) == COUNTS
        found = await consumer.offsets_for_times({FIRST: START_MS + 3, SECOND: START_MS + 2, THIRD: 0})
        assert found[FIRST][:2] == (3, START_MS + 3)
        assert found[SECOND] is None and found[THIRD] is None
        with pytest.raises(ClientError):
            await consumer.end_offsets([(TOPIC, 9)], timeout=0.05)

    run(scenario)


def test_topics_and_partitions_there_are(run: Callable[..., None]) -> None:
    async def scenario(consumer: Any) -> None:
        listed = await consumer.list_topics()
        assert [info.partition for info in listed[TOPIC]] == [0, 1, 2]
        assert listed[TOPIC] == await consumer.partitions_for(TOPIC)
        assert await consumer.partitions_for("nowhere") == []

    run(scenario)


def test_what_is_committed_is_known(run: Callable[..., None]) -> None:
    async def scenario(consumer: Any) -> None:
        consumer.assign([FIRST, SECOND])
        await read(consumer, 7)
        consumer.seek(FIRST, 3)
        await consumer.commit()
        stored = await consumer.committed(COUNTS)
        assert {partition: at and at.offset for partition, at in stored.items()} == {FIRST: 3, SECOND: 2, THIRD: None}
        (record,) = await consumer.poll(PATIENCE_S, 1)
        await consumer.commit(record)
        assert (await consumer.committed([FIRST]))[FIRST].offset == 4

    run(scenario, enable_auto_commit=False)


def test_commits_in_the_background_tell_their_callbacks(run: Callable[..., None]) -> None:
    async def scenario(consumer: Any) -> None:
        told: list[tuple[Mapping[TopicPartition, OffsetAndMetadata], ClientError | None]] = []
        consumer.assign([FIRST])
        consumer.commit_async({FIRST: 1}, lambda offsets, error: told.append((offsets, error)))
        consumer.commit_async({FIRST: 2}, lambda offsets, error: told.append((offsets, error)))
        await until(lambda: len(told) == 2)
        assert told == [({FIRST: OffsetAndMetadata(offset)}, None) for offset in (1, 2)]
        assert (await consumer.committed([FIRST]))[FIRST].offset == 2

    run(scenario, enable_auto_commit=False)


def test_calls_before_the_start_and_after_the_end(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        consumer: Any = aio.Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="unstarted")
        consumer.assign([FIRST])
        asked: list[Callable[[], Any]] = [
            lambda: consumer.poll(0),
            lambda: consumer.poll_arrow(0),
            lambda: consumer.position(FIRST),
            lambda: consumer.commit(),
            lambda: consumer.committed([FIRST]),
            lambda: consumer.end_offsets([FIRST]),
            lambda: consumer.offsets_for_times({FIRST: 0}),
            lambda: consumer.partitions_for(TOPIC),
            lambda: consumer.list_topics(),
            lambda: consumer.to_arrow(TOPIC),
        ]
        for call in asked:
            with pytest.raises(ClientClosedError, match="call start"):
                await call()
        with pytest.raises(ClientClosedError, match="call start"):
            consumer.commit_async()
        await consumer.start()
        await consumer.start()
        await consumer.close()
        await consumer.close()
        for call in (*asked, consumer.start):
            with pytest.raises(ClientClosedError):
                await call()
        at_once: list[Callable[[], Any]] = [
            consumer.seek_to_end,
            consumer.unsubscribe,
            consumer.commit_async,
            lambda: consumer.seek(FIRST, 0),
            lambda: consumer.assign([FIRST]),
            lambda: consumer.subscribe([TOPIC]),
        ]
        for call in at_once:
            with pytest.raises(ClientClosedError):
                call()

    run_async(scenario())


def test_one_task_polls_at_a_time(run: Callable[..., None]) -> None:
    async def scenario(consumer: Any) -> None:
        for poll in (consumer.poll, consumer.poll_arrow):
            with pytest.raises(SubscriptionStateError, match="nothing to read"):
                await poll(0)
        consumer.assign([THIRD])
        polling = asyncio.create_task(consumer.poll(PATIENCE_S))
        await until(lambda: consumer._is_polling)
        for poll in (consumer.poll, consumer.poll_arrow):
            with pytest.raises(ConcurrentUseError, match="another task"):
                await poll(0)
        polling.cancel()
        await asyncio.wait([polling])
        assert await consumer.poll(0) == []
        for nothing in (0, -1):
            with pytest.raises(ValueError, match="at least 1"):
                await consumer.poll(0, nothing)

    run(scenario)


def test_a_poll_gives_no_more_than_the_settings_or_the_call_allow(run: Callable[..., None]) -> None:
    async def scenario(consumer: Any) -> None:
        consumer.assign([FIRST])
        assert len(await consumer.poll(PATIENCE_S)) == 2
        assert len(await consumer.poll(PATIENCE_S, 1)) == 1
        assert [record.offset for record in await consumer.poll(PATIENCE_S, 7)] == [3, 4]

    run(scenario, max_poll_records=2)


def test_without_a_group_there_is_nobody_to_commit_for(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with opened(broker, None) as consumer:
            consumer.assign([FIRST])
            await read(consumer, 5)
            for offsets in (None, {FIRST: 3}):
                with pytest.raises(ClientError, match=r"group\.id"):
                    await consumer.commit(offsets)
                with pytest.raises(ClientError, match=r"group\.id"):
                    consumer.commit_async(offsets)
            with pytest.raises(ClientError, match=r"group\.id"):
                consumer.subscribe([TOPIC])

    run_async(scenario())


# Columns


def test_columns_come_as_they_are_asked_for(run: Callable[..., None]) -> None:
    pytest.importorskip("pyarrow")

    async def scenario(consumer: Any) -> None:
        consumer.assign([FIRST])
        nothing = await consumer.poll_arrow(columns=["offset"])
        assert nothing.schema.names == ["offset"] and nothing.num_rows in (0, 5)
        consumer.seek(FIRST, 0)
        found = await consumer.poll_arrow(PATIENCE_S, 3)
        assert found["value"].to_pylist() == [b"0", b"1", b"2"]
        assert await consumer.position(FIRST) == 3
        assert (await consumer.poll_arrow(PATIENCE_S))["offset"].to_pylist() == [3, 4]
        assert (await consumer.poll_arrow(0.01)).num_rows == 0
        with pytest.raises(ValueError, match="at least 1"):
            await consumer.poll_arrow(0, 0)

    run(scenario)


def test_hidden_records_are_waited_past_and_the_time_is_kept(broker: EmbeddedBroker, run: Callable[..., None]) -> None:
    pytest.importorskip("pyarrow")
    topic = broker.new_topic("hidden")

    async def scenario(consumer: Any) -> None:
        settings: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers, "transactional_id": topic}
        async with aio.Producer(**settings) as producer:
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send(topic, b"hidden")
                    await producer.flush()
                    raise ZeroDivisionError
            consumer.assign([(topic, 0)])
            assert (await consumer.poll_arrow(0.1)).num_rows == 0
            assert await consumer.poll(0.1) == []
            assert await consumer.position((topic, 0)) == 2
            consumer.seek((topic, 0), 0)
            async with producer.transaction():
                await producer.send(topic, b"shown")
        assert (await consumer.poll_arrow(PATIENCE_S))["offset"].to_pylist() == [2]

    run(scenario, isolation_level="read_committed", fetch_max_wait_ms=10)


# Groups


class Listener(RebalanceListener):
    """Notes what it is told, and what was committed by then."""

    def __init__(self, consumer: Any, told: list[tuple[str, list[int]]]) -> None:
        self.consumer = consumer
        self.told = told

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.told.append(("revoked", sorted(partition.partition for partition in partitions)))

    async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.told.append(("assigned", sorted(partition.partition for partition in partitions)))

    async def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.told.append(("lost", sorted(partition.partition for partition in partitions)))


PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@PROTOCOLS
@pytest.mark.parametrize("is_automatic", [True, False])
@pytest.mark.parametrize("listens", [True, False])
def test_who_unsubscribes_commits_tells_the_listener_and_leaves(
    broker: EmbeddedBroker, run: Callable[..., None], protocol: str, is_automatic: bool, listens: bool
) -> None:
    async def scenario(consumer: Any) -> None:
        told: list[tuple[str, list[int]]] = []
        listener = Listener(consumer, told) if listens else None
        consumer.subscribe([TOPIC], listener=listener)
        assert consumer.subscription == {TOPIC}
        with pytest.raises(CommitFailedError, match="not in its group"):
            _ = consumer.membership
        assert await read(consumer, 7) == EVERY
        member_id = consumer.membership.member_id
        assert consumer.membership.group_id and member_id
        consumer.unsubscribe()
        assert (consumer.subscription, consumer.assignment) == (set(), set())
        consumer.assign([FIRST])
        await until(lambda: not consumer._group.is_leaving)
        assert told == ([("assigned", [0, 1, 2]), ("revoked", [0, 1, 2])] if listens else [])
        stored = await consumer.committed([FIRST, SECOND])
        assert [at and at.offset for at in stored.values()] == ([5, 2] if is_automatic else [None, None])
        await consumer._group._farewell
        async with aio.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            group_id = consumer.settings.group_id
            described = (await admin.describe_groups([group_id])).results.get(group_id)
            assert described is None or described.members == ()
        assert consumer.membership.member_id == ""

    run(scenario, group_protocol=protocol, enable_auto_commit=is_automatic)


def test_who_subscribes_again_while_leaving_joins_again(run: Callable[..., None]) -> None:
    async def scenario(consumer: Any) -> None:
        told: list[tuple[str, list[int]]] = []
        for topics in ([TOPIC], re.compile("^call")):
            consumer.subscribe(topics, listener=Listener(consumer, told))
            await read(consumer, 7)
            consumer.unsubscribe()
        consumer.subscribe([TOPIC])
        await until(lambda: len(told) == 4)
        assert [change for change, _ in told] == ["assigned", "revoked"] * 2
        consumer.subscribe([])
        assert consumer.subscription == set()

    run(scenario, enable_auto_commit=False)


def test_a_listener_that_fails_at_the_end_is_told_of_in_the_log(
    run: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(RebalanceListener):
        def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
            raise ZeroDivisionError("in the listener")

    async def scenario(consumer: Any) -> None:
        consumer.subscribe([TOPIC], listener=Failing())
        await read(consumer, 7)
        consumer.unsubscribe()
        await until(lambda: not consumer._group.is_leaving)

    run(scenario)
    assert messages_of(caplog, consumer.__name__) == ["the listener failed when the consumer had unsubscribed"]


def test_closing_commits_the_positions_and_tells_the_listener(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        told: list[tuple[str, list[int]]] = []
        async with opened(broker, "closing") as consumer:
            consumer.subscribe([TOPIC], listener=Listener(consumer, told))
            await read(consumer, 7)
            consumer.seek(FIRST, 1)
        assert told == [("assigned", [0, 1, 2]), ("revoked", [0, 1, 2])]
        async with opened(broker, "closing") as consumer:
            stored = await consumer.committed([FIRST, SECOND, THIRD])
            assert {partition.partition: at and at.offset for partition, at in stored.items()} == {0: 1, 1: 2, 2: 0}

    run_async(scenario())


def test_partitions_that_are_given_up_by_hand_are_committed_if_that_is_automatic(run: Callable[..., None]) -> None:
    async def scenario(consumer: Any) -> None:
        consumer.assign([FIRST, SECOND])
        await read(consumer, 7)
        consumer.assign([SECOND])
        assert await consumer._commits.wait_ended(PATIENCE_S)
        stored = await consumer.committed([FIRST, SECOND])
        assert stored[FIRST].offset == 5 and stored[SECOND] is None

    run(scenario, auto_commit_interval_ms=3_600_000)
