"""A producer, for each answer that brokers may give about topics, producer ids and records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ottla import aio
from ottla.base.errors import ErrorCode
from ottla.errors import (
    BufferExhaustedError,
    ClientClosedError,
    ClientError,
    DeliveryTimeoutError,
    MetadataTimeoutError,
)
from ottla.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.apis.metadata import MetadataRequest, MetadataResponsePartition, MetadataResponseTopic
from ottla.wire.apis.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.waiting import run_async, until

from .scripted_broker import ScriptedBroker
from .test_silent_broker import never

E = ErrorCode
TOPIC = "t"


class World:
    producer: aio.Producer

    def __init__(self, broker: ScriptedBroker) -> None:
        self.broker = broker
        self.topic_codes: list[int] = []
        self.id_codes: list[int] = []
        self.produce_codes: list[int] = []
        broker.on(MetadataRequest, self._topics)
        broker.on(InitProducerIdRequest, self._given_id)
        broker.on(ProduceRequest, self._stored)

    def _topics(self, request: MetadataRequest) -> Any:
        topics = []
        for asked in request.topics or []:
            code = self.topic_codes.pop(0) if self.topic_codes else 0
            partitions = [] if code else [MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=0)]
            topics.append(MetadataResponseTopic(name=asked.name, error_code=code, partitions=partitions))
        return self.broker.metadata(topics=topics)

    def _given_id(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        code = self.id_codes.pop(0) if self.id_codes else 0
        return InitProducerIdResponse(error_code=code, producer_id=-1 if code else 7, producer_epoch=0)

    def _stored(self, request: ProduceRequest) -> ProduceResponse:
        code = self.produce_codes.pop(0) if self.produce_codes else 0
        answer = PartitionProduceResponse(index=0, error_code=code, base_offset=-1 if code else 40)
        name = request.topic_data[0].name
        return ProduceResponse(responses=[TopicProduceResponse(name=name, partition_responses=[answer])])

    def count(self, kind: Any) -> int:
        return len(self.broker.asked(kind))


@asynccontextmanager
async def world(**settings: object) -> AsyncIterator[World]:
    async with ScriptedBroker() as broker:
        here = World(broker)
        own = {"bootstrap.servers": broker.address, "retry.backoff.ms": 1, "linger.ms": 0}
        async with aio.Producer({**own, **settings}) as here.producer:
            yield here


@pytest.mark.parametrize("code", [E.LEADER_NOT_AVAILABLE, E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_ID])
def test_a_topic_that_is_being_made_is_waited_for(code: ErrorCode) -> None:
    async def scenario() -> None:
        async with world() as here:
            here.topic_codes = [code, code]
            metadata = await here.producer.send_and_wait(TOPIC, b"x")
            assert (metadata.partition, metadata.offset) == (0, 40)
            assert all(one.allow_auto_topic_creation for one in here.broker.asked(MetadataRequest) if one.topics)

    run_async(scenario())


@pytest.mark.parametrize("code", [E.TOPIC_AUTHORIZATION_FAILED, E.INVALID_TOPIC_EXCEPTION])
def test_a_topic_that_is_refused_is_not_waited_for(code: ErrorCode) -> None:
    async def scenario() -> None:
        async with world() as here:
            here.topic_codes = [code] * 100
            with pytest.raises(ClientError, match=f"topic {TOPIC}") as refusal:
                await here.producer.send(TOPIC, b"x")
            assert refusal.value.code is code and not refusal.value.fatal
            here.topic_codes = []
            await here.producer.send_and_wait("other", b"x")

    run_async(scenario())


def test_a_topic_that_does_not_come_is_told_of_with_its_reason() -> None:
    async def scenario() -> None:
        async with world(**{"max.block.ms": 100}) as here:
            here.topic_codes = [E.LEADER_NOT_AVAILABLE] * 10_000
            with pytest.raises(MetadataTimeoutError, match=f"topic {TOPIC}: nothing could be learnt within 100 ms"):
                await here.producer.send(TOPIC, b"x")
            here.topic_codes = []
            with pytest.raises(MetadataTimeoutError, match="has the partitions 0 to 0, and no partition 5"):
                await here.producer.send(TOPIC, b"x", partition=5)

    run_async(scenario())


@pytest.mark.parametrize(
    ("codes", "fatal"),
    [
        ([E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE], None),
        ([E.CLUSTER_AUTHORIZATION_FAILED], E.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
def test_a_producer_id_is_asked_for_until_it_is_given_or_refused(
    codes: list[ErrorCode], fatal: ErrorCode | None
) -> None:
    async def scenario() -> None:
        async with world() as here:
            here.id_codes = [*codes]
            if fatal is None:
                await here.producer.send_and_wait(TOPIC, b"x")
                assert here.count(InitProducerIdRequest) == len(codes) + 1
                assert {one.transactional_id for one in here.broker.asked(InitProducerIdRequest)} == {None}
                return
            with pytest.raises(ClientError, match="a producer id was refused") as refusal:
                await here.producer.send_and_wait(TOPIC, b"x")
            assert refusal.value.code is fatal and refusal.value.fatal
            with pytest.raises(ClientError):
                await here.producer.send(TOPIC, b"x")
            assert here.count(ProduceRequest) == 0

    run_async(scenario())


def test_a_producer_without_idempotence_asks_for_no_id() -> None:
    async def scenario() -> None:
        async with world(**{"enable.idempotence": False}) as here:
            await here.producer.send_and_wait(TOPIC, b"x")
            assert here.count(InitProducerIdRequest) == 0

    run_async(scenario())


def test_records_are_sent_again_or_fail_as_the_broker_says() -> None:
    async def scenario() -> None:
        async with world() as here:
            here.produce_codes = [E.NOT_LEADER_OR_FOLLOWER, E.NOT_ENOUGH_REPLICAS]
            assert (await here.producer.send_and_wait(TOPIC, b"x")).offset == 40
            assert here.count(ProduceRequest) == 3
            here.produce_codes = [E.TOPIC_AUTHORIZATION_FAILED]
            told: list[tuple[object, ClientError | None]] = []
            future = await here.producer.send(TOPIC, b"x", on_delivery=lambda *told_with: told.append(told_with))
            with pytest.raises(ClientError) as refusal:
                await future
            assert refusal.value.code is E.TOPIC_AUTHORIZATION_FAILED
            ((_, error),) = told
            assert error is not None and error.code is E.TOPIC_AUTHORIZATION_FAILED
            assert (await here.producer.send_and_wait(TOPIC, b"x")).offset == 40

    run_async(scenario())


def test_a_record_that_no_broker_takes_in_time_fails_and_says_so() -> None:
    async def scenario() -> None:
        times = {"delivery.timeout.ms": 300, "request.timeout.ms": 300}
        async with world(**times) as here:
            await here.producer.send_and_wait(TOPIC, b"x")
            here.produce_codes = [E.NOT_ENOUGH_REPLICAS] * 100_000
            with pytest.raises(DeliveryTimeoutError, match=r"delivery\.timeout\.ms"):
                await here.producer.send_and_wait(TOPIC, b"y")
            here.produce_codes = []
            assert (await here.producer.send_and_wait(TOPIC, b"z")).offset == 40

    run_async(scenario())


def test_who_waits_for_memory_gets_it_in_turn_or_is_told_why_not() -> None:
    async def scenario() -> None:
        async with world(**{"buffer.memory": 2000, "batch.size": 500, "max.block.ms": 300}) as here:
            await here.producer.send_and_wait(TOPIC, b"x")
            may_answer = asyncio.Event()
            answer = here._stored

            async def late(request: ProduceRequest) -> ProduceResponse:
                await may_answer.wait()
                return answer(request)

            here.broker.on(ProduceRequest, late)
            sent = [await here.producer.send(TOPIC, bytes(450)) for _ in range(3)]
            waiting = asyncio.create_task(here.producer.send(TOPIC, bytes(1500)))
            with pytest.raises(BufferExhaustedError, match="stayed full for 300 ms"):
                await waiting
            behind = [asyncio.create_task(here.producer.send(TOPIC, bytes(450))) for _ in range(3)]
            await asyncio.sleep(0)
            may_answer.set()
            sent += [await task for task in behind]
            assert {(await future).offset for future in sent} == {40}

    run_async(scenario())


def test_closing_ends_all_waiting() -> None:
    async def scenario() -> None:
        async with world() as here:
            here.topic_codes = [E.LEADER_NOT_AVAILABLE] * 100_000
            waiting = asyncio.create_task(here.producer.send(TOPIC, b"x"))
            await until(lambda: here.count(MetadataRequest) > 2)
            await here.producer.close()
            with pytest.raises(ClientClosedError):
                await waiting
            with pytest.raises(ClientClosedError):
                await here.producer.send(TOPIC, b"x")
        async with world() as here:
            await here.producer.send_and_wait(TOPIC, b"x")
            here.broker.on(ProduceRequest, never)
            future = await here.producer.send(TOPIC, b"y")
            await here.producer.close(0.05)
            with pytest.raises(ClientClosedError, match="closed before the record was sent"):
                await future

    run_async(scenario())


def test_a_producer_that_was_never_started_can_be_closed_but_not_started_then() -> None:
    async def scenario() -> None:
        producer = aio.Producer(bootstrap_servers="127.0.0.1:1")
        with pytest.raises(ClientClosedError, match=r"call start\(\) on the producer first"):
            await producer.send(TOPIC, b"x")
        await producer.close()
        with pytest.raises(ClientClosedError):
            await producer.start()

    run_async(scenario())


def test_one_that_is_closed_takes_nothing_any_more() -> None:
    async def scenario() -> None:
        async with world() as here:
            await here.producer.send_and_wait(TOPIC, b"x")
            await here.producer.close()
            for call in (here.producer.send(TOPIC, b"y", key=b"k"), here.producer.partitions_for(TOPIC)):
                with pytest.raises(ClientClosedError, match="the producer is closed"):
                    await call

    run_async(scenario())


def test_a_flush_says_how_long_it_has_waited() -> None:
    async def scenario() -> None:
        async with world() as here:
            await here.producer.send_and_wait(TOPIC, b"x")
            await here.producer.flush(0)
            may_answer = asyncio.Event()
            answer = here._stored

            async def late(request: ProduceRequest) -> ProduceResponse:
                await may_answer.wait()
                return answer(request)

            here.broker.on(ProduceRequest, late)
            future = await here.producer.send(TOPIC, b"y")
            with pytest.raises(TimeoutError, match=r"not every record was acknowledged within 0\.05 s"):
                await here.producer.flush(0.05)
            may_answer.set()
            await here.producer.flush()
            assert future.done()

    run_async(scenario())
