"""What only the producer for asyncio has to bear: tasks that wait for it, behind each other, or while it is closed."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Sequence

import pytest

from ottla import RecordMetadata, aio
from ottla.client.aio.producer.engine import ProducerEngine
from ottla.client.interrupts import loop_end
from ottla.errors import BufferExhaustedError, ClientClosedError, MetadataTimeoutError
from ottla.testing import ApiKey, EmbeddedBroker, Fault
from tests.client.producers import read_all, values_of
from tests.log_lines import messages_of
from tests.waiting import run_async

PATIENCE_S = 30.0


async def until_met(fault: Fault) -> None:
    async with asyncio.timeout(PATIENCE_S):
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
        told = run_async(close_while_calls_wait(broker))
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
        assert run_async(flush_in_vain(broker)).offset == 0


def test_close_ends_the_waiting_for_memory() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("t")
        told = run_async(close_while_sends_wait(broker))
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
            run_async(send(broker))
        assert raised.value.code == 3
        assert len(told) == 1


async def send_in_order(producer: aio.Producer, topic: str, sizes: Sequence[int]) -> None:
    """Each send in a task of its own, some of them in the same round of the loop."""
    sends = []
    for number, size in enumerate(sizes):
        sends.append(asyncio.create_task(producer.send(topic, b"%d:%s" % (number, bytes(size)))))
        if not number % 7:
            await asyncio.sleep(0)
    await asyncio.gather(*sends)


def numbers_in(broker: EmbeddedBroker, topic: str) -> list[int]:
    values = values_of(broker.bootstrap_servers, topic)
    return [int(value.partition(b":")[0]) for value in values if value is not None]


def test_sends_do_not_overtake_those_that_wait_for_memory() -> None:
    sizes = [100, 5000, 3, 15_000] * 200

    async def send(broker: EmbeddedBroker) -> None:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "buffer.memory": 60_000, "batch.size": 20_000}
        async with aio.Producer(settings, linger_ms=0) as producer:
            await producer.partitions_for("t")
            await send_in_order(producer, "t", sizes)
            await producer.flush()
            assert producer._engine is not None
            accumulator = producer._engine.accumulator
            assert (accumulator.free_bytes, accumulator.waiting) == (60_000, 0)

    with EmbeddedBroker() as broker:
        broker.create_topic("t")
        run_async(send(broker))
        assert numbers_in(broker, "t") == list(range(len(sizes)))


async def choose_badly_while_memory_is_full(broker: EmbeddedBroker) -> list[object]:
    def choose(topic: str, key: object, value: bytes | None, partition_count: int, available: object) -> int:
        return next(iter(())) if value == b"bad" else 0

    settings = {"bootstrap.servers": broker.bootstrap_servers, "buffer.memory": 2000, "linger.ms": 0}
    async with aio.Producer(settings, partitioner=choose) as producer:
        broker.faults.delay(ApiKey.PRODUCE, ms=100)
        await producer.send("t", bytes(1500))
        waiting = [asyncio.create_task(producer.send("t", value)) for value in (bytes(1500), b"bad", b"good")]
        async with asyncio.timeout(10):
            return [*await asyncio.gather(*waiting, return_exceptions=True)]


def test_a_partitioner_that_stops_an_iteration_fails_its_own_record_only() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("t")
        kinds = [type(told) for told in run_async(choose_badly_while_memory_is_full(broker))]
        assert kinds == [aio.SendFuture, RuntimeError, aio.SendFuture]
        assert values_of(broker.bootstrap_servers, "t") == [bytes(1500), bytes(1500), b"good"]


def test_sends_do_not_overtake_those_that_wait_for_their_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 200

    async def send(broker: EmbeddedBroker) -> None:
        async with aio.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            sends: list[asyncio.Task[aio.SendFuture]] = []
            tell = ProducerEngine._tell_metadata_waiters

            def start() -> None:
                sends.append(asyncio.create_task(producer.send("new", b"%d:" % len(sends))))

            def tell_and_start(engine: ProducerEngine) -> None:
                tell(engine)
                start()

            monkeypatch.setattr(ProducerEngine, "_tell_metadata_waiters", tell_and_start)
            for _ in range(10):
                start()
            async with asyncio.timeout(PATIENCE_S):
                while not sends[0].done():
                    await asyncio.sleep(0)
                while len(sends) < count:
                    start()
                    await asyncio.sleep(0)
                await asyncio.gather(*sends)

    with EmbeddedBroker() as broker:
        run_async(send(broker))
        assert numbers_in(broker, "new") == list(range(count))


def test_who_waits_in_vain_holds_up_nobody_else() -> None:
    """For a topic, for a partition, and for more memory than there is."""

    async def send(broker: EmbeddedBroker) -> list[object]:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "buffer.memory": 50_000, "max.block.ms": 700}
        async with aio.Producer(settings, linger_ms=0, delivery_timeout_ms=30_000) as producer, asyncio.timeout(20):
            for partition in range(2):
                await producer.send("t", b"", partition=partition)
            await producer.flush()
            in_vain = [
                asyncio.create_task(producer.send("nowhere", b"")),
                asyncio.create_task(producer.send("t", b"", partition=7)),
            ]
            await asyncio.sleep(0.05)
            assert (await producer.send_and_wait("t", b"", partition=0)).offset == 1
            assert (await producer.send_and_wait("t", b"", key=b"k")).offset
            broker.take_leader_away("t", 1)
            await producer.send("t", bytes(20_000), partition=1)
            in_vain.append(asyncio.create_task(producer.send("t", bytes(40_000), partition=0)))
            await asyncio.sleep(0)
            assert not in_vain[2].done()
            sent = await producer.send("t", b"", partition=0)
            assert in_vain[2].done()
            await sent
            cancelled = asyncio.create_task(producer.send("t", bytes(40_000), partition=0))
            following = asyncio.create_task(producer.send("t", b"", partition=0))
            await asyncio.sleep(0)
            cancelled.cancel()
            await (await following)
            broker.elect_leader("t", 1)
            return [*await asyncio.gather(*in_vain, return_exceptions=True)]

    with EmbeddedBroker(config={"auto.create.topics.enable": False}) as broker:
        broker.create_topic("t", partitions=2)
        told = run_async(send(broker))
        assert [type(error) for error in told] == [MetadataTimeoutError, MetadataTimeoutError, BufferExhaustedError]


async def leave_a_task_behind(broker: EmbeddedBroker) -> None:
    """As `asyncio.run` ends it cancels all tasks: the one that closes the producer, and those the producer needs."""
    all_sent = asyncio.Event()

    async def send() -> None:
        # A producer that waited for what was cancelled would wait for longer than any test may take.
        endless = {"delivery.timeout.ms": 3_600_000}
        async with aio.Producer(endless, bootstrap_servers=broker.bootstrap_servers, linger_ms=0) as producer:
            for number in range(100):
                await producer.send("t", b"%d" % number, key=b"%d" % number)
            all_sent.set()
            await asyncio.Event().wait()

    slow = broker.faults.delay(ApiKey.PRODUCE, ms=300)
    task = asyncio.create_task(send())
    await asyncio.wait_for(all_sent.wait(), PATIENCE_S)
    await until_met(slow)
    assert not task.done()


def test_a_producer_that_is_closed_while_the_loop_ends_sends_what_it_has() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("t", partitions=8)
        asyncio.run(leave_a_task_behind(broker))
        assert sum(map(len, read_all(broker.bootstrap_servers, "t").values())) == 100


async def send_and_go(broker: EmbeddedBroker, count: int) -> None:
    producer = await aio.Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000).start()
    for number in range(count):
        await producer.send("t", b"%d" % number)


def test_what_is_left_when_the_loop_ends_is_sent(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("t")
        asyncio.run(send_and_go(broker, 10))
        assert values_of(broker.bootstrap_servers, "t") == [b"%d" % number for number in range(10)]
        assert messages_of(caplog, loop_end.__name__, "asyncio") == []


def test_what_cannot_be_sent_when_the_loop_ends_is_said_to_be_lost(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.client.aio.producer.producer.LAST_S", 0.2)
    with EmbeddedBroker() as broker:
        broker.create_topic("t")
        broker.faults.drop(ApiKey.PRODUCE, times=None)
        asyncio.run(send_and_go(broker, 10))
    gc.collect()
    assert messages_of(caplog, loop_end.__name__) == [
        "records not sent, because the event loop ended before the producer was closed: 10"
    ]


def test_a_loop_that_ends_while_the_producer_asks_for_metadata_leaves_no_task(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def ask_and_go(broker: EmbeddedBroker) -> None:
        producer = await aio.Producer(bootstrap_servers=broker.bootstrap_servers).start()
        asking = asyncio.create_task(producer.send("t", b"v"))
        await asyncio.sleep(0)
        assert not asking.done()

    with EmbeddedBroker() as broker:
        asyncio.run(ask_and_go(broker))
    gc.collect()
    assert not [message for message in caplog.messages if "destroyed" in message]
