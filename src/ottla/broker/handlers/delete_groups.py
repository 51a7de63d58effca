"""DeleteGroups: removes empty groups with all their offsets."""

from __future__ import annotations

import asyncio

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.authorizer import ResourceType
from ottla.broker.coordinators.pending_reply import PendingResult
from ottla.broker.handler import RequestContext, message_handler
from ottla.wire.apis.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


async def respond(context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    results = await asyncio.gather(*(_delete(context, group_id) for group_id in dict.fromkeys(request.groups_names)))
    return DeleteGroupsResponse(results=list(results))


async def _delete(context: RequestContext, group_id: str) -> DeletableGroupResult:
    try:
        context.require(ResourceType.GROUP, group_id)
        runtime = context.broker.groups.runtime
        shard = runtime.shard_for(group_id)
        pending: PendingResult[ErrorCode] = PendingResult()
        runtime.run(shard, shard.machine.delete_group(group_id, pending, now_ms=context.broker.clock.wall_ms()))
        code = await pending.future
    except KafkaError as e:
        code = e.code
    return DeletableGroupResult(group_id=group_id, error_code=code)


HANDLER = message_handler(DeleteGroupsRequest, (0, 2), respond)
