"""A consumer's commits: which offsets, in which order, and when they are due without being asked for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from ottla.base.types import TopicPartition
from ottla.client.aio.consumer_engine import NEVER_MS, ConsumerEngine
from ottla.client.aio.group_runner import GroupRunner
from ottla.client.core.consumer_record import ConsumerRecord
from ottla.client.core.cursors import OffsetAndMetadata
from ottla.client.core.rebalance import ConsumerInterceptor
from ottla.client.errors import ClientError

log = logging.getLogger(__name__)

Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata | int]
CommitCallback: TypeAlias = Callable[[Mapping[TopicPartition, OffsetAndMetadata], ClientError | None], object]


class Commits:
    def __init__(self, engine: ConsumerEngine, group: GroupRunner, interceptors: Sequence[ConsumerInterceptor]) -> None:
        self.due_ms = NEVER_MS
        """When the next automatic commit has to be begun."""
        self._engine = engine
        self._group = group
        self._interceptors = interceptors

    def start(self) -> None:
        if self._engine.settings.commits_automatically:
            self.due_ms = self._engine.now_ms() + self._engine.settings.auto_commit_interval_ms

    def chosen(self, offsets: Offsets | ConsumerRecord[Any, Any] | None) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a caller means: the positions, given offsets, or that a record and all before it are done."""
        self._engine.coordinator.group_id()
        if offsets is None:
            return self._engine.cursors.committable()
        if isinstance(offsets, ConsumerRecord):
            return {offsets.topic_partition: OffsetAndMetadata(offsets.offset + 1, "", offsets.leader_epoch)}
        chosen = {
            TopicPartition(*partition): offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
            for partition, offset in offsets.items()
        }
        for partition, offset in chosen.items():
            if offset.offset < 0:
                raise ValueError(f"the offset to commit for {partition} must not be negative, but was {offset.offset}")
        return chosen

    async def commit(self, offsets: dict[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None:
        """Tries until it is done or `timeout_ms` are over."""
        await self._engine.coordinator.commit(offsets, timeout_ms)
        self._tell(offsets)

    def begin(self, offsets: dict[TopicPartition, OffsetAndMetadata], callback: CommitCallback | None = None) -> None:
        """One try in the background."""
        self._engine.spawn(self._once(offsets, callback))

    def begin_if_due(self) -> None:
        now_ms = self._engine.now_ms()
        if now_ms < self.due_ms:
            return
        self.due_ms = now_ms + self._engine.settings.auto_commit_interval_ms
        offsets = self._engine.cursors.committable()
        if offsets:
            self.begin(offsets)

    async def _once(self, offsets: dict[TopicPartition, OffsetAndMetadata], callback: CommitCallback | None) -> None:
        error = await self._group.commit_in_turn(offsets)
        if error is None:
            self._tell(offsets)
        if callback is not None:
            callback(offsets, error)
        elif error is not None:
            log.warning("offsets were not committed: %s", error)

    def _tell(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for interceptor in self._interceptors:
            interceptor.on_commit(offsets)
