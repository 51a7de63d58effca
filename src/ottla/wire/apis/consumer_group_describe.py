"""ConsumerGroupDescribe: state and members of groups of the new protocol (KIP-848). 1 has the member's type."""

from __future__ import annotations

from ottla.base.types import Uuid
from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, boolean, int8, int16, int32, string, struct, uuid
from ottla.wire.message import Request, Response, Struct


class ConsumerGroupDescribeRequest(Request, api=ApiKey.CONSUMER_GROUP_DESCRIBE, versions="0-1", flexible="0+"):
    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


class DescribedTopicPartitions(Struct):
    topic_id: Uuid = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


class DescribedAssignment(Struct):
    topic_partitions: list[DescribedTopicPartitions] = array(DescribedTopicPartitions)


class DescribedMember(Struct):
    member_id: str = string()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+", default=None)
    assignment: DescribedAssignment = struct(DescribedAssignment)
    target_assignment: DescribedAssignment = struct(DescribedAssignment)
    member_type: int = int8(versions="1+", default=-1, ignorable=True)


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[DescribedMember] = array(DescribedMember)
    authorized_operations: int = int32(default=-0x80000000)


class ConsumerGroupDescribeResponse(Response, api=ApiKey.CONSUMER_GROUP_DESCRIBE, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
