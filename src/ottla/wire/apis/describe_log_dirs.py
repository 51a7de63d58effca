"""DescribeLogDirs: what lies in a broker's log directories.

2 is flexible, 3 has an error for the whole response, 4 the size of the volume.
"""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, boolean, int16, int32, int64, string
from ottla.wire.message import Request, Response, Struct


class DescribableLogDirTopic(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class DescribeLogDirsRequest(Request, api=ApiKey.DESCRIBE_LOG_DIRS, versions="0-4", flexible="2+"):
    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable="0+")


class DescribeLogDirsPartition(Struct):
    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


class DescribeLogDirsTopic(Struct):
    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


class DescribeLogDirsResult(Struct):
    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64(versions="4+", default=-1, ignorable=True)
    usable_bytes: int = int64(versions="4+", default=-1, ignorable=True)


class DescribeLogDirsResponse(Response, api=ApiKey.DESCRIBE_LOG_DIRS, versions="0-4", flexible="2+"):
    throttle_time_ms: int = int32()
    error_code: int = int16(versions="3+", ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
