"""The consumer for asyncio."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar, overload

from ottla.base.errors import KafkaError
from ottla.base.types import TopicPartition
from ottla.client.aio.arrow_reading import GROUP_SETTINGS, Bounds, Readable, read_table
from ottla.client.aio.commits import CommitCallback, Commits, CommitTask, Offsets
from ottla.client.aio.consumer_engine import ConsumerEngine
from ottla.client.aio.group_runner import GroupRunner, RebalanceStep
from ottla.client.aio.polls import Polls
from ottla.client.aio.topic_lookup import find_topics
from ottla.client.core.consumer_arguments import (
    epoch_of,
    offset_of,
    partition_of,
    partitions_of,
    records_max,
    timestamp_of,
)
from ottla.client.core.consumer_options import EARLIEST, LATEST, ConsumerSettings
from ottla.client.core.consumer_record import ConsumerRecord, K, V
from ottla.client.core.cursors import Cursor, OffsetAndMetadata
from ottla.client.core.fetched_data import Converters
from ottla.client.core.group_protocol import GroupAssignor
from ottla.client.core.offset_requests import Membership, OffsetAndTimestamp
from ottla.client.core.on_demand import load_fetched_columns
from ottla.client.core.rebalance import Change, ConsumerInterceptor, RebalanceListener
from ottla.client.core.settings import merge_settings
from ottla.client.core.subscription import topic_names
from ottla.client.core.timeouts import seconds
from ottla.client.core.topic_info import PartitionInfo
from ottla.client.errors import ClientClosedError, CommitFailedError, ConcurrentUseError

log = logging.getLogger(__name__)
T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class TopicDeserializer(Protocol[T_co]):
    def deserialize(self, topic: str, data: bytes | None) -> T_co: ...


Deserializer: TypeAlias = TopicDeserializer[T] | Callable[[bytes | None], T]
"""Turns the bytes of a key or value into an object: a function, or an object that also wants to know the topic."""


class Consumer(Generic[K, V]):
    """Reads records, alone or as a member of a group. Use it with `async with`, or call `start` and `close`.

    Settings have Kafka's names in a mapping (`{"group.id": "billing"}`) or are keywords (`group_id="billing"`).
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
        self._given = merge_settings(config, settings)
        self.settings = ConsumerSettings.parse(self._given)
        self._engine = ConsumerEngine(self.settings)
        self._engine.convert = Converters(key_deserializer, value_deserializer)
        self._group = GroupRunner(self._engine, assignors)
        self._engine.coordinator.membership = self._group.membership
        self._engine.coordinator.held = self._group.held
        self._engine.coordinator.is_joining = self._group.is_joining
        chain = tuple(interceptors)
        self._commits = Commits(self._engine, chain)
        self._polls: Polls[K, V] = Polls(self._engine, self._group, self._commits, chain)
        self._is_started = False
        self._is_polling = False

    # Life

    async def start(self) -> Self:
        """Finds the cluster; `async with` calls this."""
        self._engine.check_open()
        if not self._is_started:
            try:
                await self._engine.start()
            except BaseException:
                self._engine.hang_up()
                raise
            self._is_started = True
            self._commits.start()
            self._group.start()
        return self

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self, timeout: float | None = 30.0) -> None:
        """Commits if that is automatic, leaves the group, closes the connections. Closing twice is harmless."""
        deadline_s = time.monotonic() + seconds(timeout)
        try:
            step = await self._begin_closing(deadline_s)
            if step is not None:
                await self._polls.tell_listener(step)
        except asyncio.CancelledError:
            # Whoever has called for this waits no longer, but will not call again either.
            deadline_s = 0.0
            raise
        finally:
            await self._finish_closing(deadline_s)

    async def _begin_closing(self, deadline_s: float) -> RebalanceStep | None:
        """What the listener is to be told before the group is left."""
        if self._engine.is_closed or not self._is_started or self._engine.failure is not None:
            return None
        for told in self._group.steps:
            told.break_off()
        left_s = max(0.0, deadline_s - time.monotonic())
        await self._group.wait_unsubscribed(left_s)
        left_s = max(0.0, deadline_s - time.monotonic())
        self._begin_last_commit(int(left_s * 1000))
        if not await self._commits.wait_ended(left_s):
            log.warning("the consumer is closed before all commits are done, which took longer than %.1f s", left_s)
        return self._group.step_before_leaving()

    async def _finish_closing(self, deadline_s: float) -> None:
        if self._engine.is_closed:
            return
        try:
            # With no time left the coordinator is still told, but not waited for.
            async with asyncio.timeout(max(0.0, deadline_s - time.monotonic())):
                await self._group.leave()
        except KafkaError as e:
            log.warning("the consumer left its group without saying so: %s", e)
        except TimeoutError:
            log.warning("the consumer left its group without an answer: the time for closing is over")
        finally:
            await self._engine.close()

    # What to read

    def subscribe(
        self, topics: Collection[str] | re.Pattern[str], *, listener: RebalanceListener | None = None
    ) -> None:
        """Reads topics, or all whose names the pattern matches, shared with the other members of the group.

        It replaces an earlier subscription. An empty list is the same as `unsubscribe`.
        """
        self._subscribe(topics, listener)

    def _subscribe(
        self,
        topics: Collection[str] | re.Pattern[str],
        listener: RebalanceListener | None,
        excluded: re.Pattern[str] | None = None,
    ) -> None:
        """A pattern does not match the names that are excluded."""
        self._engine.check_open()
        self._engine.coordinator.group_id()
        if isinstance(topics, re.Pattern):
            self._engine.subscription.subscribe_pattern(topics, excluded)
        elif names := topic_names(topics):
            self._engine.subscription.subscribe(names)
        else:
            return self.unsubscribe()
        self._polls.listener = listener
        self._engine.metadata.request_update()
        self._group.subscription_changed()
        self._engine.wake()

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Reads these partitions and no others, without sharing them with a group."""
        self._engine.check_open()
        chosen = partitions_of(partitions)
        self._engine.subscription.assign(chosen)
        self._commits.begin_of(self._engine.cursors.partitions.difference(chosen))
        self._engine.cursors.replace(chosen)
        self._engine.wake()

    def unsubscribe(self) -> None:
        """Reads nothing any more. A task commits if that is automatic, tells the listener and then leaves the group.

        The listener has to name the offsets it commits: this consumer has no positions any more.
        """
        self._engine.check_open()
        commit = self._begin_last_commit(self.settings.api_timeout_ms)
        step, listener = self._group.step_before_leaving(), self._polls.listener
        if step is None or (commit is None and listener is None):
            return self._unsubscribe()
        self._forget_choice()
        self._group.unsubscribed_after(self._say_last_words(step, listener, commit))

    async def _begin_unsubscribing(self) -> RebalanceStep | None:
        """For whoever can wait: what the listener is to be told before `_unsubscribe`, while there are positions."""
        self._engine.check_open()
        commit = self._begin_last_commit(self.settings.api_timeout_ms)
        if commit is not None:
            await asyncio.wait({commit})
        return self._group.step_before_leaving()

    def _begin_last_commit(self, timeout_ms: int) -> CommitTask | None:
        """Without what the listener is just being told of: that was committed before, and now it may commit itself."""
        if not self._engine.subscription.uses_group:
            return self._commits.begin_last(timeout_ms)
        step = self._group.step_before_leaving()
        if step is None or step.change is Change.LOST:
            return None
        return self._commits.begin_last(timeout_ms, step.partitions)

    def _unsubscribe(self) -> None:
        self._forget_choice()
        if not self._group.is_leaving:
            self._group.unsubscribed()

    def _forget_choice(self) -> None:
        self._engine.subscription.unsubscribe()
        self._engine.cursors.replace([])
        self._polls.listener = None

    async def _say_last_words(
        self, step: RebalanceStep, listener: RebalanceListener | None, commit: CommitTask | None
    ) -> None:
        if commit is not None:
            await asyncio.wait({commit})
        if listener is not None:
            try:
                # Another step of the same kind: by now the partitions may have been chosen again.
                await self._polls.tell_listener(RebalanceStep(step.change, step.partitions), listener)
            except Exception:
                log.exception("the listener failed when the consumer had unsubscribed")

    @property
    def subscription(self) -> frozenset[str]:
        return self._engine.subscription.topics

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self._engine.cursors.partitions

    @property
    def membership(self) -> Membership:
        """This consumer's place in its group, for the `send_offsets` of a transactional producer (KIP-447)."""
        found = self._engine.coordinator.membership()
        # Offsets on behalf of nobody in particular would be taken, whoever has the partitions by now.
        if self._engine.subscription.uses_group and not found.is_member:
            raise CommitFailedError("this consumer is not in its group now: abort the transaction, then poll to join")
        return found

    # Records

    async def poll(self, timeout: float | None = 0.0, max_records: int | None = None) -> list[ConsumerRecord[K, V]]:
        """Records, as soon as there are any; an empty list if none came within `timeout` seconds (None: as they come).

        Rebalances take place in here, so it has to be called at least every `max.poll.interval.ms`.
        """
        wanted = self._records_max(max_records)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + seconds(timeout)
        with self._one_poll():
            while True:
                found = await self._polls.next_records(deadline_s - loop.time(), wanted)
                if not isinstance(found, RebalanceStep):
                    return found
                await self._polls.tell_listener_in_poll(found)

    def _records_max(self, wanted: int | None) -> int:
        return self.settings.max_poll_records if wanted is None else records_max(wanted)

    @contextmanager
    def _one_poll(self) -> Iterator[None]:
        self._check_started()
        self._engine.subscription.check_made()
        if self._is_polling:
            raise ConcurrentUseError("another task is polling this consumer; give every task its own")
        self._is_polling = True
        try:
            if self._polls.begin():
                self._polls.give_back_unread()
            yield
        finally:
            self._is_polling = False

    async def poll_arrow(
        self, timeout: float | None = 0.0, max_records: int | None = None, columns: Iterable[str] | None = None
    ) -> Any:
        """What was fetched as a pyarrow RecordBatch, decoded whole; one without rows if nothing came in time.

        The columns are key, value, topic, partition, offset, timestamp and timestampType, or those that are asked for,
        in their order, headers too. Positions, commits and rebalances are as with `poll`; deserializers and
        interceptors see no columns.
        """
        reading = load_fetched_columns()
        schema = reading.chosen_columns(columns)
        rows_max = None if max_records is None else self._records_max(max_records)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + seconds(timeout)
        with self._one_poll():
            while True:
                claimed = await self._polls.next_claim(deadline_s - loop.time(), reading.CLAIM_BYTES)
                if isinstance(claimed, RebalanceStep):
                    await self._polls.tell_listener_in_poll(claimed)
                    continue
                batch = reading.decode_claimed(claimed, schema, rows_max)
                # What came may all have been hidden: markers, and what was aborted.
                if batch.num_rows or loop.time() >= deadline_s:
                    return batch

    async def to_arrow(
        self, what: Readable, start: Bounds = "earliest", end: Bounds = "latest", columns: Iterable[str] | None = None
    ) -> Any:
        """A topic, or some partitions, as a pyarrow Table: everything from `start` up to and without `end`.

        Each bound is an offset, "earliest", "latest" or a datetime, for all partitions or in a mapping for each. It has
        nothing to do with what this consumer is subscribed to, or with its positions.
        """
        self._check_started()
        alone = {name: value for name, value in self._given.items() if name not in GROUP_SETTINGS}
        async with Consumer({**alone, "auto.offset.reset": "none"}) as reader:
            return await read_table(reader, what, start, end, columns)

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        while True:
            for record in self._polls.one_by_one(await self.poll(1.0)):
                yield record

    def _check_started(self) -> None:
        self._engine.check_open()
        if not self._is_started:
            raise ClientClosedError("this consumer is not started: use `async with`, or call start()")

    # Positions

    def seek(self, partition: TopicPartition | tuple[str, int], offset: int, leader_epoch: int | None = None) -> None:
        """Makes `offset` the next one to read. Nothing is committed by this."""
        chosen, place, epoch = partition_of(partition), offset_of(offset), epoch_of(leader_epoch)
        self._engine.check_open()
        self._engine.cursors.of(chosen).seek(place, epoch)
        self._engine.wake()

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """All assigned partitions, if none are named."""
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """With read_committed the end is where the first open transaction begins."""
        self._reset(partitions, LATEST)

    def _reset(self, partitions: Iterable[TopicPartition] | None, timestamp: int) -> None:
        self._engine.check_open()
        for cursor in self._chosen(partitions):
            cursor.request_reset(timestamp)
        self._engine.wake()

    def _chosen(self, partitions: Iterable[TopicPartition] | None) -> list[Cursor]:
        return self._engine.cursors.chosen(None if partitions is None else partitions_of(partitions))

    async def position(self, partition: TopicPartition | tuple[str, int], timeout: float | None = None) -> int:
        """The offset of the next record `poll` would return."""
        self._check_started()
        return await self._engine.find_position(partition_of(partition), self._timeout_ms(timeout))

    def pause(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """`poll` returns nothing of these partitions until `resume`. They stay assigned."""
        for cursor in self._chosen(partitions):
            cursor.is_paused = True

    def resume(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        for cursor in self._chosen(partitions):
            cursor.is_paused = False
        self._engine.wake()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(cursor.topic_partition for cursor in self._engine.cursors.all() if cursor.is_paused)

    def lag(self, partition: TopicPartition | tuple[str, int]) -> int | None:
        """Records between the position and the end, as of the last fetch; None before the first."""
        return self._engine.cursors.of(partition_of(partition)).lag

    # Offsets in the log

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        return await self._offsets_at(partitions, EARLIEST, timeout)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offsets the next records will get; with read_committed, where the first open transaction begins."""
        return await self._offsets_at(partitions, LATEST, timeout)

    async def _offsets_at(
        self, partitions: Iterable[TopicPartition], timestamp: int, timeout: float | None
    ) -> dict[TopicPartition, int]:
        self._check_started()
        wanted = dict.fromkeys(partitions_of(partitions), timestamp)
        found = await self._engine.find_offsets(wanted, self._timeout_ms(timeout))
        return {partition: answer.offset for partition, answer in found.items()}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time (milliseconds since 1970); None where there is none."""
        self._check_started()
        wanted = {partition_of(partition): timestamp_of(timestamp) for partition, timestamp in timestamps.items()}
        found = await self._engine.find_offsets(wanted, self._timeout_ms(timeout))
        return {partition: answer if answer.offset >= 0 else None for partition, answer in found.items()}

    # Commits

    async def commit(
        self, offsets: Offsets | ConsumerRecord[Any, Any] | None = None, timeout: float | None = None
    ) -> None:
        """Commits the positions, given offsets (the next to read), or that a record and all before it are done."""
        self._check_started()
        await self._commits.commit(self._commits.chosen(offsets), self._timeout_ms(timeout))

    def commit_async(
        self,
        offsets: Offsets | ConsumerRecord[Any, Any] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Starts a commit. It is not tried again if it fails, for a later one may have been made meanwhile."""
        self._check_started()
        self._commits.begin(self._commits.chosen(offsets), callback)

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where it has not."""
        self._check_started()
        wanted = partitions_of(partitions)
        return await self._engine.coordinator.find_committed(wanted, self._timeout_ms(timeout))

    # The cluster

    async def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionInfo]:
        self._check_started()
        found = await find_topics(self._engine, [topic], self._timeout_ms(timeout))
        return found.get(topic, [])

    async def list_topics(self, timeout: float | None = None) -> dict[str, list[PartitionInfo]]:
        """All topics this client may see, internal ones too."""
        self._check_started()
        return await find_topics(self._engine, None, self._timeout_ms(timeout))

    def _timeout_ms(self, timeout: float | None) -> int:
        return self.settings.api_timeout_ms if timeout is None else int(seconds(timeout) * 1000)
