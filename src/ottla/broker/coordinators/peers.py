"""What coordinators of transactions on different brokers ask of each other: verifications, additions, markers."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.coordinators.markers import Marker
from ottla.broker.replication.peers import Peers
from ottla.machines.cluster.image import ClusterImage
from ottla.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_WORK = "transactions"

Codes = dict[TopicPartition, ErrorCode]


class TransactionPeers:
    def __init__(self, broker_id: int, image: ClusterImage, peers: Peers, *, timeout_ms: int) -> None:
        self._broker_id = broker_id
        self._timeout_ms = timeout_ms
        self._image = image
        self._peers = peers

    def leads_elsewhere(self, tp: TopicPartition) -> bool:
        """Whether another broker that is alive leads the partition, as far as this one has heard."""
        leader = self._image.live_leader(tp)
        return leader is not None and leader.broker_id != self._broker_id

    async def add_partitions(
        self,
        state_partition: TopicPartition,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
    ) -> Codes:
        """Has the coordinator, which leads `state_partition`, add partitions or say whether they are in the transaction
        (KIP-890)."""
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            verify_only=verify_only,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=found) for name, found in _by_topic(partitions)],
        )
        try:
            response = await self._peers.request(
                self._leader_of(state_partition),
                AddPartitionsToTxnRequest(transactions=[transaction]),
                AddPartitionsToTxnResponse,
                work=_WORK,
                timeout_ms=self._timeout_ms,
            )
        except KafkaError:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if response.error_code != ErrorCode.NONE:
            return dict.fromkeys(partitions, ErrorCode(response.error_code))
        answered = {
            TopicPartition(topic.name, result.partition_index): ErrorCode(result.partition_error_code)
            for of_transaction in response.results_by_transaction
            for topic in of_transaction.topic_results
            for result in topic.results_by_partition
        }
        return {tp: answered.get(tp, ErrorCode.COORDINATOR_NOT_AVAILABLE) for tp in partitions}

    async def write_marker(self, tp: TopicPartition, marker: Marker) -> None:
        """Has the partition's leader end the transaction there; raises KafkaError if that was not done."""
        request = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=marker.producer_id,
                    producer_epoch=marker.producer_epoch,
                    transaction_result=marker.commit,
                    topics=[WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition])],
                    coordinator_epoch=marker.coordinator_epoch,
                )
            ]
        )
        response = await self._peers.request(
            self._leader_of(tp), request, WriteTxnMarkersResponse, work=_WORK, timeout_ms=self._timeout_ms
        )
        for answered in response.markers:
            for topic in answered.topics:
                for partition in topic.partitions:
                    if partition.error_code != ErrorCode.NONE:
                        raise KafkaError(code=_as_passing(ErrorCode(partition.error_code)))

    def _leader_of(self, tp: TopicPartition) -> int:
        leader = self._image.live_leader(tp)
        if leader is None:
            raise KafkaError(f"{tp} has no leader", code=ErrorCode.LEADER_NOT_AVAILABLE)
        return leader.broker_id


def _as_passing(code: ErrorCode) -> ErrorCode:
    """A broker that does not hold the partition says that there is none; but it is there, and led by somebody."""
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else code


def _by_topic(partitions: Sequence[TopicPartition]) -> list[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return list(topics.items())
