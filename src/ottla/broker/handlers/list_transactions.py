"""ListTransactions (KIP-664): the transactional ids this broker coordinates."""

from __future__ import annotations

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.authorizer import Operation, ResourceType
from ottla.broker.handler import RequestContext, message_handler
from ottla.machines.transactions.states import STATES_BY_TEXT
from ottla.wire.apis.list_transactions import ListTransactionsRequest, ListTransactionsResponse, TransactionState


def respond(context: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    runtime = context.broker.transactions.runtime
    if runtime.is_loading:
        raise KafkaError(code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    now_ms = context.broker.clock.wall_ms()
    found: list[TransactionState] = []
    for shard in runtime.active_shards():
        listed = shard.machine.list(request.state_filters, request.producer_id_filters, request.duration_filter, now_ms)
        found += [
            transaction
            for transaction in listed.transactions
            if context.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id)
        ]
    return ListTransactionsResponse(
        unknown_state_filters=[text for text in request.state_filters if text not in STATES_BY_TEXT],
        transaction_states=found,
    )


HANDLER = message_handler(ListTransactionsRequest, (0, 1), respond)
