"""The consumer for threads: the calls of `ottla.client.aio.Consumer`, each of which runs the event loop behind them.

So the thread that polls receives and decodes what it gets. Listeners are called in that thread, too, and outside of the
loop: they may call the consumer.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, Self, TypeVar, overload

from ottla.base.errors import OttlaError
from ottla.base.types import TopicPartition
from ottla.client.aio.arrow_reading import Bounds, Readable
from ottla.client.aio.commits import CommitCallback, Offsets
from ottla.client.aio.consumer import Consumer as AsyncConsumer
from ottla.client.aio.consumer import Deserializer
from ottla.client.aio.group_runner import RebalanceStep
from ottla.client.core.consumer_record import ConsumerRecord, K, V
from ottla.client.core.cursors import OffsetAndMetadata
from ottla.client.core.group_protocol import GroupAssignor
from ottla.client.core.handout import ClaimedData
from ottla.client.core.offset_requests import Membership, OffsetAndTimestamp
from ottla.client.core.on_demand import load_fetched_columns
from ottla.client.core.rebalance import ConsumerInterceptor, RebalanceListener
from ottla.client.core.subscription import topic_names
from ottla.client.core.timeouts import seconds
from ottla.client.core.topic_info import PartitionInfo
from ottla.client.errors import ClientClosedError, ClientError, ConcurrentUseError, ForkedError
from ottla.client.sync.shared_loop import SharedLoop

T = TypeVar("T")

_ITERATION_POLL_S = 1.0


class Consumer(Generic[K, V]):
    """Reads records, alone or as a member of a group. Use it with `with`, or call `close`.

    Settings have Kafka's names in a mapping (`{"group.id": "billing"}`) or are keywords (`group_id="billing"`). One
    thread at a time may poll.
    """

    @overload
    def __init__(
        self: Consumer[K, V],
        config: Mapping[str, object] | None = None,
        *,
        key_deserializer: Deserializer[K],
        value_deserializer: Deserializer[V],
        interceptors: Sequence[ConsumerInterceptor] = (),
        assignors: Sequence[GroupAssignor] = (),
        **settings: object,
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[K, bytes | None],
        config: Mapping[str, object] | None = None,
        *,
        key_deserializer: Deserializer[K],
        interceptors: Sequence[ConsumerInterceptor] = (),
        assignors: Sequence[GroupAssignor] = (),
        **settings: object,
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[bytes | None, V],
        config: Mapping[str, object] | None = None,
        *,
        value_deserializer: Deserializer[V],
        interceptors: Sequence[ConsumerInterceptor] = (),
        assignors: Sequence[GroupAssignor] = (),
        **settings: object,
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[bytes | None, bytes | None],
        config: Mapping[str, object] | None = None,
        *,
        interceptors: Sequence[ConsumerInterceptor] = (),
        assignors: Sequence[GroupAssignor] = (),
        **settings: object,
    ) -> None: ...

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        key_deserializer: Any = None,
        value_deserializer: Any = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        assignors: Sequence[GroupAssignor] = (),
        **settings: object,
    ) -> None:
        self._inner: AsyncConsumer[K, V] = AsyncConsumer(
            config,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            interceptors=interceptors,
            assignors=assignors,
            **settings,
        )
        self.settings = self._inner.settings
        self._polling = threading.Lock()
        self._is_forked = False
        self._is_closing = False
        """The listener may still commit then."""
        self._is_closed = False
        self._loop = SharedLoop("ottla-consumer", self._forked)
        try:
            self._loop.call(self._inner.start())
        except BaseException:
            self._is_closing = self._is_closed = True
            self._loop.call(self._inner.close(0))
            self._loop.stop()
            raise

    def _forked(self) -> None:
        self._is_forked = True

    # Life

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self, timeout: float | None = 30.0) -> None:
        """Commits if that is automatic, leaves the group, closes the connections. Closing twice is harmless."""
        deadline_s = time.monotonic() + seconds(timeout)
        if self._is_closing or self._is_forked:
            return
        self._loop.check_outside()
        self._is_closing = True
        try:
            step = self._begin_closing(deadline_s)
            try:
                if step is not None:
                    self._tell_listener(step)
            finally:
                self._is_closed = True
                self._loop.call(self._inner._finish_closing(deadline_s))
        finally:
            self._is_closed = True
            self._loop.stop()

    def _begin_closing(self, deadline_s: float) -> RebalanceStep | None:
        try:
            return self._loop.call(self._inner._begin_closing(deadline_s))
        except BaseException:
            # Ctrl-C: nobody wants to wait any longer, but the group is to know, and connections are closed.
            self._is_closed = True
            self._loop.call(self._inner._finish_closing(0.0))
            raise

    def _check_usable(self) -> None:
        if self._is_forked:
            raise ForkedError("this consumer was made before the process forked; make a new one in the child")
        if self._is_closed:
            raise ClientClosedError("this consumer is closed; make another one")

    def _call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._check_usable()
        return self._loop.call(make())

    def _do(self, work: Callable[[], T]) -> T:
        """Runs what does not wait in the loop, where nobody else touches what it does."""

        async def run() -> T:
            return work()

        return self._call(run)

    # Records

    def poll(self, timeout: float | None = 0.0, max_records: int | None = None) -> list[ConsumerRecord[K, V]]:
        """Records, as soon as there are any; an empty list if none came within `timeout` seconds (None: as they come).

        Rebalances take place in here, so it has to be called at least every `max.poll.interval.ms`.
        """
        records_max = self._inner._records_max(max_records)
        if timeout.__class__ is not float:
            # A poll that finds records would not notice what is wrong with it.
            timeout = seconds(timeout)
        self._begin_poll()
        try:
            polls = self._inner._polls
            # What is left of a batch, or has come by now, needs no detour through the loop.
            return (
                polls.take_if_quiet(records_max)
                or self._loop.try_without_running(lambda: polls.receive_records(records_max))
                or self._poll_in_loop(timeout, records_max)
            )
        except BaseException as e:
            self._give_back(e)
            raise
        finally:
            self._polling.release()

    def _give_back(self, reason: BaseException) -> None:
        """Something ends a poll that is none of its own errors, such as Ctrl-C: nothing counts as read by it."""
        if not isinstance(reason, OttlaError):
            with suppress(ClientError):
                self._do(self._inner._polls.give_back)

    def _begin_poll(self) -> None:
        self._check_usable()
        self._inner._engine.subscription.check_made()
        if not self._polling.acquire(blocking=False):
            raise ConcurrentUseError("another thread is polling this consumer; give every thread its own")
        if self._inner._polls.begin():
            try:
                self._do(self._inner._polls.give_back_unread)
            except BaseException:
                self._polling.release()
                raise

    def poll_arrow(
        self, timeout: float | None = 0.0, max_records: int | None = None, columns: Iterable[str] | None = None
    ) -> Any:
        """What was fetched as a pyarrow RecordBatch, decoded whole; one without rows if nothing came in time.

        The columns are key, value, topic, partition, offset, timestamp and timestampType, or those that are asked for,
        in their order, headers too. Positions, commits and rebalances are as with `poll`; deserializers and
        interceptors see no columns.
        """
        reading = load_fetched_columns()
        schema = reading.chosen_columns(columns)
        rows_max = None if max_records is None else self._inner._records_max(max_records)
        deadline_s = time.monotonic() + seconds(timeout)
        self._begin_poll()
        try:
            while True:
                batch = reading.decode_claimed(self._claim(deadline_s, reading.CLAIM_BYTES), schema, rows_max)
                if batch.num_rows or time.monotonic() >= deadline_s:
                    return batch
        except BaseException as e:
            self._give_back(e)
            raise
        finally:
            self._polling.release()

    def _claim(self, deadline_s: float, bytes_max: int) -> list[ClaimedData]:
        polls = self._inner._polls
        if claimed := self._loop.try_without_running(lambda: polls.receive_claim(bytes_max)):
            return claimed
        while True:
            found = self._loop.call(self._inner._polls.next_claim(deadline_s - time.monotonic(), bytes_max))
            if not isinstance(found, RebalanceStep):
                return found
            self._tell_listener(found)

    def to_arrow(
        self, what: Readable, start: Bounds = "earliest", end: Bounds = "latest", columns: Iterable[str] | None = None
    ) -> Any:
        """A topic, or some partitions, as a pyarrow Table: everything from `start` up to and without `end`.

        Each bound is an offset, "earliest", "latest" or a datetime, for all partitions or in a mapping for each. It has
        nothing to do with what this consumer is subscribed to, or with its positions.
        """
        return self._call(lambda: self._inner.to_arrow(what, start, end, columns))

    def _poll_in_loop(self, timeout: float | None, records_max: int) -> list[ConsumerRecord[K, V]]:
        deadline_s = time.monotonic() + seconds(timeout)
        while True:
            found = self._loop.call(self._inner._polls.next_records(deadline_s - time.monotonic(), records_max))
            if not isinstance(found, RebalanceStep):
                return found
            self._tell_listener(found)

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        while True:
            yield from self._inner._polls.one_by_one(self.poll(_ITERATION_POLL_S))

    def _tell_listener(self, step: RebalanceStep) -> None:
        try:
            called = self._inner._polls.call_listener(step)
            if isinstance(called, Coroutine):
                called.close()
                raise TypeError("a listener of the sync consumer must not have coroutines; use ottla.aio.Consumer")
        finally:
            # The listener may have closed the consumer, which the next call says.
            with suppress(RuntimeError):
                self._loop.loop.call_soon_threadsafe(step.finish)
            # Partitions that go must be gone before the next records are taken.
            self._loop.call(step.wait_finished())

    # What to read

    def subscribe(
        self, topics: Collection[str] | re.Pattern[str], *, listener: RebalanceListener | None = None
    ) -> None:
        """Reads topics, or all whose names the pattern matches, shared with the other members of the group.

        It replaces an earlier subscription. An empty list is the same as `unsubscribe`.
        """
        if not isinstance(topics, re.Pattern) and not topic_names(topics):
            return self.unsubscribe()
        self._do(lambda: self._inner.subscribe(topics, listener=listener))

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Reads these partitions and no others, without sharing them with a group."""
        self._do(lambda: self._inner.assign(partitions))

    def unsubscribe(self) -> None:
        """Reads nothing any more: commits if that is automatic, tells the listener, and leaves the group."""
        step = self._call(self._inner._begin_unsubscribing)
        try:
            if step is not None:
                self._tell_listener(step)
        finally:
            self._do(self._inner._unsubscribe)

    @property
    def subscription(self) -> frozenset[str]:
        return self._inner.subscription

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self._inner.assignment

    @property
    def membership(self) -> Membership:
        """This consumer's place in its group, for the `send_offsets` of a transactional producer (KIP-447)."""
        return self._do(lambda: self._inner.membership)

    # Positions

    def seek(self, partition: TopicPartition | tuple[str, int], offset: int, leader_epoch: int | None = None) -> None:
        """Makes `offset` the next one to read. Nothing is committed by this."""
        self._do(lambda: self._inner.seek(partition, offset, leader_epoch))

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        self._do(lambda: self._inner.seek_to_beginning(partitions))

    def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        self._do(lambda: self._inner.seek_to_end(partitions))

    def position(self, partition: TopicPartition | tuple[str, int], timeout: float | None = None) -> int:
        """The offset of the next record `poll` would return."""
        return self._call(lambda: self._inner.position(partition, timeout))

    def pause(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        self._do(lambda: self._inner.pause(partitions))

    def resume(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        self._do(lambda: self._inner.resume(partitions))

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return self._inner.paused

    def lag(self, partition: TopicPartition | tuple[str, int]) -> int | None:
        return self._inner.lag(partition)

    # Offsets in the log

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        return self._call(lambda: self._inner.beginning_offsets(partitions, timeout))

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offsets the next records will get; with read_committed, where the first open transaction begins."""
        return self._call(lambda: self._inner.end_offsets(partitions, timeout))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time (milliseconds since 1970); None where there is none."""
        return self._call(lambda: self._inner.offsets_for_times(timestamps, timeout))

    # Commits

    def commit(self, offsets: Offsets | ConsumerRecord[Any, Any] | None = None, timeout: float | None = None) -> None:
        """Commits the positions, given offsets (the next to read), or that a record and all before it are done."""
        self._call(lambda: self._inner.commit(offsets, timeout))

    def commit_async(
        self,
        offsets: Offsets | ConsumerRecord[Any, Any] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Starts a commit. The callback is called during a later call, or else in the consumer's own thread.

        It must not wait, and cannot call the consumer.
        """
        self._do(lambda: self._inner.commit_async(offsets, callback))

    def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where it has not."""
        return self._call(lambda: self._inner.committed(partitions, timeout))

    # The cluster

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionInfo]:
        return self._call(lambda: self._inner.partitions_for(topic, timeout))

    def list_topics(self, timeout: float | None = None) -> dict[str, list[PartitionInfo]]:
        """All topics this client may see, internal ones too."""
        return self._call(lambda: self._inner.list_topics(timeout))
