"""A parallel consumer as a member of a group, with a broker in this process: beginning, retries, dead letters, ends."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import ottla
from ottla import TopicPartition, aio
from ottla.client.core.processing.parallel import Retries
from ottla.errors import ClientClosedError, ClientError, ProcessingError
from ottla.testing import EmbeddedBroker
from tests.waiting import PATIENCE_S, join, repeat_until, run_async, until

AT_ONCE = Retries(1, 1, 1)
QUICK: dict[str, Any] = {"auto_offset_reset": "earliest", "auto_commit_interval_ms": 10, "retry_backoff_ms": 5}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    return broker.new_topic("work")


def send(broker: EmbeddedBroker, topic: str, *values: bytes) -> None:
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send_many(topic, values).result(PATIENCE_S)


def committed(broker: EmbeddedBroker, topic: str) -> int | None:
    with ottla.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        found = admin.list_group_offsets([topic]).results.get(topic, {}).get(TopicPartition(topic, 0))
    return None if found is None else found.offset


def consumer_of(broker: EmbeddedBroker, topic: str, handler: Any, **options: Any) -> aio.ParallelConsumer[Any, Any]:
    given = {"bootstrap_servers": broker.bootstrap_servers, "group_id": topic, "retries": AT_ONCE, **QUICK, **options}
    return aio.ParallelConsumer([topic], handler, **given)


def test_records_are_handled_and_committed_and_others_are_put_aside(broker: EmbeddedBroker, topic: str) -> None:
    send(broker, topic, b"a", b"bad", b"c")
    dead = broker.create_topic(f"{topic}.dlt")
    seen: list[bytes | None] = []

    async def handle(record: Any) -> None:
        seen.append(record.value)
        if record.value == b"bad":
            raise ValueError("it is bad")

    async def scenario() -> None:
        async with consumer_of(broker, topic, handle) as consumer:
            running = asyncio.create_task(consumer.run())
            await until(lambda: len(seen) == 4 and not consumer._tasks)
            assert consumer.assignment == {TopicPartition(topic, 0)}
            assert await consumer.partitions_of(topic) == 1 and await consumer.partitions_of("nowhere") == 0
            with pytest.raises(ClientError, match="is running already"):
                await consumer.run()
            consumer.stop()
            await running
            with pytest.raises(ClientClosedError, match="was stopped"):
                await consumer.run()
        with pytest.raises(ClientClosedError, match="is closed"):
            await consumer.run()

    run_async(scenario())
    assert sorted(value or b"" for value in seen) == [b"a", b"bad", b"bad", b"c"]
    assert committed(broker, topic) == 3
    with ottla.Consumer(bootstrap_servers=broker.bootstrap_servers) as reader:
        reader.assign([TopicPartition(dead, 0)])
        reader.seek_to_beginning()
        (letter,) = reader.poll(PATIENCE_S)
    assert letter.value == b"bad"


def test_dead_letters_are_not_handled_themselves(broker: EmbeddedBroker, topic: str) -> None:
    send(broker, topic, b"bad")
    broker.create_topic(f"{topic}.dlt")
    send(broker, f"{topic}.dlt", b"older letter")
    seen: list[bytes | None] = []

    async def handle(record: Any) -> None:
        seen.append(record.value)
        raise ValueError

    async def scenario() -> None:
        options: Any = {"bootstrap_servers": broker.bootstrap_servers, "group_id": topic, "retries": 0, **QUICK}
        async with aio.ParallelConsumer(re.compile(f"^{re.escape(topic)}"), handle, **options) as consumer:
            running = asyncio.create_task(consumer.run())
            await until(lambda: bool(seen) and not consumer._tasks)
            assert {partition.topic for partition in consumer.assignment} == {topic}
            consumer.stop()
            await running

    run_async(scenario())
    assert seen == [b"bad"]


def test_with_nowhere_to_put_it_a_record_ends_the_consumer(broker: EmbeddedBroker, topic: str) -> None:
    send(broker, topic, b"a", b"bad")

    async def handle(record: Any) -> None:
        if record.value == b"bad":
            raise ValueError("it is bad")

    async def scenario() -> None:
        async with consumer_of(broker, topic, handle, dead_letter=None, ordering="partition") as consumer:
            with pytest.raises(ProcessingError, match="ValueError: it is bad") as ended:
                await consumer.run()
            assert ended.value.offset == 1

    run_async(scenario())
    assert committed(broker, topic) == 1, "it comes again"


def test_closing_waits_for_what_is_running_and_commits_it(broker: EmbeddedBroker, topic: str) -> None:
    send(broker, topic, b"a")
    started, may_end = asyncio.Event(), asyncio.Event()

    async def handle(record: Any) -> None:
        started.set()
        await may_end.wait()

    async def scenario() -> None:
        consumer = consumer_of(broker, topic, handle)
        await consumer.start()
        running = asyncio.create_task(consumer.run())
        await started.wait()
        closing = asyncio.create_task(consumer.close())
        await until(lambda: not consumer._plan._ready)
        assert not closing.done()
        may_end.set()
        await closing
        await running

    run_async(scenario())
    assert committed(broker, topic) == 1


def test_what_takes_too_long_is_given_up_and_not_committed(
    broker: EmbeddedBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    send(broker, topic, b"a")
    started = asyncio.Event()

    async def handle(record: Any) -> None:
        started.set()
        await asyncio.Event().wait()

    async def scenario() -> None:
        async with consumer_of(broker, topic, handle, drain_timeout=0.01) as consumer:
            running = asyncio.create_task(consumer.run())
            await started.wait()
        await running

    run_async(scenario())
    assert committed(broker, topic) is None
    assert f"still being handled, and given up for somebody to process again: {topic}-0@0" in caplog.messages


def test_a_start_that_fails_leaves_nothing_open() -> None:
    async def scenario() -> None:
        async def handle(record: Any) -> None: ...

        options: Any = {"bootstrap_servers": "127.0.0.1:1", "bootstrap_fail_fast": True, "group_id": "g"}
        consumer: Any = aio.ParallelConsumer(["t"], handle, **options)
        with pytest.raises(ClientError, match="cannot reach"):
            async with consumer:
                pass
        assert consumer._is_closed
        with pytest.raises(ClientClosedError):
            await consumer.run()

    run_async(scenario())


# For threads


def test_threads_handle_records_at_once(broker: EmbeddedBroker, topic: str) -> None:
    send(broker, topic, b"0", b"1", b"2")
    together = threading.Barrier(3)

    def handle(record: Any) -> None:
        together.wait(PATIENCE_S)

    options: Any = {"bootstrap_servers": broker.bootstrap_servers, "group_id": topic, **QUICK}
    with ottla.ParallelConsumer([topic], handle, **options) as consumer:
        running = threading.Thread(target=consumer.run)
        running.start()
        repeat_until(lambda: committed(broker, topic) == 3)
        assert consumer.assignment == {TopicPartition(topic, 0)}
        consumer.stop()
        join(running)


async def _coroutine(record: Any) -> None: ...


def test_what_only_asyncio_has_is_refused_by_threads() -> None:
    options: Any = {"bootstrap_servers": "127.0.0.1:1", "group_id": "g"}
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (_coroutine, {}, "use ottla.aio.ParallelConsumer"),
        (print, {"producer": None}, "here there is always one"),
        (lambda record: (yield), {}, "write no yield"),
    ]
    for handler, more, words in wrong:
        given: Any = {**options, **more}
        with pytest.raises(TypeError, match=words):
            ottla.ParallelConsumer(["t"], handler, **given)


def test_a_function_that_returns_a_coroutine_has_done_nothing(broker: EmbeddedBroker, topic: str) -> None:
    send(broker, topic, b"a")
    made: list[Any] = []

    def handle(record: Any) -> Any:
        made.append(_coroutine(record))
        return made[-1]

    options: Any = {"bootstrap_servers": broker.bootstrap_servers, "group_id": topic, "retries": 0, **QUICK}
    consumer = ottla.ParallelConsumer([topic], handle, dead_letter=None, **options)
    with consumer, pytest.raises(ProcessingError, match="has returned a coroutine"):
        consumer.run()
    assert made[0].cr_frame is None, "it was closed, so that nobody is warned of it"
