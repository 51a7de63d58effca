"""ListGroups: the groups this broker coordinates, by state and type where the client asks for some."""

from __future__ import annotations

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.authorizer import Operation, ResourceType
from ottla.broker.handler import RequestContext, message_handler
from ottla.wire.apis.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def respond(context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    runtime = context.broker.groups.runtime
    if runtime.is_loading:
        raise KafkaError(code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    sees_all = context.may(Operation.DESCRIBE, ResourceType.CLUSTER)
    groups: list[ListedGroup] = []
    for shard in runtime.active_shards():
        groups += [
            group
            for group in shard.machine.list(request.states_filter, request.types_filter)
            if sees_all or context.may(Operation.DESCRIBE, ResourceType.GROUP, group.group_id)
        ]
    return ListGroupsResponse(groups=sorted(groups, key=lambda group: group.group_id))


HANDLER = message_handler(ListGroupsRequest, (0, 5), respond)
