"""Requests about offsets, and what their answers say: listing, committing, fetching commits, ends of leader epochs.

Builds and reads messages only; whom to ask and when to ask again is the shell's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, SupportsInt

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.consumer.arguments import partition_of
from ottla.client.core.consumer.cursors import NO_EPOCH, OffsetAndMetadata
from ottla.wire.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from ottla.wire.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

FIRST_OFFSET_FETCH_BY_GROUP = 8
_CONSUMER = -1
_NOTHING_COMMITTED = -1


class OffsetAndTimestamp(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int | None = None


class Membership(NamedTuple):
    """On whose behalf offsets are committed. A consumer that is in no group has no member id."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None

    @property
    def is_member(self) -> bool:
        # Who has missed a generation, or was only given a name to join with, has an id and no place yet.
        return bool(self.member_id) and self.generation >= 0


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def offsets_to_commit(
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """What a caller gave, in one form. Brokers take negative offsets, and readers then begin anywhere."""
    if not isinstance(offsets, Mapping):
        raise ValueError(f"offsets are given by partition, such as {{('orders', 0): 7}}, but were {offsets!r}")
    chosen = {
        partition_of(partition): offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        for partition, offset in offsets.items()
    }
    for partition, offset in chosen.items():
        if not isinstance(offset.offset, SupportsInt):
            raise ValueError(f"the offset to commit for {partition} must be a number, but was {offset.offset!r}")
        if offset.offset < 0:
            raise ValueError(f"the offset to commit for {partition} must not be negative, but was {offset.offset}")
    return chosen


# ListOffsets


def list_offsets_request(timestamps: Mapping[TopicPartition, int], isolation: int) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=isolation,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=timestamps[TopicPartition(topic, index)])
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(timestamps).items()
        ],
    )


def read_list_offsets(response: ListOffsetsResponse) -> dict[TopicPartition, OffsetAndTimestamp | int]:
    """By partition what was found, or an error code. An offset of -1 means that there is no such record."""
    found: dict[TopicPartition, OffsetAndTimestamp | int] = {}
    for topic in response.topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code:
                found[partition] = answer.error_code
                continue
            offset = answer.old_style_offsets[0] if answer.old_style_offsets else answer.offset
            epoch = answer.leader_epoch if answer.leader_epoch >= 0 else None
            found[partition] = OffsetAndTimestamp(offset, answer.timestamp, epoch)
    return found


# OffsetForLeaderEpoch


def epoch_end_request(epochs: Mapping[TopicPartition, tuple[int, int]]) -> OffsetForLeaderEpochRequest:
    """`epochs` holds the epoch to ask about and the epoch the leader is believed to have."""
    return OffsetForLeaderEpochRequest(
        replica_id=_CONSUMER,
        topics=[
            OffsetForLeaderTopic(
                topic=topic,
                partitions=[
                    OffsetForLeaderPartition(
                        partition=index,
                        leader_epoch=epochs[TopicPartition(topic, index)][0],
                        current_leader_epoch=epochs[TopicPartition(topic, index)][1],
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(epochs).items()
        ],
    )


def read_epoch_ends(response: OffsetForLeaderEpochResponse) -> dict[TopicPartition, tuple[int, int] | int]:
    """By partition the epoch and where it ends, or an error code."""
    return {
        TopicPartition(topic.topic, answer.partition): (
            answer.error_code if answer.error_code else (answer.leader_epoch, answer.end_offset)
        )
        for topic in response.topics
        for answer in topic.partitions
    }


# OffsetCommit


def commit_request(membership: Membership, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=membership.group_id,
        generation_id_or_member_epoch=membership.generation,
        member_id=membership.member_id,
        group_instance_id=membership.instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[_commit_entry(index, offsets[TopicPartition(topic, index)]) for index in indexes],
            )
            for topic, indexes in by_topic(offsets).items()
        ],
    )


def _commit_entry(index: int, commit: OffsetAndMetadata) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=commit.offset,
        committed_leader_epoch=NO_EPOCH if commit.leader_epoch is None else commit.leader_epoch,
        committed_metadata=commit.metadata,
    )


def read_commit(response: OffsetCommitResponse) -> dict[TopicPartition, int]:
    """The error codes of the partitions that were not committed."""
    return {
        TopicPartition(topic.name, answer.partition_index): answer.error_code
        for topic in response.topics
        for answer in topic.partitions
        if answer.error_code
    }


# OffsetFetch


def committed_request(
    membership: Membership, partitions: Iterable[TopicPartition], version: int, *, require_stable: bool
) -> OffsetFetchRequest:
    topics = by_topic(partitions)
    if version < FIRST_OFFSET_FETCH_BY_GROUP:
        return OffsetFetchRequest(
            group_id=membership.group_id,
            topics=[OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
            require_stable=require_stable and version >= 7,
        )
    group = OffsetFetchRequestGroup(
        group_id=membership.group_id,
        member_id=membership.member_id or None,
        member_epoch=membership.generation,
        topics=[OffsetFetchRequestTopics(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
    )
    return OffsetFetchRequest(groups=[group], require_stable=require_stable)


class Committed(NamedTuple):
    error_code: int
    """About the whole group."""
    offsets: dict[TopicPartition, OffsetAndMetadata | None]
    """None where nothing is committed."""
    errors: dict[TopicPartition, int]


def read_committed_offsets(response: OffsetFetchResponse) -> Committed:
    answer = response.groups[0] if response.groups else response
    offsets: dict[TopicPartition, OffsetAndMetadata | None] = {}
    errors: dict[TopicPartition, int] = {}
    for topic in answer.topics:
        for entry in topic.partitions:
            partition = TopicPartition(topic.name, entry.partition_index)
            if entry.error_code != ErrorCode.NONE:
                errors[partition] = entry.error_code
            elif entry.committed_offset == _NOTHING_COMMITTED:
                offsets[partition] = None
            else:
                epoch = entry.committed_leader_epoch
                offsets[partition] = OffsetAndMetadata(
                    entry.committed_offset, entry.metadata or "", epoch if epoch >= 0 else None
                )
    return Committed(answer.error_code, offsets, errors)
