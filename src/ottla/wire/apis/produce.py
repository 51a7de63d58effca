"""Produce: record batches on their way into partitions.

Versions 0-2 carried the old message formats; from 3 on only batches of magic 2 are sent, and a transaction can be
named. 2 answers with the append time, 5 with the log start offset, 8 with errors per record. 7 allows zstd. 9 is the
first flexible one. 10 tells a misdirected producer who leads now. 11 adds an error code, and in 12 a partition joins
the producer's transaction by being written to (KIP-890); neither changes the layout.
"""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, int16, int32, int64, records, string, struct
from ottla.wire.message import Request, Response, Struct


class PartitionProduceData(Struct):
    index: int = int32()
    records: bytes | memoryview | None = records(nullable="0+")


class TopicProduceData(Struct):
    name: str = string()
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Request, api=ApiKey.PRODUCE, versions="0-12", flexible="9+"):
    transactional_id: str | None = string(versions="3+", nullable="3+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = int32()
    batch_index_error_message: str | None = string(nullable="8+", default=None)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class PartitionProduceResponse(Struct):
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(versions="2+", default=-1, ignorable=True)
    log_start_offset: int = int64(versions="5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, versions="8+", ignorable=True)
    error_message: str | None = string(versions="8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, tag=0, tagged="10+")


class TopicProduceResponse(Struct):
    name: str = string()
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="10+", default=None)


class ProduceResponse(Response, api=ApiKey.PRODUCE, versions="0-12", flexible="9+"):
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, tag=0, tagged="10+")
