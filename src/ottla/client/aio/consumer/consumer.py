"""The consumer for asyncio."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeAlias, TypeVar, Unpack

from ottla.base.errors import KafkaError
from ottla.base.types import TopicPartition
from ottla.client.aio.consumer.arrow_reading import GROUP_SETTINGS, Bounds, Readable, read_table
from ottla.client.aio.consumer.calls import ConsumerCalls
from ottla.client.aio.consumer.commits import Commits, CommitTask
from ottla.client.aio.consumer.engine import ConsumerEngine
from ottla.client.aio.consumer.polls import Polls
from ottla.client.aio.group.runner import GroupRunner, RebalanceStep
from ottla.client.core.consumer.arguments import partitions_of, records_max
from ottla.client.core.consumer.fetched_data import Converters
from ottla.client.core.consumer.offset_requests import Membership
from ottla.client.core.consumer.options import ConsumerSettings
from ottla.client.core.consumer.record import ConsumerRecord, K, V
from ottla.client.core.consumer.subscription import topic_names
from ottla.client.core.group.protocol import GroupAssignor
from ottla.client.core.group.rebalance import Change, ConsumerInterceptor, RebalanceListener
from ottla.client.core.on_demand import load_fetched_columns
from ottla.client.core.settings import merge_settings
from ottla.client.core.timeouts import seconds
from ottla.client.errors import CommitFailedError, ConcurrentUseError

if TYPE_CHECKING:
    from ottla.client.core.keywords import ConsumerKeywords

log = logging.getLogger(__name__)
T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class TopicDeserializer(Protocol[T_co]):
    def deserialize(self, topic: str, data: bytes | None) -> T_co: ...


Deserializer: TypeAlias = TopicDeserializer[T] | Callable[[bytes | None], T]
"""Turns the bytes of a key or value into an object: a function, or an object that also wants to know the topic."""


class Consumer(ConsumerCalls, Generic[K, V]):
    """Reads records, alone or as a member of a group. Use it with `async with`, or call `start` and `close`.

    Settings have Kafka's names in a mapping (`{"group.id": "billing"}`) or are keywords (`group_id="billing"`).
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        key_deserializer: Deserializer[K] | None = None,
        value_deserializer: Deserializer[V] | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        assignors: Sequence[GroupAssignor] = (),
        **settings: Unpack[ConsumerKeywords],
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
        return await self._poll_arrow(timeout, max_records, columns)

    async def _poll_arrow(self, timeout: float | None, max_records: int | None, columns: Iterable[str] | None) -> Any:
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
