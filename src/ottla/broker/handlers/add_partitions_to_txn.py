"""AddPartitionsToTxn: partitions join a transaction before they are written to.

Clients ask for one transaction (versions 0 to 3); brokers ask for many at once, or only whether partitions are in one
(KIP-890).
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.authorizer import ResourceType
from ottla.broker.handler import RequestContext, message_handler
from ottla.broker.handlers.transactional import ask
from ottla.machines.cluster.topic_names import INTERNAL_TOPICS
from ottla.machines.transactions.answers import known_code
from ottla.wire.api_keys import ApiKey
from ottla.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

FIRST_BATCHED_VERSION = 4
Codes = dict[TopicPartition, ErrorCode]


async def respond(context: RequestContext, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    if context.version >= FIRST_BATCHED_VERSION:
        context.require(ResourceType.CLUSTER)
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=transaction.transactional_id,
                    topic_results=_shape(transaction.topics, await _add(context, transaction)),
                )
                for transaction in request.transactions
            ]
        )
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=_shape(transaction.topics, await _add(context, transaction))
    )


async def _add(context: RequestContext, transaction: AddPartitionsToTxnTransaction) -> Codes:
    partitions = [TopicPartition(topic.name, index) for topic in transaction.topics for index in topic.partitions]
    producer = (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch)
    try:
        if context.version < FIRST_BATCHED_VERSION:
            context.require(ResourceType.TRANSACTIONAL_ID, transaction.transactional_id)
        if transaction.verify_only:
            codes = await context.broker.transactions.verify_committed_here(*producer, partitions)
            return {tp: known_code(code, ApiKey.ADD_PARTITIONS_TO_TXN, context.version) for tp, code in codes.items()}
        refused = _refused(context, partitions)
        if refused:
            # All partitions join or none: one that cannot keeps the others out.
            return {tp: refused.get(tp, ErrorCode.OPERATION_NOT_ATTEMPTED) for tp in partitions}
        answer = await ask(
            context,
            transaction.transactional_id,
            lambda machine, token, now_ms: machine.add_partitions(
                *producer, partitions, token, version=context.version, now_ms=now_ms
            ),
        )
        return dict.fromkeys(partitions, answer.error_code)
    except KafkaError as e:
        return dict.fromkeys(partitions, e.code)


def _refused(context: RequestContext, partitions: Sequence[TopicPartition]) -> Codes:
    refused: Codes = {}
    for tp in partitions:
        # Later versions are for brokers, whose clients were asked for the topic where they produce.
        is_client = context.version < FIRST_BATCHED_VERSION
        if is_client and (tp.topic in INTERNAL_TOPICS or not context.may(ResourceType.TOPIC, tp.topic)):
            refused[tp] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif context.broker.image.partition(tp) is None:
            refused[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refused


def _shape(topics: Sequence[AddPartitionsToTxnTopic], codes: Codes) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=codes[TopicPartition(topic.name, index)]
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


HANDLER = message_handler(AddPartitionsToTxnRequest, (0, 5), respond)
