"""Calls about offsets, producers and transactions, without a broker."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.admin.partitions import (
    abort_call,
    delete_records_call,
    describe_producers_call,
    describe_transactions_call,
    end_transaction_call,
    fence_producer_call,
    hanging,
    list_offsets_call,
    list_transactions_call,
)
from ottla.client.core.admin.types import (
    FencedProducer,
    HangingTransaction,
    OffsetSpec,
    ProducerDescription,
    TransactionDescription,
    TransactionListing,
)
from ottla.client.core.consumer.offset_requests import OffsetAndTimestamp
from ottla.client.core.producer.transaction import PreparedTransaction
from ottla.client.errors import ClientError
from ottla.wire.apis import delete_records, describe_producers, describe_transactions, list_offsets, write_txn_markers
from ottla.wire.apis.end_txn import EndTxnResponse
from ottla.wire.apis.init_producer_id import InitProducerIdResponse
from ottla.wire.apis.list_transactions import ListTransactionsResponse, TransactionState

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
MOVED = ErrorCode.NOT_LEADER_OR_FOLLOWER
DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def code_of(answer: object) -> ErrorCode:
    assert isinstance(answer, ClientError)
    return answer.code


@pytest.mark.parametrize(
    ("spec", "read_committed", "first"),
    [
        (OffsetSpec.LATEST, False, 0),
        (OffsetSpec.EARLIEST, True, 2),
        (OffsetSpec.MAX_TIMESTAMP, False, 7),
        (OffsetSpec.EARLIEST_LOCAL, False, 8),
        (OffsetSpec.LATEST_TIERED, True, 9),
    ],
)
def test_places_old_brokers_do_not_know(spec: OffsetSpec, read_committed: bool, first: int) -> None:
    call = list_offsets_call({T0: spec, T1: 1000}, read_committed=read_committed)
    request = call.build([T0, T1], first)
    assert request.isolation_level == int(read_committed)
    assert [p.timestamp for p in request.topics[0].partitions] == [spec, 1000]
    if first:
        with pytest.raises(ClientError, match="too old"):
            call.build([T0], first - 1)
    if first > 2:
        assert call.build([T1], 2), "another partition is none of its business"


def test_offsets_found() -> None:
    entries = [
        list_offsets.ListOffsetsPartitionResponse(partition_index=0, offset=5, timestamp=6, leader_epoch=7),
        list_offsets.ListOffsetsPartitionResponse(partition_index=1, error_code=MOVED),
    ]
    topic = list_offsets.ListOffsetsTopicResponse(name="t", partitions=entries)
    answers = list_offsets_call({}, read_committed=False).read(list_offsets.ListOffsetsResponse(topics=[topic]))
    assert answers[T0] == OffsetAndTimestamp(5, 6, 7)
    assert code_of(answers[T1]) is MOVED


def test_records_are_deleted() -> None:
    call = delete_records_call({T0: 5, T1: 6}, timeout_ms=9)
    request = call.build([T1], 2)
    assert request.timeout_ms == 9
    assert [(p.partition_index, p.offset) for p in request.topics[0].partitions] == [(1, 6)]
    wire = delete_records
    entries = [
        wire.DeleteRecordsPartitionResult(partition_index=0, low_watermark=5),
        wire.DeleteRecordsPartitionResult(partition_index=1, error_code=ErrorCode.OFFSET_OUT_OF_RANGE),
    ]
    answers = call.read(
        wire.DeleteRecordsResponse(topics=[wire.DeleteRecordsTopicResult(name="t", partitions=entries)])
    )
    assert answers[T0] == 5 and code_of(answers[T1]) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_producers() -> None:
    call = describe_producers_call()
    assert [(t.name, t.partition_indexes) for t in call.build([T0, T1], 0).topics] == [("t", [0, 1])]
    wire = describe_producers
    states = [
        wire.ProducerState(
            producer_id=1,
            producer_epoch=2,
            last_sequence=3,
            last_timestamp=4,
            coordinator_epoch=0,
            current_txn_start_offset=0,
        ),
        wire.ProducerState(producer_id=5, producer_epoch=0, coordinator_epoch=-1, current_txn_start_offset=-1),
    ]
    entries = [
        wire.PartitionResponse(partition_index=0, active_producers=states),
        wire.PartitionResponse(partition_index=1, error_code=MOVED, error_message="elsewhere"),
    ]
    answers = call.read(wire.DescribeProducersResponse(topics=[wire.TopicResponse(name="t", partitions=entries)]))
    first, second = answers[T0]
    assert first == ProducerDescription(1, 2, 3, 4, 0, 0)
    assert (second.coordinator_epoch, second.txn_start_offset) == (None, None)
    assert code_of(answers[T1]) is MOVED and "elsewhere" in str(answers[T1])


def test_transactions_are_listed() -> None:
    call = list_transactions_call(7, ["Ongoing"], [5], None)
    request = call.build([7], 0)
    assert (request.state_filters, request.producer_id_filters, request.duration_filter) == (["Ongoing"], [5], -1)
    assert list_transactions_call(7, [], [], 0).build([7], 1).duration_filter == 0
    with pytest.raises(ClientError, match="duration"):
        list_transactions_call(7, [], [], 0).build([7], 0)
    state = TransactionState(transactional_id="x", producer_id=5, transaction_state="Ongoing")
    answers = call.read(ListTransactionsResponse(transaction_states=[state]))
    assert answers == {7: [TransactionListing("x", 5, "Ongoing")]}
    assert code_of(call.read(ListTransactionsResponse(error_code=DENIED))[7]) is DENIED
    unknown = call.read(ListTransactionsResponse(unknown_state_filters=["A", "B"]))[7]
    assert code_of(unknown) is ErrorCode.INVALID_REQUEST and "A, B" in str(unknown)


@pytest.mark.parametrize(("started_ms", "shown"), [(0, 0), (5, 5), (-1, None)])
def test_transactions_are_described(started_ms: int, shown: int | None) -> None:
    wire = describe_transactions
    entry = wire.TransactionState(
        transactional_id="x",
        transaction_state="Ongoing",
        producer_id=1,
        producer_epoch=2,
        transaction_timeout_ms=3,
        transaction_start_time_ms=started_ms,
        topics=[wire.TopicData(topic="t", partitions=[0, 1])],
    )
    bad = wire.TransactionState(transactional_id="y", error_code=DENIED)
    call = describe_transactions_call()
    assert call.build(["x", "y"], 0).transactional_ids == ["x", "y"]
    answers = call.read(wire.DescribeTransactionsResponse(transaction_states=[entry, bad]))
    assert answers["x"] == TransactionDescription("x", "Ongoing", 1, 2, 3, shown, frozenset({T0, T1}))
    assert code_of(answers["y"]) is DENIED and "transactional id y" in str(answers["y"])


def test_producers_are_fenced() -> None:
    call = fence_producer_call("x")
    request = call.build(["x"], 4)
    assert (request.transactional_id, request.transaction_timeout_ms) == ("x", 1)
    assert (request.producer_id, request.producer_epoch) == (-1, -1)
    assert call.read(InitProducerIdResponse(producer_id=5, producer_epoch=6)) == {"x": FencedProducer(5, 6)}
    assert code_of(call.read(InitProducerIdResponse(error_code=DENIED))["x"]) is DENIED


@pytest.mark.parametrize("committed", [True, False])
def test_transactions_are_ended_in_a_version_that_may_be_asked_twice(committed: bool) -> None:
    call = end_transaction_call("x", {"x": PreparedTransaction("x", 5, 6)}, committed=committed)
    assert call.max_version == 4
    request = call.build(["x"], 4)
    assert (request.transactional_id, request.producer_id, request.producer_epoch) == ("x", 5, 6)
    assert request.committed is committed
    assert call.read(EndTxnResponse()) == {"x": None}
    assert code_of(call.read(EndTxnResponse(error_code=DENIED))["x"]) is DENIED


@pytest.mark.parametrize(("coordinator_epoch", "sent"), [(None, 0), (0, 0), (9, 9)])
def test_a_transaction_is_aborted_where_it_hangs(coordinator_epoch: int | None, sent: int) -> None:
    call = abort_call(T1, ProducerDescription(1, 2, 3, 4, coordinator_epoch, 5))
    (marker,) = call.build([T1], 1).markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (1, 2, sent)
    assert marker.transaction_result is False
    assert [(t.name, t.partition_indexes) for t in marker.topics] == [("t", [1])]
    wire = write_txn_markers
    entry = wire.WritableTxnMarkerPartitionResult(partition_index=1, error_code=DENIED)
    topic = wire.WritableTxnMarkerTopicResult(name="t", partitions=[entry])
    response = wire.WriteTxnMarkersResponse(markers=[wire.WritableTxnMarkerResult(producer_id=1, topics=[topic])])
    assert code_of(call.read(response)[T1]) is DENIED


def test_what_hangs_is_open_old_and_unknown_to_the_coordinator() -> None:
    def producer(producer_id: int, last_ms: int = 100, start: int | None = 0) -> ProducerDescription:
        return ProducerDescription(producer_id, 0, 0, last_ms, 0, start)

    known = TransactionDescription("x", "Ongoing", 2, 0, 1, 0, frozenset({T0}))
    open_in = {
        T1: [producer(2)],
        T0: [producer(1), producer(2), producer(3, last_ms=101), producer(4, start=None)],
    }
    assert hanging(open_in, [known], older_than_ms=100) == [
        HangingTransaction(T0, producer(1)),
        HangingTransaction(T1, producer(2)),
    ]
