"""What applications see of a rebalance: the listener's calls, and the order in which partitions change hands."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Iterable, Mapping
from enum import Enum
from typing import NamedTuple, Protocol

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.cursors import OffsetAndMetadata
from ottla.client.core.consumer.record import AnyRecord


class RebalanceListener:
    """Derive from this and give it to `subscribe`. Calls come from within `poll`, `close` and `unsubscribe`; with
    `ottla.aio` they may be coroutines, and those of `unsubscribe` come from a task."""

    def on_revoked(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """Partitions are about to go to another member: the last moment to commit what was processed."""
        return None

    def on_assigned(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """Partitions have come; reading starts at the committed offsets unless they are sought elsewhere here."""
        return None

    def on_lost(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """Partitions have gone, and others may be reading them already, so commits would fail."""
        return self.on_revoked(partitions)


class ConsumerInterceptor(Protocol):
    """Sees the records of every poll, and the offsets that were committed, in the order of interceptors."""

    def on_consume(self, records: list[AnyRecord]) -> list[AnyRecord]:
        """The records that `poll` returns."""

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None: ...


class Change(Enum):
    REVOKED = "revoked"
    ASSIGNED = "assigned"
    LOST = "lost"


class Difference(NamedTuple):
    """From what a member holds to what it shall hold."""

    revoked: frozenset[TopicPartition]
    added: frozenset[TopicPartition]


def difference(held: Iterable[TopicPartition], wanted: Iterable[TopicPartition]) -> Difference:
    before, after = frozenset(held), frozenset(wanted)
    return Difference(before - after, after - before)
