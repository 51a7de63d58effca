"""A broker that is stopped, or not there yet: every client says so at once, now and then, and when it is back."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ottla
from ottla import App, Retries, TopicPartition, aio
from ottla.errors import (
    BufferExhaustedError,
    ClientError,
    ClusterUnreachableError,
    DeliveryTimeoutError,
    MetadataTimeoutError,
)
from ottla.testing import EmbeddedBroker
from tests.waiting import run_async

PATIENCE_S = 60.0
QUICK = {"reconnect.backoff.max.ms": 200, "retry.backoff.max.ms": 200}


@pytest.fixture
def gone(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker that can be stopped and started again where it was."""
    broker = EmbeddedBroker(data_dir=tmp_path)
    with broker:
        yield broker


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[int], list[str]]:
    caplog.set_level(logging.INFO, "ottla.client")

    def of_level(level: int) -> list[str]:
        return [
            record.getMessage()
            for record in caplog.records
            if record.levelno == level and record.name.startswith("ottla.client")
        ]

    return of_level


Lines = Callable[[int], list[str]]


def wait_until(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


def check_outage(lines: Lines, who: str, address: str) -> None:
    """One line at once, few more, each with the address and the cause; one at the end."""
    warnings = lines(logging.WARNING)
    assert warnings[0] == f"{who} cannot reach {address}: nothing listens there (connection refused). Trying again"
    pattern = (
        rf"{who} still cannot reach {re.escape(address)}: nothing listens there \(connection refused\)\."
        r" Trying again, for \d+ s now"
    )
    assert warnings[1:] and all(re.fullmatch(pattern, line) for line in warnings[1:]), warnings
    # After 0, 1, 3, 7, 15 … seconds, however many connections are tried meanwhile.
    assert len(warnings) <= 8
    back = lines(logging.INFO)
    assert len(back) == 1 and re.fullmatch(rf"{who} has reached {re.escape(address)}, after \d+ s", back[0]), back


def test_a_producer_says_so(gone: EmbeddedBroker, lines: Lines) -> None:
    topic = gone.create_topic("t", partitions=8)
    with ottla.Producer(QUICK, bootstrap_servers=gone.bootstrap_servers, linger_ms=0) as producer:
        for partition in range(8):
            producer.send(topic, b"before", partition=partition).result(PATIENCE_S)
        gone.stop()
        futures = [producer.send(topic, b"while", partition=number % 8) for number in range(100)]
        wait_until(lambda: len(lines(logging.WARNING)) >= 3)
        gone.start()
        for future in futures:
            future.result(PATIENCE_S)
    check_outage(lines, "ottla-producer", gone.bootstrap_servers)


def test_a_consumer_says_so(gone: EmbeddedBroker, lines: Lines) -> None:
    topic = gone.create_topic("t", partitions=8)
    with ottla.Consumer(QUICK, bootstrap_servers=gone.bootstrap_servers, group_id="g", client_id="reader") as consumer:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.1) or len(consumer.assignment) == 8)
        gone.stop()
        wait_until(lambda: consumer.poll(0.1) or len(lines(logging.WARNING)) >= 3)
        gone.start()
        wait_until(lambda: consumer.poll(0.1) or lines(logging.INFO))
    check_outage(lines, "reader", gone.bootstrap_servers)


def test_an_application_says_so_once_for_all_its_listeners(gone: EmbeddedBroker, lines: Lines) -> None:
    heard: list[str] = []
    app = App(QUICK, bootstrap_servers=gone.bootstrap_servers, group_id="g", auto_offset_reset="earliest")
    topics = [gone.create_topic(f"t{number}") for number in range(3)]
    for number, topic in enumerate(topics):

        @app.listener(topic, group_id=f"g{number}")
        async def listen(text: str) -> None:
            heard.append(text)

    async def run() -> None:
        async with app:
            for topic in topics:
                await app.send(topic, "before")
            await until(lambda: len(heard) == 3)
            await asyncio.to_thread(gone.stop)
            app.send_soon(topics[0], "while")
            await until(lambda: len(lines(logging.WARNING)) >= 3)
            await asyncio.to_thread(gone.start)
            await until(lambda: len(heard) == 4)

    run_async(run())
    assert not app.failures
    check_outage(lines, "ottla-app", gone.bootstrap_servers)


def test_an_admin_client_says_so(gone: EmbeddedBroker, lines: Lines) -> None:
    with ottla.Admin(QUICK, bootstrap_servers=gone.bootstrap_servers) as admin:
        gone.stop()
        with pytest.raises(ClientError, match=r"no success within 2000 ms; the last error was .*nothing listens there"):
            admin.list_topics(timeout_ms=2000)
    assert lines(logging.WARNING)[0].startswith(f"ottla-admin cannot reach {gone.bootstrap_servers}: nothing listens")
    assert len(lines(logging.WARNING)) <= 3


def test_a_broker_that_does_not_answer_is_told_of_as_well(gone: EmbeddedBroker, lines: Lines) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        with (
            ottla.Admin(QUICK, bootstrap_servers=address, request_timeout_ms=300) as admin,
            pytest.raises(ClientError, match=r"no answer to API_VERSIONS within 300 ms"),
        ):
            admin.list_topics(timeout_ms=1000)
    assert lines(logging.WARNING)[0] == (
        f"ottla-admin cannot reach {address}: no answer to API_VERSIONS within 300 ms. Trying again"
    )


# What took too long says why


def test_records_that_were_not_acknowledged_name_the_last_cause(gone: EmbeddedBroker) -> None:
    topic = gone.create_topic("t")
    impatient = {**QUICK, "delivery.timeout.ms": 1500, "request.timeout.ms": 1000, "linger.ms": 0}
    with ottla.Producer(impatient, bootstrap_servers=gone.bootstrap_servers) as producer:
        producer.send(topic, b"before").result(PATIENCE_S)
        gone.stop()
        with pytest.raises(DeliveryTimeoutError) as raised:
            producer.send(topic, b"while").result(PATIENCE_S)
    assert re.search(
        rf"not acknowledged within delivery\.timeout\.ms \(1500 ms\); it may have been stored; last: connection to"
        rf" {re.escape(gone.bootstrap_servers)}: nothing listens there \(connection refused\)$",
        raised.value.message,
    )


def test_a_producer_that_has_to_wait_says_what_for(gone: EmbeddedBroker) -> None:
    topic = gone.create_topic("t")
    small = {**QUICK, "buffer.memory": 20_000, "batch.size": 10_000, "max.block.ms": 1000}
    with ottla.Producer(small, bootstrap_servers=gone.bootstrap_servers) as producer:
        producer.send(topic, b"before").result(PATIENCE_S)
        gone.stop()
        with pytest.raises(
            BufferExhaustedError, match=r"stayed full for 1000 ms.*: cannot reach .*nothing listens there"
        ):
            for _ in range(100):
                producer.send(topic, bytes(1000))
        with pytest.raises(TimeoutError, match=r"not every record was acknowledged within 0\.5 s; last: cannot reach"):
            producer.flush(0.5)
        gone.start()


def test_a_transaction_that_takes_too_long_says_what_for(gone: EmbeddedBroker) -> None:
    topic = gone.create_topic("t")
    settings = {**QUICK, "transactional.id": "x", "max.block.ms": 1500}
    with ottla.Producer(settings, bootstrap_servers=gone.bootstrap_servers) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"one").result(PATIENCE_S)
        gone.stop()
        with pytest.raises(ClientError, match=r"commit_transaction\(\) was not done .*nothing listens there"):
            producer.commit_transaction()
        gone.start()


def test_a_commit_that_was_not_done_in_time_names_the_last_cause(gone: EmbeddedBroker) -> None:
    topic = gone.create_topic("t")
    with ottla.Consumer(QUICK, bootstrap_servers=gone.bootstrap_servers, group_id="g") as consumer:
        consumer.commit({TopicPartition(topic, 0): 0})
        gone.stop()
        with pytest.raises(ClientError, match="nothing listens there"):
            consumer.commit({TopicPartition(topic, 0): 1}, timeout=1.0)
        consumer.assign([TopicPartition(topic, 0)])
        with pytest.raises(ClientError, match=r"was not found within 1000 ms; last: cannot reach .*nothing listens"):
            consumer.position(TopicPartition(topic, 0), timeout=1.0)


# Started before the broker


@pytest.fixture
def not_yet(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """Has an address, but is to be started."""
    broker = EmbeddedBroker(data_dir=tmp_path)
    broker.start()
    broker.create_topic("t")
    broker.stop()
    yield broker
    broker.stop()


def test_a_producer_waits_for_its_broker(not_yet: EmbeddedBroker, lines: Lines) -> None:
    with ottla.Producer(QUICK, bootstrap_servers=not_yet.bootstrap_servers) as producer:
        with (
            ottla.Producer(QUICK, bootstrap_servers=not_yet.bootstrap_servers, max_block_ms=300) as impatient,
            pytest.raises(MetadataTimeoutError, match="nothing listens there"),
        ):
            impatient.send("t", b"early")
        not_yet.start()
        assert producer.send("t", b"hello").result(PATIENCE_S).offset == 0
    assert lines(logging.WARNING)[0].startswith("ottla-producer cannot reach")


def test_an_asyncio_producer_waits_for_its_broker(not_yet: EmbeddedBroker) -> None:
    async def run() -> None:
        async with aio.Producer(QUICK, bootstrap_servers=not_yet.bootstrap_servers) as producer:
            sending = asyncio.create_task(producer.send_and_wait("t", b"hello"))
            await asyncio.to_thread(not_yet.start)
            async with asyncio.timeout(PATIENCE_S):
                assert (await sending).offset == 0

    run_async(run())


def test_a_consumer_waits_for_its_broker(not_yet: EmbeddedBroker, lines: Lines) -> None:
    settings = {**QUICK, "auto.offset.reset": "earliest", "group.id": "g"}
    with ottla.Consumer(settings, bootstrap_servers=not_yet.bootstrap_servers) as consumer:
        consumer.subscribe(["t"])
        assert consumer.poll(0.5) == []
        not_yet.start()
        with ottla.Producer(bootstrap_servers=not_yet.bootstrap_servers) as producer:
            producer.send("t", b"hello").result(PATIENCE_S)
        seen: list[bytes | None] = []
        wait_until(lambda: seen.extend(record.value for record in consumer.poll(0.1)) or seen)
        assert seen == [b"hello"]
    assert lines(logging.WARNING)[0].startswith("ottla-consumer cannot reach")


def test_an_admin_client_waits_for_its_broker(not_yet: EmbeddedBroker) -> None:
    with ottla.Admin(QUICK, bootstrap_servers=not_yet.bootstrap_servers) as admin:
        not_yet.start()
        # A call for the controller, whoever that may be.
        admin.create_topics([ottla.NewTopic("another", 1, 1)]).check()
        assert {"t", "another"} <= set(admin.list_topics())


def test_an_application_waits_for_its_broker(not_yet: EmbeddedBroker, lines: Lines) -> None:
    heard: list[str] = []
    app = App(QUICK, bootstrap_servers=not_yet.bootstrap_servers, group_id="g", auto_offset_reset="earliest")

    @app.listener("t", retries=Retries(0))
    async def listen(text: str) -> None:
        heard.append(text)

    async def run() -> None:
        async with app:
            await until(lambda: lines(logging.WARNING))
            await asyncio.to_thread(not_yet.start)
            await app.send("t", "hello")
            await until(lambda: heard == ["hello"])

    run_async(run())


@pytest.mark.parametrize("kind", [ottla.Producer, ottla.Consumer, ottla.Admin])
def test_who_wants_to_know_at_once_is_told(kind: type[ottla.Producer], not_yet: EmbeddedBroker) -> None:
    with pytest.raises(ClusterUnreachableError, match=r"nothing listens there.*Check bootstrap\.servers"):
        kind(bootstrap_servers=not_yet.bootstrap_servers, bootstrap_fail_fast=True)


def test_an_application_that_wants_to_know_at_once_is_told(not_yet: EmbeddedBroker) -> None:
    app = App(bootstrap_servers=not_yet.bootstrap_servers, bootstrap_fail_fast=True)
    with pytest.raises(ClusterUnreachableError, match=r"Check bootstrap\.servers"):
        run_async(app.start())
