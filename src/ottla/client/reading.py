"""Reading partitions from given offsets, without a group: where to start, fetching, and hiding aborted transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from ottla.base.errors import CorruptBatchError, KafkaError, kafka_error
from ottla.base.types import NIL_UUID, TopicPartition, Uuid
from ottla.client.cluster import LEADER_ERRORS, Cluster
from ottla.records.batch import BatchHeader, crc_is_valid, iter_headers
from ottla.records.control import ControlType, parse_control_key
from ottla.records.reader import Record, read_records
from ottla.wire.apis.fetch import (
    AbortedTransaction,
    FetchablePartitionResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from ottla.wire.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST = -1
EARLIEST = -2

_CONSUMER = -1
_LAST_VERSION_WITH_NAMES = 12


class Isolation(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class FetchedRecord(NamedTuple):
    topic_partition: TopicPartition
    batch: BatchHeader
    record: Record


async def find_offset(
    cluster: Cluster,
    topic_partition: TopicPartition,
    timestamp_ms: int,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> int:
    """The offset of the first record at or after a time, or of LATEST or EARLIEST; -1 if there is none."""
    request = ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=isolation,
        topics=[
            ListOffsetsTopic(
                name=topic_partition.topic,
                partitions=[ListOffsetsPartition(partition_index=topic_partition.partition, timestamp=timestamp_ms)],
            )
        ],
    )

    async def attempt() -> int:
        leader_id = cluster.leader_of(topic_partition)
        response = await cluster.request_broker(leader_id, request, ListOffsetsResponse)
        (result,) = response.topics[0].partitions
        if result.error_code:
            raise _partition_error(topic_partition, result.error_code)
        return result.offset

    return await cluster.retry(attempt, LEADER_ERRORS, refresh=[topic_partition.topic])


class PartitionReader:
    """Reads several partitions, each from its own position, which moves on with what is returned."""

    def __init__(
        self,
        cluster: Cluster,
        positions: Mapping[TopicPartition, int],
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        max_bytes: int = 52_428_800,
        partition_max_bytes: int = 1_048_576,
    ) -> None:
        self.positions = dict(positions)
        self._cluster = cluster
        self._isolation = isolation
        self._max_bytes = max_bytes
        self._partition_max_bytes = partition_max_bytes

    async def read(self, *, max_wait_ms: int = 500) -> list[FetchedRecord]:
        """What there is; waits up to `max_wait_ms` at the brokers if there is nothing."""

        async def attempt() -> list[FetchedRecord]:
            by_leader: dict[int, list[TopicPartition]] = {}
            for topic_partition in self.positions:
                by_leader.setdefault(self._cluster.leader_of(topic_partition), []).append(topic_partition)
            tasks = [
                asyncio.ensure_future(self._fetch(leader_id, partitions, max_wait_ms))
                for leader_id, partitions in by_leader.items()
            ]
            try:
                answers = await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
            found = [partition for answer in answers for partition in answer]
            # Every error is looked for before a position moves: a retry must not lose what came with the others.
            for topic_partition, answer in found:
                if answer.error_code:
                    raise _partition_error(topic_partition, answer.error_code)
            return [record for partition in found for record in self._take(*partition)]

        topics = {topic_partition.topic for topic_partition in self.positions}
        return await self._cluster.retry(attempt, LEADER_ERRORS, refresh=topics)

    async def _fetch(
        self, leader_id: int, partitions: Iterable[TopicPartition], max_wait_ms: int
    ) -> list[tuple[TopicPartition, FetchablePartitionResponse]]:
        connection = await self._cluster.connection_to(leader_id)
        topics: dict[str, FetchTopic] = {}
        for topic, partition in partitions:
            entry = topics.setdefault(topic, FetchTopic(topic=topic, topic_id=self._topic_id(topic)))
            entry.partitions.append(
                FetchPartition(
                    partition=partition,
                    fetch_offset=self.positions[TopicPartition(topic, partition)],
                    partition_max_bytes=self._partition_max_bytes,
                )
            )
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=self._max_bytes,
            isolation_level=self._isolation,
            topics=list(topics.values()),
        )
        version = connection.version_for(FetchRequest)
        names = {entry.topic_id: name for name, entry in topics.items()}
        if NIL_UUID in names:
            version = min(version, _LAST_VERSION_WITH_NAMES)
        timeout_ms = max_wait_ms + self._cluster.request_timeout_ms
        response = await connection.request(request, FetchResponse, version=version, timeout_ms=timeout_ms)
        if response.error_code:
            raise kafka_error(response.error_code)
        return [
            (TopicPartition(answer.topic or names[answer.topic_id], partition.partition_index), partition)
            for answer in response.responses
            for partition in answer.partitions
        ]

    def _topic_id(self, topic: str) -> Uuid:
        return self._cluster.view.topics[topic].topic_id

    def _take(self, topic_partition: TopicPartition, answer: FetchablePartitionResponse) -> list[FetchedRecord]:
        taken: list[FetchedRecord] = []
        data = memoryview(answer.records or b"")
        aborted = _AbortedRanges(answer.aborted_transactions or ())
        for position, header in iter_headers(data):
            batch = data[position : position + header.size]
            if not crc_is_valid(batch, header):
                raise CorruptBatchError(
                    f"{topic_partition}: the batch at offset {header.base_offset} fails its checksum"
                )
            records = read_records(batch, header)
            hidden = header.is_control
            if self._isolation is Isolation.READ_COMMITTED:
                hidden |= aborted.hides(header, records)
            if not hidden:
                start = self.positions[topic_partition]
                # A batch is sent whole, also if only its end was asked for.
                taken += [
                    FetchedRecord(topic_partition, header, record) for record in records if record.offset >= start
                ]
            self.positions[topic_partition] = header.next_offset
        return taken


class _AbortedRanges:
    """Which batches belong to aborted transactions: from a first offset on, until the producer's abort marker."""

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        self._upcoming = sorted(transactions, key=lambda transaction: transaction.first_offset, reverse=True)
        self._producer_ids: set[int] = set()

    def hides(self, header: BatchHeader, records: list[Record]) -> bool:
        while self._upcoming and self._upcoming[-1].first_offset <= header.last_offset:
            self._producer_ids.add(self._upcoming.pop().producer_id)
        if header.is_control:
            if records and parse_control_key(records[0].key) is ControlType.ABORT:
                self._producer_ids.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._producer_ids


def _partition_error(topic_partition: TopicPartition, error_code: int) -> KafkaError:
    error = kafka_error(error_code)
    return KafkaError(f"{topic_partition}: {error.message}", code=error.code)
