"""AllocateProducerIds: the controller reserves a block of producer ids for another broker (KIP-730).

Our brokers take their blocks from the metadata store themselves; Apache Kafka's, in the same cluster, ask for them.
"""

from __future__ import annotations

import logging

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.authorizer import ResourceType
from ottla.broker.coordinators.producer_ids import BLOCK_SIZE
from ottla.broker.handler import RequestContext, message_handler
from ottla.machines.cluster.isr_changes import check_broker_epoch
from ottla.wire.apis.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

log = logging.getLogger(__name__)


async def respond(context: RequestContext, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
    context.require(ResourceType.CLUSTER)
    controller = context.broker.controller
    try:
        controller.require_active()
        if request.broker_id not in controller.state.brokers:
            raise KafkaError(code=ErrorCode.BROKER_ID_NOT_REGISTERED)
        check_broker_epoch(controller.state, request.broker_id, request.broker_epoch)
    except KafkaError as e:
        log.info("producer ids that broker %d asks for are refused: %s", request.broker_id, e.code.name)
        raise
    first = await context.broker.producer_ids.reserve_block(request.broker_id)
    return AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE)


HANDLER = message_handler(AllocateProducerIdsRequest, (0, 0), respond)
