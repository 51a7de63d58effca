"""The producer for asyncio."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack

from ottla.client.aio.producer.engine import ProducerEngine
from ottla.client.aio.producer.send_futures import SendFuture, SendFutures, TableFuture
from ottla.client.aio.producer.send_lines import SendLines
from ottla.client.aio.producer.transaction_calls import ProducerTransactionCalls
from ottla.client.aio.producer.transactions import Transactions
from ottla.client.core.metadata import TopicMetadata
from ottla.client.core.on_demand import open_table_intake
from ottla.client.core.outages import Outages
from ottla.client.core.producer.batch import (
    DeliveryCallback,
    RecordMetadata,
    copy_of,
)
from ottla.client.core.producer.encoded_batch import TableColumns
from ottla.client.core.producer.lane import Lane
from ottla.client.core.producer.options import ProducerSettings
from ottla.client.core.producer.partitioners import Partitioner
from ottla.client.core.producer.record_intake import (
    GivenHeaders,
    KeyT,
    PreparedRecord,
    ProducerInterceptor,
    ProducerRecord,
    RecordIntake,
    Serializer,
    ValueT,
    check_parts,
    listed,
)
from ottla.client.core.settings import merge_settings
from ottla.client.core.timeouts import seconds
from ottla.client.errors import ClientClosedError, ClientError, TransactionStateError
from ottla.client.interrupts.loop_end import LAST_S, LoopEnd, warn_of_lost

if TYPE_CHECKING:
    from ottla.client.core.keywords import ProducerKeywords
    from ottla.client.core.producer.table_intake import TableIntake

T = TypeVar("T")

_BYTES: Any = bytes
"""mypy would take code behind `is bytes` for code that is never run: who knows what a producer takes."""


class Producer(ProducerTransactionCalls, Generic[KeyT, ValueT]):
    """Sends records to topics. Use it with `async with`, or call `start` and `close`.

    Settings have Kafka's names, in a mapping, or as keywords in snake_case:
    `Producer({"bootstrap.servers": "localhost:9092"})` or `Producer(bootstrap_servers="localhost:9092")`.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        key_serializer: Serializer[KeyT] | None = None,
        value_serializer: Serializer[ValueT] | None = None,
        partitioner: Partitioner | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        **settings: Unpack[ProducerKeywords],
    ) -> None:
        self._set_up(merge_settings(config, settings), key_serializer, value_serializer, partitioner, interceptors)

    def _set_up(
        self,
        settings: dict[str, object],
        key_serializer: Serializer[KeyT] | None,
        value_serializer: Serializer[ValueT] | None,
        partitioner: Partitioner | None,
        interceptors: Sequence[ProducerInterceptor],
    ) -> None:
        self._settings = ProducerSettings.parse(settings)
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._partitioner = partitioner
        self._interceptors = check_parts(key_serializer, value_serializer, partitioner, interceptors)
        self._engine: ProducerEngine | None = None
        self._intake: RecordIntake | None = None
        self._transactions: Transactions | None = None
        self._tables: TableIntake | None = None
        self._lanes: dict[str, Lane] = {}
        self._lines = SendLines(self._settings, self._check_sendable)
        self._preparing = asyncio.Lock()
        self._loop_end = LoopEnd(self._close_at_end)
        self._outages: Outages | None = None
        """Of an application that speaks for all its clients."""
        self._closed = False

    async def start(self) -> Self:
        """Finds the cluster, if it is there; with `bootstrap.fail.fast`, ClusterUnreachableError if it is not."""
        if self._engine is not None or self._closed:
            raise ClientClosedError("a producer can be started only once")
        engine = ProducerEngine(self._settings, lock=nullcontext(), on_memory=self._lines.serve, outages=self._outages)
        try:
            await engine.start()
        except BaseException:
            engine.close()
            raise
        self._engine = self._lines.engine = engine
        if engine.transaction is not None:
            self._transactions = Transactions(engine, engine.transaction)
        self._intake = RecordIntake(
            self._settings,
            engine.accumulator,
            key_serializer=self._key_serializer,
            value_serializer=self._value_serializer,
            partitioner=self._partitioner,
            interceptors=self._interceptors,
        )
        if self._intake.is_plain:
            engine.accumulator.lanes = self._lanes
        await self._loop_end.watch()
        return self

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _started(self) -> tuple[ProducerEngine, RecordIntake]:
        if self._engine is None or self._intake is None or self._closed:
            raise ClientClosedError("the producer is closed" if self._closed else "call start() on the producer first")
        return self._engine, self._intake

    @property
    def _has_failed(self) -> bool:
        """Whether nothing can be sent with it any more."""
        return self._engine is not None and self._engine.sender.fatal_error is not None

    # Sending

    async def send(
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

        Await the future that is returned to learn where the record was stored.
        """
        # Plain bytes without a key, for a batch that is open, are nearly all records there are. A producer that cannot
        # be used any more has no open lanes.
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
                if length <= lane.length or (length <= lane.timed_length and time.time() < lane.stamped_until_s):
                    places = lane.places
                    number = next(lane.numbers)
                    places[number] = value  # type: ignore[assignment]
                    future = SendFuture()
                    future._source = lane
                    future._number = number
                    return future
            except (KeyError, IndexError, TypeError):
                pass  # there is no lane, or its places are taken; or that was no name
        engine, intake = self._started()
        self._check_sendable()
        lines = self._lines
        record = ProducerRecord(topic, value, key, headers, partition, timestamp_ms)
        try:
            prepared = await self._prepare_in_turn(record) if intake.may_wait else intake.prepare(record)
            now_ms = engine.clock.monotonic_ms()
            metadata = lines.find_topic(prepared.topic, prepared.partition, now_ms)
            deadline_ms = now_ms + self._settings.max_block_ms
            if metadata is None:
                metadata = await lines.wait_for_topic(prepared.topic, prepared.partition, now_ms)
                self._check_sendable()
                now_ms = engine.clock.monotonic_ms()

            def append(now_ms: int) -> SendFuture | None:
                batch = intake.append(prepared, metadata, now_ms, int(time.time() * 1000))
                if batch is None:
                    return None
                index = batch.record_count - 1
                if not index:
                    engine.wake()
                if on_delivery is not None:
                    batch.callbacks.append((index, on_delivery))
                for interceptor in intake.interceptors:
                    batch.callbacks.append((index, interceptor.on_acknowledgement))
                if lines.would_be_overtaken(prepared.topic):
                    batch.close_lane()
                return SendFuture.of(batch, index)

            added = None if lines.memory else append(now_ms)
            return added if added is not None else await lines.wait_for_memory(append, deadline_ms)
        except (Exception, asyncio.CancelledError) as e:
            intake.refused(e)
            raise

    async def _prepare_in_turn(self, record: ProducerRecord) -> PreparedRecord:
        """With a serializer that may have to ask somebody: no record overtakes one that waits for that."""
        async with self._preparing:
            _, intake = self._started()
            record = intake.intercept(record)
            if not intake.waits_to_serialize(record):
                return intake.serialize(record)
            prepared = await asyncio.to_thread(intake.serialize, record)
            self._check_sendable()
            return prepared

    async def send_many(self, topic: str, values: Iterable[ValueT | None]) -> SendFutures:
        """Sends many values without keys: the same as `send` for each, and several times as fast."""
        futures = SendFutures()
        values = listed(values)
        if not values:
            return futures
        _, intake = self._started()
        prepared = intake.prepare_values(topic, values, int(time.time() * 1000))
        if prepared is None:
            for value in values:
                future = await self.send(topic, value)
                futures.add(future._source, future._number, 1)
            return futures
        known = self._known_topic(topic) or await self._find_topic(topic)
        start = 0
        while start < len(values):
            batch, first_index, end = await self._append(partial(intake.append_values, prepared, start, known))
            futures.add(batch, first_index, end - start)
            start = end
            if not first_index:
                self._wake()
        return futures

    async def send_arrow(
        self,
        topic: str | None,
        table: Any,
        *,
        key_column: str | None = "key",
        value_column: str = "value",
        timestamp_column: str | None = "timestamp",
        headers_column: str | None = "headers",
        partition_column: str | None = None,
        topic_column: str | None = "topic",
    ) -> TableFuture:
        """Sends the rows of a pyarrow Table or RecordBatch, encoded whole: many times as fast as `send` for each.

        Every row of `value_column` is a record; the other columns are used if they are there, all others are ignored.
        Without a `topic` each row says its own. Keys decide on partitions as in `send`. Rows go out at once in batches
        of up to a megabyte, whatever batch.size and linger.ms are. Serializers and interceptors see no columns. The
        memory of the table must stay as it is until everything is stored.
        """
        engine, _ = self._started()
        if self._tables is None:
            self._tables = open_table_intake(self._settings, self._partitioner, random.randrange, engine.backlog)
        columns = TableColumns(
            key_column, value_column, timestamp_column, headers_column, partition_column, topic_column
        )
        prepared = self._tables.prepare(topic, table, columns, int(time.time() * 1000))
        topics: dict[str, TopicMetadata] = {}
        for name in prepared.topics:
            topics[name] = await self._find_topic(name, self._tables.highest_partition(prepared, name))
        future = TableFuture()
        for target, rows in self._tables.encode(prepared, topics):
            future.add(await self._append(partial(engine.accumulator.append_encoded, target, rows)))
            # It goes out now, as far as the broker takes it.
            await self._send_now()
        return future

    async def send_and_wait(
        self, topic: str, value: ValueT | None = None, key: KeyT | None = None, **options: Any
    ) -> RecordMetadata:
        """`send`, and wait until the record is stored. Many of these at once are far slower than many sends."""
        return await (await self.send(topic, value, key, **options))

    def _known_topic(self, topic: str) -> TopicMetadata | None:
        return self._lines.find_topic(topic, None, self._lines.engine.clock.monotonic_ms())

    async def _find_topic(self, topic: str, partition: int | None = None) -> TopicMetadata:
        lines, now_ms = self._lines, self._lines.engine.clock.monotonic_ms()
        return lines.find_topic(topic, partition, now_ms) or await lines.wait_for_topic(topic, partition, now_ms)

    async def _append(self, append: Callable[[int], T | None]) -> T:
        """What `append` gives at a time, as soon as there is memory for it."""
        self._check_sendable()
        lines, now_ms = self._lines, self._lines.engine.clock.monotonic_ms()
        place = None if lines.memory else append(now_ms)
        if place is not None:
            return place
        return await lines.wait_for_memory(append, now_ms + self._settings.max_block_ms)

    def _wake(self) -> None:
        self._lines.engine.wake()

    async def _send_now(self) -> None:
        self._wake()
        # Others in the loop get their turn.
        await asyncio.sleep(0)

    def _check_sendable(self) -> None:
        engine, _ = self._started()
        if engine.sender.fatal_error is not None:
            raise copy_of(engine.sender.fatal_error)
        if engine.transaction is not None:
            engine.transaction.check_sending()

    async def flush(self, timeout: float | None = None) -> None:
        """Returns when every record sent before is stored or has failed; TimeoutError after `timeout` seconds."""
        engine, _ = self._started()
        try:
            async with asyncio.timeout(seconds(timeout)):
                await engine.flush()
        except TimeoutError:
            raise not_flushed(timeout, engine.why_waiting()) from None

    async def partitions_for(self, topic: str) -> list[int]:
        engine, _ = self._started()
        found = await engine.topic(topic, self._settings.max_block_ms)
        return list(found.partitions)

    def _transactional(self) -> Transactions:
        self._started()
        if self._transactions is None:
            raise not_transactional()
        return self._transactions

    async def close(self, timeout: float | None = None) -> None:
        """Sends what is left, for up to `timeout` seconds, and ends. Records still unsent then fail.

        A transaction that is open is aborted.
        """
        timeout = seconds(timeout)
        if self._engine is None or self._closed:
            self._closed = True
            return
        engine = self._engine
        self._closed = True
        self._lanes = {}
        engine.accumulator.close_open()
        engine.take_no_more()
        self._lines.serve()
        try:
            async with asyncio.timeout(timeout):
                if self._transactions is not None:
                    await self._transactions.close()
                await engine.flush()
        except TimeoutError:
            pass  # what is left fails below, and whoever holds a future of it is told
        finally:
            engine.finish(engine.sender.fail_all(closed_error()))
            engine.close()
            await self._loop_end.forget()

    async def _close_at_end(self) -> None:
        if self._engine is None or self._closed:
            return
        left = list(self._engine.accumulator.incomplete)
        try:
            await self.close(LAST_S)
        finally:
            warn_of_lost(left, "the event loop")
            await self._engine.wait_ended()


def not_flushed(timeout_s: float | None, cause: str) -> TimeoutError:
    return TimeoutError(
        f"not every record was acknowledged within {timeout_s} s" + (f"; last: {cause}" if cause else "")
    )


def not_transactional() -> TransactionStateError:
    return TransactionStateError("transactions need a producer with a transactional.id")


def closed_error() -> ClientError:
    return ClientClosedError("the producer was closed before the record was sent")
