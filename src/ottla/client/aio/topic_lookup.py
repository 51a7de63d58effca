"""What a consumer can say about topics it need not read: their partitions, straight from a broker."""

from __future__ import annotations

from ottla.base.errors import ErrorCode, kafka_error
from ottla.client.aio.consumer.engine import ConsumerEngine
from ottla.client.core.topic_info import PartitionInfo
from ottla.wire.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic


async def find_topics(
    engine: ConsumerEngine, names: list[str] | None, timeout_ms: int
) -> dict[str, list[PartitionInfo]]:
    """The partitions of these topics, or of all there are; a topic that does not exist is left out."""
    request = MetadataRequest(
        topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
    )

    async def attempt() -> dict[str, list[PartitionInfo]]:
        response = await engine.link.request_any(
            lambda connection: (request, connection.version_for(MetadataRequest)), MetadataResponse
        )
        return _read(response, is_about_all=names is None)

    return await engine.retry(attempt, timeout_ms)


def _read(response: MetadataResponse, *, is_about_all: bool) -> dict[str, list[PartitionInfo]]:
    found = {}
    for topic in response.topics:
        if topic.error_code == ErrorCode.LEADER_NOT_AVAILABLE:
            raise kafka_error(topic.error_code)
        if topic.error_code and not is_about_all:
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            raise kafka_error(topic.error_code)
        found[topic.name or ""] = _partitions(topic)
    return found


def _partitions(topic: MetadataResponseTopic) -> list[PartitionInfo]:
    return [
        PartitionInfo(
            partition.partition_index,
            partition.leader_id,
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
            tuple(partition.offline_replicas),
        )
        for partition in sorted(topic.partitions, key=lambda entry: entry.partition_index)
    ]
