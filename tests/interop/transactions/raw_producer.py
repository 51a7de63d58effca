"""A transactional producer that sends exactly what it is told to, in the version it is told, also what is forbidden."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from ottla.base.errors import ErrorCode
from ottla.records.builder import NewRecord, build_batch
from ottla.wire.apis.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.wire.apis.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.apis.fetch import FetchablePartitionResponse, FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from ottla.wire.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.wire.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.interop.coordinator_requests import LOADING, CoordinatorType
from tests.interop.peers.peer import PATIENCE_S
from tests.raw_client import RawClient

PRODUCE_OLD, PRODUCE_NEW = 11, 12
END_OLD, END_NEW = 4, 5
OFFSETS_OLD, OFFSETS_NEW = 4, 5
"""Before and after KIP-890's second part: from then on the broker adds partitions and every end raises the epoch."""

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_PAUSE_S = 0.02

T = TypeVar("T")


def until(ask: Callable[[], T], is_right: Callable[[T], bool], patience_s: float = PATIENCE_S) -> T:
    """Asks again until the answer is right; fails with the last one that was not."""
    deadline_s = time.monotonic() + patience_s
    while not is_right(answer := ask()):
        assert time.monotonic() < deadline_s, f"still {answer} after {patience_s} s"
        time.sleep(_PAUSE_S)
    return answer


def find_coordinator(client: RawClient, key: str, kind: CoordinatorType) -> None:
    """Waits until the key has a coordinator; the first question makes its topic."""

    def ask() -> int:
        response = client.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4)
        assert isinstance(response, FindCoordinatorResponse)
        return response.coordinators[0].error_code

    until(ask, lambda code: code == 0)


class RawProducer:
    def __init__(self, client: RawClient, transactional_id: str, *, timeout_ms: int = 60_000) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    @property
    def identity(self) -> tuple[int, int]:
        return self.producer_id, self.epoch

    # -- InitProducerId ------------------------------------------------------------------------------------------

    def ask_init(self, *, version: int = 5, current: tuple[int, int] = (-1, -1)) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=current[0],
            producer_epoch=current[1],
        )
        response = self.client.call(request, version)
        assert isinstance(response, InitProducerIdResponse)
        return response

    def init(self, *, version: int = 5, current: tuple[int, int] = (-1, -1)) -> RawProducer:
        find_coordinator(self.client, self.transactional_id, CoordinatorType.TRANSACTION)
        retried = {*LOADING, ErrorCode.CONCURRENT_TRANSACTIONS}
        response = until(
            lambda: self.ask_init(version=version, current=current), lambda got: got.error_code not in retried
        )
        assert response.error_code == 0, response
        self.take(response.producer_id, response.producer_epoch)
        return self

    def take(self, producer_id: int, epoch: int) -> None:
        """Goes on as this producer; a new epoch begins to count its batches anew."""
        self.producer_id, self.epoch = producer_id, epoch
        self.sequences.clear()

    # -- inside a transaction ------------------------------------------------------------------------------------

    def add(self, topic: str, partitions: Iterable[int] = (0,), *, version: int = 3) -> list[int]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )

        def ask() -> list[int]:
            response = self.client.call(request, version)
            assert isinstance(response, AddPartitionsToTxnResponse)
            return [
                part.partition_error_code for part in response.results_by_topic_v3_and_below[0].results_by_partition
            ]

        return until(ask, lambda codes: ErrorCode.CONCURRENT_TRANSACTIONS not in codes)

    def batch(self, topic: str, partition: int, *values: bytes, transactional: bool = True) -> bytes:
        """The next batch for the partition; it counts as sent."""
        sequence = self.sequences.get((topic, partition), 0)
        self.sequences[topic, partition] = sequence + len(values)
        # Not a fixed time: markers have the time of day, and a log begins a new segment when time jumps.
        now_ms = int(time.time() * 1000)
        return bytes(
            build_batch(
                [NewRecord(None, value, (), now_ms) for value in values],
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=sequence,
                transactional=transactional,
            )
        )

    def send_batch(self, topic: str, partition: int, batch: bytes, *, version: int) -> PartitionProduceResponse:
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=5000,
            topic_data=[
                TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
            ],
        )
        response = self.client.call(request, version)
        assert isinstance(response, ProduceResponse)
        return response.responses[0].partition_responses[0]

    def produce(
        self, topic: str, *values: bytes, partition: int = 0, version: int = PRODUCE_OLD
    ) -> PartitionProduceResponse:
        batch = self.batch(topic, partition, *values)
        return until(
            lambda: self.send_batch(topic, partition, batch, version=version),
            lambda got: got.error_code != ErrorCode.CONCURRENT_TRANSACTIONS,
        )

    def add_offsets(self, group: str, *, version: int = 4) -> int:
        find_coordinator(self.client, group, CoordinatorType.GROUP)
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )

        def ask() -> int:
            response = self.client.call(request, version)
            assert isinstance(response, AddOffsetsToTxnResponse)
            return response.error_code

        return until(ask, lambda code: code != ErrorCode.CONCURRENT_TRANSACTIONS)

    def commit_offset(
        self,
        group: str,
        topic: str,
        offset: int,
        *,
        version: int = OFFSETS_OLD,
        member: tuple[str, int] = ("", -1),
        metadata: str = "",
    ) -> int:
        find_coordinator(self.client, group, CoordinatorType.GROUP)
        part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=metadata)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            member_id=member[0],
            generation_id=member[1],
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[part])],
        )
        retried = {*LOADING, ErrorCode.CONCURRENT_TRANSACTIONS}

        def ask() -> int:
            response = self.client.call(request, version)
            assert isinstance(response, TxnOffsetCommitResponse)
            return response.topics[0].partitions[0].error_code

        return until(ask, lambda code: code not in retried)

    # -- EndTxn --------------------------------------------------------------------------------------------------

    def ask_end(self, *, commit: bool, version: int, as_epoch: int | None = None) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch if as_epoch is None else as_epoch,
            committed=commit,
        )
        response = self.client.call(request, version)
        assert isinstance(response, EndTxnResponse)
        return response

    def end(self, *, commit: bool, version: int = END_OLD) -> None:
        response = self.ask_end(commit=commit, version=version)
        assert response.error_code == 0, response
        if version >= END_NEW:
            self.take(response.producer_id, response.producer_epoch)

    def has_ended(self, *, commit: bool, version: int = END_OLD) -> None:
        """Waits until the markers are written: a repeated end is then answered as the first was."""
        until(
            lambda: self.ask_end(commit=commit, version=version),
            lambda got: got.error_code != ErrorCode.CONCURRENT_TRANSACTIONS,
        )


# -- what readers are shown --------------------------------------------------------------------------------------------


def fetch(
    client: RawClient, topic: str, offset: int = 0, *, partition: int = 0, isolation_level: int = READ_COMMITTED
) -> FetchablePartitionResponse:
    part = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=10_000_000)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=isolation_level,
        topics=[FetchTopic(topic=topic, partitions=[part])],
    )
    response = client.call(request, 11)
    assert isinstance(response, FetchResponse) and response.error_code == 0
    return response.responses[0].partitions[0]


def last_stable_offset(client: RawClient, topic: str, partition: int = 0) -> int:
    return fetch(client, topic, partition=partition).last_stable_offset


def end_offset(client: RawClient, topic: str, *, isolation_level: int, timestamp: int = -1) -> int:
    asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)])
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=[asked])
    response = client.call(request, 7)
    assert isinstance(response, ListOffsetsResponse) and response.topics[0].partitions[0].error_code == 0
    return response.topics[0].partitions[0].offset


def committed_offset(client: RawClient, group: str, topic: str, *, require_stable: bool = True) -> tuple[int, int]:
    """(error code, offset) of partition 0."""
    asked = OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=[asked])], require_stable=require_stable
    )
    response = client.call(request, 8)
    assert isinstance(response, OffsetFetchResponse)
    if response.groups[0].error_code:
        return response.groups[0].error_code, -1
    part = response.groups[0].topics[0].partitions[0]
    return part.error_code, part.committed_offset
