"""ElectLeaders: preferred or unclean election for partitions. 1 names the kind of election, 2 is flexible."""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, int8, int16, int32, string
from ottla.wire.message import Request, Response, Struct


class TopicPartitions(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class ElectLeadersRequest(Request, api=ApiKey.ELECT_LEADERS, versions="0-2", flexible="2+"):
    election_type: int = int8(versions="1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+")
    timeout_ms: int = int32(default=60000)


class PartitionResult(Struct):
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class ReplicaElectionResult(Struct):
    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


class ElectLeadersResponse(Response, api=ApiKey.ELECT_LEADERS, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32()
    error_code: int = int16(versions="1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
