"""OffsetForLeaderEpoch: where an epoch ended, so that followers and consumers find diverging logs.

1 answers with the epoch itself, 2 checks the leader epoch, 3 tells who asks, 4 is flexible.
"""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, int16, int32, int64, string
from ottla.wire.message import Request, Response, Struct


class OffsetForLeaderPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32(versions="2+", default=-1, ignorable=True)
    leader_epoch: int = int32()


class OffsetForLeaderTopic(Struct):
    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


class OffsetForLeaderEpochRequest(Request, api=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="0-4", flexible="4+"):
    replica_id: int = int32(versions="3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


class EpochEndOffset(Struct):
    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(versions="1+", default=-1, ignorable=True)
    end_offset: int = int64(default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


class OffsetForLeaderEpochResponse(Response, api=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="0-4", flexible="4+"):
    throttle_time_ms: int = int32(versions="2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
