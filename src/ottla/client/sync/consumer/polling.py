"""What a consumer for threads does otherwise than that for asyncio: the thread that polls receives and decodes itself.

Listeners are called in that thread, too, and outside of the loop: they may call the consumer.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import Any

from ottla.base.errors import OttlaError
from ottla.client.aio.group.runner import RebalanceStep
from ottla.client.core.consumer.handout import ClaimedData
from ottla.client.core.consumer.record import ConsumerRecord, K, V
from ottla.client.core.consumer.subscription import topic_names
from ottla.client.core.group.rebalance import RebalanceListener
from ottla.client.core.on_demand import load_fetched_columns
from ottla.client.core.timeouts import seconds
from ottla.client.errors import ClientError, ConcurrentUseError
from ottla.client.sync.consumer.calls import ConsumerCalls

_ITERATION_POLL_S = 1.0


class BaseConsumer(ConsumerCalls[K, V]):
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
            # What is left of a batch, has come by now or comes at once needs no detour through the loop.
            if taken := polls.take_if_quiet(records_max):
                return taken
            deadline_s = time.monotonic() + seconds(timeout)
            return self._loop.try_without_running(
                lambda until_s: polls.receive_records(records_max, min(until_s, deadline_s))
            ) or self._poll_in_loop(deadline_s, records_max)
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

    def _poll_arrow(self, timeout: float | None, max_records: int | None, columns: Iterable[str] | None) -> Any:
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
        if claimed := self._loop.try_without_running(
            lambda until_s: polls.receive_claim(bytes_max, min(until_s, deadline_s))
        ):
            return claimed
        while True:
            found = self._loop.call(self._inner._polls.next_claim(deadline_s - time.monotonic(), bytes_max))
            if not isinstance(found, RebalanceStep):
                return found
            self._tell_listener(found)

    def _poll_in_loop(self, deadline_s: float, records_max: int) -> list[ConsumerRecord[K, V]]:
        while True:
            found = self._loop.call(self._inner._polls.next_records(deadline_s - time.monotonic(), records_max))
            if not isinstance(found, RebalanceStep):
                return found
            self._tell_listener(found)

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        while True:
            yield from self._inner._polls.one_by_one(self.poll(_ITERATION_POLL_S))

    # What to read

    def _subscribe(self, topics: Collection[str] | re.Pattern[str], listener: RebalanceListener | None) -> None:
        if not isinstance(topics, re.Pattern) and not topic_names(topics):
            return self.unsubscribe()
        self._do(lambda: self._inner.subscribe(topics, listener=listener))

    def unsubscribe(self) -> None:
        """Reads nothing any more: commits if that is automatic, tells the listener, and leaves the group."""
        step = self._call(self._inner._begin_unsubscribing())
        try:
            if step is not None:
                self._tell_listener(step)
        finally:
            self._do(self._inner._unsubscribe)
