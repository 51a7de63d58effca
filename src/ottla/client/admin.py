"""Administration: what the tools ask of a cluster about topics, as typed functions over a `Cluster`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import KafkaError, kafka_error
from ottla.base.types import Uuid
from ottla.client.cluster import Broker, Cluster, TopicInfo
from ottla.wire.apis.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.wire.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.apis.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from ottla.wire.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

BROKER_DEFAULT = -1
"""Asks the broker for its own number of partitions or replicas (KIP-464)."""

_TOPIC_RESOURCE = 2
_TOPIC_SOURCE = 1


class NewTopic(NamedTuple):
    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignments: Sequence[Sequence[int]] = ()
    """Replicas of each partition; if given, the two numbers above are not."""
    configs: Mapping[str, str] = {}


class ConfigValue(NamedTuple):
    name: str
    value: str | None
    is_override: bool
    """Set for the topic itself, not inherited from a broker."""


async def list_topics(cluster: Cluster) -> list[TopicInfo]:
    """Every topic, sorted by name."""
    view = await cluster.refresh()
    return [view.topics[name] for name in sorted(view.topics)]


async def create_topic(cluster: Cluster, topic: NewTopic, *, validate_only: bool = False) -> Uuid:
    by_hand = bool(topic.assignments)
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic.name,
                num_partitions=BROKER_DEFAULT if by_hand else topic.partitions,
                replication_factor=BROKER_DEFAULT if by_hand else topic.replication_factor,
                assignments=[
                    CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
                    for index, replicas in enumerate(topic.assignments)
                ],
                configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
            )
        ],
        timeout_ms=cluster.request_timeout_ms,
        validate_only=validate_only,
    )
    response = await cluster.request_controller(
        request, CreateTopicsResponse, lambda reply: [result.error_code for result in reply.topics]
    )
    (result,) = response.topics
    _raise_if(result.error_code, result.error_message)
    return result.topic_id


async def delete_topics(cluster: Cluster, names: Iterable[str]) -> dict[str, KafkaError | None]:
    """The outcome for each name."""
    # Versions before 6 (Kafka 2.8) named topics in another field; they are refused when the request is encoded.
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name) for name in names], timeout_ms=cluster.request_timeout_ms
    )
    response = await cluster.request_controller(
        request, DeleteTopicsResponse, lambda reply: [result.error_code for result in reply.responses]
    )
    return {
        result.name or "": kafka_error(result.error_code, result.error_message) if result.error_code else None
        for result in response.responses
    }


async def create_partitions(
    cluster: Cluster, topic: str, total: int, assignments: Sequence[Sequence[int]] = ()
) -> None:
    """Grows a topic to `total` partitions; `assignments` are the replicas of the new ones."""
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(
                name=topic,
                count=total,
                assignments=[CreatePartitionsAssignment(broker_ids=list(replicas)) for replicas in assignments] or None,
            )
        ],
        timeout_ms=cluster.request_timeout_ms,
    )
    response = await cluster.request_controller(
        request, CreatePartitionsResponse, lambda reply: [result.error_code for result in reply.results]
    )
    (result,) = response.results
    _raise_if(result.error_code, result.error_message)


async def describe_topic_configs(cluster: Cluster, names: Iterable[str]) -> dict[str, list[ConfigValue]]:
    """The settings of each topic, sorted by name; a topic that is gone by now is left out."""
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=None)
            for name in names
        ]
    )
    if not request.resources:
        return {}
    response = await cluster.request_any(request, DescribeConfigsResponse)
    return {
        result.resource_name: sorted(
            ConfigValue(entry.name, entry.value, entry.config_source == _TOPIC_SOURCE) for entry in result.configs
        )
        for result in response.results
        if not result.error_code
    }


async def api_versions(cluster: Cluster) -> dict[Broker, dict[int, range] | KafkaError]:
    """What each broker speaks, or why it could not be asked."""
    view = await cluster.refresh([])
    answers: dict[Broker, dict[int, range] | KafkaError] = {}
    for node_id in sorted(view.brokers):
        try:
            answers[view.brokers[node_id]] = (await cluster.connection_to(node_id)).api_versions
        except KafkaError as e:
            answers[view.brokers[node_id]] = e
    return answers


def _raise_if(error_code: int, message: str | None) -> None:
    if error_code:
        raise kafka_error(error_code, message)
