"""AlterPartitionReassignments: begins, changes or ends moves of partitions to other replicas (KIP-455)."""

from __future__ import annotations

import logging

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.authorizer import ResourceType, refusal
from ottla.broker.handler import RequestContext, message_handler
from ottla.machines.cluster.reassignment import ReassignmentAsked
from ottla.wire.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

log = logging.getLogger(__name__)


async def respond(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Replies once the moves are noted; they take as long as copying the records does."""
    wanted = {
        TopicPartition(topic.name, partition.partition_index): (
            None if partition.replicas is None else tuple(partition.replicas)
        )
        for topic in request.topics
        for partition in topic.partitions
    }
    refused = None if context.may(ResourceType.CLUSTER) else refusal(ResourceType.CLUSTER)
    outcome: dict[TopicPartition, KafkaError | None] = dict.fromkeys(wanted, refused)
    if refused is None:
        outcome = await context.broker.controller.submit(ReassignmentAsked(wanted))
        _log(wanted, outcome)
    return AlterPartitionReassignmentsResponse(
        error_code=ErrorCode.NONE if refused is None else refused.code,
        error_message=None if refused is None else refused.message,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _answer(index, outcome[TopicPartition(topic.name, index)])
                    for index in dict.fromkeys(partition.partition_index for partition in topic.partitions)
                ],
            )
            for topic in request.topics
        ],
    )


def _answer(index: int, error: KafkaError | None) -> ReassignablePartitionResponse:
    if error is None:
        return ReassignablePartitionResponse(partition_index=index, error_code=ErrorCode.NONE, error_message=None)
    return ReassignablePartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)


def _log(
    wanted: dict[TopicPartition, tuple[int, ...] | None], outcome: dict[TopicPartition, KafkaError | None]
) -> None:
    for tp, error in outcome.items():
        replicas = wanted[tp]
        if error is not None:
            log.info("%s is not moved: %s", tp, error.message)
        elif replicas is None:
            log.info("%s stays where it was: its move is called off", tp)
        else:
            log.info("%s is to have replicas %s", tp, list(replicas))


HANDLER = message_handler(AlterPartitionReassignmentsRequest, (0, 0), respond)
