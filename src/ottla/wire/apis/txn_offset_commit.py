"""TxnOffsetCommit: a group's positions, stored as part of a transaction.

2 has leader epochs, 3 is flexible and names member and generation (KIP-447). In 5 the offsets partition joins the
transaction by itself (KIP-890).
"""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, int16, int32, int64, string
from ottla.wire.message import Request, Response, Struct


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(versions="2+", default=-1, ignorable=True)
    committed_metadata: str | None = string(nullable="0+")


class TxnOffsetCommitRequestTopic(Struct):
    name: str = string()
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


class TxnOffsetCommitRequest(Request, api=ApiKey.TXN_OFFSET_COMMIT, versions="0-5", flexible="3+"):
    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32(versions="3+", default=-1)
    member_id: str = string(versions="3+")
    group_instance_id: str | None = string(versions="3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class TxnOffsetCommitResponseTopic(Struct):
    name: str = string()
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


class TxnOffsetCommitResponse(Response, api=ApiKey.TXN_OFFSET_COMMIT, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
