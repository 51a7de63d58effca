"""Many records of one consumer in the works at once: runs the handlers that a `WorkPlan` allows, commits what it says.

Polling, commits and rebalances happen in the one task that runs `run`, so a partition that has been given up is never
committed any more. Handlers run in tasks of their own, or in threads if they are no coroutines; a coroutine that comes
out of a thread runs in its task.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack

from ottla.base.errors import InvalidConfigError
from ottla.base.types import TopicPartition
from ottla.client.aio.consumer.consumer import Consumer, Deserializer
from ottla.client.aio.processing.dead_letters import DeadLetters
from ottla.client.aio.processing.handler_threads import HandlerThreads
from ottla.client.aio.producer.lasting_producer import LastingProducer
from ottla.client.aio.producer.producer import Producer
from ottla.client.core.consumer.cursors import OffsetAndMetadata
from ottla.client.core.consumer.record import ConsumerRecord, K, V
from ottla.client.core.group.protocol import GroupAssignor
from ottla.client.core.group.rebalance import RebalanceListener
from ottla.client.core.outages import Outages
from ottla.client.core.processing.dead_letters import DEFAULT_TOPIC
from ottla.client.core.processing.failures import ExcInfo, FailureKinds, place_of, put_aside_line, reason_of
from ottla.client.core.processing.handlers import check_handler, check_returned, is_coroutine_function
from ottla.client.core.processing.parallel import Ordering, Progress, RawRecord, Retries, Work, WorkPlan
from ottla.client.core.settings import merge_settings
from ottla.client.errors import (
    ClientClosedError,
    ClientError,
    DeserializationError,
    ProcessingError,
    SerializationError,
)
from ottla.client.interrupts.exits import KeptExit, keep_exit
from ottla.client.serdes.formats import deserializing

if TYPE_CHECKING:
    from ottla.client.core.keywords import ConsumerKeywords

log = logging.getLogger(__name__)

_POLL_S = 0.1
_COMMIT_TIMEOUT_S = 10.0
_CANCEL_TIMEOUT_S = 1.0


class ParallelConsumer(Generic[K, V]):
    """Reads topics as a member of a group and gives each record to `handler`, up to `concurrency` of them at once.

    `ordering` says what is kept in order: records of one key ("key"), of one partition ("partition"), or nothing
    ("unordered"). A record whose handler raises is tried again (`retries`), and then sent to the topic `dead_letter`;
    with None, processing stops instead. Errors of `no_retry` are not tried again. Offsets are committed up to the first
    record that is not done, every `auto.commit.interval.ms`: every record is processed at least once.
    Use it with `async with`, and call `run`.
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
        producer: Producer | LastingProducer | None = None,
        **settings: Unpack[ConsumerKeywords],
    ) -> None:
        """`drain_timeout` (seconds) bounds the wait for running handlers when partitions go; then they are cancelled.

        `producer` sends the dead letters, and must take bytes; without it there will be one with the same settings, for
        records of any size.
        """
        check_handler(handler)
        merged = merge_settings(config, settings)
        self._consumer = Consumer(_consumer_settings(merged), assignors=assignors)
        self._topics = topics
        self._handler = handler
        self._plan = WorkPlan(
            ordering=ordering,
            concurrency=concurrency,
            queued_max=queued_max,
            retries=retries if isinstance(retries, Retries) else Retries(retries),
        )
        self._no_retry: tuple[type[Exception], ...] = (DeserializationError, *no_retry)
        self._dead_letters = DeadLetters(dead_letter, str(merged["group.id"]), merged, producer)
        self._drain_timeout = drain_timeout
        self._to_key = None if key_deserializer is None else deserializing("key", key_deserializer)
        self._to_value = None if value_deserializer is None else deserializing("value", value_deserializer)
        self._key_waits = getattr(key_deserializer, "waits_to_deserialize", None)
        self._value_waits = getattr(value_deserializer, "waits_to_deserialize", None)
        self._tasks: dict[Work, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_ms: int | None = None
        self._threads = None if is_coroutine_function(handler) else HandlerThreads(concurrency)
        self._failure: BaseException | None = None
        self._failure_kinds = FailureKinds()
        self._next_commit_ms = 0
        """At once: nothing is processed at the first turn, and the interval begins."""
        self._commits_fail = False
        self._idle = asyncio.Event()
        """Set while nobody is in `run`."""
        self._idle.set()
        self._is_stopping = False
        self._was_stopped = False
        self._is_closed = False

    # Life

    async def start(self) -> Self:
        """Finds the cluster and begins to join the group; `async with` calls this."""
        await self._consumer.start()
        # What was given up would otherwise be tried, and given up, again and again.
        self._consumer._subscribe(self._topics, _Listener(self), excluded=self._dead_letters.topics)
        return self

    async def __aenter__(self) -> Self:
        try:
            return await self.start()
        except BaseException:
            await self.close()
            raise

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def run(self) -> None:
        """Processes records until `stop` or `close` is called. Raises what keeps the consumer from going on, and what a
        handler raises to end the process: SystemExit and KeyboardInterrupt. `close` waits for what is running then."""
        if self._is_closed:
            raise ClientClosedError("this consumer is closed; make another one")
        if not self._idle.is_set():
            raise ClientError("this consumer is running already; make another one to have two")
        if self._was_stopped:
            raise ClientClosedError("this consumer was stopped; make another one")
        self._idle.clear()
        try:
            while not self._is_stopping:
                self._plan.add(await self._consumer.poll(_POLL_S))
                if full := self._plan.to_pause():
                    self._consumer.pause(full)
                self._start_ready()
                await self._commit_if_due()
                if self._failure is not None:
                    raise self._failure
        except ClientClosedError:
            # Whoever has closed this consumer meanwhile knows.
            if not self._is_stopping:
                raise
        finally:
            self._idle.set()
            # A stop that comes before the first run is obeyed: who asks for it cannot know whether it has begun.
            self._was_stopped = self._is_stopping

    def stop(self) -> None:
        """Makes `run` return soon, for good. What is running then is waited for by `close`."""
        self._is_stopping = True

    async def close(self) -> None:
        """Waits for running handlers, commits, and leaves the group. Closing twice is harmless."""
        self._is_stopping = True
        try:
            await self._consumer.close()
        finally:
            self._is_closed = True
            self._set_timer(None)
            await self._cancel(list(self._tasks))
            with suppress(TimeoutError):
                # The loop may end with this call, and `run` is to return before that.
                await asyncio.wait_for(self._idle.wait(), _CANCEL_TIMEOUT_S)
            if self._threads is not None:
                self._threads.close()
            await self._dead_letters.close()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self._consumer.assignment

    async def partitions_of(self, topic: str) -> int:
        """How many partitions a topic has; 0 if there is none of that name."""
        return len(await self._consumer.partitions_for(topic))

    def _share_outages(self, outages: Outages) -> None:
        self._consumer._engine.share_outages(outages)

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    # Work

    def _start_ready(self) -> None:
        if self._is_closed or self._failure is not None:
            return
        now_ms = self._now_ms()
        while (work := self._plan.start_next(now_ms)) is not None:
            task = asyncio.get_running_loop().create_task(self._process(work))
            task.add_done_callback(partial(self._ended, work))
            self._tasks[work] = task
        self._set_timer(self._plan.next_due_ms())
        if drained := self._plan.to_resume():
            self._consumer.resume(drained)

    def _set_timer(self, due_ms: int | None) -> None:
        if due_ms == self._timer_due_ms:
            return
        self._timer_due_ms = due_ms
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due_ms is not None:
            self._timer = asyncio.get_running_loop().call_at(due_ms / 1000, self._timer_rang)

    def _timer_rang(self) -> None:
        self._timer = self._timer_due_ms = None
        self._start_ready()

    async def _process(self, work: Work) -> None:
        try:
            if work.failure is None:
                await self._try(work)
            if work.failure is not None:
                # A record of a partition that has gone is the next owner's to try, and to give up.
                if work.is_dropped:
                    self._plan.abandon(work)
                else:
                    await self._put_aside(work, work.failure)
        except Exception as e:
            if not isinstance(e, ClientError):
                log.error("the consumer met an error it did not expect", exc_info=e)
                e = ClientError(f"the consumer met an error it did not expect: {e!r}", fatal=True)
            self._failure = self._failure or e

    def _ended(self, work: Work, task: asyncio.Task[None]) -> None:
        """Also of a task that was cancelled before it began."""
        # A record that failed may be with its next task already.
        if self._tasks[work] is task:
            del self._tasks[work]
            if work.progress is Progress.RUNNING:
                self._broke_off(work, _error_of(task))
        self._start_ready()

    def _broke_off(self, work: Work, error: BaseException | None) -> None:
        """Nothing came of a record. If nobody here wanted that, it was the handler: something it waits for has been
        cancelled, or it has cancelled itself."""
        if error is None or self._is_closed or work.is_dropped:
            self._plan.abandon(work)
        elif work.failure is not None or not self._fail(work, error):
            # What is cancelled can send nothing any more: the dead letters are for another task.
            self._plan.postpone(work, self._now_ms(), random.random())

    async def _try(self, work: Work) -> None:
        try:
            await keep_exit(self._handle(work.record))
        except KeptExit as e:
            log.error("%s: the handler has ended the consumer: %r", place_of(work.record), e.exit)
            self._failure = self._failure or e.exit
        except _NotReadableYetError as e:
            log.warning("%s cannot be read yet: %s", place_of(work.record), e.__cause__)
            self._plan.wait(work, self._now_ms(), random.random())
        except Exception as e:
            # Whatever a handler raises means the same: this record is not done.
            self._fail(work, e)
        else:
            self._plan.finish(work)

    def _fail(self, work: Work, error: BaseException) -> bool:
        """True if there will be another attempt. That is told the first time; the last word comes with the record's
        fate."""
        is_final = isinstance(error, self._no_retry)
        if not self._plan.fail(work, error, self._now_ms(), random.random(), is_final=is_final):
            return False
        level = logging.WARNING if work.failures == 1 else logging.DEBUG
        told = "%s: attempt %d failed, and there will be another: %s"
        log.log(level, told, place_of(work.record), work.failures, reason_of(error))
        return True

    async def _handle(self, record: RawRecord) -> None:
        if self._threads is None:
            typed = await asyncio.to_thread(self._typed, record) if self._waits_to_read(record) else self._typed(record)
            returned = self._handler(typed)
            if inspect.isawaitable(returned):
                await returned
            return
        loop, context = asyncio.get_running_loop(), copy_context()
        returned = await self._threads.run(partial(context.run, self._handle_in_thread, record))
        if inspect.isawaitable(returned):
            # A decorator may have set context variables for the coroutine that it returned.
            await loop.create_task(keep_exit(returned), context=context)
        else:
            check_returned(returned)

    def _handle_in_thread(self, record: RawRecord) -> object:
        return self._handler(self._typed(record))

    def _waits_to_read(self, record: RawRecord) -> bool:
        return (self._key_waits is not None and self._key_waits(record.topic, record.key)) or (
            self._value_waits is not None and self._value_waits(record.topic, record.value)
        )

    def _typed(self, record: RawRecord) -> ConsumerRecord[K, V]:
        changed: dict[str, Any] = {}
        try:
            if self._to_key is not None:
                changed["key"] = self._to_key(record.topic, record.key)
            if self._to_value is not None:
                changed["value"] = self._to_value(record.topic, record.value)
        except SerializationError as e:
            raise DeserializationError(
                e.message, topic_partition=record.topic_partition, offset=record.offset
            ) from e.__cause__
        except ClientError as e:
            if not e.retriable:
                raise
            raise _NotReadableYetError from e
        typed: Any = record._replace(**changed) if changed else record
        return typed  # type: ignore[no-any-return]

    async def _put_aside(self, work: Work, failure: BaseException) -> None:
        try:
            topic = await self._dead_letters.take(work.record, failure, attempts=work.failures)
        except ProcessingError as e:
            # Whoever runs this is told the reason, but not where it comes from.
            if (traceback := self._traceback_of(failure)) is not None:
                log.error("%s", e.message, exc_info=traceback)
            raise
        if topic is None:
            self._plan.postpone(work, self._now_ms(), random.random())
            return
        line = put_aside_line(work.record, failure, attempts=work.failures, topic=topic)
        log.error("%s", line, exc_info=self._traceback_of(failure))
        self._plan.finish(work)

    def _traceback_of(self, failure: BaseException) -> BaseException | ExcInfo | None:
        return failure if log.isEnabledFor(logging.DEBUG) else self._failure_kinds.traceback_if_new(failure)

    # Commits and partitions that go

    async def _commit_if_due(self) -> None:
        now_ms = self._now_ms()
        if now_ms >= self._next_commit_ms:
            self._next_commit_ms = now_ms + self._consumer.settings.auto_commit_interval_ms
            await self._commit(self._plan.committable())

    async def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        if not offsets:
            return
        try:
            await self._consumer.commit(offsets, timeout=_COMMIT_TIMEOUT_S)
        except ClientError as e:
            if e.fatal:
                raise
            # What is not committed now will be with the next commit, or be read again.
            log.log(logging.DEBUG if self._commits_fail else logging.WARNING, "offsets were not committed: %s", e)
            self._commits_fail = True
        else:
            self._commits_fail = False
            self._plan.committed(offsets.items())

    async def _let_go(self, partitions: Collection[TopicPartition]) -> None:
        try:
            self._plan.hold(partitions)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._drain_timeout):
                    while self._tasks and not self._plan.is_settled(partitions):
                        await asyncio.wait(self._tasks.values(), return_when=asyncio.FIRST_COMPLETED)
                        # Something may be done that `_ended` has not been told of; waiting for that would not yield.
                        await asyncio.sleep(0)
            await self._commit(self._plan.committable(partitions))
        finally:
            await self._lose(partitions)

    async def _lose(self, partitions: Collection[TopicPartition]) -> None:
        left = self._plan.running_of(partitions)
        self._plan.forget(partitions)
        await self._cancel(left)

    async def _cancel(self, works: Collection[Work]) -> None:
        if not works:
            return
        if running := [place_of(work.record) for work in works if work.progress is Progress.RUNNING]:
            log.warning("still being handled, and given up for somebody to process again: %s", ", ".join(running))
        tasks = [self._tasks[work] for work in works]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=_CANCEL_TIMEOUT_S)


class _NotReadableYetError(Exception):
    """What a deserializer needs cannot be had just now."""


class _Listener(RebalanceListener):
    def __init__(self, owner: ParallelConsumer[Any, Any]) -> None:
        self._owner = owner

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await self._owner._let_go(partitions)

    async def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        await self._owner._lose(partitions)


def _consumer_settings(merged: Mapping[str, object]) -> dict[str, object]:
    if merged.get("group.id") is None:
        raise InvalidConfigError("group.id", "group.id is needed: the group's offsets say what has been processed")
    if merged.get("enable.auto.commit") not in (None, False, "false"):
        raise InvalidConfigError(
            "enable.auto.commit",
            "enable.auto.commit cannot be on: it would commit records that are not processed yet. Leave it out",
        )
    return {**merged, "enable.auto.commit": False}


def _error_of(task: asyncio.Task[None]) -> BaseException | None:
    try:
        return task.exception()
    except asyncio.CancelledError as e:
        return e
