"""ListPartitionReassignments: which partitions are being moved, from where to where (KIP-455)."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.base.types import TopicPartition
from ottla.broker.authorizer import ResourceType
from ottla.broker.handler import RequestContext, message_handler
from ottla.machines.cluster.state import ClusterState, PartitionState
from ottla.wire.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def respond(context: RequestContext, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    context.require(ResourceType.CLUSTER)
    controller = context.broker.controller
    controller.require_active()
    topics: dict[str, OngoingTopicReassignment] = {}
    for tp, partition in _asked(controller.state, request):
        if partition.is_being_reassigned:
            topic = topics.setdefault(tp.topic, OngoingTopicReassignment(name=tp.topic))
            topic.partitions.append(
                OngoingPartitionReassignment(
                    partition_index=tp.partition,
                    replicas=list(partition.replicas),
                    adding_replicas=list(partition.adding),
                    removing_replicas=list(partition.removing),
                )
            )
    return ListPartitionReassignmentsResponse(topics=list(topics.values()))


def _asked(
    state: ClusterState, request: ListPartitionReassignmentsRequest
) -> Iterator[tuple[TopicPartition, PartitionState]]:
    if request.topics is None:
        yield from state.partitions()
        return
    for topic in request.topics:
        for index in dict.fromkeys(topic.partition_indexes):
            tp = TopicPartition(topic.name, index)
            partition = state.known(tp)
            if partition is not None:
                yield tp, partition


HANDLER = message_handler(ListPartitionReassignmentsRequest, (0, 0), respond)
