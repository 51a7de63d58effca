"""The committed offsets of all groups of one `__consumer_offsets` partition, and those that wait for a transaction.

Changed by replay and by transaction markers only. Who may commit, and when offsets expire, is decided elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.machines.coordinator import CoordinatorRecord
from ottla.wire.fused.offset_commit import KEY_VERSION, VALUE_VERSION
from ottla.wire.stored.consumer_offsets import OffsetCommitKey, OffsetCommitValue

NO_PRODUCER = -1

EXPIRING_OFFSET_VALUE_VERSION = 1
"""The only version that can say when an offset expires, which clients older than OffsetCommit v5 may ask for."""

PartitionKey = tuple[str, int]
"""Topic name and partition."""


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    """-1 unless the client asked for a retention of its own."""
    log_offset: int
    """Where the record stands: of two commits the later in the log wins, whenever its transaction ends."""


def offset_record(group_id: str, partition: PartitionKey, value: OffsetCommitValue | None) -> CoordinatorRecord:
    key = OffsetCommitKey(group=group_id, topic=partition[0], partition=partition[1])
    version = VALUE_VERSION
    if value is not None and value.expire_timestamp >= 0:
        version = EXPIRING_OFFSET_VALUE_VERSION
    return CoordinatorRecord(key, KEY_VERSION, value, version)


def committed_offset(value: OffsetCommitValue, log_offset: int) -> CommittedOffset:
    return CommittedOffset(
        value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.expire_timestamp, log_offset
    )


GroupOffsets = dict[PartitionKey, CommittedOffset]


class OffsetStore:
    def __init__(self) -> None:
        self._committed: dict[str, GroupOffsets] = {}
        self._pending: dict[int, dict[str, GroupOffsets]] = {}
        """By producer id: commits of open transactions (KIP-98)."""
        self._producers: dict[str, set[int]] = {}
        """By group id: the producers with pending commits for it."""

    def get(self, group_id: str, partition: PartitionKey) -> CommittedOffset | None:
        return self._committed.get(group_id, {}).get(partition)

    def of_group(self, group_id: str) -> GroupOffsets:
        return self._committed.get(group_id, {})

    def is_pending(self, group_id: str, partition: PartitionKey) -> bool:
        """Whether an open transaction may still change this offset."""
        return any(
            partition in self._pending[producer_id][group_id] for producer_id in self._producers.get(group_id, ())
        )

    def pending_of_group(self, group_id: str) -> set[PartitionKey]:
        return {
            partition
            for producer_id in self._producers.get(group_id, ())
            for partition in self._pending[producer_id][group_id]
        }

    def has_any(self, group_id: str) -> bool:
        return group_id in self._committed or group_id in self._producers

    def tombstones(self, group_id: str) -> list[CoordinatorRecord]:
        """For everything of the group, pending commits included."""
        partitions = self.pending_of_group(group_id) | self.of_group(group_id).keys()
        return [offset_record(group_id, partition, None) for partition in sorted(partitions)]

    def tombstones_of_topics(self, topics: set[str]) -> list[CoordinatorRecord]:
        return [
            offset_record(group_id, partition, None)
            for group_id in sorted(self._committed.keys() | self._producers.keys())
            for partition in sorted(self.pending_of_group(group_id) | self.of_group(group_id).keys())
            if partition[0] in topics
        ]

    def put(self, group_id: str, partition: PartitionKey, committed: CommittedOffset, producer_id: int) -> None:
        """With a producer, the offset counts once that producer's transaction is committed."""
        if producer_id < 0:
            offsets = self._committed.get(group_id)
            if offsets is None:
                offsets = self._committed[group_id] = {}
            offsets[partition] = committed
            return
        self._pending.setdefault(producer_id, {}).setdefault(group_id, {})[partition] = committed
        self._producers.setdefault(group_id, set()).add(producer_id)

    def end_transaction(self, producer_id: int, *, committed: bool) -> list[str]:
        """Applies or drops what the producer's transaction holds; says which groups it held offsets of."""
        groups = self._pending.pop(producer_id, {})
        for group_id, offsets in groups.items():
            self._forget_producer(group_id, producer_id)
            if not committed:
                continue
            present = self._committed.setdefault(group_id, {})
            for partition, pending in offsets.items():
                current = present.get(partition)
                if current is None or current.log_offset < pending.log_offset:
                    present[partition] = pending
        return list(groups)

    def forget(self, group_id: str, partition: PartitionKey) -> None:
        """A tombstone removes the offset and every pending commit of it."""
        offsets = self._committed.get(group_id)
        if offsets is not None:
            offsets.pop(partition, None)
            if not offsets:
                del self._committed[group_id]
        for producer_id in list(self._producers.get(group_id, ())):
            groups = self._pending[producer_id]
            groups[group_id].pop(partition, None)
            if not groups[group_id]:
                del groups[group_id]
                self._forget_producer(group_id, producer_id)
                if not groups:
                    del self._pending[producer_id]

    def _forget_producer(self, group_id: str, producer_id: int) -> None:
        producers = self._producers[group_id]
        producers.discard(producer_id)
        if not producers:
            del self._producers[group_id]
