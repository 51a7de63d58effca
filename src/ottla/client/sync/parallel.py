"""Many records of one consumer in the works at once, in threads: the calls of `ottla.client.aio.ParallelConsumer`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Generic, Self

from ottla.base.types import TopicPartition
from ottla.client.aio.consumer import Deserializer
from ottla.client.aio.parallel import ParallelConsumer as AsyncParallelConsumer
from ottla.client.core.consumer_record import ConsumerRecord, K, V
from ottla.client.core.dead_letters import DEFAULT_TOPIC
from ottla.client.core.group_protocol import GroupAssignor
from ottla.client.core.handlers import check_handler, is_coroutine_function
from ottla.client.core.parallel import Ordering, Retries
from ottla.client.errors import ClientClosedError, ForkedError
from ottla.client.sync.loop_thread import LoopThread


class ParallelConsumer(Generic[K, V]):
    """Reads topics as a member of a group and gives each record to `handler`, in up to `concurrency` threads at once.

    `ordering` says what is kept in order: records of one key ("key"), of one partition ("partition"), or nothing
    ("unordered"). A record whose handler raises is tried again (`retries`), and then sent to the topic `dead_letter`;
    with None, processing stops instead. Errors of `no_retry` are not tried again. Offsets are committed up to the first
    record that is not done, every `auto.commit.interval.ms`: every record is processed at least once.
    Use it with `with`, and call `run`.
    """

    def __init__(
        self,
        topics: Collection[str] | re.Pattern[str],
        handler: Callable[[ConsumerRecord[K, V]], object],
        config: Mapping[str, object] | None = None,
        *,
        ordering: Ordering = "key",
        concurrency: int = 16,
        queued_max: int = 1000,
        retries: int | Retries = 3,
        no_retry: tuple[type[Exception], ...] = (),
        dead_letter: str | None = DEFAULT_TOPIC,
        drain_timeout: float = 30.0,
        key_deserializer: Deserializer[K] | None = None,
        value_deserializer: Deserializer[V] | None = None,
        assignors: Sequence[GroupAssignor] = (),
        **settings: object,
    ) -> None:
        """`drain_timeout` (seconds) bounds the wait for running handlers when partitions go to another member.

        A thread cannot be stopped: a handler that takes longer goes on, and its record is processed twice. Dead letters
        are sent by a producer with the same settings, for records of any size; unlike `ottla.aio.ParallelConsumer` it
        takes no other, for a producer sends in an event loop of its own.
        """
        check_handler(handler)
        if "producer" in settings:
            raise TypeError("a producer can be given to ottla.aio.ParallelConsumer only; here there is always one")
        if is_coroutine_function(handler):
            raise TypeError("the handler is a coroutine function; use ottla.aio.ParallelConsumer")
        self._is_closed = False
        self._is_forked = False
        self._inner = AsyncParallelConsumer(
            topics,
            _refusing_coroutines(handler),
            config,
            ordering=ordering,
            concurrency=concurrency,
            queued_max=queued_max,
            retries=retries,
            no_retry=no_retry,
            dead_letter=dead_letter,
            drain_timeout=drain_timeout,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            assignors=assignors,
            producer=None,
            **settings,
        )
        self._thread = LoopThread("ottla-parallel", self._forked)
        try:
            self._thread.call(self._inner.start())
        except BaseException:
            self.close()
            raise

    def _forked(self) -> None:
        self._is_forked = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def run(self) -> None:
        """Processes records until `stop` or `close` is called. Raises what keeps the consumer from going on, and what a
        handler raises to end the process: SystemExit and KeyboardInterrupt. `close` waits for what is running then."""
        if self._is_forked:
            raise ForkedError("this consumer was made before the process forked; make a new one in the child")
        if self._is_closed:
            raise ClientClosedError("this consumer is closed; make another one")
        self._thread.call(self._inner.run())

    def stop(self) -> None:
        """Makes `run` return soon, for good. Any thread or signal handler may call it. What is running then is waited
        for by `close`."""
        self._inner.stop()

    def close(self) -> None:
        """Waits for running handlers, commits, and leaves the group. Closing twice is harmless."""
        if self._is_closed or self._is_forked:
            return
        self._is_closed = True
        try:
            self._thread.call(self._inner.close())
        finally:
            self._thread.stop()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self._inner.assignment


def _refusing_coroutines(handler: Callable[[ConsumerRecord[K, V]], object]) -> Callable[[ConsumerRecord[K, V]], object]:
    def handle(record: ConsumerRecord[K, V]) -> object:
        returned = handler(record)
        if inspect.isawaitable(returned):
            if inspect.iscoroutine(returned):
                returned.close()
            raise TypeError("the handler has returned a coroutine; use ottla.aio.ParallelConsumer")
        return returned

    return handle
