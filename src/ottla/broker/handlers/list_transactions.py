"""ListTransactions (KIP-664): the transactional ids this broker coordinates."""

from __future__ import annotations

import asyncio
from itertools import chain

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.authorizer import ResourceType
from ottla.broker.handler import Reply, RequestContext, message_handler
from ottla.broker.handlers.state_reads import respond_when_committed
from ottla.machines.transactions.states import STATES_BY_TEXT
from ottla.wire.apis.list_transactions import ListTransactionsRequest, ListTransactionsResponse, TransactionState


def respond(context: RequestContext, request: ListTransactionsRequest) -> Reply:
    runtime = context.broker.transactions.runtime
    if runtime.is_loading:
        raise KafkaError(code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    now_ms = context.broker.transactions.clock.wall_ms()
    answers: list[list[TransactionState] | asyncio.Future[list[TransactionState]]] = []
    for shard in runtime.active_shards():
        listed = shard.machine.list(request.state_filters, request.producer_id_filters, request.duration_filter, now_ms)
        found = [
            transaction
            for transaction in listed.transactions
            if context.may(ResourceType.TRANSACTIONAL_ID, transaction.transactional_id)
        ]
        answers.append(found if runtime.is_committed(shard) else runtime.when_committed(shard, found))
    return respond_when_committed(
        answers,
        lambda states: ListTransactionsResponse(
            unknown_state_filters=[text for text in request.state_filters if text not in STATES_BY_TEXT],
            transaction_states=list(chain.from_iterable(states)),
        ),
    )


HANDLER = message_handler(ListTransactionsRequest, (0, 1), respond)
