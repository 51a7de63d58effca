"""An application and its listeners around consumers and producers that a test plays."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest

from ottla.base.errors import ErrorCode, InvalidConfigError, KafkaError, OttlaError
from ottla.client.app import application, listening
from ottla.client.app.application import App
from ottla.client.core.processing.parallel import Retries
from ottla.client.core.producer.batch import RecordMetadata
from ottla.client.errors import ClientClosedError, ClientError, ListenerError, ProcessingError
from tests.waiting import join, run_async, until


class FakeConsumer:
    """Runs until it is stopped, or fails as a test says."""

    made: ClassVar[list[FakeConsumer]] = []
    failures: ClassVar[list[BaseException]] = []
    missing: ClassVar[set[str]] = set()

    def __init__(self, topics: Any, handler: Callable[[Any], object], settings: Any, *, producer: Any, **options: Any):
        self.topics, self.handler, self.settings, self.producer, self.options = (
            topics,
            handler,
            settings,
            producer,
            options,
        )
        self.outages: object = None
        self.closed = 0
        self._stopped = asyncio.Event()
        self.made.append(self)

    def _share_outages(self, outages: object) -> None:
        self.outages = outages

    async def start(self) -> FakeConsumer:
        return self

    async def partitions_of(self, topic: str) -> int:
        return 0 if topic in self.missing else 3

    async def run(self) -> None:
        if self.failures:
            raise self.failures.pop(0)
        await self._stopped.wait()

    def stop(self) -> None:
        self._stopped.set()

    async def close(self) -> None:
        self.closed += 1


class FakeProducer:
    """A lasting producer and the producer it gives, in one."""

    made: ClassVar[list[FakeProducer]] = []
    refusal: ClassVar[KafkaError | None] = None

    def __init__(self, make: Callable[[], object]) -> None:
        self.make = make
        self.sent: list[tuple[Any, ...]] = []
        self.closed: list[float | None] = []
        self.may_store = asyncio.Event()
        self.may_store.set()
        self.made.append(self)

    async def get(self) -> FakeProducer:
        if self.refusal is not None:
            raise self.refusal
        return self

    async def send(self, *record: Any) -> asyncio.Future[RecordMetadata]:
        if record[1] == "bad":
            raise ClientError("cannot be sent")
        if record[1] == "defect":
            raise ZeroDivisionError
        self.sent.append(record)
        return asyncio.ensure_future(self._store(record))

    async def _store(self, record: tuple[Any, ...]) -> RecordMetadata:
        await self.may_store.wait()
        return RecordMetadata(record[0], 0, len(self.sent) - 1, 0)

    async def close(self, timeout: float | None = None) -> None:
        self.closed.append(timeout)


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "ParallelConsumer", FakeConsumer)
    monkeypatch.setattr(application, "LastingProducer", FakeProducer)
    for kind, name, value in (
        (FakeConsumer, "made", []),
        (FakeConsumer, "failures", []),
        (FakeConsumer, "missing", set()),
        (FakeProducer, "made", []),
        (FakeProducer, "refusal", None),
    ):
        monkeypatch.setattr(kind, name, value)


def app(**settings: Any) -> App:
    return App(bootstrap_servers="x:1", group_id="g", **settings)


async def listen(value: bytes) -> None: ...


def test_a_listener_has_the_settings_of_the_application_and_its_own() -> None:
    made = app(client_id="shop", linger_ms=5, fetch_max_wait_ms=7)
    made.listener("a", "b", group_id="own", concurrency=2, retries=Retries(1), fetch_max_wait_ms=9)(listen)
    made.listener(re.compile("c.*"), dead_letter=None, ordering="partition", queued_max=5, drain_timeout=1.0)(listen)

    async def test() -> None:
        async with made:
            first, second = FakeConsumer.made
            assert first.topics == ("a", "b")
            assert first.settings == {
                "bootstrap.servers": "x:1",
                "client.id": "shop",
                "group.id": "own",
                "fetch.max.wait.ms": 9,
            }
            assert (first.options["concurrency"], first.options["retries"]) == (2, Retries(1))
            assert second.topics == re.compile("c.*") and second.settings["group.id"] == "g"
            assert second.options == {
                "ordering": "partition",
                "concurrency": 16,
                "queued_max": 5,
                "retries": 3,
                "no_retry": (),
                "dead_letter": None,
                "drain_timeout": 1.0,
            }
            assert first.outages is second.outages is made._outages
            assert first.producer is FakeProducer.made[1], "dead letters have a producer of their own"
        assert [consumer.closed for consumer in FakeConsumer.made] == [1, 1]
        assert [producer.closed for producer in FakeProducer.made] == [[None], [0]]

    run_async(test())


@pytest.mark.parametrize(
    ("topics", "message"),
    [
        ((), "listen to topics by their names"),
        (("",), "listen to topics by their names"),
        (("a", re.compile("b")), "listen to topics by their names"),
        ((re.compile("a"), re.compile("b")), "listen to topics by their names"),
    ],
)
def test_what_a_listener_cannot_listen_to(topics: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ListenerError, match=f"listen: {message}"):
        app().listener(*topics)(listen)


def test_listeners_that_cannot_be() -> None:
    with pytest.raises(ListenerError, match="name the topics"):
        app().listener(listen)  # type: ignore[arg-type]
    with pytest.raises(ListenerError, match="name a group_id"):
        App(bootstrap_servers="x:1").listener("a")(listen)
    with pytest.raises(ListenerError, match="listen_generator"):

        @app().listener("a")
        def listen_generator(value: bytes) -> Any:
            yield value

    with pytest.raises(InvalidConfigError, match=r"fetch\.max\.wait\.ms"):
        app().listener("a", fetch_max_wait_ms=-1)(listen)
    with pytest.raises(InvalidConfigError):
        app(linger_mss=5)
    with pytest.raises(InvalidConfigError):
        app(linger_ms=-5)


def test_names_tell_listeners_of_one_function_apart() -> None:
    made = app()
    for topics in (("a",), ("b", "c"), ("b", "c"), (re.compile("d.*"),)):
        made.listener(*topics)(listen)
    assert [each.name for each in made._listeners] == ["listen", "listen (b, c)", "listen (b, c) [2]", "listen (d.*)"]


def test_an_application_starts_once_and_again_after_it_was_closed() -> None:
    async def test() -> None:
        made = app()
        with pytest.raises(ClientClosedError, match="is not started"):
            await made.send("t")
        await made.close()
        for _ in range(2):
            async with made:
                with pytest.raises(ClientError, match="started already"):
                    await made.start()
                with pytest.raises(ListenerError, match="before the application starts"):
                    made.listener("a")(listen)
                await made.send("t", "v")
        with pytest.raises(ClientClosedError):
            made.send_soon("t")

    run_async(test())


def test_an_application_that_could_not_start_may_be_started_later() -> None:
    async def test() -> None:
        made = app()
        FakeProducer.refusal = KafkaError("nobody there", code=ErrorCode.NETWORK_EXCEPTION)
        with pytest.raises(KafkaError, match="nobody there"):
            await made.start()
        FakeProducer.refusal = None
        async with made:
            await made.send("t", "v")

    run_async(test())


@pytest.mark.parametrize(("requires", "is_refused"), [(True, True), (False, False)])
def test_topics_that_are_required(requires: bool, is_refused: bool) -> None:
    async def test() -> None:
        made = app(require_topics=requires)
        made.listener("there", "gone")(listen)
        made.listener(re.compile("gone"))(listen)
        FakeConsumer.missing = {"gone"}
        if is_refused:
            with pytest.raises(ListenerError, match="listens to gone, which does not exist"):
                await made.start()
            assert FakeConsumer.made[0].settings["allow.auto.create.topics"] is False
            assert FakeConsumer.made[0].closed and all(producer.closed for producer in FakeProducer.made)
            FakeConsumer.missing = set()
        async with made:
            assert len([consumer for consumer in FakeConsumer.made if not consumer.closed]) == 2

    run_async(test())


def test_a_listener_starts_again_after_what_may_pass(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listening, "_FIRST_PAUSE_MS", 1)
    FakeConsumer.failures = [KafkaError("away", code=ErrorCode.NETWORK_EXCEPTION), ClientError("again")]

    async def test() -> None:
        made = app()
        made.listener("a")(listen)
        async with made:
            await until(lambda: len(FakeConsumer.made) == 3)
            assert [consumer.closed for consumer in FakeConsumer.made] == [1, 1, 0]
            assert made.failures == {}

    run_async(test())
    assert [message.rpartition(": ")[2] for message in caplog.messages] == ["away", "again"]


def test_a_listener_that_is_to_start_again_does_not_hold_up_closing(caplog: pytest.LogCaptureFixture) -> None:
    FakeConsumer.failures = [ClientError("away")]

    async def test() -> None:
        made = app()
        made.listener("a")(listen)
        async with made:
            await until(lambda: bool(caplog.messages))
        assert len(FakeConsumer.made) == 1

    run_async(test())
    assert "starts again in" in caplog.messages[0]


@pytest.mark.parametrize(
    "failure", [ProcessingError("no dead letters", topic_partition=None, offset=0), ClientError("fenced", fatal=True)]
)
def test_a_listener_that_cannot_go_on_ends_and_is_among_the_failures(failure: OttlaError) -> None:
    FakeConsumer.failures = [failure]

    async def test() -> None:
        made = app()
        made.listener("a")(listen)
        made.listener("b")(listen)
        async with made:
            await until(lambda: bool(made.failures))
            assert made.failures == {"listen": failure}
            assert [consumer.closed for consumer in FakeConsumer.made] == [1, 0], "others are not concerned"
        async with made:
            assert made.failures == {}, "a new start"

    run_async(test())


def test_a_defect_in_a_listener_is_told(caplog: pytest.LogCaptureFixture) -> None:
    FakeConsumer.failures = [ZeroDivisionError("a defect")]

    async def test() -> None:
        made = app()
        made.listener("a")(listen)
        async with made:
            await until(lambda: bool(caplog.records))

    run_async(test())
    (told,) = caplog.records
    assert told.getMessage() == "the listener listen has ended" and told.exc_info is not None


def test_records_are_given_to_functions_by_their_parameters() -> None:
    given: list[object] = []

    async def coroutine(value: str, key: bytes) -> None:
        given.append((value, key))

    def function(value: dict[str, int]) -> str:
        return f"returned {value}"

    class Record:
        topic, key, value, headers = "t", b"k", b'{"a": 1}', ()

    async def test() -> None:
        made = app()
        made.listener("a")(coroutine)
        made.listener("a")(function)
        async with made:
            first, second = (consumer.handler for consumer in FakeConsumer.made)
            called: Any = first(Record())
            await called
            assert second(Record()) == "returned {'a': 1}"

    run_async(test())
    assert given == [('{"a": 1}', b"k")]


def test_records_are_sent_with_everything_and_in_their_order() -> None:
    async def test() -> None:
        async with app() as made:
            producer = FakeProducer.made[0]
            sent = await made.send("t", {"a": 1}, key="k", headers=[("h", b"1")], partition=3, timestamp_ms=9)
            assert (sent.topic, sent.offset) == ("t", 0)
            assert producer.sent == [("t", {"a": 1}, "k", [("h", b"1")], 3, 9)]
            made.send_soon("t", "soon", key="k", headers=[("h", b"2")], partition=4, timestamp_ms=10)
            await made.send("t", "later")
            assert [record[1] for record in producer.sent[1:]] == ["soon", "later"]
            assert producer.sent[1] == ("t", "soon", "k", [("h", b"2")], 4, 10)

    run_async(test())


def test_send_soon_from_another_thread_and_closing_that_waits_for_it() -> None:
    async def test() -> None:
        async with app() as made:
            producer = FakeProducer.made[0]
            producer.may_store.clear()
            thread = threading.Thread(target=made.send_soon, args=("t", "v"))
            thread.start()
            await until(lambda: bool(producer.sent))
            join(thread)
            closing = asyncio.create_task(made.close())
            await asyncio.sleep(0.01)
            assert not closing.done() and producer.closed == []
            producer.may_store.set()
            await closing
            assert producer.closed == [None]

    run_async(test())


@pytest.mark.parametrize(("value", "has_traceback"), [("bad", False), ("defect", True)])
def test_what_was_to_be_sent_soon_and_was_not_is_told(
    caplog: pytest.LogCaptureFixture, value: str, has_traceback: bool
) -> None:
    async def test() -> None:
        async with app() as made:
            made.send_soon("t", value)

    run_async(test())
    (told,) = caplog.records
    assert told.getMessage().startswith("a record for t was not sent")
    assert bool(told.exc_info) is has_traceback


def test_lifespans() -> None:
    async def test() -> None:
        made = app()
        async with made.lifespan():
            await made.send("t")

        @asynccontextmanager
        async def own(web_app: object) -> AsyncIterator[str]:
            await made.send("t", "first")
            yield f"state of {web_app}"
            await made.send("t", "last")

        async with made.lifespan_around(own)("web") as state:
            assert state == "state of web"
        assert [record[1] for record in FakeProducer.made[2].sent] == ["first", "last"]
        assert made._producer is None

    run_async(test())


def test_the_producers_have_the_settings_that_are_theirs() -> None:
    async def test() -> None:
        async with app(linger_ms=5, fetch_max_wait_ms=7, client_id="shop") as made:
            producer, letters = (each.make() for each in FakeProducer.made)
            for each in (producer, letters):
                assert each._outages is made._outages  # type: ignore[attr-defined]
                assert each._settings.linger_ms == 5  # type: ignore[attr-defined]
            assert letters._settings.buffer_memory > producer._settings.buffer_memory  # type: ignore[attr-defined]
        assert made._outages is not app()._outages

    run_async(test())
