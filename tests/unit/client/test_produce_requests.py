"""Produce requests on their way: which are written before the call returns, and which have to wait for their turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.client.aio.cluster_link import ClusterLink
from ottla.client.aio.producer.requests import ProduceReply, ProduceRequests
from ottla.client.core.metadata import MetadataCache
from ottla.client.core.producer.batch import Batch
from ottla.client.core.producer.batch_sender import ProduceCall
from ottla.client.core.producer.options import ProducerSettings
from ottla.net.connection import Connection
from ottla.wire.apis.metadata import MetadataRequest
from ottla.wire.apis.produce import ProduceRequest
from tests.waiting import run_async, until

from .scripted_broker import ScriptedBroker
from .test_produce_order import stored

Outcome = ProduceReply | Exception


def batch(partition: int) -> Batch:
    made = Batch("t", partition, (0,), opened_ms=0, deadline_ms=1)
    made.add((None, b"%d" % partition, (), 0), 20)
    return made


class World:
    def __init__(self, broker: ScriptedBroker, link: ClusterLink, settings: ProducerSettings) -> None:
        self.broker = broker
        self.link = link
        self.told: list[tuple[ProduceCall, Outcome]] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.requests = ProduceRequests(settings, link, spawn=self._spawn, tell=lambda *told: self.told.append(told))

    def _spawn(self, work: Coroutine[Any, Any, None], *, on_cancel: Callable[[], None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(lambda task: on_cancel() if task.cancelled() else None)
        self.tasks.append(task)

    @property
    def connection(self) -> Connection:
        connection = self.link.ready_connection(1)
        assert connection is not None
        return connection

    def start(self, *partitions: int) -> ProduceCall:
        call = ProduceCall(1, [batch(partition) for partition in partitions])
        self.requests.start(call)
        assert self.told == [], "nobody is told before the call returns"
        return call

    async def outcome(self) -> Outcome:
        await until(lambda: bool(self.told))
        return self.told.pop(0)[1]


@asynccontextmanager
async def world(**settings: object) -> AsyncIterator[World]:
    async with ScriptedBroker() as broker:
        broker.on(MetadataRequest, lambda _: broker.metadata())
        broker.on(ProduceRequest, stored)
        parsed = ProducerSettings.parse({"bootstrap.servers": broker.address, **settings})
        link = ClusterLink(parsed.client, MetadataCache(), default_client_id="test")
        try:
            await link.refresh_metadata([], 0)
            yield World(broker, link, parsed)
        finally:
            link.close()


def partitions_of(outcome: Outcome) -> list[int]:
    assert isinstance(outcome, ProduceReply), outcome
    assert all(not result.error_code for result in outcome.results.values())
    return [partition.partition for partition in outcome.results]


def test_one_batch_is_written_at_once_and_several_take_their_turn() -> None:
    async def scenario() -> None:
        async with world() as here:
            here.start(0)
            assert (here.connection.in_flight, len(here.tasks)) == (1, 0)
            assert partitions_of(await here.outcome()) == [0]
            here.start(1, 2)
            assert (here.connection.in_flight, len(here.tasks)) == (0, 1)
            # Not before the one that waits, though it could be written.
            here.start(3)
            assert (here.connection.in_flight, len(here.tasks)) == (0, 2)
            assert [partitions_of(await here.outcome()) for _ in range(2)] == [[1, 2], [3]]
            # Nothing waits any more.
            here.start(4)
            assert (here.connection.in_flight, len(here.tasks)) == (1, 2)
            assert partitions_of(await here.outcome()) == [4]
        sent = [
            [part.index for part in asked.topic_data[0].partition_data] for asked in here.broker.asked(ProduceRequest)
        ]
        assert sent == [[0], [1, 2], [3], [4]]
        # With 12 a partition joins a transaction by being written to (KIP-890).
        assert here.broker.versions[ProduceRequest] == {11} and ProduceRequest.VERSIONS[-1] > 11

    run_async(scenario())


def test_a_connection_that_is_full_or_not_there_is_waited_for() -> None:
    async def scenario() -> None:
        async with world() as here:
            connection = here.connection
            connection._pause_writing()
            here.start(0)
            assert (connection.in_flight, len(here.tasks)) == (0, 1)
            connection._resume_writing()
            assert partitions_of(await here.outcome()) == [0]
            connection.close()
            here.start(1)
            assert len(here.tasks) == 2
            assert partitions_of(await here.outcome()) == [1]

    run_async(scenario())


@pytest.mark.parametrize(("acks", "answers"), [("all", True), ("1", True), ("0", False)])
def test_what_a_request_asks_for(acks: str, answers: bool) -> None:
    async def scenario() -> None:
        settings = {"acks": acks, "enable.idempotence": False, "request.timeout.ms": 12_345}
        async with world(**settings, **{"delivery.timeout.ms": 60_000}) as here:
            here.start(0)
            assert len(here.tasks) == (0 if answers else 1)
            outcome = await here.outcome()
            assert isinstance(outcome, ProduceReply)
            (result,) = outcome.results.values()
            assert not result.error_code
            await until(lambda: bool(here.broker.asked(ProduceRequest)))
            (asked,) = here.broker.asked(ProduceRequest)
            assert (asked.acks, asked.timeout_ms) == ({"all": -1, "1": 1, "0": 0}[acks], 12_345)
            assert asked.transactional_id is None

    run_async(scenario())


def test_a_request_that_is_broken_off_is_told_of_and_holds_up_nobody() -> None:
    async def scenario() -> None:
        async with world() as here:
            here.start(0, 1)
            here.start(2)
            here.tasks[0].cancel()
            outcome = await here.outcome()
            assert isinstance(outcome, KafkaError) and outcome.code is ErrorCode.NETWORK_EXCEPTION
            assert partitions_of(await here.outcome()) == [2]
            here.start(3)
            assert here.connection.in_flight == 1

    run_async(scenario())


def test_a_reply_that_cannot_be_read_and_a_connection_that_breaks_are_told_of() -> None:
    async def scenario() -> None:
        async with world() as here:
            may_answer = asyncio.Event()

            async def late(request: ProduceRequest) -> Any:
                await may_answer.wait()
                return stored(request)

            here.broker.on(ProduceRequest, late)
            call = here.start(0)
            here.connection.close()
            outcome = await here.outcome()
            assert isinstance(outcome, KafkaError) and outcome.code is ErrorCode.NETWORK_EXCEPTION
            assert call.batches[0].topic_partition == TopicPartition("t", 0)
            may_answer.set()
            for broken in (b"", b"\0" * 5):
                here.requests._take_reply(call, 9, memoryview(broken))
                assert isinstance(here.told.pop()[1], Exception)

    run_async(scenario())
