"""TxnOffsetCommit: a group's positions, stored as part of a transaction. They count once it is committed."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.authorizer import ResourceType
from ottla.broker.coordinators.pending_reply import PendingResult
from ottla.broker.handler import RequestContext, message_handler
from ottla.broker.handlers.coordinated import by_access
from ottla.broker.handlers.transactional import ask
from ottla.machines.cluster.topic_names import GROUP_METADATA_TOPIC
from ottla.machines.groups.offset_requests import all_failed, transactional_commit_response
from ottla.machines.transactions.answers import verification_code
from ottla.wire.api_keys import ApiKey
from ottla.wire.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

FIRST_VERSION_THAT_ADDS = 5
_BROKER_ADD_VERSION = 5


async def respond(context: RequestContext, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    refused: list[TxnOffsetCommitRequestTopic] = []
    try:
        context.require(ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        context.require(ResourceType.GROUP, request.group_id)
        request.topics, refused = by_access(context, request.topics)
        response = TxnOffsetCommitResponse() if refused and not request.topics else await _commit(context, request)
    except KafkaError as e:
        # A refusal of single topics is what these are told, whatever becomes of the others.
        response = _failed(request.topics, e.code)
    response.topics += _failed(refused, ErrorCode.TOPIC_AUTHORIZATION_FAILED).topics
    return response


async def _commit(context: RequestContext, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    if not request.group_id:
        raise KafkaError("the group id is empty", code=ErrorCode.INVALID_GROUP_ID)
    runtime = context.broker.groups.runtime
    tp = TopicPartition(GROUP_METADATA_TOPIC, runtime.shard_for(request.group_id).index)
    await _check_in_transaction(context, request, tp)
    shard = runtime.shard_for(request.group_id)
    pending: PendingResult[TxnOffsetCommitResponse] = PendingResult()
    decision = shard.machine.commit_transactional_offsets(
        request, pending, version=context.version, now_ms=context.broker.clock.wall_ms()
    )
    runtime.run(shard, decision)
    return await pending.future


async def _check_in_transaction(context: RequestContext, request: TxnOffsetCommitRequest, tp: TopicPartition) -> None:
    """The offsets partition must be in the producer's transaction, or join it now (KIP-890)."""
    producer = (request.transactional_id, request.producer_id, request.producer_epoch)
    transactions = context.broker.transactions
    if transactions.is_coordinated_elsewhere(request.transactional_id):
        await _check_elsewhere(context, request, tp)
        return
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
    else:
        _require_in_transaction(context, (await transactions.verify_committed(*producer, [tp]))[tp])
    # And now, too: were the transaction over since it was asked for, nothing would settle the offsets.
    _require_in_transaction(context, transactions.verify(*producer, [tp])[tp])


async def _check_elsewhere(context: RequestContext, request: TxnOffsetCommitRequest, tp: TopicPartition) -> None:
    """The same where another broker coordinates the transaction."""
    producer = (request.transactional_id, request.producer_id, request.producer_epoch)
    transactions = context.broker.transactions
    if context.version < FIRST_VERSION_THAT_ADDS and not context.broker.config.flag(
        "transaction.partition.verification.enable"
    ):
        return
    partition = context.broker.replicas.led(*tp)
    partition.verified_producers[request.producer_id] = request.producer_epoch
    adds = context.version >= FIRST_VERSION_THAT_ADDS
    ask_coordinator = transactions.add_elsewhere if adds else transactions.verify_committed
    _require_in_transaction(context, (await ask_coordinator(*producer, [tp]))[tp])
    if partition.verified_producers.pop(request.producer_id, None) != request.producer_epoch:
        # The transaction has ended meanwhile: nothing would settle the offsets.
        _require_in_transaction(context, ErrorCode.INVALID_TXN_STATE)


def _require_in_transaction(context: RequestContext, code: ErrorCode) -> None:
    if code != ErrorCode.NONE:
        raise KafkaError(code=verification_code(code, ApiKey.TXN_OFFSET_COMMIT, context.version))


def _failed(topics: Sequence[TxnOffsetCommitRequestTopic], code: ErrorCode) -> TxnOffsetCommitResponse:
    return transactional_commit_response(all_failed(topics, code))


HANDLER = message_handler(TxnOffsetCommitRequest, (0, 5), respond)
