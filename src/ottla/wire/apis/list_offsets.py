"""ListOffsets: the offset at a timestamp, or at the start or end of a partition.

0 answered with a list of offsets; 1 and later with one offset and its timestamp. 2 knows isolation levels, 4 leader
epochs, 6 is flexible. 7, 8 and 9 only allow further special timestamps (-3, -4, -5). 10 has a time-out for answers that
must wait for remote storage.
"""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, int8, int16, int32, int64, string
from ottla.wire.message import Request, Response, Struct


class ListOffsetsPartition(Struct):
    partition_index: int = int32()
    current_leader_epoch: int = int32(versions="4+", default=-1, ignorable=True)
    timestamp: int = int64()
    max_num_offsets: int = int32(versions="0", default=1)


class ListOffsetsTopic(Struct):
    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


class ListOffsetsRequest(Request, api=ApiKey.LIST_OFFSETS, versions="0-10", flexible="6+"):
    replica_id: int = int32()
    isolation_level: int = int8(versions="2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32(versions="10+", ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    old_style_offsets: list[int] = array(int64, versions="0")
    timestamp: int = int64(versions="1+", default=-1)
    offset: int = int64(versions="1+", default=-1)
    leader_epoch: int = int32(versions="4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


class ListOffsetsResponse(Response, api=ApiKey.LIST_OFFSETS, versions="0-10", flexible="6+"):
    throttle_time_ms: int = int32(versions="2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
