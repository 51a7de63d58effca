"""UpdateMetadata: the controller spreads the cluster's state to all brokers.

1 sends endpoints instead of one host and port, 2 racks, 3 listener names, 4 offline replicas, 5 groups by topic and
knows broker epochs, 6 is flexible, 7 sends topic ids, 8 says which kind of controller it is.
"""

from __future__ import annotations

from ottla.base.types import Uuid
from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, boolean, int8, int16, int32, int64, string, uuid
from ottla.wire.message import Request, Response, Struct


class UpdateMetadataPartitionState(Struct):
    topic_name: str = string(versions="0-4", ignorable=True)
    partition_index: int = int32()
    controller_epoch: int = int32()
    leader: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    zk_version: int = int32()
    replicas: list[int] = array(int32)
    offline_replicas: list[int] = array(int32, versions="4+", ignorable=True)


class UpdateMetadataTopicState(Struct):
    topic_name: str = string()
    topic_id: Uuid = uuid(versions="7+", ignorable=True)
    partition_states: list[UpdateMetadataPartitionState] = array(UpdateMetadataPartitionState)


class UpdateMetadataEndpoint(Struct):
    port: int = int32()
    host: str = string()
    listener: str = string(versions="3+", ignorable=True)
    security_protocol: int = int16()


class UpdateMetadataBroker(Struct):
    id: int = int32()
    v0_host: str = string(versions="0", ignorable=True)
    v0_port: int = int32(versions="0", ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = array(UpdateMetadataEndpoint, versions="1+", ignorable=True)
    rack: str | None = string(versions="2+", nullable="0+", ignorable=True)


class UpdateMetadataRequest(Request, api=ApiKey.UPDATE_METADATA, versions="0-8", flexible="6+"):
    controller_id: int = int32()
    is_kraft_controller: bool = boolean(versions="8+")
    type: int = int8(tag=0, tagged="8+")
    controller_epoch: int = int32()
    broker_epoch: int = int64(versions="5+", default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = array(UpdateMetadataPartitionState, versions="0-4")
    topic_states: list[UpdateMetadataTopicState] = array(UpdateMetadataTopicState, versions="5+")
    live_brokers: list[UpdateMetadataBroker] = array(UpdateMetadataBroker)


class UpdateMetadataResponse(Response, api=ApiKey.UPDATE_METADATA, versions="0-8", flexible="6+"):
    error_code: int = int16()
