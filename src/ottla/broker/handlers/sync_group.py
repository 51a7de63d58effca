"""SyncGroup: a member waits for its part of the assignment, which the leader's request brings."""

from __future__ import annotations

from ottla.broker.coordinators.pending_reply import PendingReply
from ottla.broker.handler import RequestContext
from ottla.broker.handlers.coordinated import group_handler
from ottla.machines.coordinator import Decision
from ottla.machines.groups.shard import GroupShard
from ottla.wire.apis.sync_group import SyncGroupRequest


def _sync(shard: GroupShard, context: RequestContext, request: SyncGroupRequest, pending: PendingReply) -> Decision:
    return shard.sync(request, pending, version=context.version, now_ms=context.broker.clock.wall_ms())


HANDLER = group_handler(SyncGroupRequest, (0, 5), _sync, group_of=lambda request: request.group_id)
