# Written by `make generate` from src/ottla/client/aio/admin/topic_calls.py: change that instead.

"""Calls about topics, and about what their partitions hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.base.types import TopicPartition
from ottla.client.core.admin.outcomes import Outcomes
from ottla.client.core.admin.topics import TopicKey
from ottla.client.core.admin.types import (
    CreatedTopic,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    TopicDescription,
    TopicListing,
)
from ottla.client.core.consumer.offset_requests import OffsetAndTimestamp
from ottla.client.sync.admin.calls import AdminCalls


class TopicCalls(AdminCalls):
    # Topics

    def list_topics(self, *, include_internal: bool = False, timeout_ms: int | None = None) -> dict[str, TopicListing]:
        """Every topic, sorted by name."""
        return self._call(self._inner.list_topics(include_internal=include_internal, timeout_ms=timeout_ms))

    def describe_topics(
        self, topics: Iterable[TopicKey] | None = None, *, timeout_ms: int | None = None
    ) -> Outcomes[TopicKey, TopicDescription]:
        """Partitions and replicas of topics, which may be named by their ids; of all topics if none are named."""
        return self._call(self._inner.describe_topics(topics, timeout_ms=timeout_ms))

    def create_topics(
        self, topics: Iterable[NewTopic | str], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[str, CreatedTopic]:
        """A topic given as a name gets the brokers' numbers of partitions and replicas."""
        return self._call(self._inner.create_topics(topics, validate_only=validate_only, timeout_ms=timeout_ms))

    def delete_topics(self, topics: Iterable[TopicKey], *, timeout_ms: int | None = None) -> Outcomes[TopicKey, None]:
        """Topics by their names or ids."""
        return self._call(self._inner.delete_topics(topics, timeout_ms=timeout_ms))

    def create_partitions(
        self,
        totals: Mapping[str, NewPartitions | int],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, None]:
        """Makes topics grow to as many partitions as given."""
        return self._call(self._inner.create_partitions(totals, validate_only=validate_only, timeout_ms=timeout_ms))

    # Partitions

    def list_offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec | int],
        *,
        read_committed: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[TopicPartition, OffsetAndTimestamp]:
        """Offsets of places (`OffsetSpec`) or of times in milliseconds; -1 if no record is that young.

        With `read_committed` the latest offset is that before the first open transaction.
        """
        return self._call(self._inner.list_offsets(specs, read_committed=read_committed, timeout_ms=timeout_ms))

    def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> Outcomes[TopicPartition, int]:
        """Deletes the records before an offset (-1: all there are); gives the offset the partition now begins at."""
        return self._call(self._inner.delete_records(before, timeout_ms=timeout_ms))
