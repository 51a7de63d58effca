"""Calls about topics, and about what their partitions hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.base.types import TopicPartition
from ottla.client.aio.admin.calls import AdminCalls
from ottla.client.core.admin import partitions as admin_partitions
from ottla.client.core.admin import topics as admin_topics
from ottla.client.core.admin.arguments import as_list
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
from ottla.wire.apis.metadata import MetadataResponseTopic


class TopicCalls(AdminCalls):
    # Topics

    async def list_topics(
        self, *, include_internal: bool = False, timeout_ms: int | None = None
    ) -> dict[str, TopicListing]:
        """Every topic, sorted by name."""
        listed = [
            TopicListing(topic.name or "", topic.topic_id, topic.is_internal)
            for topic in await self._all_topics(timeout_ms)
        ]
        return {topic.name: topic for topic in sorted(listed) if include_internal or not topic.is_internal}

    async def describe_topics(
        self, topics: Iterable[TopicKey] | None = None, *, timeout_ms: int | None = None
    ) -> Outcomes[TopicKey, TopicDescription]:
        """Partitions and replicas of topics, which may be named by their ids; of all topics if none are named."""
        if topics is None:
            described = sorted(map(admin_topics.topic_description, await self._all_topics(timeout_ms)))
            return Outcomes({topic.name: topic for topic in described}, what="describe_topics")
        asked = as_list(topics, "topics")
        return await self._caller.any_broker(admin_topics.describe_topics_call(asked), asked, timeout_ms)

    async def _all_topics(self, timeout_ms: int | None) -> list[MetadataResponseTopic]:
        call = admin_topics.all_topics_call()
        outcomes = await self._caller.any_broker(call, [admin_topics.ALL_TOPICS], timeout_ms)
        return outcomes[admin_topics.ALL_TOPICS]

    async def create_topics(
        self, topics: Iterable[NewTopic | str], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[str, CreatedTopic]:
        """A topic given as a name gets the brokers' numbers of partitions and replicas."""
        new = [NewTopic(topic) if isinstance(topic, str) else topic for topic in as_list(topics, "topics")]
        call = admin_topics.create_topics_call(new, validate_only=validate_only, timeout_ms=self._request_ms)
        return await self._caller.controller(call, [topic.name for topic in new], timeout_ms)

    async def delete_topics(
        self, topics: Iterable[TopicKey], *, timeout_ms: int | None = None
    ) -> Outcomes[TopicKey, None]:
        """Topics by their names or ids."""
        asked = as_list(topics, "topics")
        call = admin_topics.delete_topics_call(asked, timeout_ms=self._request_ms)
        return await self._caller.controller(call, asked, timeout_ms)

    async def create_partitions(
        self,
        totals: Mapping[str, NewPartitions | int],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, None]:
        """Makes topics grow to as many partitions as given."""
        wanted = {name: NewPartitions(new) if isinstance(new, int) else new for name, new in totals.items()}
        call = admin_topics.create_partitions_call(wanted, validate_only=validate_only, timeout_ms=self._request_ms)
        return await self._caller.controller(call, wanted, timeout_ms)

    # Partitions

    async def list_offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec | int],
        *,
        read_committed: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[TopicPartition, OffsetAndTimestamp]:
        """Offsets of places (`OffsetSpec`) or of times in milliseconds; -1 if no record is that young.

        With `read_committed` the latest offset is that before the first open transaction.
        """
        wanted = {TopicPartition(*partition): int(spec) for partition, spec in specs.items()}
        call = admin_partitions.list_offsets_call(wanted, read_committed=read_committed)
        return await self._caller.leaders(call, wanted, timeout_ms)

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> Outcomes[TopicPartition, int]:
        """Deletes the records before an offset (-1: all there are); gives the offset the partition now begins at."""
        wanted = {TopicPartition(*partition): offset for partition, offset in before.items()}
        call = admin_partitions.delete_records_call(wanted, timeout_ms=self._request_ms)
        return await self._caller.leaders(call, wanted, timeout_ms)
