"""DescribeCluster: id, brokers and controller of the cluster.

1 can ask for controllers instead of brokers, 2 can include fenced brokers.
"""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, boolean, int8, int16, int32, string
from ottla.wire.message import Request, Response, Struct


class DescribeClusterRequest(Request, api=ApiKey.DESCRIBE_CLUSTER, versions="0-2", flexible="0+"):
    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8(versions="1+", default=1)
    include_fenced_brokers: bool = boolean(versions="2+")


class DescribeClusterBroker(Struct):
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)
    is_fenced: bool = boolean(versions="2+", ignorable=True)


class DescribeClusterResponse(Response, api=ApiKey.DESCRIBE_CLUSTER, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    endpoint_type: int = int8(versions="1+", default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-0x80000000)
