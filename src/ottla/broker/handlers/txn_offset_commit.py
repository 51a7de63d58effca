"""TxnOffsetCommit: a group's positions, stored as part of a transaction. They count once it is committed."""

from __future__ import annotations

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.authorizer import Operation, ResourceType
from ottla.broker.handler import RequestContext, message_handler
from ottla.broker.handlers.transactional import ask
from ottla.broker.pending_reply import PendingResult
from ottla.machines.cluster.topic_names import GROUP_METADATA_TOPIC
from ottla.machines.transactions.answers import verification_code
from ottla.wire.api_keys import ApiKey
from ottla.wire.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

FIRST_VERSION_THAT_ADDS = 5
_BROKER_ADD_VERSION = 5


async def respond(context: RequestContext, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    try:
        context.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        context.require(Operation.READ, ResourceType.GROUP, request.group_id)
        for topic in request.topics:
            context.require(Operation.READ, ResourceType.TOPIC, topic.name)
        return await _commit(context, request)
    except KafkaError as e:
        return _refused(request, e)


async def _commit(context: RequestContext, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    if not request.group_id:
        raise KafkaError("the group id is empty", code=ErrorCode.INVALID_GROUP_ID)
    runtime = context.broker.groups.runtime
    shard = runtime.shard_for(request.group_id)
    await _check_in_transaction(context, request, TopicPartition(GROUP_METADATA_TOPIC, shard.index))
    pending: PendingResult[TxnOffsetCommitResponse] = PendingResult()
    decision = shard.machine.commit_transactional_offsets(
        request, pending, version=context.version, now_ms=context.broker.clock.wall_ms()
    )
    runtime.run(shard, decision)
    return await pending.future


async def _check_in_transaction(context: RequestContext, request: TxnOffsetCommitRequest, tp: TopicPartition) -> None:
    """The offsets partition must be in the producer's transaction, or join it now (KIP-890)."""
    producer = (request.transactional_id, request.producer_id, request.producer_epoch)
    if context.version >= FIRST_VERSION_THAT_ADDS:
        answer = await ask(
            context,
            request.transactional_id,
            lambda machine, token, now_ms: machine.add_partitions(
                *producer, [tp], token, version=_BROKER_ADD_VERSION, now_ms=now_ms
            ),
        )
        if answer.error_code != ErrorCode.NONE:
            code = verification_code(answer.error_code, ApiKey.TXN_OFFSET_COMMIT, context.version)
            raise KafkaError(answer.message, code=code)
    elif not context.broker.config.flag("transaction.partition.verification.enable"):
        return
    # One that was just added is verified, too: were the transaction over by now, nothing would settle the offsets.
    code = context.broker.transactions.verify(*producer, [tp])[tp]
    if code != ErrorCode.NONE:
        raise KafkaError(code=verification_code(code, ApiKey.TXN_OFFSET_COMMIT, context.version))


def _refused(request: TxnOffsetCommitRequest, error: KafkaError) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=p.partition_index, error_code=error.code)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


HANDLER = message_handler(TxnOffsetCommitRequest, (0, 5), respond)
