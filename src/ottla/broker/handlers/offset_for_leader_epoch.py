"""OffsetForLeaderEpoch (KIP-101, KIP-279): where a leader's epoch ended, so that others can find where to cut."""

from __future__ import annotations

from ottla.base.errors import KafkaError
from ottla.broker.authorizer import ResourceType
from ottla.broker.handler import RequestContext, message_handler
from ottla.wire.apis.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def respond(context: RequestContext, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_end_offset(context, topic.topic, asked) for asked in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _end_offset(context: RequestContext, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    result = EpochEndOffset(partition=asked.partition)
    try:
        if not context.may(ResourceType.CLUSTER):
            context.require(ResourceType.TOPIC, topic)
        partition = context.broker.replicas.led(topic, asked.partition)
        partition.check_leader_epoch(asked.current_leader_epoch)
        log = partition.log
        result.leader_epoch, result.end_offset = log.epochs.end_offset_for(asked.leader_epoch, log.log_end_offset)
    except KafkaError as e:
        result.error_code = e.code
    return result


HANDLER = message_handler(OffsetForLeaderEpochRequest, (2, 4), respond)
