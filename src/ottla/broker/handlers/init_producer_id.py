"""InitProducerId: a producer's identity, which lets the broker drop its duplicates (KIP-98)."""

from __future__ import annotations

from ottla.base.errors import ErrorCode, InvalidRequestError, KafkaError
from ottla.broker.authorizer import Operation, ResourceType
from ottla.broker.handler import RequestContext, message_handler
from ottla.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


async def respond(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        if not request.transactional_id:
            raise InvalidRequestError("the transactional id is empty")
        # Clients learn from FindCoordinator where transactions are served; this broker has no coordinator to name.
        raise KafkaError(code=ErrorCode.NOT_COORDINATOR)
    context.require(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
    return InitProducerIdResponse(producer_id=await context.broker.producer_ids.next(), producer_epoch=0)


HANDLER = message_handler(InitProducerIdRequest, (0, 5), respond)
