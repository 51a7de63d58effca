"""Heartbeat: a member of a classic group says that it is alive, and learns whether a rebalance is on."""

from __future__ import annotations

from ottla.broker.coordinators.pending_reply import PendingReply
from ottla.broker.handler import RequestContext
from ottla.broker.handlers.coordinated import group_handler
from ottla.machines.coordinator import Decision
from ottla.machines.groups.shard import GroupShard
from ottla.wire.apis.heartbeat import HeartbeatRequest


def _beat(shard: GroupShard, context: RequestContext, request: HeartbeatRequest, pending: PendingReply) -> Decision:
    return shard.heartbeat(request, pending, now_ms=context.broker.clock.wall_ms())


HANDLER = group_handler(HeartbeatRequest, (0, 4), _beat, group_of=lambda request: request.group_id)
