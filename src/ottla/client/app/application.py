"""An application's side of Kafka: listeners, a sender, and one life cycle for both."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from ottla.base.errors import OttlaError
from ottla.base.options import OptionSet
from ottla.client.aio.processing.dead_letters import LetterProducer
from ottla.client.aio.producer.lasting_producer import LastingProducer
from ottla.client.aio.producer.producer import Producer
from ottla.client.app.calls import name_of
from ottla.client.app.listening import Listener
from ottla.client.app.payloads import encode
from ottla.client.core.consumer.options import CONSUMER_OPTIONS, ConsumerSettings
from ottla.client.core.outages import Outages
from ottla.client.core.processing.dead_letters import DEFAULT_TOPIC
from ottla.client.core.processing.handlers import check_handler
from ottla.client.core.processing.parallel import Ordering, Retries
from ottla.client.core.producer.batch import RecordMetadata
from ottla.client.core.producer.options import PRODUCER_OPTIONS, ProducerSettings
from ottla.client.core.producer.record_intake import GivenHeaders, ProducerRecord
from ottla.client.core.settings import merge_settings
from ottla.client.errors import ClientClosedError, ClientError, ListenerError

if TYPE_CHECKING:
    from ottla.client.core.keywords import AppKeywords, ListenerKeywords

log = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., object])
Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]

_OPTIONS = OptionSet("application", {**PRODUCER_OPTIONS, **CONSUMER_OPTIONS}.values())


class App:
    """Functions that listen to topics, and `send`. Use it with `async with`, or as the lifespan of a web application:
    `FastAPI(lifespan=app.lifespan)`.

    Settings are those of producers and consumers; each goes where it is known, and `group.id` is the group of
    listeners that do not name theirs. With `require_topics` the application does not start if a topic is missing.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        require_topics: bool = False,
        **settings: Unpack[AppKeywords],
    ) -> None:
        self._settings = merge_settings(config, settings)
        for name in self._settings:
            _OPTIONS.find(name)
        self._producer_settings = {name: value for name, value in self._settings.items() if name in PRODUCER_OPTIONS}
        ProducerSettings.parse(self._producer_settings)
        self._requires_topics = require_topics
        self._listeners: list[Listener] = []
        self._producer: LastingProducer | None = None
        self._letter_producer: LastingProducer | None = None
        self._is_starting = False
        # One voice for all its clients: each would say the same of a broker that is gone.
        self._outages = Outages(str(self._settings.get("client.id") or "ottla-app"))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id = 0
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._sending: set[asyncio.Task[None]] = set()

    # Listeners

    def listener(
        self,
        *topics: str | re.Pattern[str],
        group_id: str | None = None,
        ordering: Ordering = "key",
        concurrency: int = 16,
        queued_max: int = 1000,
        retries: int | Retries = 3,
        no_retry: tuple[type[Exception], ...] = (),
        dead_letter: str | None = DEFAULT_TOPIC,
        drain_timeout: float = 30.0,
        **settings: Unpack[ListenerKeywords],
    ) -> Callable[[F], F]:
        """Makes a function listen to topics, or to one pattern; the options are those of `ParallelConsumer`.

        The payload comes as its parameter's annotation says: bytes, str, JSON (dict, list, numbers), a dataclass, a
        TypedDict or a pydantic model. Parameters named `key` and `headers` get those, and one annotated as
        ConsumerRecord the record itself. A function that is no coroutine runs in a thread.
        """
        for topic in topics:
            if callable(topic):
                # It would be replaced by a decorator that nobody calls, and never listen.
                raise ListenerError(f"{name_of(topic)}: name the topics: @app.listener('orders')")
        options: dict[str, Any] = {
            "ordering": ordering,
            "concurrency": concurrency,
            "queued_max": queued_max,
            "retries": retries,
            "no_retry": no_retry,
            "dead_letter": dead_letter,
            "drain_timeout": drain_timeout,
        }

        def register(function: F) -> F:
            if self._producer is not None:
                raise ListenerError(f"{name_of(function)}: listeners must be there before the application starts")
            try:
                check_handler(function)
            except TypeError as e:
                raise ListenerError(f"{name_of(function)}: {e}") from e
            own = merge_settings(None, settings)
            given = {name: value for name, value in self._settings.items() if name in CONSUMER_OPTIONS} | own
            if self._requires_topics:
                # Otherwise subscribing might create what is then found to be there.
                given.setdefault("allow.auto.create.topics", False)
            if group_id is not None:
                given["group.id"] = group_id
            if given.get("group.id") is None:
                raise ListenerError(f"{name_of(function)}: name a group_id, here or for the whole application")
            ConsumerSettings.parse(given)
            subscription = _subscription(function, topics)
            name = self._name_for(function, subscription)
            self._listeners.append(Listener(name, function, subscription, given, options))
            return function

        return register

    def _name_for(self, function: Callable[..., object], topics: tuple[str, ...] | re.Pattern[str]) -> str:
        """Its own, or one that says more if the function listens several times: `failures` shall tell them apart."""
        name = name_of(function)
        taken = {listener.name for listener in self._listeners}
        if name in taken:
            name += f" ({topics.pattern if isinstance(topics, re.Pattern) else ', '.join(topics)})"
        names = itertools.chain([name], (f"{name} [{number}]" for number in itertools.count(2)))
        return next(name for name in names if name not in taken)

    @property
    def failures(self) -> dict[str, OttlaError]:
        """Listeners that have ended before the application did, and why. For health checks."""
        return {listener.name: listener.failure for listener in self._listeners if listener.failure is not None}

    # Life

    async def start(self) -> Self:
        """Starts the listeners, which connect when the cluster is there; `bootstrap.fail.fast` raises if it is not.

        Raises ListenerError for one that cannot be.
        """
        if self._producer is not None or self._is_starting:
            raise ClientError("this application has been started already")
        for listener in self._listeners:
            listener.check()
        producer = LastingProducer(self._make_producer)
        self._is_starting = True
        try:
            await producer.get()
        finally:
            self._is_starting = False
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._turns.clear()
        self._producer = producer
        # For all listeners. The application's own limit for records is none for those that others have sent.
        self._letter_producer = LastingProducer(self._make_letter_producer)
        try:
            for listener in self._listeners:
                await listener.start(self._letter_producer, self._outages, requires_topics=self._requires_topics)
        except BaseException:
            await self.close()
            raise
        return self

    def _make_producer(self) -> Producer:
        producer = Producer(self._producer_settings, key_serializer=encode, value_serializer=encode)
        producer._outages = self._outages
        return producer

    def _make_letter_producer(self) -> Producer:
        producer = LetterProducer(self._producer_settings)
        producer._outages = self._outages
        return producer

    async def close(self) -> None:
        """Waits for listeners that are at work, and for what is being sent. It can be started again after that."""
        producer, letter_producer = self._producer, self._letter_producer
        if producer is None or letter_producer is None:
            return
        try:
            await asyncio.gather(*(listener.stop() for listener in self._listeners))
            while self._sending:
                await asyncio.wait(self._sending)
        finally:
            self._producer = None
            try:
                # What the listeners have given up, they do not wait for.
                await letter_producer.close(timeout=0)
            finally:
                await producer.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    @asynccontextmanager
    async def lifespan(self, web_app: object = None) -> AsyncIterator[None]:
        """For Starlette and FastAPI: started with the web application, closed with it."""
        async with self:
            yield

    def lifespan_around(self, own: Lifespan) -> Lifespan:
        """The same for a web application that has a lifespan of its own, which may use `send` from start to end."""

        @asynccontextmanager
        async def both(web_app: Any) -> AsyncIterator[Any]:
            async with self, own(web_app) as state:
                yield state

        return both

    # Sending

    async def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: GivenHeaders = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Sends a record and waits until it is stored. Objects are sent as a listener would read them."""
        producer = self._started()
        if self._sending:
            # What was to be sent soon is first: it has begun after this.
            await asyncio.sleep(0)
        return await self._deliver(producer, ProducerRecord(topic, value, key, headers, partition, timestamp_ms))

    async def _deliver(self, producer: LastingProducer, record: ProducerRecord) -> RecordMetadata:
        # Whoever sends first is first, also if the topic has to be looked up or the buffer is full.
        async with self._turns[record.topic]:
            future = await (await producer.get()).send(*record)
        return await future

    def send_soon(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: GivenHeaders = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Sends a record in the background, from any thread; an error is logged. Closing waits for it."""
        producer = self._started()
        assert self._loop is not None
        record = ProducerRecord(topic, value, key, headers, partition, timestamp_ms)
        if self._thread_id == threading.get_ident():
            self._begin(producer, record)
        else:
            self._loop.call_soon_threadsafe(self._begin, producer, record)

    def _begin(self, producer: LastingProducer, record: ProducerRecord) -> None:
        async def deliver() -> None:
            try:
                await self._deliver(producer, record)
            except Exception as e:
                # Nobody waits for this task: what is not said here is never said.
                log.error("a record for %s was not sent: %s", record.topic, e, exc_info=not isinstance(e, OttlaError))

        def ended(task: asyncio.Task[None]) -> None:
            self._sending.discard(task)
            if task.cancelled():
                log.error("a record for %s was not sent: the event loop ended before the application did", record.topic)

        task = asyncio.get_running_loop().create_task(deliver())
        self._sending.add(task)
        task.add_done_callback(ended)

    def _started(self) -> LastingProducer:
        if self._producer is None:
            raise ClientClosedError("the application is not started: use `async with`, or its lifespan")
        return self._producer


def _subscription(
    function: Callable[..., object], topics: tuple[str | re.Pattern[str], ...]
) -> tuple[str, ...] | re.Pattern[str]:
    names = tuple(topic for topic in topics if isinstance(topic, str) and topic)
    if topics and len(names) == len(topics):
        return names
    if len(topics) == 1 and isinstance(topics[0], re.Pattern):
        return topics[0]
    raise ListenerError(f"{name_of(function)}: listen to topics by their names, or to one compiled pattern")
