"""AlterReplicaLogDirs: moves replicas between a broker's log directories. 2 is flexible."""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, int16, int32, string
from ottla.wire.message import Request, Response, Struct


class AlterReplicaLogDirTopic(Struct):
    name: str = string()
    partitions: list[int] = array(int32)


class AlterReplicaLogDir(Struct):
    path: str = string()
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


class AlterReplicaLogDirsRequest(Request, api=ApiKey.ALTER_REPLICA_LOG_DIRS, versions="0-2", flexible="2+"):
    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = string()
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


class AlterReplicaLogDirsResponse(Response, api=ApiKey.ALTER_REPLICA_LOG_DIRS, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)
