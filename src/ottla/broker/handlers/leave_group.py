"""LeaveGroup: members go; the others rebalance."""

from __future__ import annotations

from ottla.broker.coordinators.pending_reply import PendingReply
from ottla.broker.handler import RequestContext
from ottla.broker.handlers.coordinated import group_handler
from ottla.machines.coordinator import Decision
from ottla.machines.groups.shard import GroupShard
from ottla.wire.apis.leave_group import LeaveGroupRequest


def _leave(shard: GroupShard, context: RequestContext, request: LeaveGroupRequest, pending: PendingReply) -> Decision:
    return shard.leave(request, pending, version=context.version, now_ms=context.broker.clock.wall_ms())


HANDLER = group_handler(LeaveGroupRequest, (0, 5), _leave, group_of=lambda request: request.group_id)
