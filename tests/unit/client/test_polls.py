"""What happens in a poll besides fetching: interceptors, deserializers that wait, commits that become due."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

import ottla
from ottla import TopicPartition, aio
from ottla.base.errors import ErrorCode
from ottla.client.aio.consumer import polls
from ottla.errors import ClientError
from ottla.testing import EmbeddedBroker
from tests.log_lines import messages_of
from tests.waiting import PATIENCE_S, run_async, until

TOPIC = "polled"
FIRST = TopicPartition(TOPIC, 0)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        running.create_topic(TOPIC)
        with ottla.Producer(bootstrap_servers=running.bootstrap_servers) as producer:
            producer.send_many(TOPIC, [b"0", b"1", b"2"]).result(PATIENCE_S)
        yield running


@asynccontextmanager
async def reading(broker: EmbeddedBroker, **options: Any) -> AsyncIterator[Any]:
    given = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 10, **options}
    async with aio.Consumer(bootstrap_servers=broker.bootstrap_servers, **given) as consumer:
        consumer.assign([FIRST])
        yield consumer


class Interceptor:
    def __init__(self, keep: Any) -> None:
        self.keep = keep
        self.seen: list[list[bytes]] = []

    def on_consume(self, records: list[Any]) -> Any:
        self.seen.append([record.value for record in records])
        return self.keep(records)

    def on_commit(self, offsets: Mapping[Any, Any]) -> None: ...


def spoil(records: list[Any]) -> Any:
    records.clear()
    raise ZeroDivisionError


def test_interceptors_see_records_one_after_the_other(broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture) -> None:
    chain = [
        Interceptor(lambda records: records[1:]),
        Interceptor(spoil),
        Interceptor(lambda records: None),
        Interceptor(lambda records: (record for record in records if record.value != b"2")),
    ]

    async def scenario() -> None:
        async with reading(broker, interceptors=chain) as consumer:
            assert [record.value for record in await consumer.poll(PATIENCE_S)] == [b"1"]
            assert await consumer.position(FIRST) == 3, "what they take out counts as read"
            assert await consumer.poll(0.01) == []

    run_async(scenario())
    assert [one.seen for one in chain] == [[[b"0", b"1", b"2"]], *[[[b"1", b"2"]]] * 3], "nothing is not shown"
    assert len(messages_of(caplog, polls.__name__)) == 2


class Asking:
    """A deserializer that has to ask somebody, who takes his time."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.threads: set[int] = set()
        self.known: set[bytes | None] = set()

    def waits_to_deserialize(self, topic: str, data: bytes | None) -> bool:
        return data not in self.known

    def deserialize(self, topic: str, data: bytes | None) -> int:
        self.threads.add(threading.get_ident())
        if data not in self.known:
            assert self.may_answer.wait(PATIENCE_S)
            self.known.add(data)
        return int(data or b"")


def test_a_deserializer_that_waits_holds_up_its_records_and_nothing_else(broker: EmbeddedBroker) -> None:
    asking = Asking()

    async def scenario() -> None:
        async with reading(broker, value_deserializer=asking) as consumer:
            while not asking.threads:
                assert await consumer.poll(0.01) == []
            assert await consumer.position(FIRST) == 0
            waiting = asyncio.create_task(consumer.poll(PATIENCE_S))
            await asyncio.sleep(0.01)
            assert not waiting.done(), "the loop goes on meanwhile"
            asking.may_answer.set()
            found = [record.value for record in await waiting]
            while len(found) < 3:
                found += [record.value for record in await consumer.poll(PATIENCE_S)]
            assert found == [0, 1, 2]
            assert threading.get_ident() not in asking.threads or len(asking.threads) > 1

    run_async(scenario())


def test_a_deserializer_that_fails_names_the_record(broker: EmbeddedBroker) -> None:
    def read(data: bytes | None) -> bytes | None:
        if data == b"1":
            raise ValueError("not one")
        return data

    async def scenario() -> None:
        async with reading(broker, value_deserializer=read) as consumer:
            assert [record.value for record in await consumer.poll(PATIENCE_S)] == [b"0"]
            for _ in range(2):
                with pytest.raises(ClientError, match=r"polled-0: the record at offset 1 .*\(not one\)") as refused:
                    await consumer.poll(PATIENCE_S)
                assert refused.value.code is ErrorCode.INVALID_RECORD
            consumer.seek(FIRST, 2)
            assert [record.value for record in await consumer.poll(PATIENCE_S)] == [b"2"]

    run_async(scenario())


async def committed(consumer: Any) -> int:
    found = (await consumer.committed([FIRST]))[FIRST]
    return 0 if found is None else int(found.offset)


def test_a_poll_that_waits_commits_when_that_is_due(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with reading(broker, group_id="due", auto_commit_interval_ms=1) as consumer:
            assert len(await consumer.poll(PATIENCE_S)) == 3
            polling = asyncio.create_task(consumer.poll(PATIENCE_S))
            while await committed(consumer) < 3:
                await asyncio.sleep(0.005)
            assert not polling.done()
            polling.cancel()
            await asyncio.wait([polling])

    run_async(scenario())


def test_nothing_is_committed_without_a_poll(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with reading(broker, group_id="undue", auto_commit_interval_ms=1) as consumer:
            assert len(await consumer.poll(PATIENCE_S)) == 3
            await until(lambda: consumer._commits.due_s() == 0)
            assert await committed(consumer) == 0, "that was the position before the poll"

    run_async(scenario())


def test_what_has_ended_a_consumer_is_raised_by_every_poll(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with reading(broker) as consumer:
            polling = asyncio.create_task(consumer.poll(PATIENCE_S))
            consumer.seek_to_end()
            await until(lambda: consumer._is_polling)
            consumer._engine.fail(ClientError("it is over"))
            with pytest.raises(ClientError, match="it is over") as ended:
                await polling
            assert ended.value.fatal
            for poll in (consumer.poll, consumer.poll_arrow):
                with pytest.raises(ClientError, match="it is over"):
                    await poll(PATIENCE_S)

    run_async(scenario())


def test_a_refusal_is_raised_by_one_poll(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with reading(broker) as consumer:
            refusing = asyncio.create_task(consumer._engine.refuse(ClientError("not you")))
            await until(lambda: consumer._engine.has_refusal)
            with pytest.raises(ClientError, match="not you"):
                await consumer.poll(PATIENCE_S)
            await refusing
            assert len(await consumer.poll(PATIENCE_S)) == 3

    run_async(scenario())
