"""Consumers that read from a replica in their rack (KIP-392): what brokers answer, and what clients make of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import ottla
from ottla.base.errors import ErrorCode
from ottla.net.connection import Connection
from ottla.testing import ApiKey, EmbeddedCluster
from ottla.wire.apis.fetch import (
    FetchablePartitionResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from tests.waiting import PATIENCE_S, repeat_until

LEADER, NEAR, AWAY = 1, 2, 3
RACKS = {LEADER: "here", NEAR: "there", AWAY: "elsewhere"}
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
ASSIGNMENT = {0: [LEADER, NEAR, AWAY]}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    racks = {broker_id: {"broker.rack": rack} for broker_id, rack in RACKS.items()}
    with EmbeddedCluster(config={"replica.selector.class": SELECTOR}, broker_config=racks) as made:
        yield made


@pytest.fixture
def topic(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> str:
    return cluster.create_topic(request.node.name.replace("[", ".").rstrip("]"), replicas=ASSIGNMENT)


def send(cluster: EmbeddedCluster, topic: str, *values: bytes) -> None:
    """By a producer that would store twice what it has to send again."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 0})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(PATIENCE_S) == 0


def fetched(
    cluster: EmbeddedCluster,
    broker_id: int,
    topic: str,
    offset: int = 0,
    *,
    rack: str = "",
    version: int = 12,
    replica_id: int = -1,
    epoch: int = -1,
    wait_ms: int = 0,
) -> FetchablePartitionResponse:
    """What a broker answers, byte for byte as any client could ask."""

    async def ask() -> FetchablePartitionResponse:
        connection = await Connection.connect("127.0.0.1", cluster[broker_id].port)
        try:
            await connection.negotiate()
            wanted = FetchPartition(
                partition=0, fetch_offset=offset, current_leader_epoch=epoch, partition_max_bytes=1000
            )
            request = FetchRequest(
                replica_id=replica_id,
                replica_state=ReplicaState(),
                max_wait_ms=wait_ms,
                min_bytes=1,
                max_bytes=10_000,
                session_id=0,
                session_epoch=-1,
                topics=[FetchTopic(topic=topic, partitions=[wanted])],
                rack_id=rack,
            )
            response = await connection.request(request, FetchResponse, version=version)
            return response.responses[0].partitions[0]
        finally:
            connection.close()

    return asyncio.run(ask())


def until_followers_know(cluster: EmbeddedCluster, topic: str, high_watermark: int) -> None:
    def do_all_know() -> bool:
        found = [cluster[broker_id].running.replicas.find(topic, 0) for broker_id in RACKS]
        return all(copy is not None and copy.log.high_watermark == high_watermark for copy in found)

    repeat_until(do_all_know)


def test_what_brokers_answer(cluster: EmbeddedCluster, topic: str) -> None:
    send(cluster, topic, b"one", b"two")
    until_followers_know(cluster, topic, 2)
    sent_on = fetched(cluster, LEADER, topic, rack="there")
    assert (sent_on.error_code, sent_on.preferred_read_replica, sent_on.high_watermark) == (0, NEAR, 2)
    assert not sent_on.records
    for rack in ("", "here", "nowhere"):
        own = fetched(cluster, LEADER, topic, rack=rack)
        assert own.preferred_read_replica == -1 and b"one" in bytes(own.records or b"")
    followed = fetched(cluster, NEAR, topic, rack="there")
    assert followed.preferred_read_replica == -1 and b"one" in bytes(followed.records or b"")
    assert fetched(cluster, NEAR, topic, 2).error_code == ErrorCode.NONE
    assert fetched(cluster, NEAR, topic, 3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetched(cluster, NEAR, topic, epoch=0).error_code == ErrorCode.NONE
    assert fetched(cluster, NEAR, topic, epoch=1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert fetched(cluster, NEAR, topic, version=10).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    # A tool that compares replicas names itself -2, and sees what a consumer would.
    assert b"two" in bytes(fetched(cluster, AWAY, topic, replica_id=-2).records or b"")


def test_a_follower_gives_nothing_that_it_does_not_know_to_be_committed(cluster: EmbeddedCluster, topic: str) -> None:
    send(cluster, topic, b"one")
    until_followers_know(cluster, topic, 1)
    cluster.cut(AWAY, LEADER, one_way=True)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "1"})
    producer.produce(topic, b"two")
    assert producer.flush(PATIENCE_S) == 0
    copy = cluster[NEAR].running.replicas.find(topic, 0)
    assert copy is not None
    repeat_until(lambda: copy.log.log_end_offset == 2)
    assert not fetched(cluster, NEAR, topic, 1).records
    cluster.heal()
    # It waits at the follower, which tells it as soon as it knows.
    assert b"two" in bytes(fetched(cluster, NEAR, topic, 1, wait_ms=60_000).records or b"")
    cluster.wait_in_sync(topic)


def read_with_librdkafka(servers: str, topic: str, client_id: str, count: int) -> list[bytes | None]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": client_id,
            "client.id": client_id,
            "client.rack": "there",
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        return [message.value() for message in consumer.consume(count, timeout=PATIENCE_S)]
    finally:
        consumer.close()


def read_with_ottla(servers: str, topic: str, client_id: str, count: int) -> list[bytes | None]:
    settings = {"bootstrap.servers": servers, "client.id": client_id, "client.rack": "there"}
    found: list[bytes | None] = []
    with ottla.Consumer(settings) as consumer:
        consumer.assign([ottla.TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        repeat_until(lambda: len(found) >= count, lambda: found.extend(record.value for record in consumer.poll(1)))
    return found


@pytest.mark.parametrize("read", [read_with_librdkafka, read_with_ottla])
def test_consumers_read_where_they_are(
    cluster: EmbeddedCluster, topic: str, read: Callable[[str, str, str, int], list[bytes | None]]
) -> None:
    values = [f"value {number}".encode() for number in range(200)]
    send(cluster, topic, *values)
    client_id = f"reader-{read.__name__}"
    # Faults that do nothing but count.
    asked = {
        broker_id: cluster[broker_id].faults.delay(ApiKey.FETCH, 0, times=None, client_id=client_id)
        for broker_id in RACKS
    }
    # A leader that is asked more than once would give records itself: it must not have to.
    assert read(cluster.bootstrap_servers, topic, client_id, len(values)) == values
    assert asked[NEAR].hits > 0 and asked[AWAY].hits == 0
    assert asked[LEADER].hits >= 1
    for fault in asked.values():
        fault.cancel()


def test_a_follower_that_dies_costs_nothing_but_the_way(cluster: EmbeddedCluster, topic: str) -> None:
    values = [f"value {number}".encode() for number in range(20)]
    send(cluster, topic, *values[:10])
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "client.rack": "there", "retry.backoff.ms": "10"}
    with ottla.Consumer(settings) as consumer:
        consumer.assign([ottla.TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        found: list[bytes | None] = []

        def read() -> None:
            found.extend(record.value for record in consumer.poll(1))

        repeat_until(lambda: len(found) >= 10, read)
        cluster.kill(NEAR)
        send(cluster, topic, *values[10:])
        repeat_until(lambda: len(found) >= 20, read)
        assert found == values
    cluster.restart(NEAR)
    cluster.wait_in_sync(topic)


def test_without_a_selector_nobody_is_sent_anywhere() -> None:
    racks = {broker_id: {"broker.rack": rack} for broker_id, rack in RACKS.items()}
    with EmbeddedCluster(broker_config=racks) as cluster:
        topic = cluster.create_topic("t", replicas=ASSIGNMENT)
        send(cluster, topic, b"one")
        own = fetched(cluster, LEADER, topic, rack="there")
        assert own.preferred_read_replica == -1 and b"one" in bytes(own.records or b"")
