"""ConsumerGroupHeartbeat (KIP-848): joins, stays in and leaves a group whose partitions the broker assigns."""

from __future__ import annotations

from ottla.broker.coordinators.pending_reply import PendingReply
from ottla.broker.handler import RequestContext
from ottla.broker.handlers.coordinated import group_handler, require_consumer_protocol
from ottla.machines.coordinator import Decision
from ottla.machines.groups.shard import GroupShard
from ottla.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


def _beat(
    shard: GroupShard, context: RequestContext, request: ConsumerGroupHeartbeatRequest, pending: PendingReply
) -> Decision:
    require_consumer_protocol(context)
    return shard.consumer_heartbeat(
        request,
        pending,
        version=context.version,
        client_id=context.client_id or "",
        client_host=f"/{context.connection.peer_host}",
        new_member_id=context.broker.ids.member_id(),
        now_ms=context.broker.clock.wall_ms(),
        connection=context.connection,
    )


HANDLER = group_handler(ConsumerGroupHeartbeatRequest, (0, 1), _beat, group_of=lambda request: request.group_id)
