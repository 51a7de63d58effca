"""What a producer for threads does otherwise than that for asyncio: any thread adds records, another one sends them."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from ottla.base.errors import OttlaError
from ottla.client.aio.producer.engine import ProducerEngine
from ottla.client.aio.producer.producer import closed_error, not_flushed
from ottla.client.aio.producer.send_lines import buffer_exhausted
from ottla.client.aio.producer.transactions import Transactions
from ottla.client.core.metadata import TopicMetadata
from ottla.client.core.producer.accumulator import Accumulator
from ottla.client.core.producer.batch import Batch, DeliveryCallback, copy_of
from ottla.client.core.producer.lane import Lane
from ottla.client.core.producer.options import ProducerSettings
from ottla.client.core.producer.partitioners import Partitioner
from ottla.client.core.producer.record_intake import (
    GivenHeaders,
    KeyT,
    ProducerInterceptor,
    ProducerRecord,
    RecordIntake,
    Serializer,
    ValueT,
    check_parts,
)
from ottla.client.core.timeouts import seconds
from ottla.client.errors import BufferExhaustedError, ClientClosedError, ClientError, ConcurrentUseError, ForkedError
from ottla.client.interrupts.held_signals import HeldSignals
from ottla.client.interrupts.leftovers import forget_exit, watch_exit
from ottla.client.interrupts.loop_end import warn_of_lost
from ottla.client.sync.loop_thread import LoopThread
from ottla.client.sync.producer.send_futures import SendFuture, sending
from ottla.client.sync.thread_client import InThread

if TYPE_CHECKING:
    from ottla.client.core.producer.table_intake import TableIntake

T = TypeVar("T")

_BYTES: Any = bytes
"""mypy would take code behind `is bytes` for code that is never run: who knows what a producer takes."""

_HAS_GIL: bool = getattr(sys, "_is_gil_enabled", lambda: True)()

_time_s = time.time

_MEMORY_SHARE = 4
_MEMORY_DELAY_S = 0.005
"""Who waits for memory is told at once when a quarter of it is free, and otherwise after this time. For each batch that
is done a thread would be woken that takes the interpreter from the one that sends, for one more batch."""

_ANSWER_S = 1.0
"""How long the producer's thread takes to answer at the most, unless a callback holds it up."""


class BaseProducer(InThread, Generic[KeyT, ValueT]):
    def _set_up(
        self,
        settings: dict[str, object],
        key_serializer: Serializer[KeyT] | None,
        value_serializer: Serializer[ValueT] | None,
        partitioner: Partitioner | None,
        interceptors: Sequence[ProducerInterceptor],
    ) -> None:
        self._settings = ProducerSettings.parse(settings)
        chain = check_parts(key_serializer, value_serializer, partitioner, interceptors)
        self._lock = threading.Lock()
        self._memory = threading.Condition(self._lock)
        self._memory_timer: asyncio.TimerHandle | None = None
        self._unusable: ClientError | None = None
        self._partitioner = partitioner
        self._tables: TableIntake | None = None
        self._choosing: int | None = None
        """The thread that a partitioner of the user's is running in."""
        self._thread = LoopThread("ottla-producer", self._forked)
        try:
            self._engine = self._thread.call(self._start_engine())
        except BaseException:
            self._thread.stop()
            raise
        self._intake = RecordIntake(
            self._settings,
            self._engine.accumulator,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=None if partitioner is None else self._guarded(partitioner),
            interceptors=chain,
        )
        self._accumulator = self._engine.accumulator
        self._transaction = self._engine.transaction
        self._transactions = Transactions(self._engine, self._transaction) if self._transaction is not None else None
        self._lanes: dict[str, Lane] = {}
        if self._intake.is_plain and _HAS_GIL:
            self._accumulator.lanes = self._lanes
        watch_exit(self)

    async def _start_engine(self) -> ProducerEngine:
        engine = ProducerEngine(
            self._settings, lock=self._lock, on_memory=lambda: self._memory_is_free(engine.accumulator)
        )
        try:
            await engine.start()
        except BaseException:
            engine.close()
            raise
        sending.batches = engine.accumulator.incomplete
        return engine

    def _memory_is_free(self, accumulator: Accumulator) -> None:
        """In the loop, with the lock held."""
        if accumulator.free_bytes * _MEMORY_SHARE >= accumulator.buffer_memory or not accumulator.incomplete:
            self._memory.notify_all()
        elif self._memory_timer is None:
            self._memory_timer = asyncio.get_running_loop().call_later(_MEMORY_DELAY_S, self._tell_of_memory)

    def _tell_of_memory(self) -> None:
        self._memory_timer = None
        with self._lock:
            self._memory.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Sending

    def send(
        self,
        topic: str,
        value: ValueT | None = None,
        key: KeyT | None = None,
        headers: GivenHeaders = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> SendFuture:
        """Adds a record to a batch and returns at once, unless the buffer is full or the topic is not known yet.

        `on_delivery(metadata, error)` is called in the producer's thread once the record's fate is known.
        """
        # Plain bytes without a key, for a batch that is open: nearly every record there is, so nothing is called here
        # that can be avoided, not even a lock. A producer that cannot be used any more has no open lanes.
        if (
            value.__class__ is _BYTES
            and key is None
            and partition is None
            and on_delivery is None
            and timestamp_ms is None
            and not headers
        ):
            try:
                lane = self._lanes[topic]
                length = len(value)  # type: ignore[arg-type]
                if length <= lane.length or (length <= lane.timed_length and _time_s() < lane.stamped_until_s):
                    places = lane.places
                    number = next(lane.numbers)
                    places[number] = value  # type: ignore[assignment]
                    future = SendFuture()
                    future._source = lane
                    future._number = number
                    if lane.places is places or self._was_in_time(lane, number):
                        return future
            except (KeyError, IndexError, TypeError):
                pass  # there is no lane, or its places are taken; or that was no name
        record = ProducerRecord(topic, value, key, headers, partition, timestamp_ms)
        return self._send_slowly(record, on_delivery)

    def _was_in_time(self, lane: Lane, number: int) -> bool:
        """Whether a value that was stored while its lane was closed still became part of the batch."""
        with self._lock:
            # Whoever closed it may have been interrupted.
            lane.batch.close_lane()
            return lane.was_in_time(number)

    def _send_slowly(self, record: ProducerRecord, on_delivery: DeliveryCallback | None) -> SendFuture:
        self._check_usable()
        intake = self._intake
        try:
            prepared = intake.prepare(record)
            now_ms = self._engine.clock.monotonic_ms()
            deadline_ms = now_ms + self._settings.max_block_ms
            with self._lock:
                metadata = self._engine.metadata.find(prepared.topic, now_ms, prepared.partition)
            if metadata is None:
                metadata = self._wait_for_topic(prepared.topic, prepared.partition)
                now_ms = self._engine.clock.monotonic_ms()

            def append(now_ms: int) -> Batch | None:
                return intake.append(prepared, metadata, now_ms, int(_time_s() * 1000))

            with self._lock:
                self._check_sendable()
                try:
                    batch = append(now_ms) or self._wait_for_memory(append, deadline_ms)
                except BaseException as e:
                    self._repair(e)
                    raise
                index = batch.record_count - 1
                if on_delivery is not None:
                    batch.callbacks.append((index, on_delivery))
                for interceptor in intake.interceptors:
                    batch.callbacks.append((index, interceptor.on_acknowledgement))
        except Exception as e:
            intake.refused(e)
            raise
        if not index:
            self._wake()
        return SendFuture.of(batch, index)

    def _append(self, append: Callable[[int], T | None]) -> T:
        """What `append` gives at a time, as soon as there is memory for it."""
        with self._lock:
            self._check_sendable()
            now_ms = self._engine.clock.monotonic_ms()
            try:
                place = append(now_ms)
                if place is not None:
                    return place
                return self._wait_for_memory(append, now_ms + self._settings.max_block_ms)
            except BaseException as e:
                self._repair(e)
                raise

    def _repair(self, reason: BaseException) -> None:
        """With the lock held: what the handler of a signal has torn apart is put together again."""
        if isinstance(reason, OttlaError):
            return
        held = HeldSignals()
        with held:
            self._accumulator.repair()
            self._wake()
        held.deliver()

    def _known_topic(self, topic: str, partition: int | None = None) -> TopicMetadata | None:
        with self._lock:
            return self._engine.metadata.find(topic, self._engine.clock.monotonic_ms(), partition)

    def _find_topic(self, topic: str, partition: int | None = None) -> TopicMetadata:
        return self._known_topic(topic, partition) or self._wait_for_topic(topic, partition)

    def _wait_for_topic(self, topic: str, partition: int | None = None) -> TopicMetadata:
        if self._thread.is_current:
            self._engine.wake()
            missing = f"topic {topic}" if partition is None else f"partition {partition} of topic {topic}"
            raise BufferExhaustedError(f"{missing} is not known yet, and a delivery callback cannot wait until it is")
        return self._thread.call(self._engine.topic(topic, self._settings.max_block_ms, partition))

    def _wait_for_memory(self, append: Callable[[int], T | None], deadline_ms: int) -> T:
        """With the lock held, which is given up while waiting."""
        if self._thread.is_current:
            raise BufferExhaustedError("the buffer is full, and a delivery callback cannot wait until it is not")
        self._accumulator.waiting += 1
        try:
            while True:
                self._wake()
                left_ms = deadline_ms - self._engine.clock.monotonic_ms()
                if not self._memory.wait(max(0, left_ms) / 1000):
                    raise buffer_exhausted(self._settings, self._engine.why_waiting())
                self._check_sendable()
                place = append(self._engine.clock.monotonic_ms())
                if place is not None:
                    return place
        finally:
            self._accumulator.waiting -= 1

    def _wake(self) -> None:
        self._engine.wake_from_thread()

    def _send_now(self) -> None:
        self._wake()

    def _started(self) -> tuple[ProducerEngine, RecordIntake]:
        self._check_usable()
        return self._engine, self._intake

    def _check_usable(self) -> None:
        if self._choosing is not None:
            self._check_caller()
        error = self._unusable or self._engine.sender.fatal_error
        if error is not None:
            raise copy_of(error)

    def _check_sendable(self) -> None:
        self._check_usable()
        if self._transaction is not None:
            self._transaction.check_sending()

    def _check_caller(self) -> None:
        # The partitioner is called with the lock held, which all that it could ask of the producer would wait for.
        if self._choosing == threading.get_ident():
            raise ConcurrentUseError("a partitioner must not use the producer that asks it")

    def _guarded(self, partitioner: Partitioner) -> Partitioner:
        def choose(
            topic: str, key: bytes | None, value: bytes | None, partition_count: int, available: Sequence[int]
        ) -> int:
            self._choosing = threading.get_ident()
            try:
                return partitioner(topic, key, value, partition_count, available)
            finally:
                self._choosing = None

        return choose

    # Everything else

    def flush(self, timeout: float | None = None) -> None:
        """Returns when every record sent before is stored or has failed; TimeoutError after `timeout` seconds."""
        self._check_usable()
        limit_s = seconds(timeout)
        try:
            # Whether there is anything to wait for, the loop has to say first, however short the time is.
            self._thread.call(self._flush(limit_s), max(limit_s, _ANSWER_S))
        except TimeoutError:
            raise not_flushed(timeout, self._engine.why_waiting()) from None

    async def _flush(self, limit_s: float) -> None:
        async with asyncio.timeout(limit_s):
            await self._engine.flush()

    def close(self, timeout: float | None = None) -> None:
        """Sends what is left, for up to `timeout` seconds, and ends. Records still unsent then fail.

        A transaction that is open is aborted. In a delivery callback there is no waiting: what is unsent fails.
        """
        self._check_caller()
        limit_s = seconds(timeout)
        with self._lock:
            if self._unusable is not None:
                return
            self._unusable = ClientClosedError("the producer is closed")
            self._accumulator.close_open()
            self._memory.notify_all()
        forget_exit(self)
        if self._thread.is_current:
            self._end()
            self._thread.stop()
            return
        try:
            self._thread.call(self._finish(), limit_s)
        except TimeoutError:
            pass  # what is left fails below, and whoever holds a future of it is told
        finally:
            self._thread.call(self._end_in_loop())
            self._thread.stop()

    def _send_rest(self, timeout_s: float) -> None:
        """Without closing: threads that the end of the program does not wait for may go on sending."""
        if self._unusable is not None or self._transaction is not None:
            return
        with self._lock:
            left = list(self._accumulator.incomplete)
        if left:
            with suppress(TimeoutError):
                self._thread.call(self._flush(timeout_s), max(timeout_s, _ANSWER_S))
            warn_of_lost(left, "the program")

    async def _finish(self) -> None:
        self._engine.take_no_more()
        if self._transactions is not None:
            await self._transactions.close()
        await self._engine.flush()

    async def _end_in_loop(self) -> None:
        self._end()

    def _end(self) -> None:
        with self._lock:
            left = self._engine.sender.fail_all(closed_error())
        self._engine.finish(left)
        self._engine.close()

    def _forked(self) -> None:
        self._lock = threading.Lock()
        self._lanes = {}
        error = ForkedError("this producer belongs to the parent process; create a new one after fork, in the child")
        self._unusable = error
        # Nobody in the child would ever settle them. What becomes of the records is for the parent to know. There are
        # none yet if the producer was just being made.
        accumulator: Accumulator | None = getattr(self, "_accumulator", None)
        for batch in accumulator.incomplete if accumulator is not None else ():
            batch.seal()
            batch.fail(error)
            batch.announce()
