"""WriteTxnMarkers: a transaction coordinator tells the leaders of partitions how a transaction has ended."""

from __future__ import annotations

import asyncio

from ottla.base.errors import KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.authorizer import Operation, ResourceType
from ottla.broker.coordinators.markers import Marker
from ottla.broker.coordinators.transactions import MARKER_WAIT_MS
from ottla.broker.handler import RequestContext, message_handler
from ottla.wire.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


async def respond(context: RequestContext, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(markers=[await _write(context, marker) for marker in request.markers])


async def _write(context: RequestContext, asked: WritableTxnMarker) -> WritableTxnMarkerResult:
    marker = Marker(asked.producer_id, asked.producer_epoch, asked.transaction_result, asked.coordinator_epoch)

    async def write(name: str, index: int) -> WritableTxnMarkerPartitionResult:
        result = WritableTxnMarkerPartitionResult(partition_index=index)
        try:
            if not context.may(ResourceType.CLUSTER, operation=Operation.ALTER):
                context.require(ResourceType.CLUSTER)
            await context.broker.markers.write(TopicPartition(name, index), marker, wait_ms=MARKER_WAIT_MS)
        except KafkaError as e:
            result.error_code = e.code
        return result

    return WritableTxnMarkerResult(
        producer_id=asked.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=list(await asyncio.gather(*(write(topic.name, index) for index in topic.partition_indexes))),
            )
            for topic in asked.topics
        ],
    )


HANDLER = message_handler(WriteTxnMarkersRequest, (1, 1), respond)
