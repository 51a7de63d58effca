"""AlterPartitionReassignments: starts, changes or (with null replicas) cancels reassignments (KIP-455)."""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, int16, int32, string
from ottla.wire.message import Request, Response, Struct


class ReassignablePartition(Struct):
    partition_index: int = int32()
    replicas: list[int] | None = array(int32, nullable="0+", default=None)


class ReassignableTopic(Struct):
    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


class AlterPartitionReassignmentsRequest(
    Request, api=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions="0", flexible="0+"
):
    timeout_ms: int = int32(default=60000)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


class ReassignablePartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class ReassignableTopicResponse(Struct):
    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


class AlterPartitionReassignmentsResponse(
    Response, api=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions="0", flexible="0+"
):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
