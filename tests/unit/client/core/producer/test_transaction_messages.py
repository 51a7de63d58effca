"""What a producer's transactions ask of coordinators, and what it makes of their answers."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.consumer.cursors import OffsetAndMetadata
from ottla.client.core.consumer.offset_requests import Membership
from ottla.client.core.producer.transaction_messages import (
    first_offset_error,
    first_partition_error,
    judged,
    offset_commit,
    overall_error,
)
from ottla.client.errors import ProducerFencedError
from ottla.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.wire.apis.end_txn import EndTxnResponse
from ottla.wire.apis.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

NONE = ErrorCode.NONE
SKIPPED = ErrorCode.OPERATION_NOT_ATTEMPTED
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def added(**codes: list[ErrorCode]) -> AddPartitionsToTxnResponse:
    """By topic, one for each partition."""
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                    for index, code in enumerate(found)
                ],
            )
            for topic, found in codes.items()
        ]
    )


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ({}, (NONE, "")),
        ({"t": [NONE, NONE], "u": [NONE]}, (NONE, "")),
        ({"t": [NONE, DENIED, NONE]}, (DENIED, "t-1")),
        ({"t": [DENIED, UNKNOWN], "u": [UNKNOWN]}, (DENIED, "t-0")),
        ({"t": [SKIPPED, SKIPPED], "u": [SKIPPED, UNKNOWN, DENIED]}, (UNKNOWN, "u-1")),
        ({"t": [SKIPPED, NONE]}, (SKIPPED, "t-0")),
        ({"t": [DENIED, SKIPPED, NONE]}, (DENIED, "t-0")),
    ],
)
def test_the_partition_that_was_to_blame_is_named(
    codes: dict[str, list[ErrorCode]], expected: tuple[ErrorCode, str]
) -> None:
    assert first_partition_error(added(**codes)) == expected


def test_the_first_offset_that_was_refused_is_named() -> None:
    def answer(*codes: ErrorCode) -> TxnOffsetCommitResponse:
        parts = [
            TxnOffsetCommitResponsePartition(partition_index=index, error_code=code) for index, code in enumerate(codes)
        ]
        return TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic(name="t", partitions=parts)])

    assert first_offset_error(answer(NONE, DENIED, UNKNOWN)) == (DENIED, "offset of t-1")
    assert first_offset_error(answer(NONE, NONE)) == (NONE, "")


def test_an_answer_as_a_whole() -> None:
    assert overall_error(EndTxnResponse(error_code=UNKNOWN)) == (UNKNOWN, "")


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_a_producer_that_another_has_replaced(code: ErrorCode) -> None:
    assert isinstance(judged(code, "t-0"), ProducerFencedError)


def test_a_transaction_out_of_step_cannot_go_on_and_others_may() -> None:
    out_of_step = judged(ErrorCode.INVALID_TXN_STATE, "t-0")
    assert (out_of_step.code, out_of_step.fatal) == (ErrorCode.INVALID_TXN_STATE, True)
    other = judged(UNKNOWN, "t-0")
    assert (other.code, other.fatal, "t-0" in str(other)) == (UNKNOWN, False, True)


def test_offsets_are_committed_by_topic_and_in_order() -> None:
    membership = Membership("g", 7, "m", "i")
    asked = offset_commit(
        "txn",
        5,
        3,
        membership,
        {
            TopicPartition("u", 0): 9,
            TopicPartition("t", 1): OffsetAndMetadata(4, metadata="note", leader_epoch=0),
            TopicPartition("t", 0): OffsetAndMetadata(8),
        },
    )
    assert (asked.transactional_id, asked.producer_id, asked.producer_epoch) == ("txn", 5, 3)
    assert (asked.group_id, asked.generation_id, asked.member_id, asked.group_instance_id) == ("g", 7, "m", "i")
    found = {
        topic.name: [
            (each.partition_index, each.committed_offset, each.committed_leader_epoch, each.committed_metadata)
            for each in topic.partitions
        ]
        for topic in asked.topics
    }
    assert found == {"t": [(0, 8, -1, ""), (1, 4, 0, "note")], "u": [(0, 9, -1, "")]}
