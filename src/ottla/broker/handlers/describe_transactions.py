"""DescribeTransactions (KIP-664): state, producer and partitions of transactional ids."""

from __future__ import annotations

import asyncio
from functools import partial

from ottla.base.errors import KafkaError
from ottla.broker.authorizer import ResourceType
from ottla.broker.handler import Reply, RequestContext, message_handler
from ottla.broker.handlers.state_reads import or_refused, respond_when_committed
from ottla.wire.apis.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)


def respond(context: RequestContext, request: DescribeTransactionsRequest) -> Reply:
    return respond_when_committed(
        [_describe(context, transactional_id) for transactional_id in request.transactional_ids],
        lambda states: DescribeTransactionsResponse(transaction_states=states),
    )


def _describe(context: RequestContext, transactional_id: str) -> TransactionState | asyncio.Future[TransactionState]:
    runtime = context.broker.transactions.runtime
    try:
        context.require(ResourceType.TRANSACTIONAL_ID, transactional_id)
        shard = runtime.shard_for(transactional_id)
    except KafkaError as e:
        return _refused(transactional_id, e)
    state = shard.machine.describe(transactional_id)
    state.topics = [topic for topic in state.topics if context.may(ResourceType.TOPIC, topic.topic)]
    if runtime.is_committed(shard):
        return state
    return or_refused(runtime.when_committed(shard, state), partial(_refused, transactional_id))


def _refused(transactional_id: str, error: KafkaError) -> TransactionState:
    return TransactionState(error_code=error.code, transactional_id=transactional_id)


HANDLER = message_handler(DescribeTransactionsRequest, (0, 0), respond)
