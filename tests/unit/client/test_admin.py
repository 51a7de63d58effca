"""Administration: what is sent, and what comes of the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.client import admin
from ottla.client.cluster import Cluster
from ottla.wire.apis.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ottla.wire.apis.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.apis.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from ottla.wire.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.wire.apis.metadata import MetadataRequest, MetadataResponseTopic

from .scripted_broker import ScriptedBroker


def run(prepare: Callable[[ScriptedBroker], None], scenario: Callable[[Cluster], Awaitable[None]]) -> ScriptedBroker:
    async def wrapped() -> ScriptedBroker:
        async with ScriptedBroker() as broker:
            broker.on(MetadataRequest, lambda _: broker.metadata())
            prepare(broker)
            cluster = await Cluster.connect(broker.address, client_id="test")
            try:
                await scenario(cluster)
            finally:
                cluster.close()
            return broker

    return asyncio.run(wrapped())


def test_topics_are_listed_by_name() -> None:
    async def scenario(cluster: Cluster) -> None:
        assert [topic.name for topic in await admin.list_topics(cluster)] == ["a", "b"]

    def prepare(broker: ScriptedBroker) -> None:
        topics = [MetadataResponseTopic(name="b"), MetadataResponseTopic(name="a")]
        broker.on(MetadataRequest, lambda request: broker.metadata(topics=topics if request.topics is None else []))

    run(prepare, scenario)


@pytest.mark.parametrize(
    ("topic", "numbers"),
    [
        (admin.NewTopic("t"), (-1, -1)),
        (admin.NewTopic("t", 3, 2), (3, 2)),
        (admin.NewTopic("t", assignments=[[1, 2], [2, 1]]), (-1, -1)),
    ],
)
def test_creating_a_topic(topic: admin.NewTopic, numbers: tuple[int, int]) -> None:
    async def scenario(cluster: Cluster) -> None:
        await admin.create_topic(cluster, topic._replace(configs={"retention.ms": "1"}))

    def prepare(broker: ScriptedBroker) -> None:
        broker.on(CreateTopicsRequest, lambda _: CreateTopicsResponse(topics=[CreatableTopicResult(name="t")]))

    (request,) = run(prepare, scenario).asked(CreateTopicsRequest)
    (sent,) = request.topics
    assert (sent.num_partitions, sent.replication_factor) == numbers
    assert [entry.broker_ids for entry in sent.assignments] == [list(replicas) for replicas in topic.assignments]
    assert [(config.name, config.value) for config in sent.configs] == [("retention.ms", "1")]


def test_a_refused_topic_carries_the_brokers_words() -> None:
    async def scenario(cluster: Cluster) -> None:
        with pytest.raises(KafkaError, match="the broker's words") as caught:
            await admin.create_topic(cluster, admin.NewTopic("t"))
        assert caught.value.code is ErrorCode.INVALID_PARTITIONS

    refused = CreatableTopicResult(
        name="t", error_code=ErrorCode.INVALID_PARTITIONS, error_message="the broker's words"
    )
    run(lambda broker: broker.on(CreateTopicsRequest, lambda _: CreateTopicsResponse(topics=[refused])), scenario)


def test_each_deleted_topic_has_an_outcome() -> None:
    async def scenario(cluster: Cluster) -> None:
        outcomes = await admin.delete_topics(cluster, ["a", "b"])
        assert outcomes["a"] is None
        assert outcomes["b"] is not None
        assert outcomes["b"].code is ErrorCode.TOPIC_DELETION_DISABLED

    results = [
        DeletableTopicResult(name="a"),
        DeletableTopicResult(name="b", error_code=ErrorCode.TOPIC_DELETION_DISABLED),
    ]
    broker = run(
        lambda broker: broker.on(DeleteTopicsRequest, lambda _: DeleteTopicsResponse(responses=results)), scenario
    )
    (request,) = broker.asked(DeleteTopicsRequest)
    assert [topic.name for topic in request.topics] == ["a", "b"]


def test_partitions_are_added() -> None:
    async def scenario(cluster: Cluster) -> None:
        await admin.create_partitions(cluster, "t", 5)

    answer = CreatePartitionsResponse(results=[CreatePartitionsTopicResult(name="t")])
    broker = run(lambda broker: broker.on(CreatePartitionsRequest, lambda _: answer), scenario)
    (request,) = broker.asked(CreatePartitionsRequest)
    assert (request.topics[0].count, request.topics[0].assignments) == (5, None)


def test_overrides_are_told_from_inherited_settings() -> None:
    async def scenario(cluster: Cluster) -> None:
        configs = await admin.describe_topic_configs(cluster, ["t", "gone"])
        assert configs == {
            "t": [admin.ConfigValue("a", "1", is_override=False), admin.ConfigValue("b", "2", is_override=True)]
        }
        assert await admin.describe_topic_configs(cluster, []) == {}

    answer = DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                resource_name="t",
                configs=[
                    DescribeConfigsResourceResult(name="b", value="2", config_source=1),
                    DescribeConfigsResourceResult(name="a", value="1", config_source=5),
                ],
            ),
            DescribeConfigsResult(resource_name="gone", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
    )
    run(lambda broker: broker.on(DescribeConfigsRequest, lambda _: answer), scenario)


def test_api_versions_of_every_broker(mock_cluster: str) -> None:
    async def scenario() -> None:
        cluster = await Cluster.connect(mock_cluster, client_id="test")
        answers = await admin.api_versions(cluster)
        assert [broker.node_id for broker in answers] == [1, 2, 3]
        for versions in answers.values():
            assert isinstance(versions, dict)
            assert MetadataRequest.API_KEY in versions
        cluster.close()

    asyncio.run(scenario())
