"""What drives a consumer: metadata that is asked for once at a time, refusals, and calls that are tried again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import NIL_UUID
from ottla.client.aio.consumer.engine import ConsumerEngine
from ottla.client.core.consumer.options import ConsumerSettings
from ottla.client.errors import ClientClosedError, ClientError, CommitFailedError
from ottla.wire.apis.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from tests.waiting import run_async, until

from .scripted_broker import ScriptedBroker


@asynccontextmanager
async def driven(
    answer: Callable[[ScriptedBroker], Callable[[Any], MetadataResponse | Awaitable[MetadataResponse]]] | None = None,
    **settings: object,
) -> AsyncIterator[tuple[ConsumerEngine, ScriptedBroker]]:
    async with ScriptedBroker() as broker:
        broker.on(MetadataRequest, lambda request: broker.metadata())
        given = {"bootstrap.servers": broker.address, "group.id": "g", "retry.backoff.ms": 1, **settings}
        engine = ConsumerEngine(ConsumerSettings.parse(given))
        await engine.start()
        if answer is not None:
            broker.on(MetadataRequest, answer(broker))
        try:
            yield engine, broker
        finally:
            await engine.close()


def test_metadata_is_asked_for_once_at_a_time() -> None:
    async def test() -> None:
        may_answer = asyncio.Event()

        def slowly(broker: ScriptedBroker) -> Callable[[Any], Awaitable[MetadataResponse]]:
            async def answer(request: object) -> MetadataResponse:
                await may_answer.wait()
                return broker.metadata()

            return answer

        async with driven(slowly) as (engine, broker):
            before = len(broker.asked(MetadataRequest))
            waiting = [asyncio.create_task(engine.wait_for_metadata()) for _ in range(3)]
            await until(lambda: len(broker.asked(MetadataRequest)) > before)
            for _ in range(5):
                engine.wake()
                await asyncio.sleep(0.002)
            refreshes = [task for task in engine._tasks if "_refresh_metadata" in repr(task)]
            assert len(refreshes) == 1
            assert not any(task.done() for task in waiting)
            may_answer.set()
            await asyncio.gather(*waiting)

    run_async(test())


def test_a_topic_that_may_not_be_read_is_told_once_for_each_time_it_is_heard() -> None:
    refused = MetadataResponseTopic(
        name="secret", topic_id=NIL_UUID, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, partitions=[]
    )

    async def test() -> None:
        async with driven(lambda broker: lambda request: broker.metadata(topics=[refused])) as (engine, _):
            engine.subscription.subscribe(["secret", "open"])
            for _ in range(2):
                await engine.wait_for_metadata()
                assert engine.has_refusal and engine.is_refused("secret") and not engine.is_refused("open")
                refusal = engine.take_refusal()
                assert refusal is not None and refusal.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
                assert "secret" in refusal.message
                assert engine.take_refusal() is None and not engine.has_refusal

    run_async(test())


def test_a_refusal_of_the_group_waits_until_a_poll_has_told_it() -> None:
    async def test() -> None:
        async with driven() as (engine, _):
            refusals = [
                asyncio.create_task(engine.refuse(KafkaError(f"no {n}", code=ErrorCode.GROUP_AUTHORIZATION_FAILED)))
                for n in range(2)
            ]
            await engine.wait_for_news(60)
            assert engine.has_refusal
            for number, waiting in enumerate(refusals):
                assert not waiting.done()
                told = engine.take_refusal()
                assert told is not None and told.message == f"no {number}"
                await waiting
            given_up = asyncio.create_task(engine.refuse(KafkaError("late", code=ErrorCode.INVALID_GROUP_ID)))
            await asyncio.sleep(0)
            given_up.cancel()
            await asyncio.wait([given_up])
            assert engine.take_refusal() is None, "nobody waits for it to be told any more"

    run_async(test())


def test_the_first_failure_is_what_every_poll_raises() -> None:
    async def test() -> None:
        async with driven() as (engine, _):
            engine.fail(KafkaError("first", code=ErrorCode.INVALID_REQUEST))
            engine.fail(KafkaError("second", code=ErrorCode.INVALID_REQUEST))
            assert engine.failure is not None
            assert (engine.failure.message, engine.failure.fatal) == ("first", True)

    run_async(test())


def test_a_task_that_fails_ends_the_consumer(caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> None:
        raise ZeroDivisionError("a defect")

    async def test() -> None:
        async with driven() as (engine, _):
            engine.spawn(broken())
            await engine.wait_for_news(60)
            assert engine.failure is not None and "a defect" in engine.failure.message and engine.failure.fatal

    run_async(test())
    assert [record.exc_info is not None for record in caplog.records if record.name.startswith("ottla")] == [True]


def test_news_are_waited_for_and_forgotten_then() -> None:
    async def test() -> None:
        async with driven() as (engine, _):
            engine.notify()
            await engine.wait_for_news(60)
            began = engine.now_ms()
            await engine.wait_for_news(0.05)
            assert engine.now_ms() - began >= 45, "there were none"
            await engine.wait_for_news(-1)

    run_async(test())


def test_a_closed_engine_is_of_no_more_use() -> None:
    async def test() -> None:
        async with driven() as (engine, _):
            engine.check_open()
            waiting = asyncio.create_task(engine.wait_for_news(60))
            await asyncio.sleep(0)
            await engine.close()
            await waiting
            with pytest.raises(ClientClosedError):
                engine.check_open()
            with pytest.raises(ClientClosedError):
                await engine.retry(_never, 1000)
            assert not engine._tasks

    run_async(test())


async def _never() -> None:
    raise AssertionError("nothing is tried")


class Attempts:
    def __init__(self, *errors: KafkaError) -> None:
        self.errors = list(errors)
        self.count = 0

    async def __call__(self) -> str:
        self.count += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def error(code: ErrorCode) -> KafkaError:
    return KafkaError(f"it was {code.name}", code=code)


@pytest.mark.parametrize(
    ("code", "asks_for_metadata"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.NETWORK_EXCEPTION, True),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, False),
    ],
)
def test_what_may_pass_is_tried_again(code: ErrorCode, asks_for_metadata: bool) -> None:
    async def test() -> None:
        async with driven() as (engine, broker):
            before = len(broker.asked(MetadataRequest))
            attempts = Attempts(error(code), error(code))
            assert await engine.retry(attempts, 60_000) == "done" and attempts.count == 3
            if asks_for_metadata:
                await until(lambda: len(broker.asked(MetadataRequest)) > before)
            else:
                await asyncio.sleep(0.02)
                assert len(broker.asked(MetadataRequest)) == before

    run_async(test())


@pytest.mark.parametrize(
    ("raised", "options", "tries"),
    [
        (error(ErrorCode.INVALID_REQUEST), {}, 1),
        (error(ErrorCode.INVALID_REQUEST), {"retried": frozenset({ErrorCode.INVALID_REQUEST})}, 2),
        (
            error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
            {"final": frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})},
            1,
        ),
        (error(ErrorCode.NETWORK_EXCEPTION), {"final": frozenset({ErrorCode.NETWORK_EXCEPTION})}, 1),
        (CommitFailedError("lost"), {}, 1),
    ],
)
def test_what_is_final(raised: KafkaError, options: dict[str, Any], tries: int) -> None:
    async def test() -> None:
        async with driven() as (engine, _):
            attempts = Attempts(raised)
            if tries == 1:
                with pytest.raises(ClientError) as told:
                    await engine.retry(attempts, 60_000, **options)
                assert told.value.code is raised.code
            else:
                assert await engine.retry(attempts, 60_000, **options) == "done"
            assert attempts.count == tries

    run_async(test())


def test_the_time_for_tries_is_bounded_and_the_last_reason_is_told() -> None:
    async def test() -> None:
        async with driven() as (engine, _):
            attempts = Attempts(error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))

            async def then_hang() -> str:
                if not attempts.errors:
                    await asyncio.Event().wait()
                return await attempts()

            with pytest.raises(ClientError, match="within 80 ms; last: it was COORDINATOR_LOAD") as told:
                await engine.retry(then_hang, 80)
            assert told.value.code is ErrorCode.REQUEST_TIMED_OUT

    run_async(test())
