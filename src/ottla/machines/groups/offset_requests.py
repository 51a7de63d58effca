"""What a commit, a fetch, a deletion or the passing of time means for the offsets of one group.

Whether the caller may do it at all has been decided before; here each partition is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.base.errors import ErrorCode
from ottla.machines.coordinator import CoordinatorRecord
from ottla.machines.groups.config import GroupConfig, TopicView
from ottla.machines.groups.offsets import CommittedOffset, OffsetStore, PartitionKey, offset_record
from ottla.wire.apis.offset_commit import (
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.apis.offset_delete import (
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.wire.apis.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ottla.wire.apis.txn_offset_commit import (
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.wire.stored.consumer_offsets import OffsetCommitValue

# Found faster than a member of a class.
_NO_ERROR = ErrorCode.NONE

AgeRule = Callable[[str, int], int | None]
"""(topic, time of the commit) -> from when the offset's retention counts; None if it must not expire now."""

PartitionErrors = dict[str, list[tuple[int, ErrorCode]]]
"""By topic: (partition, what came of it)."""


class CommitTerms(NamedTuple):
    """What holds for every partition of one commit."""

    group_id: str
    now_ms: int
    expire_timestamp_ms: int = -1


def commit(
    topics: Sequence[OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic],
    terms: CommitTerms,
    config: GroupConfig,
    view: TopicView,
) -> tuple[list[CoordinatorRecord], PartitionErrors]:
    """Records for the partitions that can be stored; one that cannot does not keep the others from it."""
    records = []
    errors: PartitionErrors = {}
    for topic in topics:
        partition_count = view.partition_count(topic.name) or 0
        results = errors.setdefault(topic.name, [])
        for partition in topic.partitions:
            index = partition.partition_index
            metadata = partition.committed_metadata or ""
            error = commit_error(index, metadata, partition_count, config)
            results.append((index, error))
            if error is not ErrorCode.NONE:
                continue
            value = OffsetCommitValue(
                offset=partition.committed_offset,
                leader_epoch=partition.committed_leader_epoch,
                metadata=metadata,
                commit_timestamp=terms.now_ms,
                expire_timestamp=terms.expire_timestamp_ms,
            )
            records.append(offset_record(terms.group_id, (topic.name, index), value))
    return records, errors


def commit_error(index: int, metadata: str, partition_count: int, config: GroupConfig) -> ErrorCode:
    """What keeps the offset of one partition of a topic from being stored, or NONE."""
    if not 0 <= index < partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len(metadata) > config.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return _NO_ERROR


def all_failed(
    topics: Sequence[OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic], error: ErrorCode
) -> PartitionErrors:
    errors: PartitionErrors = {}
    for topic in topics:
        errors.setdefault(topic.name, []).extend((partition.partition_index, error) for partition in topic.partitions)
    return errors


def commit_response(errors: PartitionErrors) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=name,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=index, error_code=error) for index, error in results
                ],
            )
            for name, results in errors.items()
        ]
    )


def transactional_commit_response(errors: PartitionErrors) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=index, error_code=error)
                    for index, error in results
                ],
            )
            for name, results in errors.items()
        ]
    )


def fetch(store: OffsetStore, group: OffsetFetchRequestGroup, *, require_stable: bool) -> OffsetFetchResponseGroup:
    group_id = group.group_id
    if group.topics is not None:
        wanted = [(topic.name, topic.partition_indexes) for topic in group.topics]
    else:
        partitions = set(store.of_group(group_id))
        if require_stable:
            # "All" cannot be told yet if a transaction is about to add to it.
            partitions |= store.pending_of_group(group_id)
        wanted = _by_topic(partitions)
    topics = []
    for name, indexes in wanted:
        results = [_fetch_one(store, group_id, (name, index), require_stable) for index in indexes]
        topics.append(OffsetFetchResponseTopics(name=name, partitions=results))
    return OffsetFetchResponseGroup(group_id=group_id, topics=topics)


def _fetch_one(
    store: OffsetStore, group_id: str, partition: PartitionKey, require_stable: bool
) -> OffsetFetchResponsePartitions:
    index = partition[1]
    if require_stable and store.is_pending(group_id, partition):
        error = ErrorCode.UNSTABLE_OFFSET_COMMIT
        return OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, metadata="", error_code=error)
    committed = store.get(group_id, partition)
    if committed is None:
        return OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, metadata="")
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _by_topic(partitions: set[PartitionKey]) -> list[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for name, index in sorted(partitions):
        topics.setdefault(name, []).append(index)
    return list(topics.items())


def delete(
    store: OffsetStore,
    group_id: str,
    topics: Sequence[OffsetDeleteRequestTopic],
    view: TopicView,
    is_subscribed_to: Callable[[str], bool],
) -> tuple[list[CoordinatorRecord], OffsetDeleteResponse]:
    """Tombstones for what is there and not in use. A partition that has no offset is already as it should be."""
    records = []
    response = OffsetDeleteResponse()
    for topic in topics:
        partition_count = view.partition_count(topic.name) or 0
        subscribed = is_subscribed_to(topic.name)
        results = []
        for index in (partition.partition_index for partition in topic.partitions):
            key = (topic.name, index)
            error = ErrorCode.NONE
            if subscribed:
                error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            elif store.get(group_id, key) is not None or store.is_pending(group_id, key):
                records.append(offset_record(group_id, key, None))
            elif not 0 <= index < partition_count:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            results.append(OffsetDeleteResponsePartition(partition_index=index, error_code=error))
        response.topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=results))
    return records, response


def expired(
    store: OffsetStore, group_id: str, age_starts_ms: AgeRule, retention_ms: int, now_ms: int
) -> list[PartitionKey]:
    """Offsets that have outlived their retention and that no open transaction may still change (KIP-211)."""
    return [
        partition
        for partition, committed in sorted(store.of_group(group_id).items())
        if _is_old(committed, age_starts_ms(partition[0], committed.commit_timestamp_ms), retention_ms, now_ms)
        and not store.is_pending(group_id, partition)
    ]


def _is_old(committed: CommittedOffset, starts_ms: int | None, retention_ms: int, now_ms: int) -> bool:
    if starts_ms is None:
        return False
    if committed.expire_timestamp_ms >= 0:
        return now_ms >= committed.expire_timestamp_ms
    return now_ms - starts_ms >= retention_ms
