"""Polls that do without the event loop: what they take, and what leads them into the loop all the same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import ottla
from ottla.client.aio.group.runner import RebalanceStep
from ottla.client.core.group.rebalance import Change, RebalanceListener
from ottla.errors import ClientError
from ottla.testing import EmbeddedBroker
from tests.waiting import PATIENCE_S, run_async, until

from .test_polls import FIRST, TOPIC, reading

LARGE = 1 << 20


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        running.create_topic(TOPIC)
        with ottla.Producer(bootstrap_servers=running.bootstrap_servers) as producer:
            producer.send_many(TOPIC, [b"0", b"1", b"2", b"3"]).result(PATIENCE_S)
        yield running


@asynccontextmanager
async def fetched(broker: EmbeddedBroker, **options: Any) -> AsyncIterator[Any]:
    """A consumer that has its four records, and the list of how often it was told that there is room for more."""
    async with reading(broker, **options) as consumer:
        await until(consumer._engine.handout.has_records)
        consumer.room = []
        consumer._engine.taken = lambda: consumer.room.append(True)
        yield consumer


def values(records: list[Any]) -> list[bytes]:
    return [record.value for record in records]


def test_what_was_fetched_is_taken_and_then_what_is_decoded(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with fetched(broker) as consumer:
            polls = consumer._polls
            assert polls.take_if_quiet(2) == [], "nothing is decoded yet"
            assert values(polls.receive_records(2, 0.0)) == [b"0", b"1"]
            assert len(consumer.room) == 1
            assert values(polls.take_if_quiet(1)) == [b"2"]
            assert values(polls.receive_records(9, 0.0)) == [b"3"]
            assert len(consumer.room) == 2
            assert polls.receive_records(9, time.monotonic() + 0.01) == []
            assert len(consumer.room) == 2, "nothing was taken"
        async with fetched(broker) as consumer:
            (claimed,) = consumer._polls.receive_claim(LARGE, 0.0)
            assert claimed.cursor.topic_partition == FIRST and len(consumer.room) == 1
            assert consumer._polls.receive_claim(LARGE, 0.0) == [] and len(consumer.room) == 1
        async with fetched(broker) as consumer:
            (claimed,) = await consumer._polls.next_claim(PATIENCE_S, LARGE)
            assert claimed.cursor.topic_partition == FIRST and len(consumer.room) == 1

    run_async(scenario())


def _step(consumer: Any) -> None:
    consumer._group.steps.append(RebalanceStep(Change.ASSIGNED, []))


def _failure(consumer: Any) -> None:
    consumer._engine.fail(ClientError("it is over"))


def _refusal(consumer: Any) -> None:
    consumer._engine.refusal = ClientError("not you")


def _due(consumer: Any) -> None:
    consumer._commits.due_ms = consumer._engine.now_ms()


@pytest.mark.parametrize("something_else", [_step, _failure, _refusal, _due])
def test_a_poll_that_has_something_else_to_do_takes_nothing(
    broker: EmbeddedBroker, something_else: Callable[[Any], None]
) -> None:
    async def scenario() -> None:
        async with fetched(broker) as consumer:
            polls = consumer._polls
            assert len(polls.receive_records(1, 0.0)) == 1
            something_else(consumer)
            assert polls.take_if_quiet(1) == polls.receive_records(1, 0.0) == polls.receive_claim(LARGE, 0.0) == []
            assert len(consumer.room) == 1
            consumer._group.steps.clear()

    run_async(scenario())


def test_a_poll_is_a_sign_of_life(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with fetched(broker, group_id="alive", max_poll_interval_ms=6000, session_timeout_ms=6000) as consumer:
            timer, now_ms = consumer._group.poll_timer, consumer._engine.now_ms()
            timer.touch(now_ms - 7000)
            assert timer.has_expired(now_ms)
            consumer._polls.take_if_quiet(1)
            assert not timer.has_expired(now_ms)

    run_async(scenario())


# Listeners


class Failing(RebalanceListener):
    def __init__(self) -> None:
        self.called = 0

    def on_assigned(self, partitions: Collection[Any]) -> None:
        self.called += 1
        raise ZeroDivisionError


class FailingLater(Failing):
    async def on_assigned(self, partitions: Collection[Any]) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        super().on_assigned(partitions)


@pytest.mark.parametrize("kind", [Failing, FailingLater])
@pytest.mark.parametrize("in_arrow", [False, True])
def test_a_listener_that_fails_fails_one_poll(broker: EmbeddedBroker, kind: type[Failing], in_arrow: bool) -> None:
    async def scenario() -> None:
        async with reading(broker, group_id=f"{kind.__name__}-{in_arrow}", retry_backoff_ms=5) as consumer:
            listener = kind()
            consumer.unsubscribe()
            consumer.subscribe([TOPIC], listener=listener)
            poll = consumer.poll_arrow if in_arrow else consumer.poll
            with pytest.raises(ZeroDivisionError):
                await poll(PATIENCE_S)
            found = await poll(PATIENCE_S)
            assert (found.num_rows if in_arrow else len(found)) == 4
            assert listener.called == 1 and not consumer._group.steps

    run_async(scenario())


def test_a_listener_that_a_poll_waits_for_comes_to_its_end_though_the_consumer_is_closed(
    broker: EmbeddedBroker,
) -> None:
    async def scenario() -> None:
        may_end, ended = asyncio.Event(), []

        class Slow(RebalanceListener):
            async def on_assigned(self, partitions: Collection[Any]) -> None:
                try:
                    await may_end.wait()
                finally:
                    ended.append(may_end.is_set())

        async with reading(broker, group_id="slow", retry_backoff_ms=5) as consumer:
            consumer.unsubscribe()
            consumer.subscribe([TOPIC], listener=Slow())
            polling = asyncio.create_task(consumer.poll(PATIENCE_S))
            await until(lambda: bool(consumer._group.steps and consumer._group.steps[0].is_awaited))
            closing = asyncio.create_task(consumer.close())
            await until(lambda: consumer._engine.is_closed)
            assert ended == []
            may_end.set()
            await asyncio.wait([polling, closing])
            assert ended == [True]

    run_async(scenario())
