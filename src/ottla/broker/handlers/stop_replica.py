"""StopReplica: the controller takes roles away, and has replicas deleted."""

from __future__ import annotations

from ottla.broker.authorizer import ResourceType
from ottla.broker.handler import RequestContext, message_handler
from ottla.wire.apis.stop_replica import StopReplicaRequest, StopReplicaResponse


async def respond(context: RequestContext, request: StopReplicaRequest) -> StopReplicaResponse:
    context.require(ResourceType.CLUSTER)
    response = await context.broker.orders.obey(request)
    assert isinstance(response, StopReplicaResponse)
    return response


HANDLER = message_handler(StopReplicaRequest, (3, 4), respond)
