"""OffsetDelete (KIP-496): removes stored positions of topics nobody in the group reads any more."""

from __future__ import annotations

from ottla.broker.authorizer import Operation
from ottla.broker.handler import RequestContext
from ottla.broker.handlers.coordinated import group_handler
from ottla.broker.pending_reply import PendingReply
from ottla.machines.coordinator import Decision
from ottla.machines.groups.shard import GroupShard
from ottla.wire.apis.offset_delete import OffsetDeleteRequest


def _delete(
    shard: GroupShard, context: RequestContext, request: OffsetDeleteRequest, pending: PendingReply
) -> Decision:
    return shard.delete_offsets(request, pending, now_ms=context.broker.clock.wall_ms())


HANDLER = group_handler(
    OffsetDeleteRequest, (0, 0), _delete, group_of=lambda request: request.group_id, operation=Operation.DELETE
)
