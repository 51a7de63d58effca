"""AlterPartition: a leader asks the controller for another in-sync set (KIP-497)."""

from __future__ import annotations

from ottla.broker.authorizer import ResourceType
from ottla.broker.controller.alter_partition import alter_partition
from ottla.broker.handler import RequestContext, message_handler
from ottla.wire.apis.alter_partition import AlterPartitionRequest, AlterPartitionResponse


async def respond(context: RequestContext, request: AlterPartitionRequest) -> AlterPartitionResponse:
    context.require(ResourceType.CLUSTER)
    return await alter_partition(context.broker.controller, request)


HANDLER = message_handler(AlterPartitionRequest, (2, 3), respond)
