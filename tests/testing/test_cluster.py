"""Three brokers in one process, and what their faults do, seen by clients none of us wrote."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.base.errors import ErrorCode, InvalidConfigError, KafkaError
from ottla.testing import EmbeddedBroker, EmbeddedCluster
from tests.waiting import PATIENCE_S, repeat_until

CLEAN = ".kafka_cleanshutdown"


def producer_of(cluster: EmbeddedCluster, **settings: object) -> Producer:
    quick = {"reconnect.backoff.max.ms": 100, "log_level": 0}
    return Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", **quick, **settings})


def send(producer: Producer, topic: str, values: list[bytes]) -> None:
    """Returns when every one of them is acknowledged."""
    errors: list[object] = []
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert errors == [None] * len(values)


def received(servers: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        found = consumer.consume(count, timeout=PATIENCE_S)
        assert [message.error() for message in found] == [None] * count
        return [message.value() for message in found]
    finally:
        consumer.close()


def numbered(name: str, count: int = 20) -> list[bytes]:
    return [f"{name} {number}".encode() for number in range(count)]


def other_than(*taken: int | None) -> int:
    return next(broker_id for broker_id in (1, 2, 3) if broker_id not in taken)


@pytest.mark.ottla({"min.insync.replicas": 2})
def test_a_leader_that_is_killed_and_its_return(ottla_cluster: EmbeddedCluster) -> None:
    cluster = ottla_cluster
    cluster.create_topic("orders")
    producer = producer_of(cluster)
    send(producer, "orders", numbered("before"))
    killed = cluster.leader_of("orders")
    assert killed is not None
    cluster.kill(killed)
    assert not (cluster[killed].data_dir / CLEAN).exists()
    send(producer, "orders", numbered("after"))
    assert cluster.leader_of("orders") != killed
    assert cluster.isr_of("orders") == {1, 2, 3} - {killed}
    cluster.restart(killed)
    cluster.wait_in_sync("orders")
    cluster.move_leader("orders", 0, to=killed)
    assert cluster.leader_of("orders") == killed
    assert received(cluster[killed].bootstrap_servers, "orders", 40) == numbered("before") + numbered("after")


def test_a_leader_that_stands_still_is_replaced_and_comes_back(ottla_cluster: EmbeddedCluster) -> None:
    cluster = ottla_cluster
    cluster.create_topic("orders", config={"min.insync.replicas": 2})
    producer = producer_of(cluster, **{"socket.timeout.ms": 1_000})
    send(producer, "orders", numbered("before"))
    paused = cluster.leader_of("orders")
    assert paused is not None
    cluster.pause(paused)
    assert paused not in cluster.running_ids
    repeat_until(lambda: cluster.leader_of("orders") not in (None, paused))
    send(producer, "orders", numbered("meanwhile"))
    cluster.resume(paused)
    cluster.wait_in_sync("orders")
    cluster.move_leader("orders", 0, to=paused)
    assert received(cluster[paused].bootstrap_servers, "orders", 40) == numbered("before") + numbered("meanwhile")


def test_between_two_brokers_that_are_cut_off_no_byte_passes(ottla_cluster: EmbeddedCluster) -> None:
    cluster = ottla_cluster
    controller = cluster.controller_id
    follower = other_than(controller)
    cluster.create_topic("orders", replicas={0: [controller, follower]})
    producer = producer_of(cluster, acks=1)
    send(producer, "orders", numbered("before"))
    cluster.cut(follower, controller, one_way=True)
    asking, asked = cluster.link(follower, controller).figures, cluster.link(controller, follower).figures
    passed = (asking.request_bytes, asking.reply_bytes)
    send(producer, "orders", numbered("meanwhile"))
    repeat_until(lambda: cluster.isr_of("orders") == {controller})
    assert (asking.request_bytes, asking.reply_bytes) == passed
    other_way = asked.request_bytes
    cluster.create_topic("others", replicas={0: [controller, follower]})
    repeat_until(lambda: asked.request_bytes > other_way)
    cluster.heal()
    cluster.wait_in_sync("orders")
    assert (asking.request_bytes, asking.reply_bytes) != passed


def test_a_cut_is_both_ways_unless_told_otherwise(ottla_cluster: EmbeddedCluster) -> None:
    controller = ottla_cluster.controller_id
    one = other_than(controller)
    other = other_than(controller, one)
    ottla_cluster.create_topic("by-one", replicas={0: [one, other]})
    ottla_cluster.create_topic("by-other", replicas={0: [other, one]})
    ottla_cluster.cut(one, other)
    producer = producer_of(ottla_cluster, acks=1)
    for topic in ("by-one", "by-other"):
        send(producer, topic, numbered("lost on the way"))
    repeat_until(lambda: (ottla_cluster.isr_of("by-one"), ottla_cluster.isr_of("by-other")) == ({one}, {other}))
    ottla_cluster.heal()
    for topic in ("by-one", "by-other"):
        ottla_cluster.wait_in_sync(topic)


def test_a_broker_whose_session_expires_registers_anew(ottla_cluster: EmbeddedCluster) -> None:
    ottla_cluster.create_topic("orders")
    leader = ottla_cluster.leader_of("orders")
    assert leader is not None
    orders = ottla_cluster[leader].running.orders
    before = orders.broker_epoch
    ottla_cluster.expire_session(leader)
    repeat_until(lambda: orders.broker_epoch > before)
    ottla_cluster.wait_in_sync("orders")
    send(producer_of(ottla_cluster), "orders", numbered("after"))


def test_kafka_python_follows_leaders(ottla_cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "kafka")
    ottla_cluster.create_topic("orders")
    producer = kafka.KafkaProducer(bootstrap_servers=ottla_cluster.bootstrap_servers.split(","), acks="all", retries=50)
    sent = []
    for leader in (1, 2, 3):
        ottla_cluster.move_leader("orders", 0, to=leader)
        for value in numbered(f"led by {leader}", 5):
            producer.send("orders", value).get(PATIENCE_S)
            sent.append(value)
    ottla_cluster.kill(3)
    producer.send("orders", b"last").get(PATIENCE_S)
    producer.close()
    consumer = kafka.KafkaConsumer(bootstrap_servers=ottla_cluster.bootstrap_servers.split(","))
    consumer.assign([kafka.TopicPartition("orders", 0)])
    consumer.seek_to_beginning()
    found: list[bytes] = []
    repeat_until(
        lambda: len(found) >= 16,
        lambda: found.extend(r.value for records in consumer.poll(200).values() for r in records),
    )
    consumer.close()
    assert found == [*sent, b"last"]


def test_aiokafka_survives_every_broker_in_turn(
    ottla_cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "aiokafka")
    ottla_cluster.create_topic("orders", config={"min.insync.replicas": 2})

    async def scenario() -> list[bytes]:
        servers = ottla_cluster.bootstrap_servers
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers, enable_idempotence=True, request_timeout_ms=5_000, metadata_max_age_ms=500
        )
        await producer.start()
        for broker_id in (1, 2, 3):
            await asyncio.to_thread(ottla_cluster.kill, broker_id)
            for value in numbered(f"without {broker_id}", 5):
                await producer.send_and_wait("orders", value)
            await asyncio.to_thread(ottla_cluster.restart, broker_id)
            await asyncio.to_thread(ottla_cluster.wait_in_sync, "orders")
        await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer("orders", bootstrap_servers=servers, auto_offset_reset="earliest")
        await consumer.start()
        try:
            return [(await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value for _ in range(15)]
        finally:
            await consumer.stop()

    found = asyncio.run(scenario())
    assert found == [value for broker_id in (1, 2, 3) for value in numbered(f"without {broker_id}", 5)]


def test_brokers_can_differ_and_have_faults_of_their_own() -> None:
    with EmbeddedCluster(broker_config={2: {"broker.rack": "upstairs"}}) as cluster:
        cluster.create_topic("two", replication_factor=2, partitions=3)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        partitions = admin.list_topics("two", timeout=PATIENCE_S).topics["two"].partitions
        assert {len(partition.replicas) for partition in partitions.values()} == {2}
        described = admin.describe_cluster().result(PATIENCE_S)
        assert {node.id: node.rack for node in described.nodes} == {1: None, 2: "upstairs", 3: None}
        assert described.controller.id == cluster.controller_id


def refused(cluster: EmbeddedCluster, act: Callable[[EmbeddedCluster], object]) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        act(cluster)
    return caught.value


def test_what_cannot_be_is_said(ottla_cluster: EmbeddedCluster) -> None:
    cluster = ottla_cluster
    cluster.create_topic("two", replicas={0: [1, 2]})
    assert refused(cluster, lambda c: c.leader_of("none")).code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refused(cluster, lambda c: c.isr_of("two", 1)).code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refused(cluster, lambda c: c.wait_in_sync("none")).code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "only [1, 2] are alive and in sync" in str(refused(cluster, lambda c: c.move_leader("two", 0, to=3)))
    factor = refused(cluster, lambda c: c.create_topic("four", replication_factor=4))
    assert factor.code == ErrorCode.INVALID_REPLICATION_FACTOR
    with pytest.raises(KeyError, match="no broker 4; there are 1, 2, 3"):
        cluster.kill(4)
    with pytest.raises(ValueError, match="itself"):
        cluster.cut(1, 1)
    with pytest.raises(RuntimeError, match="running already"):
        cluster.start()
    cluster.kill(3)
    with pytest.raises(RuntimeError, match="no session"):
        cluster.expire_session(3)
    with pytest.raises(RuntimeError, match="not running"):
        cluster.pause(3)
    cluster.pause(2)
    with pytest.raises(RuntimeError, match="paused"):
        cluster[2].create_topic("never")


def test_a_cluster_that_cannot_start_leaves_nothing_behind() -> None:
    cluster = EmbeddedCluster(config={"num.partitions": "many"})
    with pytest.raises(InvalidConfigError, match=r"num\.partitions"):
        cluster.start()
    with pytest.raises(RuntimeError, match="not running"):
        cluster.leader_of("t")
    cluster.stop()


def test_a_single_broker_can_be_killed_too() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("kept")
        settings = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, "reconnect.backoff.max.ms": 100}
        producer = Producer(settings)
        send(producer, "kept", numbered("before"))
        broker.kill()
        assert not broker.is_running and not (broker.data_dir / CLEAN).exists()
        broker.restart()
        send(producer, "kept", numbered("after"))
        assert received(broker.bootstrap_servers, "kept", 40) == numbered("before") + numbered("after")
