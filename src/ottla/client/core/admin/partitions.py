"""Offsets, records, producers and transactions: what is asked of brokers, what their answers say. Sends nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.admin.outcomes import Call, admin_error, outcome
from ottla.client.core.admin.types import (
    FencedProducer,
    HangingTransaction,
    OffsetSpec,
    ProducerDescription,
    TransactionDescription,
    TransactionListing,
)
from ottla.client.core.consumer.offset_requests import (
    OffsetAndTimestamp,
    by_topic,
    list_offsets_request,
    read_list_offsets,
)
from ottla.client.core.producer.transaction import PreparedTransaction
from ottla.client.errors import ClientError
from ottla.wire.apis import describe_producers, describe_transactions
from ottla.wire.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.wire.apis.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.apis.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.wire.apis.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.wire.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

# The version in which a place that is not a time could first be asked for; older brokers would take it for a time.
_FIRST_WITH_SPEC = {OffsetSpec.MAX_TIMESTAMP: 7, OffsetSpec.EARLIEST_LOCAL: 8, OffsetSpec.LATEST_TIERED: 9}
_FIRST_ISOLATION = 2
_FIRST_DURATION_FILTER = 1
_FENCING_TIMEOUT_MS = 1

LAST_REPEATABLE_END_TXN = 4
"""Up to here the epoch outlives the transaction: who asks again, after a lost answer or a crash, is told what became of
it. From the next version on a commit raises the epoch (KIP-890), and the same question looks like one of a producer
that was replaced."""

# Offsets and records


def list_offsets_call(
    specs: Mapping[TopicPartition, int], *, read_committed: bool
) -> Call[TopicPartition, OffsetAndTimestamp]:
    def build(partitions: Sequence[TopicPartition], version: int) -> ListOffsetsRequest:
        for spec, first in _FIRST_WITH_SPEC.items():
            if version < first and any(specs[partition] == spec for partition in partitions):
                raise admin_error(ErrorCode.UNSUPPORTED_VERSION, f"the broker is too old for {spec.name} offsets")
        if read_committed and version < _FIRST_ISOLATION:
            raise admin_error(ErrorCode.UNSUPPORTED_VERSION, "the broker is too old for read_committed")
        return list_offsets_request({partition: specs[partition] for partition in partitions}, int(read_committed))

    def read(response: ListOffsetsResponse) -> dict[TopicPartition, OffsetAndTimestamp | ClientError]:
        return {
            partition: admin_error(found, where=partition) if isinstance(found, int) else found
            for partition, found in read_list_offsets(response).items()
        }

    return Call("list_offsets", ListOffsetsRequest, ListOffsetsResponse, build, read)


def delete_records_call(before: Mapping[TopicPartition, int], *, timeout_ms: int) -> Call[TopicPartition, int]:
    def build(partitions: Sequence[TopicPartition], version: int) -> DeleteRecordsRequest:
        return DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=topic,
                    partitions=[
                        DeleteRecordsPartition(partition_index=index, offset=before[TopicPartition(topic, index)])
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(partitions).items()
            ],
            timeout_ms=timeout_ms,
        )

    def read(response: DeleteRecordsResponse) -> dict[TopicPartition, int | ClientError]:
        return {
            (key := TopicPartition(topic.name, answer.partition_index)): outcome(
                answer.error_code, answer.low_watermark, where=key
            )
            for topic in response.topics
            for answer in topic.partitions
        }

    return Call("delete_records", DeleteRecordsRequest, DeleteRecordsResponse, build, read)


# Producers


def describe_producers_call() -> Call[TopicPartition, list[ProducerDescription]]:
    wire = describe_producers

    def build(partitions: Sequence[TopicPartition], version: int) -> describe_producers.DescribeProducersRequest:
        return wire.DescribeProducersRequest(
            topics=[
                wire.TopicRequest(name=topic, partition_indexes=indexes)
                for topic, indexes in by_topic(partitions).items()
            ]
        )

    def read(
        response: describe_producers.DescribeProducersResponse,
    ) -> dict[TopicPartition, list[ProducerDescription] | ClientError]:
        return {
            (key := TopicPartition(topic.name, answer.partition_index)): outcome(
                answer.error_code,
                [_producer(producer) for producer in answer.active_producers],
                answer.error_message,
                where=key,
            )
            for topic in response.topics
            for answer in topic.partitions
        }

    return Call("describe_producers", wire.DescribeProducersRequest, wire.DescribeProducersResponse, build, read)


def _producer(producer: describe_producers.ProducerState) -> ProducerDescription:
    return ProducerDescription(
        producer.producer_id,
        producer.producer_epoch,
        producer.last_sequence,
        producer.last_timestamp,
        producer.coordinator_epoch if producer.coordinator_epoch >= 0 else None,
        producer.current_txn_start_offset if producer.current_txn_start_offset >= 0 else None,
    )


# Transactions


def list_transactions_call(
    node_id: int, states: Collection[str], producer_ids: Collection[int], min_duration_ms: int | None
) -> Call[int, list[TransactionListing]]:
    def build(nodes: Sequence[int], version: int) -> ListTransactionsRequest:
        if min_duration_ms is not None and version < _FIRST_DURATION_FILTER:
            raise admin_error(
                ErrorCode.UNSUPPORTED_VERSION, "the broker is too old to filter transactions by their duration"
            )
        return ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=-1 if min_duration_ms is None else min_duration_ms,
        )

    def read(response: ListTransactionsResponse) -> dict[int, list[TransactionListing] | ClientError]:
        if response.unknown_state_filters:
            unknown = ", ".join(response.unknown_state_filters)
            return {node_id: admin_error(ErrorCode.INVALID_REQUEST, f"no state of transactions is called {unknown}")}
        listed = [
            TransactionListing(entry.transactional_id, entry.producer_id, entry.transaction_state)
            for entry in response.transaction_states
        ]
        return {node_id: outcome(response.error_code, listed, where=f"broker {node_id}")}

    return Call("list_transactions", ListTransactionsRequest, ListTransactionsResponse, build, read)


def describe_transactions_call() -> Call[str, TransactionDescription]:
    wire = describe_transactions

    def build(ids: Sequence[str], version: int) -> describe_transactions.DescribeTransactionsRequest:
        return wire.DescribeTransactionsRequest(transactional_ids=list(ids))

    def read(
        response: describe_transactions.DescribeTransactionsResponse,
    ) -> dict[str, TransactionDescription | ClientError]:
        return {
            entry.transactional_id: outcome(
                entry.error_code, _transaction(entry), where=f"transactional id {entry.transactional_id}"
            )
            for entry in response.transaction_states
        }

    return Call(
        "describe_transactions", wire.DescribeTransactionsRequest, wire.DescribeTransactionsResponse, build, read
    )


def _transaction(entry: describe_transactions.TransactionState) -> TransactionDescription:
    return TransactionDescription(
        entry.transactional_id,
        entry.transaction_state,
        entry.producer_id,
        entry.producer_epoch,
        entry.transaction_timeout_ms,
        entry.transaction_start_time_ms if entry.transaction_start_time_ms >= 0 else None,
        frozenset(TopicPartition(topic.topic, index) for topic in entry.topics for index in topic.partitions),
    )


def fence_producer_call(transactional_id: str) -> Call[str, FencedProducer]:
    def build(ids: Sequence[str], version: int) -> InitProducerIdRequest:
        return InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=_FENCING_TIMEOUT_MS)

    def read(response: InitProducerIdResponse) -> dict[str, FencedProducer | ClientError]:
        fenced = FencedProducer(response.producer_id, response.producer_epoch)
        return {transactional_id: outcome(response.error_code, fenced, where=f"transactional id {transactional_id}")}

    return Call("fence_producers", InitProducerIdRequest, InitProducerIdResponse, build, read)


def end_transaction_call(
    transactional_id: str, transactions: Mapping[str, PreparedTransaction], *, committed: bool
) -> Call[str, None]:
    def build(ids: Sequence[str], version: int) -> EndTxnRequest:
        transaction = transactions[transactional_id]
        return EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            committed=committed,
        )

    def read(response: EndTxnResponse) -> dict[str, ClientError | None]:
        return {transactional_id: outcome(response.error_code, None, where=f"transactional id {transactional_id}")}

    return Call("end_transactions", EndTxnRequest, EndTxnResponse, build, read, LAST_REPEATABLE_END_TXN)


def abort_call(partition: TopicPartition, producer: ProducerDescription) -> Call[TopicPartition, None]:
    def build(partitions: Sequence[TopicPartition], version: int) -> WriteTxnMarkersRequest:
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
            # A partition that has not seen a marker of this producer yet knows of no coordinator.
            coordinator_epoch=producer.coordinator_epoch or 0,
        )
        return WriteTxnMarkersRequest(markers=[marker])

    def read(response: WriteTxnMarkersResponse) -> dict[TopicPartition, ClientError | None]:
        return {
            (key := TopicPartition(topic.name, answer.partition_index)): outcome(answer.error_code, None, where=key)
            for marker in response.markers
            for topic in marker.topics
            for answer in topic.partitions
        }

    return Call("abort_transaction", WriteTxnMarkersRequest, WriteTxnMarkersResponse, build, read)


def hanging(
    open_in: Mapping[TopicPartition, Iterable[ProducerDescription]],
    transactions: Iterable[TransactionDescription],
    *,
    older_than_ms: int,
) -> list[HangingTransaction]:
    """Transactions that are open in a partition, and not for the coordinator: it will never end them (KIP-664)."""
    known = {
        (partition, transaction.producer_id) for transaction in transactions for partition in transaction.partitions
    }
    return [
        HangingTransaction(partition, producer)
        for partition, producers in sorted(open_in.items())
        for producer in producers
        if producer.txn_start_offset is not None
        and producer.last_timestamp_ms <= older_than_ms
        and (partition, producer.producer_id) not in known
    ]
