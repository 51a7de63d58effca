"""Consumers that end, or lose what they were asked about, while somebody waits: all hear of it, and nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import FrameType

import pytest

import ottla
from ottla import TopicPartition, aio
from ottla.client.errors import (
    ClientClosedError,
    ClientError,
    ConcurrentUseError,
    FencedInstanceError,
    NoOffsetError,
    SubscriptionStateError,
    UnassignedPartitionError,
)
from ottla.testing import ApiKey, EmbeddedBroker, ErrorCode
from tests.client.consumer_shells import PATIENCE_S, open_shell, wait_until
from tests.waiting import run_async

LATE_MS = 1000
# With the other protocol it is the broker who says how often.
GROUP_SETTINGS: dict[str, dict[str, object]] = {
    "classic": {"group_protocol": "classic", "heartbeat_interval_ms": 100},
    "consumer": {"group_protocol": "consumer"},
}


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

    run_async(main())


def open_sockets() -> int:
    """Of this process, which is that of the broker as well."""
    found = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found += os.readlink(entry).startswith("socket:")
        except FileNotFoundError:
            continue
    return found


def wait_until_closed(before: int) -> None:
    """The broker notices a little later."""
    deadline_s = time.monotonic() + PATIENCE_S
    while open_sockets() > before:
        assert time.monotonic() < deadline_s, f"{open_sockets() - before} sockets were left open"
        time.sleep(0.01)


def test_a_start_that_is_broken_off_leaves_no_connection_and_may_be_tried_again(broker: EmbeddedBroker) -> None:
    async def main() -> None:
        before = open_sockets()
        unanswered = broker.faults.drop(ApiKey.METADATA)
        consumer = aio.Consumer(bootstrap_servers=broker.bootstrap_servers)
        starting = asyncio.create_task(consumer.start())
        async with asyncio.timeout(PATIENCE_S):
            while not unanswered.hits:
                await asyncio.sleep(0.01)
        starting.cancel()
        await asyncio.wait({starting})
        await asyncio.to_thread(wait_until_closed, before)
        async with consumer:
            assert await consumer.list_topics() is not None

    run_async(main())


def test_a_closing_that_is_cancelled_closes_all_the_same(broker: EmbeddedBroker, topic: str) -> None:
    async def main() -> None:
        tasks, before = asyncio.all_tasks(), open_sockets()
        consumer = aio.Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g")
        await consumer.start()
        consumer.assign([(topic, 0)])
        consumer.seek((topic, 0), 0)
        late = broker.faults.delay(ApiKey.OFFSET_COMMIT, LATE_MS)
        closing = asyncio.create_task(consumer.close())
        async with asyncio.timeout(PATIENCE_S):
            while not late.hits:
                await asyncio.sleep(0.01)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert asyncio.all_tasks() == tasks
        await asyncio.to_thread(wait_until_closed, before)
        with pytest.raises(ClientClosedError):
            await consumer.poll()

    run_async(main())


class Slow(ottla.RebalanceListener):
    """Seeks to an offset that it has to ask somebody for."""

    def __init__(self, consumer: aio.Consumer[bytes | None, bytes | None]) -> None:
        self.consumer = consumer
        self.calls = 0
        self.is_called = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self.is_cancelled = False

    async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.calls += 1
        self.is_called.set()
        try:
            await self.may_go_on.wait()
        except asyncio.CancelledError:
            self.is_cancelled = True
            raise
        for partition in partitions:
            self.consumer.seek(partition, 3)


async def cancel_poll_in_listener(listener: Slow) -> None:
    poll = asyncio.create_task(listener.consumer.poll(PATIENCE_S))
    await listener.is_called.wait()
    poll.cancel()
    with pytest.raises(asyncio.CancelledError):
        await poll


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_cancelled_poll_does_not_cancel_the_listener(broker: EmbeddedBroker, protocol: str) -> None:
    topic = broker.new_topic()
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send_many(topic, [b"%d" % number for number in range(5)]).result()

    async def main() -> None:
        async with aio.Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id=topic,
            group_protocol=protocol,
            auto_offset_reset="earliest",
        ) as consumer:
            listener = Slow(consumer)
            consumer.subscribe([topic], listener=listener)
            await cancel_poll_in_listener(listener)
            # Nothing is read before the listener has said where to begin.
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.poll(PATIENCE_S), 0.2)
            listener.may_go_on.set()
            assert [record.offset for record in await consumer.poll(PATIENCE_S)] == [3, 4]
            assert listener.calls == 1

    run_async(main())


def test_a_listener_that_no_poll_waits_for_ends_with_the_consumer(broker: EmbeddedBroker, topic: str) -> None:
    async def main() -> None:
        tasks = asyncio.all_tasks()
        async with aio.Consumer(bootstrap_servers=broker.bootstrap_servers, group_id=topic) as consumer:
            listener = Slow(consumer)
            consumer.subscribe([topic], listener=listener)
            await cancel_poll_in_listener(listener)
            assert not listener.is_cancelled
        assert listener.is_cancelled
        assert asyncio.all_tasks() == tasks

    run_async(main())


def test_a_callback_cannot_close_the_consumer_it_is_called_by(broker: EmbeddedBroker, topic: str) -> None:
    refusals: list[ConcurrentUseError] = []

    def close_it(*_: object) -> None:
        try:
            consumer.close()
        except ConcurrentUseError as e:
            refusals.append(e)

    with ottla.Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g") as consumer:
        consumer.assign([(topic, 0)])
        consumer.commit_async({TopicPartition(topic, 0): 0}, close_it)
        wait_until(lambda: bool(refusals), consumer)
        assert consumer.poll() == []


class Enough(BaseException):
    pass


def test_a_closing_that_a_signal_breaks_off_closes_all_the_same(
    broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_it(number: int, frame: FrameType | None) -> None:
        raise Enough

    died: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    threads, before = threading.active_count(), open_sockets()
    handler = signal.signal(signal.SIGUSR1, raise_it)
    try:
        consumer = ottla.Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g")
        consumer.subscribe([topic])
        wait_until(lambda: bool(consumer.assignment), consumer)
        consumer.seek((topic, 0), 0)
        late = broker.faults.delay(ApiKey.OFFSET_COMMIT, LATE_MS)
        threading.Thread(target=lambda: (late.wait(), os.kill(os.getpid(), signal.SIGUSR1))).start()
        with pytest.raises(Enough):
            consumer.close()
    finally:
        signal.signal(signal.SIGUSR1, handler)
    wait_until_closed(before)
    assert threading.active_count() == threads
    assert not died
    with pytest.raises(ClientClosedError):
        consumer.poll()


def frames_of(error: BaseException) -> int:
    return len(traceback.extract_tb(error.__traceback__))


@pytest.mark.parametrize("kind", ["sync", "aio"])
@pytest.mark.parametrize("is_fatal", [False, True])
def test_an_error_that_every_poll_raises_is_as_short_as_the_first(
    broker: EmbeddedBroker, topic: str, kind: str, is_fatal: bool
) -> None:
    errors: list[ClientError] = []
    lengths: list[int] = []
    with open_shell(kind, broker.bootstrap_servers) as shell:
        consumer = shell(group_id=topic, auto_offset_reset="none")
        if is_fatal:
            broker.faults.error(ApiKey.FIND_COORDINATOR, ErrorCode.UNSUPPORTED_VERSION, times=None)
            consumer.subscribe([topic])
        else:
            consumer.assign([(topic, 0)])
        for _ in range(20):
            with pytest.raises(ClientError) as raised:
                consumer.poll(PATIENCE_S)
            errors.append(raised.value)
            lengths.append(frames_of(raised.value))
    # A poll may raise it in one of several ways, but none of them is that much longer.
    assert max(lengths) < 3 * min(lengths)
    assert {error.code for error in errors} == {ErrorCode.UNSUPPORTED_VERSION if is_fatal else NoOffsetError.code}
    assert {error.fatal for error in errors} == {is_fatal}


@pytest.mark.parametrize("kind", ["sync", "aio"])
@pytest.mark.parametrize(
    ("protocol", "api", "code"),
    [
        ("classic", ApiKey.FIND_COORDINATOR, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        ("classic", ApiKey.JOIN_GROUP, ErrorCode.GROUP_MAX_SIZE_REACHED),
        ("classic", ApiKey.SYNC_GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        ("classic", ApiKey.HEARTBEAT, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        ("consumer", ApiKey.FIND_COORDINATOR, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        ("consumer", ApiKey.CONSUMER_GROUP_HEARTBEAT, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_who_polls_on_joins_when_the_group_takes_it(
    broker: EmbeddedBroker, topic: str, kind: str, protocol: str, api: ApiKey, code: ErrorCode
) -> None:
    with open_shell(kind, broker.bootstrap_servers) as shell:
        consumer = shell(group_id=topic, **GROUP_SETTINGS[protocol])
        with broker.faults.error(api, code, times=None):
            consumer.subscribe([topic])
            for _ in range(3):
                with pytest.raises(ClientError) as raised:
                    wait_until(lambda: False, consumer)
                assert (raised.value.code, raised.value.fatal) == (code, False)
        with ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send(topic, b"value", partition=0).result(PATIENCE_S)
        records: list[bytes] = []
        deadline_s = time.monotonic() + PATIENCE_S
        while not records and time.monotonic() < deadline_s:
            # What was heard last may still be told.
            with contextlib.suppress(ClientError):
                records += [record.value for record in consumer.poll(0.2)]
        assert records == [b"value"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_what_ends_a_consumer_is_fatal(broker: EmbeddedBroker, topic: str, protocol: str) -> None:
    beat = ApiKey.HEARTBEAT if protocol == "classic" else ApiKey.CONSUMER_GROUP_HEARTBEAT
    with open_shell("sync", broker.bootstrap_servers) as shell:
        consumer = shell(group_id=topic, **GROUP_SETTINGS[protocol])
        consumer.subscribe([topic])
        fault = broker.faults.error(beat, ErrorCode.FENCED_INSTANCE_ID)
        for _ in range(3):
            with pytest.raises(FencedInstanceError) as raised:
                wait_until(lambda: False, consumer)
            assert raised.value.fatal
        assert fault.hits == 1
