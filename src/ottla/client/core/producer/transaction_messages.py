"""What a producer's transactions ask of coordinators, and what their answers mean."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.consumer.cursors import OffsetAndMetadata
from ottla.client.core.consumer.offset_requests import Membership
from ottla.client.errors import ClientError, ProducerFencedError, client_error
from ottla.wire.apis.add_offsets_to_txn import AddOffsetsToTxnResponse
from ottla.wire.apis.add_partitions_to_txn import AddPartitionsToTxnResponse
from ottla.wire.apis.end_txn import EndTxnResponse
from ottla.wire.apis.init_producer_id import InitProducerIdResponse
from ottla.wire.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

_FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})

Offsets = Mapping[TopicPartition, OffsetAndMetadata | int]


def judged(code: int, where: str) -> ClientError:
    if code in _FENCED:
        return ProducerFencedError(
            "another producer uses this transactional id, or the transaction took longer than "
            "transaction.timeout.ms; close this producer"
        )
    if code == ErrorCode.INVALID_TXN_STATE:
        return ClientError(code=ErrorCode.INVALID_TXN_STATE, fatal=True)
    return client_error(code, where=where)


def overall_error(response: InitProducerIdResponse | EndTxnResponse | AddOffsetsToTxnResponse) -> tuple[int, str]:
    return response.error_code, ""


def first_partition_error(response: AddPartitionsToTxnResponse) -> tuple[int, str]:
    found = (0, "")
    for topic in response.results_by_topic_v3_and_below:
        for partition in topic.results_by_partition:
            code = partition.partition_error_code
            # Partitions that were fine are answered as "not attempted" when another one was not.
            if code and (not found[0] or found[0] == ErrorCode.OPERATION_NOT_ATTEMPTED):
                found = (code, f"{topic.name}-{partition.partition_index}")
    return found


def first_offset_error(response: TxnOffsetCommitResponse) -> tuple[int, str]:
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code:
                return partition.error_code, f"offset of {topic.name}-{partition.partition_index}"
    return 0, ""


def offset_commit(
    transactional_id: str, producer_id: int, producer_epoch: int, membership: Membership, offsets: Offsets
) -> TxnOffsetCommitRequest:
    topics: dict[str, TxnOffsetCommitRequestTopic] = {}
    for (topic, partition), given in sorted(offsets.items()):
        position = OffsetAndMetadata(given) if isinstance(given, int) else given
        topics.setdefault(topic, TxnOffsetCommitRequestTopic(name=topic)).partitions.append(
            TxnOffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=position.offset,
                committed_leader_epoch=-1 if position.leader_epoch is None else position.leader_epoch,
                committed_metadata=position.metadata,
            )
        )
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=membership.group_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        generation_id=membership.generation,
        member_id=membership.member_id,
        group_instance_id=membership.instance_id,
        topics=list(topics.values()),
    )
