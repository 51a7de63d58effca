"""ListGroups: the groups this broker coordinates, by state and type where the client asks for some."""

from __future__ import annotations

import asyncio
from itertools import chain

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.authorizer import ResourceType
from ottla.broker.handler import Reply, RequestContext, message_handler
from ottla.broker.handlers.state_reads import respond_when_committed
from ottla.wire.apis.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def respond(context: RequestContext, request: ListGroupsRequest) -> Reply:
    runtime = context.broker.groups.runtime
    if runtime.is_loading:
        raise KafkaError(code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    sees_all = context.may(ResourceType.CLUSTER)
    answers: list[list[ListedGroup] | asyncio.Future[list[ListedGroup]]] = []
    for shard in runtime.active_shards():
        groups = [
            group
            for group in shard.machine.list(request.states_filter, request.types_filter)
            if sees_all or context.may(ResourceType.GROUP, group.group_id)
        ]
        answers.append(groups if runtime.is_committed(shard) else runtime.when_committed(shard, groups))
    return respond_when_committed(answers, _listed)


def _listed(answers: list[list[ListedGroup]]) -> ListGroupsResponse:
    return ListGroupsResponse(groups=sorted(chain.from_iterable(answers), key=lambda group: group.group_id))


HANDLER = message_handler(ListGroupsRequest, (0, 5), respond)
