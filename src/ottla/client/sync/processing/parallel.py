# Written by `make generate` from src/ottla/client/aio/processing/parallel.py: change that instead.

"""Many records of one consumer in the works at once, in threads."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Unpack

from ottla.base.types import TopicPartition
from ottla.client.aio.consumer.consumer import Deserializer
from ottla.client.aio.processing.parallel import ParallelConsumer as AsyncParallelConsumer
from ottla.client.core.consumer.record import ConsumerRecord, K, V
from ottla.client.core.group.protocol import GroupAssignor
from ottla.client.core.processing.dead_letters import DEFAULT_TOPIC
from ottla.client.core.processing.parallel import Ordering, Retries
from ottla.client.sync.processing.handling import BaseParallelConsumer

if TYPE_CHECKING:
    from ottla.client.core.keywords import ConsumerKeywords


class ParallelConsumer(BaseParallelConsumer[K, V]):
    """Reads topics as a member of a group and gives each record to `handler`, in up to `concurrency` threads at once.

    `ordering` says what is kept in order: records of one key ("key"), of one partition ("partition"), or nothing
    ("unordered"). A record whose handler raises is tried again (`retries`), and then sent to the topic `dead_letter`;
    with None, processing stops instead. Errors of `no_retry` are not tried again. Offsets are committed up to the first
    record that is not done, every `auto.commit.interval.ms`: every record is processed at least once. Use it with
    `with`, and call `run`.
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
        **settings: Unpack[ConsumerKeywords],
    ) -> None:
        """`drain_timeout` (seconds) bounds the wait for running handlers when partitions go to another member.

        A thread cannot be stopped: a handler that takes longer goes on, and its record is processed twice. Dead
        letters are sent by a producer with the same settings, for records of any size; unlike
        `ottla.aio.ParallelConsumer` it takes no other, for a producer sends in an event loop of its own.
        """
        self._inner = AsyncParallelConsumer(
            topics,
            self._for_threads(handler, settings),
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
            **settings,
        )
        self._begin()

    # Life

    def run(self) -> None:
        """Processes records until `stop` or `close` is called. Raises what keeps the consumer from going on, and what a
        handler raises to end the process: SystemExit and KeyboardInterrupt. `close` waits for what is running then."""
        self._call(self._inner.run())

    def stop(self) -> None:
        """Makes `run` return soon, for good. Any thread or signal handler may call it. What is running then is waited
        for by `close`.
        """
        self._inner.stop()

    def close(self) -> None:
        """Waits for running handlers, commits, and leaves the group. Closing twice is harmless."""
        self._close()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self._inner.assignment
