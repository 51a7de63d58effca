"""OffsetCommit: stores a group's positions."""

from __future__ import annotations

from ottla.base.errors import KafkaError
from ottla.broker.authorizer import Operation, ResourceType
from ottla.broker.handler import RequestContext
from ottla.broker.handlers.coordinated import group_handler
from ottla.broker.pending_reply import PendingReply
from ottla.machines.coordinator import Decision
from ottla.machines.groups.shard import GroupShard
from ottla.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)


def _commit(
    shard: GroupShard, context: RequestContext, request: OffsetCommitRequest, pending: PendingReply
) -> Decision:
    for topic in request.topics:
        context.require(Operation.READ, ResourceType.TOPIC, topic.name)
    return shard.commit_offsets(request, pending, version=context.version, now_ms=context.broker.clock.wall_ms())


def _refused(context: RequestContext, request: OffsetCommitRequest, error: KafkaError) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=error.code)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


HANDLER = group_handler(
    OffsetCommitRequest,
    (2, 9),
    _commit,
    group_of=lambda request: request.group_id,
    on_error=_refused,
    allows_empty_group=True,
)
