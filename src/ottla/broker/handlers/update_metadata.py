"""UpdateMetadata: the controller tells what the cluster looks like."""

from __future__ import annotations

from ottla.broker.authorizer import ResourceType
from ottla.broker.handler import RequestContext, message_handler
from ottla.wire.apis.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


async def respond(context: RequestContext, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
    context.require(ResourceType.CLUSTER)
    response = await context.broker.orders.obey(request)
    assert isinstance(response, UpdateMetadataResponse)
    return response


HANDLER = message_handler(UpdateMetadataRequest, (5, 8), respond)
