"""StopReplica: the controller tells a broker to stop, and perhaps delete, replicas.

1 groups by topic and knows broker epochs, 2 is flexible, 3 has a leader epoch and the delete flag per partition.
"""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, boolean, int16, int32, int64, string
from ottla.wire.message import Request, Response, Struct


class StopReplicaPartitionV0(Struct):
    topic_name: str = string()
    partition_index: int = int32()


class StopReplicaTopicV1(Struct):
    name: str = string()
    partition_indexes: list[int] = array(int32)


class StopReplicaPartitionState(Struct):
    partition_index: int = int32()
    leader_epoch: int = int32(default=-1)
    delete_partition: bool = boolean()


class StopReplicaTopicState(Struct):
    topic_name: str = string()
    partition_states: list[StopReplicaPartitionState] = array(StopReplicaPartitionState)


class StopReplicaRequest(Request, api=ApiKey.STOP_REPLICA, versions="0-4", flexible="2+"):
    controller_id: int = int32()
    is_kraft_controller: bool = boolean(versions="4+")
    controller_epoch: int = int32()
    broker_epoch: int = int64(versions="1+", default=-1, ignorable=True)
    delete_partitions: bool = boolean(versions="0-2")
    ungrouped_partitions: list[StopReplicaPartitionV0] = array(StopReplicaPartitionV0, versions="0")
    topics: list[StopReplicaTopicV1] = array(StopReplicaTopicV1, versions="1-2")
    topic_states: list[StopReplicaTopicState] = array(StopReplicaTopicState, versions="3+")


class StopReplicaPartitionError(Struct):
    topic_name: str = string()
    partition_index: int = int32()
    error_code: int = int16()


class StopReplicaResponse(Response, api=ApiKey.STOP_REPLICA, versions="0-4", flexible="2+"):
    error_code: int = int16()
    partition_errors: list[StopReplicaPartitionError] = array(StopReplicaPartitionError)
