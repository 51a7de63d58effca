"""OffsetDelete (KIP-496): removes stored positions of topics nobody in the group reads any more."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.base.errors import ErrorCode
from ottla.broker.coordinators.pending_reply import PendingReply
from ottla.broker.handler import RequestContext
from ottla.broker.handlers.coordinated import by_access, group_handler
from ottla.machines.coordinator import Decision
from ottla.machines.groups.shard import GroupShard
from ottla.wire.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def _delete(
    shard: GroupShard, context: RequestContext, request: OffsetDeleteRequest, pending: PendingReply
) -> Decision:
    request.topics, refused = by_access(context, request.topics)
    if refused:
        pending.shape_with(lambda response: _with_refused(response, refused))
    return shard.delete_offsets(request, pending, now_ms=context.broker.clock.wall_ms())


def _with_refused(response: OffsetDeleteResponse, refused: Sequence[OffsetDeleteRequestTopic]) -> OffsetDeleteResponse:
    if response.error_code:
        return response
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    response.topics += [
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                OffsetDeleteResponsePartition(partition_index=partition.partition_index, error_code=code)
                for partition in topic.partitions
            ],
        )
        for topic in refused
    ]
    return response


HANDLER = group_handler(OffsetDeleteRequest, (0, 0), _delete, group_of=lambda request: request.group_id)
