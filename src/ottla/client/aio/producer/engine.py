"""The producer at work: carries out what `BatchSender` decides, in an event loop, for both kinds of shells.

Every method is for the thread of the event loop. Other threads may add records to the accumulator while they hold
`lock`, and then wake this with `call_soon_threadsafe`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any

from ottla.base.clock import SystemClock
from ottla.base.errors import ERRORS, ErrorCode, KafkaError, OttlaError
from ottla.base.memory import keep_freed_memory
from ottla.client.aio.cluster_link import ClusterLink
from ottla.client.aio.producer.producer_ids import ProducerIds
from ottla.client.aio.producer.requests import ProduceReply, ProduceRequests
from ottla.client.core.metadata import MetadataCache, TopicMetadata
from ottla.client.core.outages import Outages
from ottla.client.core.producer.accumulator import Accumulator
from ottla.client.core.producer.batch import Batch, copy_of
from ottla.client.core.producer.batch_sender import BatchSender, ProduceCall
from ottla.client.core.producer.options import ProducerSettings
from ottla.client.core.producer.partitioners import Backlog
from ottla.client.core.producer.transaction import ProducerTransaction
from ottla.client.errors import ClientClosedError, ClientError, MetadataTimeoutError, client_error
from ottla.client.interrupts.exits import EXITS

log = logging.getLogger(__name__)

_STEADY_MS_MAX = 10
"""How much too early a timestamp may be, if a producer that sends very fast stops within a batch."""


class ProducerEngine:
    def __init__(
        self,
        settings: ProducerSettings,
        *,
        lock: AbstractContextManager[object],
        on_memory: Callable[[], None],
        outages: Outages | None = None,
    ) -> None:
        """`on_memory` is called, with the lock held, when batches are done and memory may be free again."""
        keep_freed_memory()
        client = settings.client
        self.settings = settings
        self.clock = SystemClock()
        self.metadata = MetadataCache(
            max_age_ms=client.metadata_max_age_ms,
            max_idle_ms=settings.metadata_max_idle_ms,
            backoff_ms=client.retry_backoff_ms,
            backoff_max_ms=client.retry_backoff_max_ms,
        )
        self.link = ClusterLink(client, self.metadata, default_client_id="ottla-producer", outages=outages)
        self.accumulator = Accumulator(
            batch_size=settings.batch_size,
            buffer_memory=settings.buffer_memory,
            delivery_timeout_ms=settings.delivery_timeout_ms,
            random_below=random.randrange,
            steady_ms=settings.linger_ms if settings.linger_ms <= _STEADY_MS_MAX else 0,
            adaptive=settings.adaptive_partitioning,
            availability_timeout_ms=settings.availability_timeout_ms,
        )
        self.transaction = ProducerTransaction() if settings.transactional_id is not None else None
        if self.transaction is None:
            self.sender = BatchSender(settings, self.accumulator, self.metadata, why_waiting=self.why_waiting)
        else:
            self.sender = BatchSender(
                settings,
                self.accumulator,
                self.metadata,
                may_write=self.transaction.may_write,
                on_transaction_error=self.transaction.fail,
                why_waiting=self.why_waiting,
            )
        self.lock = lock
        self.metadata_error: KafkaError | None = None
        """Why metadata could not be had the last time it was asked for."""
        self._producer_ids = ProducerIds(client, self.link)
        self.on_pump: Callable[[], None] | None = None
        """Called after every look at what is due: partitions may have to join the transaction."""
        self._on_memory = on_memory
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._limits: set[asyncio.Timeout] = set()
        self._requests = ProduceRequests(settings, self.link, spawn=self.spawn, tell=self._told)
        self._metadata_changed: asyncio.Future[None] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._pump_scheduled = False
        self._pump_requested = False
        self._asking_producer_id = False
        self._refreshing = False
        self._takes_no_more = False
        self._closed = False
        self._broken = False

    async def start(self) -> None:
        """Finds the cluster, if it is there; with `bootstrap.fail.fast`, ClusterUnreachableError if it is not."""
        await self.link.find_cluster(self.clock.monotonic_ms())
        self.wake()

    def take_no_more(self) -> None:
        """The producer is being closed: what it has is still sent, but nobody needs to learn about topics any more."""
        self._takes_no_more = True
        self._tell_metadata_waiters()

    def close(self) -> None:
        self._closed = True
        if self.transaction is not None:
            # Records that were left have failed: who has waited for them must not take the transaction for complete.
            with self.lock:
                self.transaction.fail(_closed_meanwhile())
        self.take_no_more()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        for limit in self._limits:
            if not limit.expired():
                limit.reschedule(self._loop.time())
        self.link.close()

    async def wait_ended(self) -> None:
        """After `close`, for a loop that ends: whatever is cancelled needs it to be over."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @asynccontextmanager
    async def limit(self, timeout_ms: int) -> AsyncIterator[None]:
        """Ends the block when its time is up (TimeoutError), or when the producer is closed (ClientClosedError)."""
        if self._closed:
            raise _closed_meanwhile()
        try:
            async with asyncio.timeout(timeout_ms / 1000) as limit:
                self._limits.add(limit)
                try:
                    yield
                finally:
                    self._limits.discard(limit)
        except TimeoutError:
            if self._closed:
                raise _closed_meanwhile() from None
            raise

    # The pump: looks at what is due, starts it, and sets a timer for what is due next

    def wake(self) -> None:
        if not self._pump_scheduled and not self._closed:
            self._pump_scheduled = True
            self._loop.call_soon(self._scheduled_pump)

    def wake_from_thread(self) -> None:
        """The same for any thread, after what there is to send was added."""
        if not self._pump_requested:
            self._pump_requested = True
            # If the loop has ended meanwhile, then what was added has failed with it.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._requested_pump)

    # Before anything is looked at: what is added from then on has to be announced again.

    def _scheduled_pump(self) -> None:
        self._pump_scheduled = False
        self._pump()

    def _requested_pump(self) -> None:
        self._pump_requested = False
        self._pump()

    def _pump(self) -> None:
        if not self._closed and not self._broken:
            self._guarded(self._look)

    def _guarded(self, step: Callable[..., None], *arguments: object) -> None:
        try:
            step(*arguments)
        except Exception as e:
            self._break(e)

    def _look(self) -> None:
        now_ms = self.clock.monotonic_ms()
        with self.lock:
            late = self.sender.expire(now_ms)
            calls = self.sender.drain(now_ms)
            wake_ms = self.sender.next_wake_ms(now_ms)
        for call in calls:
            self._requests.start(call)
        if late:
            self.finish(late)
            self.give_up_records()
        if self.sender.needs_producer_id and not self._asking_producer_id:
            self._asking_producer_id = True
            self.spawn(self._ask_producer_id())
        if self.on_pump is not None:
            self.on_pump()
        refresh_ms = self.metadata.next_refresh_ms()
        if refresh_ms <= now_ms:
            if not self._refreshing:
                self._refreshing = True
                self.spawn(self._refresh())
        else:
            wake_ms = refresh_ms if wake_ms is None else min(wake_ms, refresh_ms)
        self._set_timer(wake_ms, now_ms)

    def _set_timer(self, wake_ms: int | None, now_ms: int) -> None:
        """A timer that is early is left as it is: to look once too often costs less than to set it again every time."""
        if self._timer is not None:
            if wake_ms is not None and now_ms < self._timer_ms <= wake_ms:
                return
            self._timer.cancel()
            self._timer = None
        if wake_ms is not None:
            self._timer_ms = max(now_ms + 1, wake_ms)
            self._timer = self._loop.call_later((self._timer_ms - now_ms) / 1000, self.wake)

    def spawn(self, work: Coroutine[Any, Any, None], *, on_cancel: Callable[[], None] | None = None) -> None:
        """`on_cancel` is called if somebody else cancels the task, perhaps before it has begun."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, on_cancel or self._broken_off))

    def _ended(self, on_cancel: Callable[[], None], task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            if not self._closed:
                on_cancel()
        elif (error := task.exception()) is not None:
            self._break(error)

    def _broken_off(self) -> None:
        """An event loop that is about to end cancels every task. Who closes the producer then needs what they do."""
        self._refreshing = self._asking_producer_id = False
        self.wake()

    def _break(self, error: BaseException) -> None:
        """A mistake of ours: nobody shall wait for ever because of it, so the producer fails with all it has."""
        log.error("the producer has failed", exc_info=error)
        self._broken = True
        self._fail_for_good(
            ClientError(f"the producer has failed ({type(error).__name__}: {error}); close it and open another")
        )

    # Produce requests

    def _told(self, call: ProduceCall, outcome: ProduceReply | Exception) -> None:
        if self._closed:
            return
        self._guarded(self._replied if isinstance(outcome, ProduceReply) else self._failed, call, outcome)

    def _replied(self, call: ProduceCall, reply: ProduceReply) -> None:
        with self.lock:
            done = self.sender.replied(call, reply.results, self.clock.monotonic_ms(), reply.endpoints)
        self._ended_call(done)

    def _failed(self, call: ProduceCall, error: Exception) -> None:
        if not isinstance(error, OttlaError):
            # A mistake of ours must not leave the records of this request waiting for ever.
            log.error("a produce request could not be made", exc_info=error)
            error = KafkaError(f"{type(error).__name__}: {error}")
        elif not isinstance(error, KafkaError):
            error = KafkaError(str(error), code=ErrorCode.NETWORK_EXCEPTION)
        with self.lock:
            done = self.sender.failed(call, error, self.clock.monotonic_ms())
        self._ended_call(done)

    def _ended_call(self, done: list[Batch]) -> None:
        self.finish(done)
        self.give_up_records()
        self._pump()

    def give_up_records(self) -> None:
        """Drops what waits to be sent, if the transaction it belongs to has failed or is being aborted."""
        if self.transaction is None or (error := self.transaction.gives_up_records) is None:
            return
        with self.lock:
            self.sender.giving_up = error
            dropped = self.sender.fail_all(error, only_unsent=True)
            if any(batch.is_numbered for batch in dropped):
                self.transaction.needs_new_epoch = True
        self.finish(dropped)

    def finish(self, batches: Iterable[Batch]) -> None:
        """Tells everybody who waits for these batches. The lock must not be held: callbacks may send again."""
        finished = list(batches)
        if not finished:
            return
        # Who waits has said so while holding the lock, before the memory of these batches was given back.
        if self.accumulator.waiting:
            with self.lock:
                self._on_memory()
        for batch in finished:
            # As in Java, callbacks have run when a future is done. Nobody waits for those of other batches.
            try:
                for callback, metadata, error in batch.outcomes():
                    self._call_safely(callback, metadata, error)
            finally:
                for waiter in batch.announce():
                    self._call_safely(waiter)

    def _call_safely(self, callback: Callable[..., object], *arguments: object) -> None:
        """The callback is the user's; its failure must not stop the producer."""
        try:
            callback(*arguments)
        except Exception:
            log.exception("a delivery callback failed")
        except EXITS as e:
            # It ends the event loop, which is what it is for, but not in the midst of telling others.
            self._loop.call_soon(_raise, e)

    # Metadata and the producer id

    async def _refresh(self) -> None:
        now_ms = self.clock.monotonic_ms()
        try:
            with self.lock:
                topics = self.metadata.topics_to_ask(now_ms)
            response = await self.link.ask_metadata(topics, create_missing=True)
            with self.lock:
                self.metadata.update(response, now_ms)
            self.metadata_error = None
        except OttlaError as e:
            self.metadata_error = e if isinstance(e, KafkaError) else KafkaError(str(e))
            with self.lock:
                self.metadata.update_failed(self.clock.monotonic_ms())
        finally:
            self._refreshing = False
        self._tell_metadata_waiters()
        self._pump()

    def _tell_metadata_waiters(self) -> None:
        changed, self._metadata_changed = self._metadata_changed, self._loop.create_future()
        changed.set_result(None)

    def backlog(self, topic: str) -> Backlog:
        """What waits for the topic's partitions. In any thread."""
        with self.lock:
            return self.accumulator.backlog(topic, self.clock.monotonic_ms())

    async def topic(
        self, name: str, timeout_ms: int, partition: int | None = None, *, asked_ms: int | None = None
    ) -> TopicMetadata:
        """What is known of a topic, once it is, and is known to have the partition; `send` needs their number.

        The time begins with `asked_ms`, or now.
        """
        deadline_ms = (self.clock.monotonic_ms() if asked_ms is None else asked_ms) + timeout_ms
        while True:
            now_ms = self.clock.monotonic_ms()
            with self.lock:
                found = self.metadata.find(name, now_ms, partition)
            if found is not None and found.partitions:
                return found
            if self.sender.fatal_error is not None:
                raise copy_of(self.sender.fatal_error)
            if self._takes_no_more:
                raise _closed_meanwhile()
            known = self.metadata.topics.get(name)
            if known is not None and known.error_code and not _is_passing(known.error_code):
                raise client_error(known.error_code, where=f"topic {name}")
            # Also for who does not wait: the next one shall find what was missing.
            self.wake()
            if now_ms >= deadline_ms:
                raise self._no_metadata(name, timeout_ms, partition)
            try:
                async with asyncio.timeout((deadline_ms - now_ms) / 1000):
                    await asyncio.shield(self._metadata_changed)
            except TimeoutError:
                raise self._no_metadata(name, timeout_ms, partition) from None

    def _no_metadata(self, name: str, timeout_ms: int, partition: int | None) -> MetadataTimeoutError:
        why = "no broker has answered" if self.metadata_error is None else self.metadata_error.message
        return MetadataTimeoutError(self.metadata.why_unknown(name, partition, timeout_ms, otherwise=why))

    async def _ask_producer_id(self) -> None:
        try:
            producer_id, producer_epoch = await self._producer_ids.ask()
        except KafkaError as e:
            self._fail_for_good(client_error(e.code, e.message, where="a producer id was refused"))
            return
        finally:
            self._asking_producer_id = False
        with self.lock:
            self.sender.set_producer(producer_id, producer_epoch)
        self._pump()

    def why_waiting(self) -> str:
        """What keeps records from being sent: it is said to those for whom it took too long. In any thread."""
        if causes := self.link.outages.causes():
            return f"cannot reach {causes}"
        error = self.metadata_error or self._producer_ids.error
        return "" if error is None else error.message

    def _fail_for_good(self, error: ClientError) -> None:
        error.fatal = True
        with self.lock:
            self.sender.fatal_error = error
            if self.transaction is not None:
                self.transaction.fail(error)
            done = self.sender.fail_all(error)
            self._on_memory()
        self.finish(done)
        self._tell_metadata_waiters()

    # Flushing

    async def flush(self) -> None:
        """Returns when everything that was sent before the call is done, one way or the other."""
        with self.lock:
            pending = list(self.accumulator.incomplete)
            self.sender.flushing += 1
        self.wake()
        try:
            for batch in pending:
                await wait_done(batch, self._loop)
        finally:
            with self.lock:
                self.sender.flushing -= 1


def _raise(error: BaseException) -> None:
    raise error


async def wait_done(batch: Batch, loop: asyncio.AbstractEventLoop) -> None:
    if batch.done:
        return
    waiting: asyncio.Future[None] = loop.create_future()
    batch.add_waiter(lambda: None if waiting.done() else waiting.set_result(None))
    await waiting


def _closed_meanwhile() -> ClientClosedError:
    return ClientClosedError("the producer was closed while this call waited")


def _is_passing(error_code: int) -> bool:
    known = error_code in ErrorCode._value2member_map_
    return known and ERRORS[ErrorCode(error_code)].retriable
