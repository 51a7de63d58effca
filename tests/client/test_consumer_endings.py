"""Consumers that end, or lose what they were asked about, while somebody waits: all hear of it, and nothing is left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from ottla import aio
from ottla.client.errors import ClientClosedError, ClientError, SubscriptionStateError, UnassignedPartitionError
from ottla.testing import ApiKey, EmbeddedBroker
from tests.client.consumer_shells import PATIENCE_S


@pytest.fixture(scope="module")
def running_broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def broker(running_broker: EmbeddedBroker) -> Iterator[EmbeddedBroker]:
    yield running_broker
    running_broker.faults.clear()


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    return broker.new_topic(partitions=2)


async def close(consumer: aio.Consumer[bytes | None, bytes | None]) -> None:
    await consumer.close(0)


async def give_up(consumer: aio.Consumer[bytes | None, bytes | None]) -> None:
    ((topic, _),) = consumer.assignment
    consumer.assign([(topic, 1)])


async def fail(consumer: aio.Consumer[bytes | None, bytes | None]) -> None:
    consumer._engine.fail(SubscriptionStateError("no more"))


@pytest.mark.parametrize(
    ("end", "error"),
    [(close, ClientClosedError), (give_up, UnassignedPartitionError), (fail, SubscriptionStateError)],
)
def test_a_position_that_nobody_looks_for_any_more_is_not_waited_for(
    broker: EmbeddedBroker, topic: str, end: Callable[..., object], error: type[ClientError]
) -> None:
    async def main() -> None:
        asked = broker.faults.drop(ApiKey.OFFSET_FETCH, times=None)
        consumer = aio.Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g")
        await consumer.start()
        consumer.assign([(topic, 0)])
        waiting = asyncio.create_task(consumer.position((topic, 0), timeout=10 * PATIENCE_S))
        while not asked.hits:
            await asyncio.sleep(0.01)
        await end(consumer)  # type: ignore[misc]
        with pytest.raises(error):
            await asyncio.wait_for(waiting, PATIENCE_S)
        await consumer.close(0)

    asyncio.run(main())
