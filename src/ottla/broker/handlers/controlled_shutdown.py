"""ControlledShutdown: a broker that is about to stop has others take over what it leads."""

from __future__ import annotations

import logging

from ottla.base.errors import KafkaError
from ottla.broker.authorizer import ResourceType
from ottla.broker.handler import RequestContext, message_handler
from ottla.machines.cluster.controller import ShutdownAsked
from ottla.wire.apis.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)

log = logging.getLogger(__name__)


async def respond(context: RequestContext, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
    context.require(ResourceType.CLUSTER)
    controller = context.broker.controller
    try:
        remaining = await controller.submit(ShutdownAsked(request.broker_id, request.broker_epoch))
    except KafkaError as e:
        log.info("broker %d asks to be relieved and is refused: %s", request.broker_id, e.code.name)
        raise
    return ControlledShutdownResponse(
        remaining_partitions=[RemainingPartition(topic_name=topic, partition_index=index) for topic, index in remaining]
    )


HANDLER = message_handler(ControlledShutdownRequest, (2, 3), respond)
