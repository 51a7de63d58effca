"""Finding a cluster and routing requests in it."""

from __future__ import annotations

import asyncio
import socket

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.client.cluster import Cluster, parse_bootstrap_servers
from ottla.client.errors import ClusterUnreachableError
from ottla.wire.apis.metadata import MetadataRequest, MetadataResponsePartition, MetadataResponseTopic

from .scripted_broker import ScriptedBroker


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:1", [("a", 1)]),
        ("a:1, b:2,", [("a", 1), ("b", 2)]),
        ("[::1]:3", [("::1", 3)]),
        ("host", [("host", 9092)]),
    ],
)
def test_bootstrap_servers(text: str, expected: list[tuple[str, int]]) -> None:
    assert parse_bootstrap_servers(text) == expected


@pytest.mark.parametrize("text", ["", ",", "a:b", ":1", "a:0", "a:65536"])
def test_bad_bootstrap_servers(text: str) -> None:
    with pytest.raises(ValueError, match=r"host:port|no bootstrap"):
        parse_bootstrap_servers(text)


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_an_unreachable_cluster_is_named_with_the_reason() -> None:
    port = closed_port()
    with pytest.raises(ClusterUnreachableError) as caught:
        asyncio.run(Cluster.connect(f"127.0.0.1:{port}", client_id="test"))
    assert caught.value.message.startswith(f"cannot reach 127.0.0.1:{port}: ")
    assert "refused" in caught.value.message


def test_the_second_bootstrap_server_will_do() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.on(MetadataRequest, lambda _: broker.metadata(cluster_id="c"))
            cluster = await Cluster.connect(f"127.0.0.1:{closed_port()},{broker.address}", client_id="test")
            assert cluster.view.cluster_id == "c"
            assert cluster.view.brokers[1].port == broker.port
            cluster.close()

    asyncio.run(scenario())


def topic(leader_id: int) -> MetadataResponseTopic:
    partition = MetadataResponsePartition(partition_index=0, leader_id=leader_id, replica_nodes=[1], isr_nodes=[1])
    return MetadataResponseTopic(name="t", partitions=[partition])


def test_a_topic_is_waited_for_until_it_has_leaders() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            leaders = iter([-1, -1, 1, 1])
            broker.on(
                MetadataRequest,
                lambda request: broker.metadata(topics=[topic(next(leaders))] if request.topics else []),
            )
            cluster = await Cluster.connect(broker.address, client_id="test")
            info = await cluster.topic("t")
            assert info.partitions[0].leader_id == 1
            assert cluster.leader_of(TopicPartition("t", 0)) == 1
            with pytest.raises(KafkaError, match="no leader is known for t-9"):
                cluster.leader_of(TopicPartition("t", 9))
            cluster.close()

    asyncio.run(scenario())


def test_a_missing_topic_is_an_error_in_words() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            missing = MetadataResponseTopic(name="t", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            broker.on(MetadataRequest, lambda request: broker.metadata(topics=[missing] if request.topics else []))
            cluster = await Cluster.connect(broker.address, client_id="test")
            with pytest.raises(KafkaError, match="topic t: ") as caught:
                await cluster.topic("t")
            assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            cluster.close()

    asyncio.run(scenario())


def test_a_lost_connection_is_opened_again(mock_cluster: str) -> None:
    async def scenario() -> None:
        cluster = await Cluster.connect(mock_cluster, client_id="test")
        (await cluster.connection_to(1)).close()
        assert not (await cluster.connection_to(1)).is_closed
        cluster.close()

    asyncio.run(scenario())
