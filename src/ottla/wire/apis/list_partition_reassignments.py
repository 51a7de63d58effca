"""ListPartitionReassignments: the reassignments under way (KIP-455)."""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, int16, int32, string
from ottla.wire.message import Request, Response, Struct


class ListPartitionReassignmentsTopics(Struct):
    name: str = string()
    partition_indexes: list[int] = array(int32)


class ListPartitionReassignmentsRequest(Request, api=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions="0", flexible="0+"):
    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable="0+", default=None
    )


class OngoingPartitionReassignment(Struct):
    partition_index: int = int32()
    replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)


class OngoingTopicReassignment(Struct):
    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


class ListPartitionReassignmentsResponse(
    Response, api=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions="0", flexible="0+"
):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
