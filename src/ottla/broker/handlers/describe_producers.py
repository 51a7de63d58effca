"""DescribeProducers (KIP-664): who writes to a partition, as its leader knows it."""

from __future__ import annotations

from ottla.base.errors import KafkaError
from ottla.broker.authorizer import ResourceType
from ottla.broker.handler import RequestContext, message_handler
from ottla.wire.apis.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def respond(context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_partition(context, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _partition(context: RequestContext, topic: str, index: int) -> PartitionResponse:
    try:
        context.require(ResourceType.TOPIC, topic)
        partition = context.broker.replicas.led(topic, index)
    except KafkaError as e:
        return PartitionResponse(partition_index=index, error_code=e.code, error_message=e.message)
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.producer_epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.transaction_first_offset,
            )
            for entry in partition.log.producers.entries.values()
        ],
    )


HANDLER = message_handler(DescribeProducersRequest, (0, 0), respond)
