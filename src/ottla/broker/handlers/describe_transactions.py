"""DescribeTransactions (KIP-664): state, producer and partitions of transactional ids."""

from __future__ import annotations

from ottla.base.errors import KafkaError
from ottla.broker.authorizer import Operation, ResourceType
from ottla.broker.handler import RequestContext, message_handler
from ottla.wire.apis.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)


def respond(context: RequestContext, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_describe(context, transactional_id) for transactional_id in request.transactional_ids]
    )


def _describe(context: RequestContext, transactional_id: str) -> TransactionState:
    try:
        context.require(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        return context.broker.transactions.runtime.shard_for(transactional_id).machine.describe(transactional_id)
    except KafkaError as e:
        return TransactionState(error_code=e.code, transactional_id=transactional_id)


HANDLER = message_handler(DescribeTransactionsRequest, (0, 0), respond)
