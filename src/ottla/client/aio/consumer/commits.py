"""A consumer's commits: which offsets, in which order, and when they are due without being asked for.

All take effect in the order they were asked for: each waits for its turn, so an older one never undoes a newer one.
Only those that somebody waits for are tried again. What callbacks and interceptors raise is logged and changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeAlias

from ottla.base.errors import EncodeError, ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.client.aio.consumer.engine import NEVER_MS, ConsumerEngine
from ottla.client.aio.consumer.position_finder import as_client_error
from ottla.client.core.consumer.cursors import OffsetAndMetadata
from ottla.client.core.consumer.offset_requests import offsets_to_commit
from ottla.client.core.consumer.record import ConsumerRecord
from ottla.client.core.group.rebalance import ConsumerInterceptor
from ottla.client.core.settings import backoff_ms
from ottla.client.errors import ClientClosedError, ClientError

log = logging.getLogger(__name__)

Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata | int]
CommitCallback: TypeAlias = Callable[[Mapping[TopicPartition, OffsetAndMetadata], ClientError | None], object]
CommitTask: TypeAlias = asyncio.Task[ClientError | None]

# With the epoch it has got meanwhile, a member's commit is good.
_ONE_TRY: Final = frozenset(ErrorCode) - {ErrorCode.STALE_MEMBER_EPOCH}
# A topic that was deleted does not come back while its partitions wait to be given up (KAFKA-13310).
_LAST_WORD: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


class Commits:
    def __init__(self, engine: ConsumerEngine, interceptors: Sequence[ConsumerInterceptor]) -> None:
        self.due_ms = NEVER_MS
        """When the next automatic commit has to be begun; never while one is under way."""
        self._engine = engine
        self._interceptors = interceptors
        self._turns = asyncio.Lock()
        self._pending: set[CommitTask] = set()
        self._is_automatic = False
        self._failures = 0
        """Automatic commits in a row that did not succeed."""

    def start(self) -> None:
        self._is_automatic = self._engine.settings.commits_automatically
        if self._is_automatic:
            self.due_ms = self._engine.now_ms() + self._engine.settings.auto_commit_interval_ms

    def chosen(self, offsets: Offsets | ConsumerRecord[Any, Any] | None) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a caller means: the positions, given offsets, or that a record and all before it are done."""
        self._engine.coordinator.group_id()
        if offsets is None:
            return self._engine.cursors.committable()
        if isinstance(offsets, ConsumerRecord):
            return {offsets.topic_partition: OffsetAndMetadata(offsets.offset + 1, "", offsets.leader_epoch)}
        return offsets_to_commit(offsets)

    # Commits that are asked for

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None:
        """Tries until it is done or `timeout_ms` are over, with the time that earlier commits take."""
        task = self._begin(offsets, timeout_ms)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            raise
        if task.cancelled():
            raise _closed()
        if (error := task.result()) is not None:
            raise error

    def begin(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], callback: CommitCallback | None = None
    ) -> None:
        """One try in the background."""
        timeout_ms = self._engine.settings.client.request_timeout_ms
        self._begin(offsets, timeout_ms, final=_ONE_TRY, callback=callback or _log_failure)

    async def wait_ended(self, timeout_s: float) -> bool:
        """Whether all commits that were begun ended in time."""
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        # One that was just begun is to be sent, even if there is no time to wait for it.
        await asyncio.sleep(0)
        while self._pending:
            left_s = deadline_s - asyncio.get_running_loop().time()
            if left_s <= 0:
                return False
            await asyncio.wait(self._pending, timeout=left_s)
        return True

    # Automatic commits

    def due_s(self) -> float:
        """Seconds until the next one is due."""
        return max(0, self.due_ms - self._engine.now_ms()) / 1000

    def begin_if_due(self) -> None:
        now_ms = self._engine.now_ms()
        if now_ms < self.due_ms:
            return
        next_ms = now_ms + self._engine.settings.auto_commit_interval_ms
        offsets = self._engine.cursors.committable()
        if not offsets:
            self.due_ms = next_ms
            return
        self.due_ms = NEVER_MS
        self.begin(offsets, lambda _, error: self._automatic_ended(next_ms, error))

    def _automatic_ended(self, next_ms: int, error: ClientError | None) -> None:
        self.due_ms = next_ms
        if error is None:
            self._failures = 0
            return
        self._failures += 1
        # Every failure of a row of them would be said several times a second.
        log.log(logging.WARNING if self._failures == 1 else logging.DEBUG, "offsets were not committed: %s", error)
        if error.retriable:
            client = self._engine.settings.client
            pause_ms = backoff_ms(self._failures, client.retry_backoff_ms, client.retry_backoff_max_ms)
            self.due_ms = self._engine.now_ms() + pause_ms
            # A poll that waits does not know of this yet.
            self._engine.notify()

    def begin_of(self, partitions: Collection[TopicPartition]) -> None:
        """Of partitions that are read no longer, though nobody else waits for them."""
        offsets = self._engine.cursors.committable(partitions)
        if self._is_automatic and offsets:
            self.begin(offsets)

    def begin_last(self, timeout_ms: int, partitions: Collection[TopicPartition] | None = None) -> CommitTask | None:
        """Of partitions that are about to go, or all: everything returned so far counts as done."""
        if not self._is_automatic:
            return None
        offsets = self._engine.cursors.committable(partitions)
        return self._begin(offsets, timeout_ms, final=_LAST_WORD, callback=_log_failure) if offsets else None

    # Turns

    def _begin(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        timeout_ms: int,
        *,
        final: frozenset[ErrorCode] = frozenset(),
        callback: CommitCallback | None = None,
    ) -> CommitTask:
        # Tasks start in the order they are made, so the order of these calls is that of the turns.
        task = self._engine.spawn(self._run(offsets, timeout_ms, final, callback))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)
        return task

    async def _run(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        timeout_ms: int,
        final: frozenset[ErrorCode],
        callback: CommitCallback | None,
    ) -> ClientError | None:
        error: ClientError | None = _closed()
        try:
            error = await self._in_turn(offsets, timeout_ms, final)
            return error
        finally:
            if error is None:
                self._tell(offsets)
            if callback is not None:
                try:
                    callback(offsets, error)
                except Exception:
                    log.exception("the callback of a commit failed")

    async def _in_turn(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int, final: frozenset[ErrorCode]
    ) -> ClientError | None:
        deadline_ms = self._engine.now_ms() + timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._turns.acquire()
        except TimeoutError:
            causes = self._engine.link.outages.causes()
            return ClientError(
                f"earlier commits were not done within {timeout_ms} ms"
                + (f"; last: cannot reach {causes}" if causes else ""),
                code=ErrorCode.REQUEST_TIMED_OUT,
            )
        try:
            await self._engine.coordinator.commit(offsets, max(0, deadline_ms - self._engine.now_ms()), final=final)
        except KafkaError as e:
            return as_client_error(e)
        except EncodeError as e:
            return ClientError(f"these offsets cannot be committed: {e}", code=ErrorCode.INVALID_REQUEST)
        finally:
            self._turns.release()
        return None

    def _tell(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.on_commit(offsets)
            except Exception:
                log.exception("the interceptor %r failed after a commit", interceptor)


def _log_failure(offsets: Mapping[TopicPartition, OffsetAndMetadata], error: ClientError | None) -> None:
    if error is not None:
        log.warning("offsets were not committed: %s", error)


def _closed() -> ClientClosedError:
    return ClientClosedError("the consumer was closed before this commit was done")
