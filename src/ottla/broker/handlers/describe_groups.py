"""DescribeGroups: state, protocol and members of classic groups."""

from __future__ import annotations

from ottla.base.errors import KafkaError
from ottla.broker.authorizer import Operation, ResourceType
from ottla.broker.handler import RequestContext, message_handler
from ottla.wire.apis.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

FIRST_VERSION_WITH_OPERATIONS = 3


def respond(context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[_describe(context, request, group_id) for group_id in request.groups])


def _describe(context: RequestContext, request: DescribeGroupsRequest, group_id: str) -> DescribedGroup:
    try:
        context.require(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        machine = context.broker.groups.runtime.shard_for(group_id).machine
    except KafkaError as e:
        return DescribedGroup(error_code=e.code, error_message=e.message, group_id=group_id)
    group = machine.describe(group_id, version=context.version)
    if context.version >= FIRST_VERSION_WITH_OPERATIONS:
        group.authorized_operations = context.authorized_operations(
            request.include_authorized_operations, ResourceType.GROUP, group_id
        )
    return group


HANDLER = message_handler(DescribeGroupsRequest, (0, 6), respond)
