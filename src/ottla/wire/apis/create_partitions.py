"""CreatePartitions: more partitions for a topic. 2 is flexible, 3 may be throttled by quota."""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, boolean, int16, int32, string
from ottla.wire.message import Request, Response, Struct


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = array(int32)


class CreatePartitionsTopic(Struct):
    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, nullable="0+")


class CreatePartitionsRequest(Request, api=ApiKey.CREATE_PARTITIONS, versions="0-3", flexible="2+"):
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(Struct):
    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class CreatePartitionsResponse(Response, api=ApiKey.CREATE_PARTITIONS, versions="0-3", flexible="2+"):
    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
