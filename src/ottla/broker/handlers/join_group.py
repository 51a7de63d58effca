"""JoinGroup: a member asks to be part of the group's next generation, and waits for it."""

from __future__ import annotations

from ottla.base.errors import KafkaError
from ottla.broker.coordinators.pending_reply import PendingReply
from ottla.broker.handler import RequestContext
from ottla.broker.handlers.coordinated import group_handler
from ottla.machines.coordinator import Decision
from ottla.machines.groups.shard import GroupShard
from ottla.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse


def _join(shard: GroupShard, context: RequestContext, request: JoinGroupRequest, pending: PendingReply) -> Decision:
    return shard.join(
        request,
        pending,
        version=context.version,
        client_id=context.client_id or "",
        client_host=f"/{context.connection.peer_host}",
        new_member_id=context.broker.ids.member_id(),
        now_ms=context.broker.clock.wall_ms(),
    )


def _refused(context: RequestContext, request: JoinGroupRequest, error: KafkaError) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error.code, member_id=request.member_id, protocol_name="")


HANDLER = group_handler(JoinGroupRequest, (0, 9), _join, group_of=lambda request: request.group_id, on_error=_refused)
