"""What a producer does when something in it fails: its own mistakes, users' callbacks, and answers that never come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ottla import aio
from ottla.base.errors import ErrorCode, KafkaError
from ottla.client.aio.producer import engine as engine_module
from ottla.client.aio.producer.engine import ProducerEngine
from ottla.errors import ClientClosedError, ClientError, DeliveryTimeoutError, MetadataTimeoutError
from ottla.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.apis.metadata import MetadataRequest, MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from ottla.wire.apis.produce import ProduceRequest
from tests.log_lines import lines_of, messages_of
from tests.waiting import PATIENCE_S, run_async, until

from .scripted_broker import ScriptedBroker
from .test_produce_order import stored

TOPIC = "t"


class Scene:
    producer: aio.Producer
    engine: ProducerEngine

    def __init__(self, broker: ScriptedBroker) -> None:
        self.broker = broker
        self.topic_error = 0
        broker.on(MetadataRequest, self._metadata)
        broker.on(InitProducerIdRequest, lambda _: InitProducerIdResponse(producer_id=7, producer_epoch=0))
        broker.on(ProduceRequest, stored)

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        partitions = [MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=0)]
        topics = [
            MetadataResponseTopic(
                name=asked.name,
                error_code=self.topic_error,
                partitions=[] if self.topic_error else partitions,
            )
            for asked in request.topics or ()
        ]
        return self.broker.metadata(topics=topics)

    async def never(self, _: object) -> Any:
        await asyncio.Event().wait()


@asynccontextmanager
async def scene(**settings: object) -> AsyncIterator[Scene]:
    async with ScriptedBroker() as broker:
        here = Scene(broker)
        given = {"bootstrap.servers": broker.address, "retry.backoff.ms": 1, "linger.ms": 0, **settings}
        async with aio.Producer(given) as here.producer:
            here.engine = here.producer._started()[0]
            yield here
            if here.engine.accumulator.incomplete:
                await here.producer.close(timeout=0)


def test_a_mistake_of_ours_fails_everything_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with scene(**{"linger.ms": 60_000}) as here:
            waiting = await here.producer.send(TOPIC, b"v")

            async def fail() -> None:
                raise ZeroDivisionError("by zero")

            here.engine.spawn(fail())
            words = r"the producer has failed \(ZeroDivisionError: by zero\); close it and open another"
            with pytest.raises(ClientError, match=words) as failed:
                await waiting
            assert failed.value.fatal and here.producer._has_failed
            with pytest.raises(ClientError, match=words):
                await here.producer.send(TOPIC, b"v")
            with pytest.raises(ClientError, match=words):
                await here.producer.partitions_for("another")
            await here.producer.flush(0)

    run_async(scenario())
    (told,) = lines_of(caplog, engine_module.__name__)
    assert told.getMessage() == "the producer has failed" and told.exc_info is not None


def test_a_look_that_fails_breaks_the_producer_too() -> None:
    async def scenario() -> None:
        async with scene() as here:

            def fail(now_ms: int) -> Any:
                raise ZeroDivisionError

            here.engine.sender.drain = fail  # type: ignore[method-assign]
            with pytest.raises(ClientError, match="ZeroDivisionError"):
                await (await here.producer.send(TOPIC, b"v"))

    run_async(scenario())


def test_a_task_that_somebody_else_has_cancelled_is_begun_again() -> None:
    async def scenario() -> None:
        async with scene() as here:
            await (await here.producer.send(TOPIC, b"v"))
            here.broker.on(InitProducerIdRequest, here.never)
            here.engine.sender.set_producer(-1, -1)
            sent = await here.producer.send(TOPIC, b"v")
            await until(lambda: len(here.broker.asked(InitProducerIdRequest)) == 2)
            here.broker.on(InitProducerIdRequest, lambda _: InitProducerIdResponse(producer_id=7, producer_epoch=0))
            for task in list(here.engine._tasks):
                task.cancel()
            # All that comes later on that connection would wait for the answer that never comes.
            here.engine.link.hang_up()
            assert (await sent).offset == 0

    run_async(scenario())


def test_a_producer_id_that_is_refused_ends_the_producer_and_one_that_may_come_is_asked_for() -> None:
    async def scenario() -> None:
        async with scene(**{"retry.backoff.max.ms": 1}) as here:
            codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE]

            def answer(request: InitProducerIdRequest) -> InitProducerIdResponse:
                assert request.transactional_id is None
                if codes:
                    assert here.engine._producer_ids.error is None or len(codes) == 1
                    return InitProducerIdResponse(error_code=codes.pop(0))
                return InitProducerIdResponse(producer_id=9, producer_epoch=3)

            here.engine.sender.set_producer(-1, -1)
            here.broker.on(InitProducerIdRequest, answer)
            assert (await (await here.producer.send(TOPIC, b"v"))).offset == 0
            assert (here.engine.sender.producer_id, here.engine.sender.producer_epoch) == (9, 3)
            assert here.engine._producer_ids.error is None
            here.engine.sender.set_producer(-1, -1)
            refusal = InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            here.broker.on(InitProducerIdRequest, lambda _: refusal)
            with pytest.raises(ClientError, match="a producer id was refused") as refused:
                await (await here.producer.send(TOPIC, b"v"))
            assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED and refused.value.fatal

    run_async(scenario())


def test_callbacks_that_fail_are_told_of_and_keep_nobody_from_being_told(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with scene() as here:
            told: list[Any] = []

            def failing(metadata: object, error: object) -> None:
                raise ZeroDivisionError

            first = await here.producer.send(TOPIC, b"a", on_delivery=failing)
            second = await here.producer.send(TOPIC, b"b", on_delivery=lambda metadata, error: told.append(metadata))
            assert (await first).partition == 0
            assert [metadata.offset for metadata in told] == [(await second).offset]

    run_async(scenario())
    assert messages_of(caplog, engine_module.__name__) == ["a delivery callback failed"]


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ClientError, "topic t: "),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, ClientError, "topic t: "),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, MetadataTimeoutError, "nothing could be learnt within 50 ms"),
        (ErrorCode.LEADER_NOT_AVAILABLE, MetadataTimeoutError, "nothing could be learnt within 50 ms"),
    ],
)
def test_a_topic_that_cannot_be_had(code: ErrorCode, kind: type[ClientError], words: str) -> None:
    async def scenario() -> None:
        async with scene(**{"max.block.ms": 50}) as here:
            here.topic_error = code
            with pytest.raises(kind, match=words):
                await here.producer.send(TOPIC, b"v")
            here.topic_error = 0
            if kind is MetadataTimeoutError:
                here.engine.metadata.request_update()
                assert (await (await here.producer.send(TOPIC, b"v"))).offset == 0

    run_async(scenario())


def test_a_partition_that_does_not_come_is_waited_for_no_longer_than_allowed() -> None:
    async def scenario() -> None:
        async with scene(**{"max.block.ms": 30}) as here:
            with pytest.raises(MetadataTimeoutError, match="no partition 5 has been added within 30 ms"):
                await here.producer.send(TOPIC, b"v", partition=5)
            with pytest.raises(MetadataTimeoutError):
                await here.engine.topic(TOPIC, 0, 5)
            assert (await here.engine.topic(TOPIC, 0)).partition_count == 1, "what is known needs no time"

    run_async(scenario())


def test_whoever_waits_for_a_topic_hears_of_the_end() -> None:
    async def scenario() -> None:
        async with scene() as here:
            here.topic_error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            waiting = asyncio.ensure_future(here.producer.send(TOPIC, b"v"))
            await until(lambda: TOPIC in here.engine.metadata._used_at_ms)
            await here.producer.close()
            with pytest.raises(ClientClosedError):
                await waiting

    run_async(scenario())


def test_what_keeps_records_waiting_is_said_to_those_for_whom_it_took_too_long() -> None:
    async def scenario() -> None:
        async with scene() as here:
            assert here.engine.why_waiting() == ""
            here.engine._producer_ids.error = KafkaError("no id")
            assert here.engine.why_waiting() == "no id"
            here.engine.metadata_error = KafkaError("no metadata")
            assert here.engine.why_waiting() == "no metadata"
            here.engine.link.outages.failed("h:1", "refused", here.engine.clock.monotonic_ms() + 1000)
            assert here.engine.why_waiting() == "cannot reach h:1: refused"
            here.engine._producer_ids.error = here.engine.metadata_error = None

    run_async(scenario())


def test_records_are_given_up_when_their_time_is_over() -> None:
    async def scenario() -> None:
        settings = {"delivery.timeout.ms": 40, "request.timeout.ms": 40}
        async with scene(**settings) as here:
            await (await here.producer.send(TOPIC, b"v"))
            here.broker.on(ProduceRequest, here.never)
            late = await here.producer.send(TOPIC, b"v")
            with pytest.raises(DeliveryTimeoutError, match=r"delivery\.timeout\.ms \(40 ms\)"):
                await late
            await here.producer.flush(PATIENCE_S)

    run_async(scenario())


def test_a_flush_says_how_long_it_has_waited() -> None:
    async def scenario() -> None:
        async with scene() as here:
            await (await here.producer.send(TOPIC, b"v"))
            here.broker.on(ProduceRequest, here.never)
            await here.producer.send(TOPIC, b"v")
            with pytest.raises(TimeoutError, match=r"not every record was acknowledged within 0\.01 s"):
                await here.producer.flush(0.01)
            assert here.engine.sender.flushing == 0
            await here.producer.close(timeout=0)

    run_async(scenario())


def test_a_timer_is_set_for_what_is_due_first_and_kept_if_it_is_early() -> None:
    async def scenario() -> None:
        async with scene() as here:
            engine: Any = here.engine
            await until(lambda: not engine._tasks)
            engine.wake = lambda: None
            engine._set_timer(None, 100)
            assert not engine._timer
            engine._set_timer(5000, 100)
            first = engine._timer
            assert first is not None and engine._timer_ms == 5000
            for wake_ms, is_kept in ((6000, True), (5000, True), (4999, False)):
                before = engine._timer
                engine._set_timer(wake_ms, 100)
                assert (engine._timer is before) is is_kept
            assert engine._timer_ms == 4999
            before = engine._timer
            engine._set_timer(6000, 4999)
            assert engine._timer is not before, "it has rung"
            engine._set_timer(100, 200)
            assert engine._timer_ms == 201, "what is late is due next"
            engine._set_timer(None, 300)
            assert not engine._timer

    run_async(scenario())
