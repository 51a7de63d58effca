"""Writing whole batches to partitions: the least a producer needs. Batching, ordering and idempotence are not here."""

from __future__ import annotations

from ottla.base.errors import ErrorCode, KafkaError, kafka_error
from ottla.base.types import TopicPartition
from ottla.client.cluster import LEADER_ERRORS, Cluster
from ottla.wire.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

_TRANSIENT = LEADER_ERRORS | {
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT,
}


async def write_batch(
    cluster: Cluster, topic_partition: TopicPartition, batch: bytes, *, acks: int = -1, timeout_ms: int = 30_000
) -> int:
    """Sends one batch to the partition's leader; returns its base offset, or -1 with acks=0.

    It is sent again if the leader has moved. Without a producer id a batch whose reply was lost may be stored twice.
    """
    request = ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name=topic_partition.topic,
                partition_data=[PartitionProduceData(index=topic_partition.partition, records=batch)],
            )
        ],
    )

    async def attempt() -> int:
        connection = await cluster.connection_to(cluster.leader_of(topic_partition))
        if acks == 0:
            await connection.send(request)
            return -1
        response = await connection.request(request, ProduceResponse, timeout_ms=cluster.request_timeout_ms)
        (result,) = response.responses[0].partition_responses
        if result.error_code:
            raise _write_error(topic_partition, result.error_code, result.error_message)
        return result.base_offset

    return await cluster.retry(attempt, _TRANSIENT, refresh=[topic_partition.topic])


def _write_error(topic_partition: TopicPartition, error_code: int, message: str | None) -> KafkaError:
    error = kafka_error(error_code, message)
    return KafkaError(f"{topic_partition}: {error.message}", code=error.code)
