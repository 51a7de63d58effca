"""AlterPartition: a leader asks the controller for another in-sync set (KIP-497).

1 has the recovery state, 2 names topics by id, 3 sends broker epochs with the proposed members (KIP-903).
"""

from __future__ import annotations

from ottla.base.types import Uuid
from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, int8, int16, int32, int64, string, uuid
from ottla.wire.message import Request, Response, Struct


class AlterPartitionBrokerState(Struct):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


class AlterPartitionRequestPartition(Struct):
    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr: list[int] = array(int32, versions="0-2")
    new_isr_with_epochs: list[AlterPartitionBrokerState] = array(AlterPartitionBrokerState, versions="3+")
    leader_recovery_state: int = int8(versions="1+")
    partition_epoch: int = int32()


class AlterPartitionRequestTopic(Struct):
    topic_name: str = string(versions="0-1", ignorable=True)
    topic_id: Uuid = uuid(versions="2+", ignorable=True)
    partitions: list[AlterPartitionRequestPartition] = array(AlterPartitionRequestPartition)


class AlterPartitionRequest(Request, api=ApiKey.ALTER_PARTITION, versions="0-3", flexible="0+"):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[AlterPartitionRequestTopic] = array(AlterPartitionRequestTopic)


class AlterPartitionResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    leader_recovery_state: int = int8(versions="1+", ignorable=True)
    partition_epoch: int = int32()


class AlterPartitionResponseTopic(Struct):
    topic_name: str = string(versions="0-1", ignorable=True)
    topic_id: Uuid = uuid(versions="2+", ignorable=True)
    partitions: list[AlterPartitionResponsePartition] = array(AlterPartitionResponsePartition)


class AlterPartitionResponse(Response, api=ApiKey.ALTER_PARTITION, versions="0-3", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[AlterPartitionResponseTopic] = array(AlterPartitionResponseTopic)
