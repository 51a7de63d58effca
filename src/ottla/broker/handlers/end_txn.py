"""EndTxn: commits or aborts a transaction. Answered when the outcome is in the log, before the markers are written."""

from __future__ import annotations

from ottla.broker.authorizer import ResourceType
from ottla.broker.handler import RequestContext, message_handler
from ottla.broker.handlers.transactional import ask
from ottla.wire.apis.end_txn import EndTxnRequest, EndTxnResponse

FIRST_VERSION_WITH_BUMP = 5


async def respond(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    context.require(ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    broker = context.broker
    shard = broker.transactions.runtime.shard_for(request.transactional_id)
    fresh_id = None
    if context.version >= FIRST_VERSION_WITH_BUMP and shard.machine.needs_producer_id(request.transactional_id):
        fresh_id = await broker.producer_ids.next()
    answer = await ask(
        context,
        request.transactional_id,
        lambda machine, token, now_ms: machine.end_transaction(
            request, token, version=context.version, now_ms=now_ms, new_producer_id=fresh_id
        ),
    )
    return EndTxnResponse(
        error_code=answer.error_code, producer_id=answer.producer_id, producer_epoch=answer.producer_epoch
    )


HANDLER = message_handler(EndTxnRequest, (0, 5), respond)
