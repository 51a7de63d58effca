"""Records without a key go less often to a partition whose broker is slow (KIP-794)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ottla import aio
from ottla.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.apis.metadata import MetadataRequest, MetadataResponsePartition, MetadataResponseTopic
from ottla.wire.apis.produce import ProduceRequest, ProduceResponse
from tests.waiting import run_async

from .scripted_broker import ScriptedBroker
from .test_produce_order import stored

TOPIC = "uneven"
FAST, SLOW = 0, 1
RECORDS = 200


class Scene:
    def __init__(self, producer: aio.Producer, may_answer: asyncio.Event) -> None:
        self.producer = producer
        self.may_answer = may_answer
        """Without it the slow broker answers nothing."""
        self.places: Counter[int] = Counter()
        self.tables: list[aio.TableFuture] = []

    async def send(self, count: int, partition: int | None = None) -> None:
        for _ in range(count):
            await self.producer.send(TOPIC, bytes(1000), partition=partition, on_delivery=self._delivered)
            await turns_of_the_loop()

    async def send_arrow(self, count: int) -> None:
        pa = pytest.importorskip("pyarrow")
        for _ in range(count):
            self.tables.append(await self.producer.send_arrow(TOPIC, pa.table({"value": [bytes(1000)]})))
            await turns_of_the_loop()

    async def all_places(self) -> Counter[int]:
        """How many records each partition got, once the slow broker answers again."""
        self.may_answer.set()
        await self.producer.flush()
        for table in self.tables:
            self.places.update(place.partition for place in await table)
        return self.places

    def _delivered(self, metadata: Any, error: Any) -> None:
        assert error is None
        self.places[metadata.partition] += 1


async def turns_of_the_loop() -> None:
    """As many as the fast broker, which runs in the same loop, takes to answer."""
    for _ in range(20):
        await asyncio.sleep(0)


@asynccontextmanager
async def uneven_brokers(**settings: object) -> AsyncIterator[Scene]:
    """Each leads one partition, where a first record is stored already; every record is a batch."""
    may_answer = asyncio.Event()
    may_answer.set()

    async def stored_late(request: ProduceRequest) -> ProduceResponse:
        await may_answer.wait()
        return stored(request)

    async with ScriptedBroker(FAST) as fast, ScriptedBroker(SLOW) as slow:
        partitions = [MetadataResponsePartition(partition_index=n, leader_id=n, leader_epoch=0) for n in (FAST, SLOW)]
        topic = MetadataResponseTopic(name=TOPIC, partitions=partitions)
        for broker in (fast, slow):
            broker.on(MetadataRequest, lambda _: fast.metadata(slow, topics=[topic]))
            broker.on(InitProducerIdRequest, lambda _: InitProducerIdResponse(producer_id=7, producer_epoch=0))
        fast.on(ProduceRequest, stored)
        slow.on(ProduceRequest, stored_late)
        async with aio.Producer(bootstrap_servers=fast.address, batch_size=1000, linger_ms=0, **settings) as producer:
            scene = Scene(producer, may_answer)
            for partition in (FAST, SLOW):
                await producer.send(TOPIC, b"first", partition=partition)
            await producer.flush()
            may_answer.clear()
            try:
                yield scene
            finally:
                may_answer.set()


@pytest.mark.parametrize("way", ["send", "send_arrow"])
def test_a_slow_partition_gets_clearly_fewer_records(way: str) -> None:
    async def run() -> Counter[int]:
        async with uneven_brokers(max_request_size=1500) as scene:
            await getattr(scene, way)(RECORDS)
            return await scene.all_places()

    places = run_async(run())
    assert places.total() == RECORDS
    # Five requests are in flight. With n batches waiting behind them, the next one comes with a chance of 1 to n + 1.
    assert 5 < places[SLOW] < RECORDS / 4, places


def test_without_adaptive_partitioning_it_gets_as_many() -> None:
    async def run() -> Counter[int]:
        async with uneven_brokers(partitioner_adaptive_partitioning_enable=False) as scene:
            await scene.send(RECORDS)
            return await scene.all_places()

    assert run_async(run()) == {FAST: RECORDS // 2, SLOW: RECORDS // 2}


def test_a_partition_that_can_be_sent_nothing_is_avoided_until_its_broker_answers() -> None:
    async def run() -> None:
        async with uneven_brokers(partitioner_availability_timeout_ms=20) as scene:
            await scene.send(6, partition=SLOW)
            await asyncio.sleep(0.05)
            await scene.send(RECORDS)
            assert await scene.all_places() == {FAST: RECORDS, SLOW: 6}
            await scene.send(RECORDS)
            assert (await scene.all_places())[SLOW] > RECORDS / 4

    run_async(run())
