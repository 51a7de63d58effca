"""CreateTopics. 1 can validate only, 4 takes -1 for the broker's defaults, 5 is flexible and answers with the configs.

6 may be throttled by quota, 7 answers with the topic id.
"""

from __future__ import annotations

from ottla.base.types import Uuid
from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, boolean, int8, int16, int32, string, uuid
from ottla.wire.message import Request, Response, Struct


class CreatableReplicaAssignment(Struct):
    partition_index: int = int32()
    broker_ids: list[int] = array(int32)


class CreatableTopicConfig(Struct):
    name: str = string()
    value: str | None = string(nullable="0+")


class CreatableTopic(Struct):
    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


class CreateTopicsRequest(Request, api=ApiKey.CREATE_TOPICS, versions="0-7", flexible="5+"):
    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean(versions="1+")


class CreatableTopicConfigs(Struct):
    name: str = string()
    value: str | None = string(nullable="5+")
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()


class CreatableTopicResult(Struct):
    name: str = string()
    topic_id: Uuid = uuid(versions="7+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(versions="1+", nullable="0+", ignorable=True)
    topic_config_error_code: int = int16(tag=0, tagged="5+", ignorable=True)
    num_partitions: int = int32(versions="5+", default=-1, ignorable=True)
    replication_factor: int = int16(versions="5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, versions="5+", nullable="5+", ignorable=True
    )


class CreateTopicsResponse(Response, api=ApiKey.CREATE_TOPICS, versions="0-7", flexible="5+"):
    throttle_time_ms: int = int32(versions="2+", ignorable=True)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
