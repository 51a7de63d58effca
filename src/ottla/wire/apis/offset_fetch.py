"""OffsetFetch: a group's stored positions.

From 2 a null topic list means all. 5 answers with leader epochs, 6 is flexible, 7 can wait for open transactions, 8
asks for many groups at once (the old fields are then unused), 9 names the member asking (KIP-848).
"""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, boolean, int16, int32, int64, string
from ottla.wire.message import Request, Response, Struct


class OffsetFetchRequestTopic(Struct):
    name: str = string()
    partition_indexes: list[int] = array(int32)


class OffsetFetchRequestTopics(Struct):
    name: str = string()
    partition_indexes: list[int] = array(int32)


class OffsetFetchRequestGroup(Struct):
    group_id: str = string()
    member_id: str | None = string(versions="9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int = int32(versions="9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, nullable="8+")


class OffsetFetchRequest(Request, api=ApiKey.OFFSET_FETCH, versions="0-9", flexible="6+"):
    group_id: str = string(versions="0-7")
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, versions="0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, versions="8+")
    require_stable: bool = boolean(versions="7+")


class OffsetFetchResponsePartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(versions="5-7", default=-1, ignorable=True)
    metadata: str | None = string(nullable="0-7")
    error_code: int = int16()


class OffsetFetchResponseTopic(Struct):
    name: str = string()
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


class OffsetFetchResponsePartitions(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1)
    metadata: str | None = string(nullable="8+")
    error_code: int = int16()


class OffsetFetchResponseTopics(Struct):
    name: str = string()
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions)


class OffsetFetchResponseGroup(Struct):
    group_id: str = string()
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics)
    error_code: int = int16()


class OffsetFetchResponse(Response, api=ApiKey.OFFSET_FETCH, versions="0-9", flexible="6+"):
    throttle_time_ms: int = int32(versions="3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, versions="0-7")
    error_code: int = int16(versions="2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, versions="8+")
