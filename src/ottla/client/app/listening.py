"""The life of one listener: its consumer, made again after errors that may pass. Other listeners are not concerned."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from ottla.base.errors import OttlaError
from ottla.client.aio.processing.parallel import ParallelConsumer
from ottla.client.aio.producer.lasting_producer import LastingProducer
from ottla.client.app.calls import Call
from ottla.client.core.outages import Outages
from ottla.client.core.processing.handlers import is_coroutine_function
from ottla.client.core.processing.parallel import RawRecord
from ottla.client.core.settings import backoff_ms
from ottla.client.errors import ClientError, ListenerError, ProcessingError
from ottla.client.interrupts.exits import EXITS

log = logging.getLogger(__name__)

RawConsumer: TypeAlias = ParallelConsumer[bytes | None, bytes | None]

_FIRST_PAUSE_MS = 500
_LONGEST_PAUSE_MS = 30_000


class Listener:
    """A decorated function with the topics it listens to; `options` are those of `ParallelConsumer`."""

    def __init__(
        self,
        name: str,
        function: Callable[..., object],
        topics: tuple[str, ...] | re.Pattern[str],
        settings: Mapping[str, object],
        options: Mapping[str, Any],
    ) -> None:
        self.name = name
        self.topics = topics
        self.failure: OttlaError | None = None
        """What has ended it before the application did."""
        self._function = function
        self._settings = settings
        self._options = options
        self._consumer: RawConsumer | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._outages: Outages | None = None

    def check(self) -> None:
        """ListenerError if the function cannot be a listener."""
        Call(self._function)

    async def start(self, producer: LastingProducer, outages: Outages, *, requires_topics: bool) -> None:
        """Records come in the background from then on, as soon as there is a cluster to have them from."""
        self.failure = None
        self._stopping = asyncio.Event()
        self._outages = outages
        consumer = await self._make(producer)
        self._consumer = consumer
        if requires_topics and not isinstance(self.topics, re.Pattern):
            missing = [topic for topic in self.topics if not await consumer.partitions_of(topic)]
            if missing:
                raise ListenerError(
                    f"{self.name} listens to {', '.join(missing)}, which does not exist; create it, or start the"
                    " application without require_topics"
                )
        self._task = asyncio.get_running_loop().create_task(self._listen(consumer, producer), name=self.name)
        self._task.add_done_callback(self._ended)

    async def _make(self, producer: LastingProducer) -> RawConsumer:
        call = Call(self._function)
        function = self._function

        async def call_coroutine(record: RawRecord) -> None:
            called: Any = function(**call.arguments(record))
            await called

        def call_function(record: RawRecord) -> object:
            return function(**call.arguments(record))

        handler: Callable[[RawRecord], object] = call_coroutine if is_coroutine_function(function) else call_function
        consumer = ParallelConsumer(self.topics, handler, self._settings, producer=producer, **self._options)
        if self._outages is not None:
            consumer._share_outages(self._outages)
        try:
            return await consumer.start()
        except BaseException:
            await consumer.close()
            raise

    async def _listen(self, consumer: RawConsumer | None, producer: LastingProducer) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            began_s = loop.time()
            try:
                consumer = consumer or await self._make(producer)
                self._consumer = consumer
                if not self._stopping.is_set():
                    await consumer.run()
                return
            except OttlaError as e:
                if isinstance(e, ProcessingError) or (isinstance(e, ClientError) and e.fatal):
                    self.failure = e
                    log.error("the listener %s has ended: %s", self.name, e)
                    return
                failures = 1 if loop.time() - began_s > _LONGEST_PAUSE_MS / 1000 else failures + 1
                pause_ms = backoff_ms(failures, _FIRST_PAUSE_MS, _LONGEST_PAUSE_MS)
                log.error("the listener %s starts again in %d ms: %s", self.name, pause_ms, e)
            finally:
                if consumer is not None:
                    await consumer.close()
            consumer = None
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_ms / 1000):
                    await self._stopping.wait()
                return

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        # An exit has left through the event loop, and ends the process: there is no more to be said about it.
        if error is not None and not isinstance(error, EXITS):
            log.error("the listener %s has ended", self.name, exc_info=error)

    async def stop(self) -> None:
        """Waits for what is running, as long as `drain_timeout` allows."""
        self._stopping.set()
        if self._consumer is not None:
            self._consumer.stop()
        if self._task is not None:
            await asyncio.wait([self._task])
        elif self._consumer is not None:
            await self._consumer.close()
        self._task = self._consumer = None
