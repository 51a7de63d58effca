"""What only the producer for asyncio has to bear: tasks that wait for it while another one closes it."""

from __future__ import annotations

import asyncio
import sys

import pytest

import pytest

from ottla import RecordMetadata, aio
from ottla.errors import ClientClosedError
from ottla.testing import ApiKey, EmbeddedBroker, Fault


async def until_met(fault: Fault) -> None:
    while not fault.hits:
        await asyncio.sleep(0.001)


async def close_while_calls_wait(broker: EmbeddedBroker) -> list[object]:
    producer = await aio.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="tx").start()
    silent = broker.faults.drop(ApiKey.INIT_PRODUCER_ID, times=None)
    calls = [
        asyncio.create_task(producer.init_transactions()),
        asyncio.create_task(producer.partitions_for("nowhere")),
        asyncio.create_task(producer.partitions_for("nowhere")),
    ]
    await until_met(silent)
    await producer.close()
    async with asyncio.timeout(10):
        return [*await asyncio.gather(*calls, return_exceptions=True)]


def test_close_ends_the_waiting_for_metadata_and_for_coordinators() -> None:
    with EmbeddedBroker(config={"auto.create.topics.enable": False}) as broker:
        told = asyncio.run(close_while_calls_wait(broker))
        assert [type(error) for error in told] == [ClientClosedError] * 3


async def close_while_sends_wait(broker: EmbeddedBroker) -> list[object]:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "buffer.memory": 2000, "linger.ms": 0}
    producer = await aio.Producer(settings).start()
    await producer.partitions_for("t")
    silent = broker.faults.drop(ApiKey.PRODUCE, times=None)
    await producer.send("t", bytes(1500))
    sends = [asyncio.create_task(producer.send("t", bytes(1500))) for _ in range(3)]
    await until_met(silent)
    await producer.close(timeout=0.01)
    async with asyncio.timeout(10):
        return [*await asyncio.gather(*sends, return_exceptions=True)]


async def flush_in_vain(broker: EmbeddedBroker) -> RecordMetadata:
    async with aio.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        slow = broker.faults.delay(ApiKey.PRODUCE, ms=500)
        sent = await producer.send("t", b"v")
        with pytest.raises(TimeoutError, match=r"within 0\.05 s"):
            await producer.flush(timeout=0.05)
        await until_met(slow)
        await producer.flush()
        assert sent.done()
        return await sent


def test_flush_gives_up_when_its_time_is_up_and_the_records_go_on() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("t")
        assert asyncio.run(flush_in_vain(broker)).offset == 0


def test_close_ends_the_waiting_for_memory() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("t")
        told = asyncio.run(close_while_sends_wait(broker))
        assert [type(error) for error in told] == [ClientClosedError] * 3


def test_a_callback_may_end_the_program_when_everybody_has_been_told() -> None:
    told: list[object] = []

    async def send(broker: EmbeddedBroker) -> None:
        async with aio.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for topic in ("t", "u"):
                await producer.partitions_for(topic)
            await producer.send("t", b"", on_delivery=lambda *_: sys.exit(3))
            await producer.send("u", b"", on_delivery=lambda *outcome: told.append(outcome))
            await asyncio.sleep(10)

    with EmbeddedBroker() as broker:
        with pytest.raises(SystemExit) as raised:
            asyncio.run(send(broker))
        assert raised.value.code == 3
        assert len(told) == 1
