"""Metadata: brokers, topics, partitions and who leads them.

An empty topic list means all topics in version 0 and none in later ones, where null means all. 1 brings the controller
and racks, 2 the cluster id, 4 the choice not to create topics, 5 offline replicas, 7 leader epochs, 8 authorised
operations. 9 is flexible. 10 answers with topic ids, but only 12 and later may ask by id. 11 dropped the operations on
the cluster (DescribeCluster has them). 13 has an error for the whole response.
"""

from __future__ import annotations

from ottla.base.types import Uuid
from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, boolean, int16, int32, string, uuid
from ottla.wire.message import Request, Response, Struct


class MetadataRequestTopic(Struct):
    topic_id: Uuid = uuid(versions="10+", ignorable=True)
    name: str | None = string(nullable="10+")


class MetadataRequest(Request, api=ApiKey.METADATA, versions="0-13", flexible="9+"):
    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean(versions="4+", default=True)
    include_cluster_authorized_operations: bool = boolean(versions="8-10")
    include_topic_authorized_operations: bool = boolean(versions="8+")


class MetadataResponseBroker(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(versions="1+", nullable="1+", default=None, ignorable=True)


class MetadataResponsePartition(Struct):
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(versions="7+", default=-1, ignorable=True)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    offline_replicas: list[int] = array(int32, versions="5+", ignorable=True)


class MetadataResponseTopic(Struct):
    error_code: int = int16()
    name: str | None = string(nullable="12+")
    topic_id: Uuid = uuid(versions="10+", ignorable=True)
    is_internal: bool = boolean(versions="1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32(versions="8+", default=-0x80000000)


class MetadataResponse(Response, api=ApiKey.METADATA, versions="0-13", flexible="9+"):
    throttle_time_ms: int = int32(versions="3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string(versions="2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = int32(versions="1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32(versions="8-10", default=-0x80000000)
    error_code: int = int16(versions="13+", ignorable=True)
