"""DescribeGroups: state, protocol and members of classic groups."""

from __future__ import annotations

import asyncio
from functools import partial

from ottla.base.errors import KafkaError
from ottla.broker.authorizer import ResourceType
from ottla.broker.handler import Reply, RequestContext, message_handler
from ottla.broker.handlers.state_reads import or_refused, respond_when_committed
from ottla.wire.apis.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

FIRST_VERSION_WITH_OPERATIONS = 3


def respond(context: RequestContext, request: DescribeGroupsRequest) -> Reply:
    return respond_when_committed(
        [_describe(context, request, group_id) for group_id in request.groups],
        lambda groups: DescribeGroupsResponse(groups=groups),
    )


def _describe(
    context: RequestContext, request: DescribeGroupsRequest, group_id: str
) -> DescribedGroup | asyncio.Future[DescribedGroup]:
    runtime = context.broker.groups.runtime
    try:
        context.require(ResourceType.GROUP, group_id)
        shard = runtime.shard_for(group_id)
    except KafkaError as e:
        return _refused(group_id, e)
    group = shard.machine.describe(group_id, version=context.version)
    if context.version >= FIRST_VERSION_WITH_OPERATIONS:
        group.authorized_operations = context.authorized_operations(
            request.include_authorized_operations, ResourceType.GROUP, group_id
        )
    if runtime.is_committed(shard):
        return group
    return or_refused(runtime.when_committed(shard, group), partial(_refused, group_id))


def _refused(group_id: str, error: KafkaError) -> DescribedGroup:
    return DescribedGroup(error_code=error.code, error_message=error.message, group_id=group_id)


HANDLER = message_handler(DescribeGroupsRequest, (0, 6), respond)
