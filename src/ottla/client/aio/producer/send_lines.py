"""Where tasks wait with their records until a topic is known, or until there is memory.

Records are to be in the order in which tasks have begun to send them. So whoever finds others waiting for the same
topic, or for memory, waits behind them, also if there would be nothing to wait for any more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from ottla.client.aio.producer.engine import ProducerEngine
from ottla.client.core.metadata import TopicMetadata
from ottla.client.core.producer.options import ProducerSettings
from ottla.client.errors import BufferExhaustedError

T = TypeVar("T")


class _Line(asyncio.Lock):
    length = 0
    """How many wait in it, the one whose turn it is included."""


class SendLines:
    engine: ProducerEngine
    """Given when the producer is started; before that nobody waits."""

    def __init__(self, settings: ProducerSettings, check_sendable: Callable[[], None]) -> None:
        self._settings = settings
        self._check_sendable = check_sendable
        self._topics: dict[tuple[str, int | None], _Line] = {}
        """By the partition as well, if one is asked for: if it is not there, that holds up nobody else."""
        self.memory: deque[tuple[Callable[[int], Any], asyncio.Future[Any]]] = deque()
        """How to add what waits for memory, and who is to be told; some may have given up."""

    def would_be_overtaken(self, topic: str) -> bool:
        """Whether somebody waits whom records of the topic without a key or partition must not overtake."""
        return bool(self.memory) or (bool(self._topics) and (topic, None) in self._topics)

    def find_topic(self, topic: str, partition: int | None, now_ms: int) -> TopicMetadata | None:
        """What is known of a topic; None also if others wait for it, even if they need not any more."""
        if self._topics and (topic, partition) in self._topics:
            return None
        return self.engine.metadata.find(topic, now_ms, partition)

    async def wait_for_topic(self, topic: str, partition: int | None, asked_ms: int) -> TopicMetadata:
        place = topic, partition
        line = self._topics.setdefault(place, _Line())
        line.length += 1
        try:
            # Nobody's time is up before that of those who came earlier.
            async with line:
                return await self.engine.topic(topic, self._settings.max_block_ms, partition, asked_ms=asked_ms)
        finally:
            line.length -= 1
            if not line.length:
                del self._topics[place]

    async def wait_for_memory(self, append: Callable[[int], T | None], deadline_ms: int) -> T:
        """What `append` gives when its turn has come, and there is memory for it."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[T] = loop.create_future()
        left_ms = deadline_ms - self.engine.clock.monotonic_ms()
        limit = loop.call_later(max(0, left_ms) / 1000, self._too_late, waiter)
        accumulator = self.engine.accumulator
        self.memory.append((append, waiter))
        accumulator.waiting = len(self.memory)
        accumulator.close_lanes()
        self.engine.wake()
        try:
            return await waiter
        except asyncio.CancelledError:
            self.serve()
            raise
        finally:
            limit.cancel()

    def _too_late(self, waiter: asyncio.Future[Any]) -> None:
        if not waiter.done():
            waiter.set_exception(buffer_exhausted(self._settings, self.engine.why_waiting()))
            # It may have needed more than there is, and have held up others.
            self.serve()

    def serve(self) -> None:
        """Adds what there is memory for now, before anybody else can."""
        while self.memory:
            append, waiter = self.memory[0]
            if not waiter.done():
                try:
                    self._check_sendable()
                    place = append(self.engine.clock.monotonic_ms())
                except BaseException as e:
                    # As for any coroutine: no future takes that one.
                    waiter.set_exception(RuntimeError(repr(e)) if isinstance(e, StopIteration) else e)
                else:
                    if place is None:
                        break
                    waiter.set_result(place)
            self.memory.popleft()
            # At once: the batches that there are now need not go out because somebody waits.
            self.engine.accumulator.waiting = len(self.memory)


def buffer_exhausted(settings: ProducerSettings, cause: str) -> BufferExhaustedError:
    return BufferExhaustedError(
        f"the buffer of {settings.buffer_memory} bytes (buffer.memory) stayed full for {settings.max_block_ms} ms "
        f"(max.block.ms): {cause or 'records come faster than the brokers take them'}"
    )
