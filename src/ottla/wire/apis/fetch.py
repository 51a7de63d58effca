"""Fetch: record batches on their way out, to consumers and to followers.

3 limits the whole response, 4 brings isolation levels and the list of aborted transactions, 5 the log start offset,
7 fetch sessions (KIP-227), 9 the leader epoch the reader believes in, 10 zstd, 11 reading from a near replica
(KIP-392). 12 is flexible and lets a follower find where its log diverges (KIP-595). 13 names topics by id only. From 15
a follower introduces itself in a tagged struct instead of `replica_id`; 16 sends endpoints of new leaders, 17 the
directory id.
"""

from __future__ import annotations

from ottla.base.types import Uuid
from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, int8, int16, int32, int64, records, string, struct, uuid
from ottla.wire.message import Request, Response, Struct


class ReplicaState(Struct):
    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)


class FetchPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32(versions="9+", default=-1, ignorable=True)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32(versions="12+", default=-1)
    log_start_offset: int = int64(versions="5+", default=-1, ignorable=True)
    partition_max_bytes: int = int32()
    replica_directory_id: Uuid = uuid(tag=0, tagged="17+", ignorable=True)


class FetchTopic(Struct):
    topic: str = string(versions="0-12", ignorable=True)
    topic_id: Uuid = uuid(versions="13+", ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    topic: str = string(versions="7-12", ignorable=True)
    topic_id: Uuid = uuid(versions="13+", ignorable=True)
    partitions: list[int] = array(int32)


class FetchRequest(Request, api=ApiKey.FETCH, versions="0-17", flexible="12+"):
    cluster_id: str | None = string(tag=0, tagged="12+", nullable="12+", default=None, ignorable=True)
    replica_id: int = int32(versions="0-14", default=-1)
    replica_state: ReplicaState = struct(ReplicaState, tag=1, tagged="15+")
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(versions="3+", default=0x7FFFFFFF, ignorable=True)
    isolation_level: int = int8(versions="4+", ignorable=True)
    session_id: int = int32(versions="7+", ignorable=True)
    session_epoch: int = int32(versions="7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, versions="7+")
    rack_id: str = string(versions="11+", ignorable=True)


class EpochEndOffset(Struct):
    epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class SnapshotId(Struct):
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class AbortedTransaction(Struct):
    producer_id: int = int64()
    first_offset: int = int64()


class FetchablePartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(versions="4+", default=-1, ignorable=True)
    log_start_offset: int = int64(versions="5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = struct(EpochEndOffset, tag=0, tagged="12+")
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, tag=1, tagged="12+")
    snapshot_id: SnapshotId = struct(SnapshotId, tag=2, tagged="12+")
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction, versions="4+", nullable="4+", ignorable=True
    )
    preferred_read_replica: int = int32(versions="11+", default=-1)
    records: bytes | memoryview | None = records(nullable="0+")


class FetchableTopicResponse(Struct):
    topic: str = string(versions="0-12", ignorable=True)
    topic_id: Uuid = uuid(versions="13+", ignorable=True)
    partitions: list[FetchablePartitionResponse] = array(FetchablePartitionResponse)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="16+", default=None)


class FetchResponse(Response, api=ApiKey.FETCH, versions="0-17", flexible="12+"):
    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    error_code: int = int16(versions="7+", ignorable=True)
    session_id: int = int32(versions="7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, tag=0, tagged="16+")
