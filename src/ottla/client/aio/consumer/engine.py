"""The consumer at work: carries out what cursors and planner decide, in an event loop, for both kinds of shells.

Fetching and looking up positions go on in the background; what an application notices happens in `Polls`. Every method
is for the thread of the event loop, except where it says otherwise.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from ottla.base.clock import SystemClock
from ottla.base.errors import ERRORS, ErrorCode, KafkaError, OttlaError
from ottla.base.memory import keep_freed_memory
from ottla.base.types import TopicPartition
from ottla.client.aio.cluster_link import ClusterLink
from ottla.client.aio.consumer.coordinator import Coordinator
from ottla.client.aio.consumer.position_finder import UNREACHABLE, PositionFinder, as_client_error
from ottla.client.core.consumer.cursors import Cursors
from ottla.client.core.consumer.fetch_planner import FetchCall, FetchPlanner
from ottla.client.core.consumer.fetched_data import Converters
from ottla.client.core.consumer.handout import Handout
from ottla.client.core.consumer.options import ConsumerSettings
from ottla.client.core.consumer.record import AnyRecord
from ottla.client.core.consumer.subscription import Subscription
from ottla.client.core.metadata import MetadataCache
from ottla.client.core.outages import Outages
from ottla.client.core.settings import backoff_ms
from ottla.client.errors import (
    ClientClosedError,
    ClientError,
    CommitFailedError,
    client_error,
)
from ottla.net.connection import Connection
from ottla.wire.apis.fetch import FetchResponse

log = logging.getLogger(__name__)
T = TypeVar("T")

NEVER_MS = 2**62
_LOOKED_UP_MS = 2000
"""How long a topic that is not read is asked about: to ask for one that was deleted may make it anew."""


class ConsumerEngine:
    def __init__(self, settings: ConsumerSettings) -> None:
        client = settings.client
        self.settings = settings
        self.clock = SystemClock()
        self.metadata = MetadataCache(
            max_age_ms=client.metadata_max_age_ms,
            max_idle_ms=_LOOKED_UP_MS,
            backoff_ms=client.retry_backoff_ms,
            backoff_max_ms=client.retry_backoff_max_ms,
        )
        # A broker answers in order, and a fetch or a join may wait there for long: each kind has its own connection.
        self.link = ClusterLink(client, self.metadata, default_client_id="ottla-consumer")
        outages = self.link.outages
        self.fetch_link = ClusterLink(client, self.metadata, default_client_id="ottla-consumer", outages=outages)
        self.group_link = ClusterLink(client, self.metadata, default_client_id="ottla-consumer", outages=outages)
        self.subscription = Subscription()
        self.cursors = Cursors()
        self.planner = FetchPlanner(settings, self.cursors, self.metadata)
        self.handout = Handout(self.cursors)
        self.convert = Converters(None, None)
        self.failure: ClientError | None = None
        """What has ended this consumer; every poll raises it."""
        self.refusal: ClientError | None = None
        """What the last metadata have against what is read; one poll raises it."""
        self._group_refusals: deque[tuple[ClientError, asyncio.Event]] = deque()
        """What the group's coordinator has against this member; one poll raises each, and that is waited for."""
        self.is_closed = False
        self.on_metadata: Callable[[], None] | None = None
        self.group_topics: frozenset[str] = frozenset()
        """Of a group's leader: the topics of all members, which it has to watch."""
        self._loop: asyncio.AbstractEventLoop
        """Known from `start` on."""
        self._news = asyncio.Event()
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.coordinator = Coordinator(self)
        self._positions = PositionFinder(self)
        self._refreshing = False
        self._metadata_changed = asyncio.Event()

    # Life

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        keep_freed_memory()
        await self.link.find_cluster(self.now_ms())
        self.spawn(self._drive())

    def share_outages(self, outages: Outages) -> None:
        """Of an application that speaks for all its clients."""
        for link in (self.link, self.fetch_link, self.group_link):
            link.outages = outages

    def hang_up(self) -> None:
        """After a start that came to nothing; it may be tried again."""
        self.link.hang_up()

    def now_ms(self) -> int:
        return self.clock.monotonic_ms()

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail_with(error)

    def _fail_with(self, error: BaseException) -> None:
        if not isinstance(error, KafkaError):
            log.error("the consumer met an error it did not expect", exc_info=error)
            error = ClientError(f"the consumer met an error it did not expect: {error!r}", fatal=True)
        self.fail(error)

    def fail(self, error: KafkaError) -> None:
        if self.failure is None:
            self.failure = as_client_error(error)
            self.failure.fatal = True
        self.notify()

    async def refuse(self, error: KafkaError) -> None:
        """Waits until a poll has raised what does not end this consumer, but will not pass by itself."""
        entry = (as_client_error(error), asyncio.Event())
        self._group_refusals.append(entry)
        self.notify()
        try:
            await entry[1].wait()
        finally:
            if entry in self._group_refusals:
                self._group_refusals.remove(entry)

    @property
    def has_refusal(self) -> bool:
        return self.refusal is not None or bool(self._group_refusals)

    def take_refusal(self) -> ClientError | None:
        """For a poll to raise."""
        if self.refusal is not None:
            refusal, self.refusal = self.refusal, None
            return refusal
        if not self._group_refusals:
            return None
        refusal, is_told = self._group_refusals.popleft()
        is_told.set()
        return refusal

    async def close(self) -> None:
        self.is_closed = True
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            for link in (self.link, self.fetch_link, self.group_link):
                link.close()
            self.notify()

    def check_open(self) -> None:
        if self.is_closed:
            raise ClientClosedError("this consumer is closed; make another one")

    # What there is to do

    def wake(self) -> None:
        """Something may have to be asked for."""
        self._wake.set()

    def notify(self) -> None:
        """Something may be there for the application."""
        self._news.set()

    async def wait_for_news(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, timeout_s)):
                await self._news.wait()
        except TimeoutError:
            return
        self._news.clear()

    async def _drive(self) -> None:
        while True:
            self._wake.clear()
            now_ms = self.now_ms()
            self._use_topics(now_ms)
            if now_ms >= self.metadata.next_refresh_ms() and not self._refreshing:
                self._refreshing = True
                self.spawn(self._refresh_metadata())
            self._check_leaders()
            self._positions.start_if_needed()
            for call in self.planner.plan(now_ms):
                self._fetch(call)
            try:
                async with asyncio.timeout(self._pause_ms(now_ms) / 1000):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _pause_ms(self, now_ms: int) -> int:
        due = [cursor.not_before_ms for cursor in self.cursors.all() if cursor.not_before_ms > now_ms]
        if not self._refreshing:
            due.append(self.metadata.next_refresh_ms())
        return min(max(min(due, default=NEVER_MS) - now_ms, 1), 60_000)

    # Metadata

    def _use_topics(self, now_ms: int) -> None:
        for topic in self.cursors.topics | self.subscription.topics | self.group_topics:
            self.metadata.use(topic, now_ms)

    async def _refresh_metadata(self) -> None:
        try:
            wants_all = self.subscription.pattern is not None
            now_ms = self.now_ms()
            self._use_topics(now_ms)
            topics = None if wants_all else self.metadata.topics_to_ask(now_ms)
            await self.link.refresh_metadata(
                topics,
                now_ms,
                create_missing=self.settings.allow_auto_create_topics and not self.subscription.is_manual,
            )
        except KafkaError as e:
            log.debug("metadata could not be had: %s", e)
            self.metadata.update_failed(self.now_ms())
        else:
            self._note_refusal()
            if self.on_metadata is not None:
                self.on_metadata()
        finally:
            self._refreshing = False
            self._metadata_changed.set()
            self._metadata_changed = asyncio.Event()
            self.wake()

    def _note_refusal(self) -> None:
        """A topic that this client may not read has no partitions for it, and would be waited for in silence."""
        self.refusal = None
        for topic in sorted(self.cursors.topics | self.subscription.topics):
            if self.is_refused(topic):
                self.refusal = client_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, where=topic)
                self.notify()
                return

    def is_refused(self, topic: str) -> bool:
        known = self.metadata.topics.get(topic)
        return known is not None and known.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    async def wait_for_metadata(self) -> None:
        """Until metadata has been asked for once more, with or without success."""
        self.metadata.request_update()
        changed = self._metadata_changed
        self.wake()
        await changed.wait()

    def _check_leaders(self) -> None:
        for cursor in self.cursors.all():
            known = self.metadata.topics.get(cursor.topic_partition.topic)
            leader = known.partitions.get(cursor.topic_partition.partition) if known is not None else None
            if leader is not None and leader.leader_id in self.metadata.brokers:
                cursor.take_leader_epoch(leader.leader_epoch)

    # Fetching

    def _fetch(self, call: FetchCall) -> None:
        connection = self.fetch_link.ready_connection(call.node_id)
        if connection is not None and connection.is_writable:
            self._ask(connection, call)
        else:
            self.spawn(self._connect_and_ask(call))

    async def _connect_and_ask(self, call: FetchCall) -> None:
        try:
            connection = await self.fetch_link.connection_to(call.node_id)
            await connection.wait_until_writable()
        except KafkaError as e:
            self._fetched(call, e)
        except BaseException:
            self.planner.failed(call, self.now_ms())
            raise
        else:
            self._ask(connection, call)

    def _ask(self, connection: Connection, call: FetchCall) -> None:
        try:
            version = min(connection.version_for(type(call.request)), call.max_version)
            connection.request_then(
                call.request,
                FetchResponse,
                lambda answer: self._fetched(call, answer),
                version=version,
                timeout_ms=self.settings.client.request_timeout_ms + self.settings.fetch_max_wait_ms,
            )
        except KafkaError as e:
            self._fetched(call, e)

    def _fetched(self, call: FetchCall, answer: FetchResponse | OttlaError) -> None:
        """Takes in an answer, and goes on asking that broker as long as there is something to ask it for.

        The next request is written before anybody hears of the answer to the last: decoding that takes long.
        """
        if self.is_closed:
            return
        try:
            is_asked_again = self._take_answer(call, answer)
        except Exception as e:
            self._fail_with(e)
            return
        if not is_asked_again:
            self.wake()

    def _take_answer(self, call: FetchCall, answer: FetchResponse | OttlaError) -> bool:
        """Whether the same broker has the next request already."""
        if isinstance(answer, OttlaError):
            self.planner.failed(call, self.now_ms())
            if not isinstance(answer, KafkaError) or answer.code not in UNREACHABLE:
                self._fail_with(answer)
            return False
        self.planner.answered(call, answer, self.now_ms())
        self.notify()
        following = self.planner.plan(self.now_ms())
        for next_call in following:
            self._fetch(next_call)
        return any(next_call.node_id == call.node_id for next_call in following)

    def receive_now(self, wait_s: float) -> bool:
        """Takes in answers that have come, or come within `wait_s`; whether there was anything to take in.

        For the thread of the event loop, while the loop does not run.
        """
        return self.fetch_link.receive_now(wait_s)

    def take(self, records_max: int) -> list[AnyRecord]:
        return self.handout.take(records_max, self.convert)

    def taken(self) -> None:
        """There is room for more of what has just been taken."""
        # The answer to a fetch is followed by the next one anyway.
        if self.planner.brokers_in_flight < len(self.metadata.brokers):
            self.wake()

    async def find_position(self, topic_partition: TopicPartition, timeout_ms: int) -> int:
        """Where the application is in a partition, once that is known."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                # The partition may go while this waits, or come again, and nobody looks for its old position any more.
                while not (cursor := self.cursors.of(topic_partition)).has_position:
                    if (error := cursor.error or self.failure) is not None:
                        raise error.with_traceback(None)
                    self.wake()
                    await asyncio.sleep(0.005)
                    self.check_open()
        except TimeoutError as e:
            cause = self.link.outages.causes()
            raise ClientError(
                f"the position in {topic_partition} was not found within {timeout_ms} ms"
                + (f"; last: cannot reach {cause}" if cause else ""),
                code=ErrorCode.REQUEST_TIMED_OUT,
            ) from e
        return cursor.position

    # Trying again

    async def retry(
        self,
        attempt: Callable[[], Awaitable[T]],
        timeout_ms: int,
        *,
        retried: frozenset[ErrorCode] = frozenset(),
        final: frozenset[ErrorCode] = frozenset(),
    ) -> T:
        """What may pass is tried again, and the errors that are `retried`, but none that is `final`."""
        deadline_ms = self.now_ms() + timeout_ms
        tries = 0
        last = ""
        while True:
            self.check_open()
            try:
                async with asyncio.timeout(max(0.001, (deadline_ms - self.now_ms()) / 1000)):
                    return await attempt()
            except TimeoutError as e:
                cause = last or self.link.outages.causes()
                raise ClientError(
                    f"the brokers did not answer within {timeout_ms} ms" + (f"; last: {cause}" if cause else ""),
                    code=ErrorCode.REQUEST_TIMED_OUT,
                ) from e
            except KafkaError as e:
                last = e.message
                tries += 1
                client = self.settings.client
                pause_ms = backoff_ms(tries, client.retry_backoff_ms, client.retry_backoff_max_ms)
                may_pass = (ERRORS[e.code].retriable or e.code in retried) and e.code not in final
                if isinstance(e, CommitFailedError) or not may_pass or self.now_ms() + pause_ms > deadline_ms:
                    raise as_client_error(e) from e.__cause__
                if ERRORS[e.code].refreshes_metadata or e.code in UNREACHABLE:
                    self.metadata.request_update()
                    self.wake()
            await asyncio.sleep(pause_ms / 1000)
