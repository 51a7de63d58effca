"""ConsumerGroupHeartbeat: joins, stays in and leaves a group of the new protocol (KIP-848).

A null field means unchanged since the last heartbeat. In 1 the client makes its own member id, and may subscribe with a
regular expression.
"""

from __future__ import annotations

from ottla.base.types import Uuid
from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, int16, int32, string, struct, uuid
from ottla.wire.message import Request, Response, Struct


class OwnedTopicPartitions(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array(int32)


class ConsumerGroupHeartbeatRequest(Request, api=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions="0-1", flexible="0+"):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(string, nullable="0+", default=None)
    subscribed_topic_regex: str | None = string(versions="1+", nullable="1+", default=None)
    server_assignor: str | None = string(nullable="0+", default=None)
    topic_partitions: list[OwnedTopicPartitions] | None = array(OwnedTopicPartitions, nullable="0+", default=None)


class AssignedTopicPartitions(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array(int32)


class Assignment(Struct):
    topic_partitions: list[AssignedTopicPartitions] = array(AssignedTopicPartitions)


class ConsumerGroupHeartbeatResponse(Response, api=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable="0+", default=None)
