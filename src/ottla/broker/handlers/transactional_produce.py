"""Records that belong to a transaction: only what the coordinator knows of may be appended (KIP-890).

Without this check a batch that was delayed in the network could land in a later transaction of the same producer, or
open one that nobody will ever end. Up to Produce version 11 the client has added the partition before and the leader
verifies it; from version 12 on the leader adds it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.authorizer import ResourceType
from ottla.broker.handler import RequestContext
from ottla.broker.handlers.transactional import ask
from ottla.broker.partition import Partition
from ottla.log.partition_log import PartitionLog
from ottla.machines.coordinator import Decision, Token
from ottla.machines.transactions.answers import verification_code
from ottla.machines.transactions.shard import TransactionShard
from ottla.records.batch import HEADER_SIZE, TRANSACTIONAL_BIT, peek_attributes
from ottla.wire.api_keys import ApiKey
from ottla.wire.fused.produce import ProducePlan

FIRST_VERSION_THAT_ADDS = 12
_BROKER_ADD_VERSION = 5
"""The version of AddPartitionsToTxn in which brokers add partitions for clients that leave it to them."""
_PRODUCER = struct.Struct(">qh")
_PRODUCER_POSITION = 43

Unverified = dict[tuple[int, int], list[TopicPartition]]
"""By producer id and epoch: partitions to which the producer's open transaction has not written yet."""
Refused = dict[TopicPartition, ErrorCode]
"""Partitions that are not in the transaction, as Produce says it."""


def unverified_partitions(context: RequestContext, plan: ProducePlan) -> Unverified:
    found: Unverified = {}
    replicas = context.broker.replicas
    for topic, partitions in plan.topics:
        if not context.may(ResourceType.TOPIC, topic):
            continue
        for index, records in partitions:
            partition = replicas.find(topic, index)
            if partition is not None and records and _opens_transaction(partition.log, records):
                producer = _PRODUCER.unpack_from(records, _PRODUCER_POSITION)
                found.setdefault(producer, []).append(partition.tp)
    return found


def _opens_transaction(log: PartitionLog, records: memoryview) -> bool:
    if len(records) < HEADER_SIZE or not peek_attributes(records) & TRANSACTIONAL_BIT:
        return False
    producer_id, producer_epoch = _PRODUCER.unpack_from(records, _PRODUCER_POSITION)
    entry = log.producers.entries.get(producer_id)
    return entry is None or entry.producer_epoch != producer_epoch or entry.transaction_first_offset < 0


def check_in_transaction(
    context: RequestContext, transactional_id: str, partition: Partition, records: memoryview
) -> None:
    """Raises KafkaError unless the batch may be appended: its transaction has the partition, or has written to it."""
    broker = context.broker
    if not _opens_transaction(partition.log, records) or not broker.config.flag(
        "transaction.partition.verification.enable"
    ):
        return
    producer_id, producer_epoch = _PRODUCER.unpack_from(records, _PRODUCER_POSITION)
    if broker.transactions.is_coordinated_elsewhere(transactional_id):
        # Asked before; what has come in between would have taken the note of it away.
        if partition.verified_producers.pop(producer_id, None) != producer_epoch:
            raise KafkaError(code=ErrorCode.INVALID_TXN_STATE)
        return
    code = broker.transactions.verify(transactional_id, producer_id, producer_epoch, [partition.tp])[partition.tp]
    if code != ErrorCode.NONE:
        raise KafkaError(code=verification_code(code, ApiKey.PRODUCE, context.version))


def must_wait_for_coordinator(context: RequestContext, transactional_id: str) -> bool:
    """Whether what the coordinator knows of the transaction could still be forgotten, were it to fail now."""
    broker = context.broker
    return not broker.transactions.is_committed(transactional_id) and broker.config.flag(
        "transaction.partition.verification.enable"
    )


async def verify_partitions(context: RequestContext, transactional_id: str, unverified: Unverified) -> Refused:
    """Waits for the coordinator's word on partitions a client has added itself."""
    _note_producers(context, unverified)
    refused: Refused = {}
    for (producer_id, producer_epoch), partitions in unverified.items():
        codes = await context.broker.transactions.verify_committed(
            transactional_id, producer_id, producer_epoch, partitions
        )
        for tp, code in codes.items():
            if code != ErrorCode.NONE:
                refused[tp] = verification_code(code, ApiKey.PRODUCE, context.version)
    return refused


async def add_partitions(context: RequestContext, transactional_id: str, unverified: Unverified) -> Refused:
    """Adds partitions for a client that leaves it to the broker; raises KafkaError if they cannot be added."""
    _note_producers(context, unverified)
    transactions = context.broker.transactions
    for (producer_id, producer_epoch), partitions in unverified.items():
        if transactions.is_coordinated_elsewhere(transactional_id):
            codes = await transactions.add_elsewhere(transactional_id, producer_id, producer_epoch, partitions)
            for code in codes.values():
                if code != ErrorCode.NONE:
                    raise KafkaError(code=code)
            continue
        answer = await ask(
            context,
            transactional_id,
            partial(_add, transactional_id, producer_id, producer_epoch, partitions),
        )
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(answer.message, code=answer.error_code)
    return {}


def _note_producers(context: RequestContext, unverified: Unverified) -> None:
    """Before the coordinator is asked: the end of the transaction is to be noticed even if it overtakes the answer."""
    for (producer_id, producer_epoch), partitions in unverified.items():
        for tp in partitions:
            partition = context.broker.replicas.find(*tp)
            if partition is not None:
                partition.verified_producers[producer_id] = producer_epoch


def _add(
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Sequence[TopicPartition],
    machine: TransactionShard,
    token: Token,
    now_ms: int,
) -> Decision:
    return machine.add_partitions(
        transactional_id, producer_id, producer_epoch, partitions, token, version=_BROKER_ADD_VERSION, now_ms=now_ms
    )
