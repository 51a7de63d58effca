"""The controller's requests, made of its state: LeaderAndIsr, UpdateMetadata, StopReplica."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.base.types import NIL_UUID, TopicPartition
from ottla.machines.cluster.image import LEADER_DURING_DELETE
from ottla.machines.cluster.state import ClusterState, LiveBroker
from ottla.wire.apis.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from ottla.wire.apis.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from ottla.wire.apis.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
_UNKNOWN_BROKER_EPOCH = -1
_LEADER_EPOCH_DURING_DELETE = -2


class Sender(NamedTuple):
    controller_id: int
    controller_epoch: int


def leader_and_isr(
    state: ClusterState, sender: Sender, broker_id: int, partitions: Mapping[TopicPartition, bool]
) -> LeaderAndIsrRequest | None:
    """The roles of `partitions`, each with whether it is new; None if the broker has none of them any more."""
    by_topic: dict[str, list[LeaderAndIsrPartitionState]] = {}
    for tp, is_new in partitions.items():
        partition = state.partition(tp)
        if partition is None or tp.topic in state.pending_deletions or broker_id not in partition.replicas:
            continue
        by_topic.setdefault(tp.topic, []).append(
            LeaderAndIsrPartitionState(
                partition_index=tp.partition,
                controller_epoch=sender.controller_epoch,
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                isr=list(partition.isr),
                partition_epoch=partition.partition_epoch,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding),
                removing_replicas=list(partition.removing),
                is_new=is_new or (broker_id in partition.adding and broker_id not in partition.isr),
            )
        )
    if not by_topic:
        return None
    return LeaderAndIsrRequest(
        controller_id=sender.controller_id,
        controller_epoch=sender.controller_epoch,
        broker_epoch=_broker_epoch(state, broker_id),
        topic_states=[
            LeaderAndIsrTopicState(topic_name=name, topic_id=state.topics[name].topic_id, partition_states=states)
            for name, states in by_topic.items()
        ],
    )


def update_metadata(
    state: ClusterState, sender: Sender, broker_id: int, partitions: Iterable[TopicPartition]
) -> UpdateMetadataRequest:
    """Who is alive, and who leads `partitions`: nobody, for good, if they are gone or going to go."""
    by_topic: dict[str, list[UpdateMetadataPartitionState]] = {}
    for tp in partitions:
        by_topic.setdefault(tp.topic, []).append(_partition_metadata(state, sender, tp))
    return UpdateMetadataRequest(
        controller_id=sender.controller_id,
        controller_epoch=sender.controller_epoch,
        broker_epoch=_broker_epoch(state, broker_id),
        topic_states=[
            UpdateMetadataTopicState(
                topic_name=name,
                topic_id=state.topics[name].topic_id if name in state.topics else NIL_UUID,
                partition_states=states,
            )
            for name, states in by_topic.items()
        ],
        live_brokers=[_live_broker(each, broker) for each, broker in sorted(state.brokers.items())],
    )


def _partition_metadata(state: ClusterState, sender: Sender, tp: TopicPartition) -> UpdateMetadataPartitionState:
    partition = state.partition(tp)
    if partition is None:
        return UpdateMetadataPartitionState(
            partition_index=tp.partition,
            controller_epoch=sender.controller_epoch,
            leader=LEADER_DURING_DELETE,
        )
    return UpdateMetadataPartitionState(
        partition_index=tp.partition,
        controller_epoch=sender.controller_epoch,
        leader=LEADER_DURING_DELETE if tp.topic in state.pending_deletions else partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        zk_version=partition.partition_epoch,
        replicas=list(partition.replicas),
        offline_replicas=[
            replica for replica in partition.replicas if replica not in state.brokers or state.is_offline(tp, replica)
        ],
    )


def stop_replica(
    state: ClusterState, sender: Sender, broker_id: int, partitions: Iterable[TopicPartition]
) -> StopReplicaRequest | None:
    """Stops and deletes the broker's replicas of `partitions`; None if it is to have all of them again."""
    by_topic: dict[str, list[StopReplicaPartitionState]] = {}
    for tp in partitions:
        partition = state.known(tp)
        if partition is not None and broker_id in partition.replicas:
            continue
        epoch = _LEADER_EPOCH_DURING_DELETE if partition is None else partition.leader_epoch
        by_topic.setdefault(tp.topic, []).append(
            StopReplicaPartitionState(partition_index=tp.partition, leader_epoch=epoch, delete_partition=True)
        )
    if not by_topic:
        return None
    return StopReplicaRequest(
        controller_id=sender.controller_id,
        controller_epoch=sender.controller_epoch,
        broker_epoch=_broker_epoch(state, broker_id),
        topic_states=[
            StopReplicaTopicState(topic_name=name, partition_states=stops) for name, stops in by_topic.items()
        ],
    )


def _broker_epoch(state: ClusterState, broker_id: int) -> int:
    broker = state.brokers.get(broker_id)
    return broker.epoch if broker is not None else _UNKNOWN_BROKER_EPOCH


def _live_broker(broker_id: int, broker: LiveBroker) -> UpdateMetadataBroker:
    return UpdateMetadataBroker(
        id=broker_id,
        endpoints=[
            UpdateMetadataEndpoint(
                port=endpoint.port,
                host=endpoint.host,
                listener=endpoint.listener,
                security_protocol=SECURITY_PROTOCOLS[protocol],
            )
            for endpoint, protocol in broker.endpoints
        ],
        rack=broker.rack,
    )
