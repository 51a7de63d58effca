"""LeaderAndIsr: the controller gives this broker roles."""

from __future__ import annotations

from ottla.broker.authorizer import ResourceType
from ottla.broker.handler import RequestContext, message_handler
from ottla.wire.apis.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse


async def respond(context: RequestContext, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
    context.require(ResourceType.CLUSTER)
    response = await context.broker.orders.obey(request)
    assert isinstance(response, LeaderAndIsrResponse)
    return response


HANDLER = message_handler(LeaderAndIsrRequest, (2, 7), respond)
