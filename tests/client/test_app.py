"""An application with listeners and a sender, against a real broker."""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import re
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pydantic
import pytest

import ottla
from ottla import App, ConsumerRecord, Retries
from ottla.errors import (
    ClientClosedError,
    ClientError,
    ClusterUnreachableError,
    InvalidConfigError,
    ListenerError,
    ProcessingError,
    RecordTooLargeError,
    SerializationError,
)
from ottla.testing import ApiKey, EmbeddedBroker, ErrorCode
from tests.log_lines import lines_of

PATIENCE_S = 30.0
# A broker deletes records that are old by their own account, also while a test reads them.
NOW_MS = int(time.time() * 1000)


@dataclass
class Order:
    number: int
    article: str = "book"


class Payment(pydantic.BaseModel):
    order: int
    amount: float


@pytest.fixture
def app(ottla_broker: EmbeddedBroker, new_topic: str) -> App:
    return App(
        bootstrap_servers=ottla_broker.bootstrap_servers, group_id=f"g-{new_topic}", auto_offset_reset="earliest"
    )


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await test()

    asyncio.run(bounded())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def test_typed_payloads_from_sender_to_listener(app: App, ottla_broker: EmbeddedBroker) -> None:
    orders, payments, texts, events = (ottla_broker.new_topic() for _ in range(4))
    heard: dict[str, Any] = {}

    @app.listener(orders)
    async def on_order(order: Order, key: str, headers: dict[str, bytes]) -> None:
        heard["order"] = (order, key, headers)

    @app.listener(payments)
    async def on_payment(payment: Payment, record: ConsumerRecord[Any, Any]) -> None:
        heard["payment"] = (payment, record.topic, record.timestamp)

    @app.listener(texts)
    def on_text(text: str | None) -> None:
        heard["text"] = (text, threading.current_thread().name.startswith("ottla-handler"))

    @app.listener(events)
    async def on_event(event: dict[str, list[int]]) -> None:
        heard["event"] = event

    async def test() -> None:
        async with app:
            stored = await app.send(orders, Order(7), key="customer-1", headers={"trace": b"x"})
            assert (stored.topic, stored.partition, stored.offset) == (orders, 0, 0)
            await app.send(payments, Payment(order=7, amount=1.5), timestamp_ms=NOW_MS)
            app.send_soon(texts, "hello")
            app.send_soon(events, {"numbers": [1, 2]})
            await until(lambda: len(heard) == 4)
        assert app.failures == {}

    run(test)
    assert heard == {
        "order": (Order(7), "customer-1", {"trace": b"x"}),
        "payment": (Payment(order=7, amount=1.5), payments, NOW_MS),
        "text": ("hello", True),
        "event": {"numbers": [1, 2]},
    }


def test_listeners_fail_on_their_own(app: App, ottla_broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture) -> None:
    bad, good, stuck = (ottla_broker.new_topic() for _ in range(3))
    dead = ottla_broker.create_topic(f"{bad}.dlt")
    heard: list[int] = []
    letters: list[tuple[bytes, bytes]] = []

    @app.listener(bad, retries=Retries(1, 1, 1))
    async def on_bad(order: Order) -> None:
        raise LookupError(order.article)

    @app.listener(stuck, retries=0, dead_letter=None)
    async def on_stuck(order: Order) -> None:
        raise LookupError(order.article)

    @app.listener(good)
    async def on_good(order: Order) -> None:
        heard.append(order.number)

    @app.listener(dead)
    async def on_dead(value: bytes, headers: dict[str, bytes]) -> None:
        letters.append((value, headers["ottla.dead-letter.exception"]))

    async def test() -> None:
        async with app:
            await app.send(bad, Order(1))
            await app.send(bad, b"no order")
            await app.send(stuck, Order(2))
            await until(lambda: len(letters) == 2 and bool(app.failures))
            await app.send(good, Order(3))
            await until(lambda: heard == [3])

    run(test)
    assert sorted(letters) == [
        (b"no order", b"ottla.client.errors.DeserializationError"),
        (b'{"number":1,"article":"book"}', b"builtins.LookupError"),
    ]
    (name,) = app.failures
    assert name.endswith("on_stuck")
    assert isinstance(app.failures[name], ProcessingError)
    assert "has ended" in caplog.text


def test_the_largest_record_that_can_be_sent_can_be_put_aside(app: App, ottla_broker: EmbeddedBroker) -> None:
    topic = ottla_broker.new_topic()
    dead = ottla_broker.create_topic(f"{topic}.dlt")
    heard: list[bytes] = []
    letters: list[bytes] = []

    @app.listener(topic, retries=0)
    async def listen(value: bytes) -> None:
        if len(value) > 100:
            raise LookupError("no such customer")
        heard.append(value)

    @app.listener(dead, group_id="undertakers")
    async def bury(value: bytes) -> None:
        letters.append(value)

    async def test() -> None:
        async with app:
            largest = bytes(1_048_300)
            await app.send(topic, largest)
            await app.send(topic, b"next")
            await until(lambda: heard == [b"next"] and letters == [largest])
            with pytest.raises(RecordTooLargeError, match=r"max\.request\.size"):
                await app.send(topic, bytes(1_048_576))
        assert app.failures == {}

    run(test)


def test_a_coroutine_behind_a_decorator_is_awaited(app: App, ottla_broker: EmbeddedBroker) -> None:
    topic = ottla_broker.new_topic()
    heard: list[str] = []

    def traced(function: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Awaitable[None]:
            return function(*args, **kwargs)

        return call

    @app.listener(topic)
    @traced
    async def listen(text: str) -> None:
        heard.append(text)

    async def test() -> None:
        async with app:
            await app.send(topic, "hello")
            await until(lambda: heard == ["hello"])

    run(test)


def test_a_listener_comes_back_after_its_broker(new_topic: str) -> None:
    heard: list[str] = []
    with EmbeddedBroker() as broker:
        broker.create_topic(new_topic)
        app = App(bootstrap_servers=broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest")

        @app.listener(new_topic)
        async def listen(text: str) -> None:
            heard.append(text)

        async def test() -> None:
            async with app:
                await app.send(new_topic, "before")
                await until(lambda: heard == ["before"])
                await asyncio.to_thread(broker.restart)
                await app.send(new_topic, "after")
                await until(lambda: heard[-1] == "after")

        run(test)


def test_a_sender_that_has_failed_for_good_is_replaced(new_topic: str, caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic(new_topic)
        app = App(bootstrap_servers=broker.bootstrap_servers)

        async def test() -> None:
            broker.faults.error(ApiKey.PRODUCE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            async with app:
                with pytest.raises(ClientError) as raised:
                    await app.send(new_topic, "lost")
                assert raised.value.fatal
                stored = await asyncio.gather(*(app.send(new_topic, "stored") for _ in range(3)))
                assert [metadata.offset for metadata in stored] == [0, 1, 2]

        run(test)
    assert caplog.text.count("has been replaced") == 1


def test_senders_that_keep_failing_are_not_replaced_for_every_record(new_topic: str) -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic(new_topic)
        app = App(bootstrap_servers=broker.bootstrap_servers)

        async def test() -> None:
            fault = broker.faults.error(ApiKey.PRODUCE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, times=None)
            async with app:
                for _ in range(20):
                    with pytest.raises(ClientError, match="CLUSTER_AUTHORIZATION_FAILED"):
                        await app.send(new_topic, "lost")
            assert 2 <= fault.hits < 20

        run(test)


def test_dead_letters_go_on_after_their_producer_has_failed(new_topic: str) -> None:
    letters: list[str] = []
    with EmbeddedBroker() as broker:
        dead = broker.create_topic(f"{new_topic}.dlt")
        servers = broker.bootstrap_servers
        app = App(bootstrap_servers=servers, client_id="app", auto_offset_reset="earliest")

        @app.listener(broker.create_topic(new_topic), group_id="g", retries=0)
        async def listen(text: str) -> None:
            raise LookupError(text)

        @app.listener(dead, group_id="undertakers")
        async def bury(text: str) -> None:
            letters.append(text)

        async def test() -> None:
            fault = broker.faults.error(ApiKey.PRODUCE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, client_id="app")
            async with ottla.aio.Producer(bootstrap_servers=servers) as producer, app:
                await producer.send_and_wait(new_topic, b"hello")
                await until(lambda: letters == ["hello"])
            assert fault.is_used_up
            assert app.failures == {}

        run(test)


def test_closing_waits_for_what_runs_and_what_is_sent(app: App, ottla_broker: EmbeddedBroker) -> None:
    topic, done = ottla_broker.new_topic(), ottla_broker.new_topic()
    begun = asyncio.Event()

    @app.listener(topic)
    async def listen(number: int) -> None:
        begun.set()
        await asyncio.sleep(0.2)
        app.send_soon(done, number)

    async def test() -> None:
        async with app:
            await app.send(topic, 1)
            await begun.wait()
        async with ottla.aio.Consumer(bootstrap_servers=ottla_broker.bootstrap_servers) as consumer:
            consumer.assign([(done, 0)])
            consumer.seek_to_beginning()
            assert [record.value for record in await consumer.poll(PATIENCE_S)] == [b"1"]

    run(test)


def test_a_listener_that_exits_ends_the_program(
    app: App, ottla_broker: EmbeddedBroker, new_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    ottla_broker.create_topic(new_topic)
    closed: list[bool] = []

    @app.listener(new_topic)
    def on_record(value: bytes) -> None:
        sys.exit("cannot go on")

    async def test() -> None:
        async with app:
            try:
                await app.send(new_topic, b"hello")
                await asyncio.Event().wait()
            finally:
                closed.append(True)

    with pytest.raises(SystemExit, match="cannot go on"):
        run(test)
    gc.collect()
    assert closed == [True]
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


def test_send_soon_keeps_the_order_from_any_thread(app: App, ottla_broker: EmbeddedBroker) -> None:
    topic = ottla_broker.new_topic()
    heard: list[int] = []

    @app.listener(topic, ordering="partition")
    async def listen(number: int) -> None:
        heard.append(number)

    def send_many() -> None:
        for number in range(100):
            app.send_soon(topic, number)

    async def test() -> None:
        async with app:
            send_many()
            await app.send(topic, 100)
            await asyncio.to_thread(send_many)
            await until(lambda: len(heard) == 201)

    run(test)
    assert heard == [*range(101), *range(100)]


def test_an_application_can_be_started_again(app: App, ottla_broker: EmbeddedBroker) -> None:
    topic = ottla_broker.new_topic()
    heard: list[str] = []

    @app.listener(re.compile(f"^{topic}$"))
    async def listen(text: str) -> None:
        heard.append(text)

    for number in (1, 2):

        async def test(count: int = number) -> None:
            async with app:
                await app.send(topic, "again")
                await until(lambda: len(heard) >= count)

        run(test)
    assert heard == ["again", "again"]


def test_lifespans_go_together(app: App, ottla_broker: EmbeddedBroker) -> None:
    topic = ottla_broker.new_topic()
    diary: list[str] = []

    @asynccontextmanager
    async def own(web_app: str) -> AsyncIterator[dict[str, str]]:
        await app.send(topic, "up")
        diary.append(f"up {web_app}")
        yield {"state": "mine"}
        await app.send(topic, "down")
        diary.append("down")

    async def test() -> None:
        async with app.lifespan_around(own)("web") as state:
            assert state == {"state": "mine"}
            diary.append("serving")
        with pytest.raises(ClientClosedError, match="its lifespan"):
            await app.send(topic, "too late")

    run(test)
    assert diary == ["up web", "serving", "down"]


# What is logged


def formatted(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Lines of applications, as they would stand in a log."""
    formatter = logging.Formatter("%(levelname)s %(message)s")
    ours = lines_of(caplog, "ottla.client.app", "ottla.client.aio.processing")
    return [line for record in ours for line in formatter.format(record).splitlines()]


def test_a_bad_payload_is_one_line(
    app: App, ottla_broker: EmbeddedBroker, new_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    heard: list[Order] = []

    @app.listener(new_topic)
    async def listen(order: Order) -> None:
        heard.append(order)

    async def test() -> None:
        async with app:
            await app.send(new_topic, b'{"number": "7"}')
            await app.send(new_topic, Order(8))
            await until(lambda: heard == [Order(8)] and formatted(caplog) != [])

    run(test)
    assert formatted(caplog) == [
        f"ERROR {new_topic}-0@0 cannot be read, and went to the dead-letter topic {new_topic}.dlt:"
        " order: number should be a valid integer, but is text"
    ]
    assert dead_letters(ottla_broker, new_topic) == [b'{"number": "7"}']


def test_a_handler_that_fails_again_and_again_is_told_of_in_few_lines(
    app: App, ottla_broker: EmbeddedBroker, new_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    @app.listener(new_topic, retries=Retries(2, first_pause_ms=1))
    async def listen(order: Order) -> None:
        raise LookupError(f"no order {order.number}")

    async def test() -> None:
        async with app:
            for number in range(3):
                await app.send(new_topic, Order(number), partition=0)
            await until(
                lambda: sum("went to the dead-letter topic" in record.message for record in caplog.records) == 3
            )

    run(test)
    lines = formatted(caplog)
    for number in range(3):
        place = f"{new_topic}-0@{number}"
        assert [line for line in lines if place in line] == [
            f"WARNING {place}: attempt 1 failed, and there will be another: LookupError: no order {number}",
            f"ERROR {place} failed, and went to the dead-letter topic {new_topic}.dlt after 3 attempts:"
            f" LookupError: no order {number}",
        ]
    # Where it was raised is shown once, and how we got there not at all.
    assert sum(line.startswith("Traceback") for line in lines) == 1
    (raised,) = [line for line in lines if line.startswith("  File ")]
    assert __file__ in raised and "in listen" in raised


def dead_letters(broker: EmbeddedBroker, topic: str) -> list[bytes | None]:
    with ottla.Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        letters = ottla.TopicPartition(f"{topic}.dlt", 0)
        consumer.assign([letters])
        consumer.seek_to_beginning()
        (end,) = consumer.end_offsets([letters]).values()
        found: list[bytes | None] = []
        deadline_s = time.monotonic() + PATIENCE_S
        while len(found) < end:
            assert time.monotonic() < deadline_s
            found += [record.value for record in consumer.poll(1.0)]
        return found


# What cannot be


def test_nobody_there() -> None:
    app = App(bootstrap_servers="127.0.0.1:1", bootstrap_fail_fast=True)
    with pytest.raises(ClusterUnreachableError, match=r"Check bootstrap\.servers"):
        run(app.start)


def test_topics_can_be_required(ottla_broker: EmbeddedBroker, new_topic: str) -> None:
    servers = ottla_broker.bootstrap_servers
    app = App(bootstrap_servers=servers, group_id="g", require_topics=True)

    @app.listener(ottla_broker.new_topic(), new_topic)
    async def listen(text: str) -> None: ...

    with pytest.raises(ListenerError, match=f"listens to {new_topic}, which does not exist"):
        run(app.start)
    with ottla.Admin(bootstrap_servers=servers) as admin:
        assert new_topic not in admin.list_topics()


def test_a_bad_annotation_keeps_the_application_from_starting(app: App, new_topic: str) -> None:
    @app.listener(new_topic)
    async def listen(number: type) -> None: ...

    with pytest.raises(ListenerError, match="number: nothing can be made for type"):
        run(app.start)


def test_settings(app: App) -> None:
    async def listen(text: str) -> AsyncIterator[None]:
        yield

    with pytest.raises(InvalidConfigError, match=r"did you mean auto\.offset\.reset"):
        App(bootstrap_servers="h:1", auto_offset_rest="earliest")
    with pytest.raises(InvalidConfigError, match=r"bootstrap\.servers must name"):
        App(group_id="g")
    with pytest.raises(InvalidConfigError, match=r"delivery\.timeout\.ms must be at least"):
        App(bootstrap_servers="h:1", delivery_timeout_ms=1)
    with pytest.raises(InvalidConfigError, match=r"heartbeat\.interval\.ms"):
        app.listener("t", heartbeat_interval_ms=100_000)(print)
    with pytest.raises(ListenerError, match="name a group_id"):
        App(bootstrap_servers="h:1").listener("t")(print)
    with pytest.raises(ListenerError, match="listen: the handler is a generator function, which does not run"):
        app.listener("t")(listen)
    for topics in ((), ("",), ("a", re.compile("b"))):
        with pytest.raises(ListenerError, match="by their names, or to one compiled pattern"):
            app.listener(*topics)(print)


def test_what_cannot_be_sent(app: App, new_topic: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)

    async def test() -> None:
        with pytest.raises(ClientClosedError, match="not started"):
            await app.send(new_topic, "x")
        async with app:
            with pytest.raises(SerializationError, match="complex has no form in JSON"):
                await app.send(new_topic, 1j)
            app.send_soon(new_topic, 1j)
            app.send_soon(new_topic, "x", headers=3)  # type: ignore[arg-type]

    run(test)
    assert caplog.text.count(f"a record for {new_topic} was not sent") == 2
    assert "never retrieved" not in caplog.text


def test_what_was_to_be_sent_soon_when_the_loop_ends_is_said_to_be_lost(
    app: App, new_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def send_and_go() -> None:
        await app.start()
        app.send_soon(new_topic, "x")

    asyncio.run(send_and_go())
    assert f"a record for {new_topic} was not sent: the event loop ended before the application did" in caplog.messages


def test_a_listener_without_topics_is_refused_where_it_is_written(app: App) -> None:
    with pytest.raises(ListenerError, match="on_order: name the topics"):

        @app.listener  # type: ignore[arg-type]
        async def on_order(order: Order) -> None:
            pass


def test_a_function_that_listens_several_times_has_several_failures(app: App, new_topic: str) -> None:
    async def fail(value: str) -> None:
        raise LookupError(value)

    listen = {"retries": 0, "dead_letter": None}
    app.listener(new_topic, **listen)(fail)  # type: ignore[arg-type]
    app.listener(f"{new_topic}-b", **listen)(fail)  # type: ignore[arg-type]
    app.listener(f"{new_topic}-b", group_id="another", **listen)(fail)  # type: ignore[arg-type]

    async def test() -> None:
        async with app:
            await app.send(new_topic, "a")
            await app.send(f"{new_topic}-b", "b")
            await until(lambda: len(app.failures) == 3)

    run(test)
    names = [name.rpartition(".")[2] for name in app.failures]
    assert names == ["fail", f"fail ({new_topic}-b)", f"fail ({new_topic}-b) [2]"]


def test_an_application_that_is_being_started_is_not_started_twice(app: App) -> None:
    async def test() -> None:
        first, second = await asyncio.gather(app.start(), app.start(), return_exceptions=True)
        assert first is app
        assert isinstance(second, ClientError)
        await app.close()

    run(test)
