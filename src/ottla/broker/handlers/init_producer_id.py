"""InitProducerId: a producer's identity: the broker drops its duplicates and fences its forerunners (KIP-98)."""

from __future__ import annotations

from ottla.base.errors import InvalidRequestError
from ottla.broker.authorizer import ResourceType, refusal
from ottla.broker.handler import RequestContext, message_handler
from ottla.broker.handlers.transactional import ask
from ottla.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


async def respond(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    transactional_id = request.transactional_id
    producer_ids = context.broker.producer_ids
    if transactional_id is None:
        if not (context.may(ResourceType.CLUSTER) or context.may_any(ResourceType.TOPIC)):
            raise refusal(ResourceType.CLUSTER)
        return InitProducerIdResponse(producer_id=await producer_ids.next(), producer_epoch=0)
    context.require(ResourceType.TRANSACTIONAL_ID, transactional_id)
    if not transactional_id:
        raise InvalidRequestError("the transactional id is empty")
    fresh_id = await producer_ids.next()
    answer = await ask(
        context,
        transactional_id,
        lambda machine, token, now_ms: machine.init_producer_id(
            request, token, version=context.version, now_ms=now_ms, new_producer_id=fresh_id
        ),
    )
    return InitProducerIdResponse(
        error_code=answer.error_code, producer_id=answer.producer_id, producer_epoch=answer.producer_epoch
    )


HANDLER = message_handler(InitProducerIdRequest, (0, 5), respond)
