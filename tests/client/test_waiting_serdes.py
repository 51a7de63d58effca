"""Serdes that have to ask somebody: the event loop goes on meanwhile, and nothing gets out of order."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import ottla.client.aio as ottla_aio
from ottla import ConsumerRecord
from ottla.base.errors import ErrorCode
from ottla.client.errors import ClientError, DeserializationError, SerializationError
from tests.broker_process import BrokerProcess
from tests.client.consumer_shells import PATIENCE_S, make_topic, open_shell, read, wait_until, write
from tests.waiting import run_async


class AskingSerde:
    """Numbers as text. Each topic has to be asked for once, and the one to ask answers when `answers` is set."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked: list[int] = []
        self.failure: Exception | None = None
        self._known: set[str] = set()

    def waits_to_serialize(self, topic: str, value: int | None) -> bool:
        return topic not in self._known

    def waits_to_deserialize(self, topic: str, data: bytes | None) -> bool:
        return topic not in self._known

    def serialize(self, topic: str, value: int | None) -> bytes:
        self._ask(topic)
        return b"%d" % (value or 0)

    def deserialize(self, topic: str, data: bytes | None) -> int:
        self._ask(topic)
        return int(data or b"")

    def _ask(self, topic: str) -> None:
        if topic in self._known:
            return
        self.asked.append(threading.get_ident())
        if not self.answers.wait(PATIENCE_S):
            raise AssertionError("what would have answered had no chance to")
        if self.failure is not None:
            raise self.failure
        self._known.add(topic)


async def until_asked(serde: AskingSerde) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not serde.asked:
            await asyncio.sleep(0.001)


@pytest.fixture
def topic(broker: BrokerProcess, new_topic: str) -> str:
    return make_topic(broker.bootstrap, new_topic)


def test_a_producer_waits_beside_the_loop_and_keeps_the_order(broker: BrokerProcess, topic: str) -> None:
    async def run() -> None:
        serde = AskingSerde()
        async with ottla_aio.Producer(bootstrap_servers=broker.bootstrap, value_serializer=serde) as producer:
            # Who waits for a topic to be found may be overtaken by who comes when it has been.
            await producer.partitions_for(topic)
            sends = [asyncio.create_task(producer.send(topic, number)) for number in range(20)]
            await until_asked(serde)
            sends += [asyncio.create_task(producer.send(topic, number)) for number in range(20, 40)]
            serde.answers.set()
            stored = [await (await send) for send in sends]
            assert [metadata.offset for metadata in stored] == list(range(40))
            serde.failure = ValueError("no such subject")
            with pytest.raises(SerializationError, match="no such subject"):
                await producer.send(f"{topic}-other", 1)
        assert serde.asked
        assert threading.get_ident() not in serde.asked

    run_async(run())


def test_a_serializer_that_cannot_say_whether_it_waits_refuses_its_record(broker: BrokerProcess, topic: str) -> None:
    class Puzzled(AskingSerde):
        def waits_to_serialize(self, topic: str, value: int | None) -> bool:
            if value == 1:
                raise LookupError("no idea")
            return False

    async def run() -> None:
        serde = Puzzled()
        serde.answers.set()
        async with ottla_aio.Producer(bootstrap_servers=broker.bootstrap, value_serializer=serde) as producer:
            with pytest.raises(SerializationError, match=f"{topic}: .* the value: no idea"):
                await producer.send(topic, 1)
            assert (await producer.send_and_wait(topic, 2)).offset == 0

    run_async(run())


@pytest.mark.parametrize("kind", ["sync", "aio"])
def test_a_consumer_waits_beside_the_loop(broker: BrokerProcess, topic: str, kind: str) -> None:
    write(broker.bootstrap, topic, [b"0", b"1", b"2"])
    serde = AskingSerde()
    with open_shell(kind, broker.bootstrap) as shell:
        consumer = shell(key_deserializer=bytes.decode, value_deserializer=serde)
        consumer.assign([(topic, 0)])
        wait_until(lambda: bool(serde.asked), consumer)
        assert consumer.poll(0.01) == []
        assert consumer.position((topic, 0)) == 0
        serde.answers.set()
        assert [(record.key, record.value) for record in read(consumer, 3)] == [
            ("key-0", 0),
            ("key-1", 1),
            ("key-2", 2),
        ]
    assert len(serde.asked) == 1
    assert threading.get_ident() not in serde.asked


@pytest.mark.parametrize("kind", ["sync", "aio"])
def test_what_comes_of_asking_is_told_by_poll(broker: BrokerProcess, topic: str, kind: str) -> None:
    write(broker.bootstrap, topic, [b"0", b"1"])
    serde = AskingSerde()
    serde.answers.set()
    with open_shell(kind, broker.bootstrap) as shell:
        consumer = shell(value_deserializer=serde)
        consumer.assign([(topic, 0)])
        serde.failure = ClientError("away", code=ErrorCode.NETWORK_EXCEPTION)
        for _ in range(2):
            with pytest.raises(ClientError, match="away"):
                consumer.poll(PATIENCE_S)
        serde.failure = ValueError("no such schema")
        with pytest.raises(DeserializationError, match="no such schema") as caught:
            consumer.poll(PATIENCE_S)
        assert caught.value.offset == 0
        serde.failure = None
        consumer.seek((topic, 0), 1)
        assert [record.value for record in read(consumer, 1)] == [1]


def test_a_parallel_consumer_waits_beside_the_loop(broker: BrokerProcess, topic: str) -> None:
    async def run() -> None:
        write(broker.bootstrap, topic, [b"0", b"1", b"2"])
        serde = AskingSerde()
        seen: list[int] = []

        async def handle(record: ConsumerRecord[Any, int]) -> None:
            seen.append(record.value)
            if len(seen) == 3:
                consumer.stop()

        async with ottla_aio.ParallelConsumer(
            [topic],
            handle,
            bootstrap_servers=broker.bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            dead_letter=None,
            value_deserializer=serde,
        ) as consumer:
            running = asyncio.create_task(consumer.run())
            await until_asked(serde)
            serde.answers.set()
            await asyncio.wait_for(running, PATIENCE_S)
        assert sorted(seen) == [0, 1, 2]
        assert threading.get_ident() not in serde.asked

    run_async(run())
