"""OffsetCommit: a group's positions are stored.

1 names member and generation, 2 to 4 a retention time, 6 the leader epoch, 7 static members. 8 is flexible. In 9 the
generation may be a member epoch (KIP-848).
"""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, int16, int32, int64, string
from ottla.wire.message import Request, Response, Struct


class OffsetCommitRequestPartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(versions="6+", default=-1, ignorable=True)
    commit_timestamp: int = int64(versions="1", default=-1)
    committed_metadata: str | None = string(nullable="0+")


class OffsetCommitRequestTopic(Struct):
    name: str = string()
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


class OffsetCommitRequest(Request, api=ApiKey.OFFSET_COMMIT, versions="0-9", flexible="8+"):
    group_id: str = string()
    generation_id_or_member_epoch: int = int32(versions="1+", default=-1, ignorable=True)
    member_id: str = string(versions="1+", ignorable=True)
    group_instance_id: str | None = string(versions="7+", nullable="7+", default=None)
    retention_time_ms: int = int64(versions="2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


class OffsetCommitResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class OffsetCommitResponseTopic(Struct):
    name: str = string()
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


class OffsetCommitResponse(Response, api=ApiKey.OFFSET_COMMIT, versions="0-9", flexible="8+"):
    throttle_time_ms: int = int32(versions="3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
