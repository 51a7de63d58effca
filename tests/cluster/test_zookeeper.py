"""Clusters on a real ZooKeeper: what brokers leave there, what they make of what others left, and life without it."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

import ottla.aio as aio
from ottla import ConfigChange, ConfigResource, ElectionType, NewTopic, Outcomes
from ottla.base.errors import KafkaError, StartError
from ottla.base.types import TopicPartition
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.node import Broker
from ottla.broker.startup import start_broker
from ottla.metadata.zookeeper.address import EnsembleAddress
from ottla.metadata.zookeeper.store import ZooKeeperStore
from tests.cluster.local_cluster import IDS, LocalCluster, in_cluster, send_some
from tests.unit.metadata.stores import end_session
from tests.waiting import run_async, until
from tests.zookeeper_process import ZooKeeperProcesses

SESSION_MS = "3000"


def cluster_settings(connect: str) -> dict[str, str]:
    return {"zookeeper_connect": connect, "zookeeper_session_timeout_ms": SESSION_MS}


# Nodes


def nodes_of(connect: str) -> dict[str, tuple[int, bool, Any]]:
    """Version, whether it is ephemeral, and content of every node, times and ids made equal."""
    address = EnsembleAddress.parse(connect)
    client = KazooClient(address.hosts)
    client.start()
    found: dict[str, tuple[int, bool, Any]] = {}

    def walk(path: str) -> None:
        data, stat = client.get(address.chroot + path)
        text = None if data is None else re.sub(r'("timestamp":)"\d{13}"', r'\1"<ts>"', data.decode())
        text = None if text is None else re.sub(r'("(?:topic_id|id)":)"[\w-]{22}"', r'\1"<id>"', text)
        found[path] = (stat.version, stat.ephemeralOwner != 0, text if text is None else json.loads(text))
        for name in client.get_children(address.chroot + path):
            # Brokers work on: a node may go while others are looked at.
            with suppress(NoNodeError):
                walk(f"{path}/{name}")

    try:
        walk("")
    finally:
        client.stop()
        client.close()
    return found


def kept(version: int, content: Any = None) -> tuple[int, bool, Any]:
    return version, False, content


def state(leader: int, isr: list[int]) -> dict[str, Any]:
    return {"controller_epoch": 1, "leader": leader, "version": 1, "leader_epoch": 0, "isr": isr}


def topic_node(partitions: dict[str, list[int]]) -> dict[str, Any]:
    moves: dict[str, Any] = {"adding_replicas": {}, "removing_replicas": {}}
    return {"version": 3, "topic_id": "<id>", "partitions": partitions, **moves}


OF_EVERY_CLUSTER = {
    **{
        path: kept(0)
        for path in (
            "",
            *("/admin", "/admin/delete_topics", "/brokers", "/brokers/ids", "/brokers/seqid", "/brokers/topics"),
            *("/cluster", "/config", "/config/brokers", "/config/changes", "/config/clients", "/config/ips"),
            *("/config/topics", "/config/users", "/consumers", "/isr_change_notification"),
            *("/latest_producer_id_block", "/log_dir_event_notification"),
        )
    },
    "/cluster/id": kept(0, {"version": "1", "id": "<id>"}),
    "/controller": (0, True, {"version": 2, "brokerid": 1, "timestamp": "<ts>", "kraftControllerEpoch": -1}),
    "/controller_epoch": kept(1, 1),
    "/feature": kept(0, {"features": {}, "version": 2, "status": 1}),
}
"""What Apache Kafka 3.9 leaves after its start on an empty ZooKeeper; each broker adds its own node."""


def broker_node(broker: Broker) -> tuple[int, bool, Any]:
    port = broker.endpoints[0].port
    content = {
        "features": {},
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        "endpoints": [f"PLAINTEXT://127.0.0.1:{port}"],
        "jmx_port": -1,
        "port": port,
        "host": "127.0.0.1",
        "version": 5,
        "timestamp": "<ts>",
    }
    return 1, True, content


def test_nodes_are_those_that_kafka_leaves_for_the_same_commands(zookeeper: ZooKeeperProcesses, tmp_path: Path) -> None:
    connect = zookeeper.new_cluster() + "/deep/er"
    replicas = [[3, 1, 2], [1, 2, 3]]

    async def scenario(cluster: LocalCluster) -> None:
        async def nodes() -> dict[str, tuple[int, bool, Any]]:
            return await asyncio.to_thread(nodes_of, connect)

        before = await nodes()
        brokers = {f"/brokers/ids/{broker_id}": broker_node(cluster.brokers[broker_id]) for broker_id in IDS}
        assert before == {**OF_EVERY_CLUSTER, **brokers}
        async with aio.Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            (await admin.create_topics([NewTopic("t", assignments=replicas)])).check()
            created = {
                "/brokers/topics/t": kept(0, topic_node({"0": [3, 1, 2], "1": [1, 2, 3]})),
                "/brokers/topics/t/partitions": kept(0),
                "/brokers/topics/t/partitions/0": kept(0),
                "/brokers/topics/t/partitions/0/state": kept(0, state(3, [3, 1, 2])),
                "/brokers/topics/t/partitions/1": kept(0),
                "/brokers/topics/t/partitions/1/state": kept(0, state(1, [1, 2, 3])),
                "/config/topics/t": kept(0, {"version": 1, "config": {}}),
            }
            assert await nodes() == {**before, **created}
            change = {ConfigResource.topic("t"): [ConfigChange("retention.ms", "86400000")]}
            (await admin.incremental_alter_configs(change)).check()
            changed = {
                "/config/topics/t": kept(1, {"version": 1, "config": {"retention.ms": "86400000"}}),
                "/config/changes/config_change_0000000000": kept(0, {"version": 2, "entity_path": "topics/t"}),
            }
            assert await nodes() == {**before, **created, **changed}
            (await admin.create_partitions({"t": 3})).check()
            grown = await nodes()
            _, _, topic = grown["/brokers/topics/t"]
            third = topic["partitions"].pop("2")
            assert topic == topic_node({"0": [3, 1, 2], "1": [1, 2, 3]}) and sorted(third) == [1, 2, 3]
            assert grown == {
                **before,
                **created,
                **changed,
                "/brokers/topics/t": kept(1, topic),
                "/brokers/topics/t/partitions/2": kept(0),
                "/brokers/topics/t/partitions/2/state": kept(0, state(third[0], third)),
            }
            (await admin.delete_topics(["t"])).check()
        notification = "/config/changes/config_change_0000000000"
        assert await nodes() == {**before, notification: changed[notification]}

    in_cluster(tmp_path, scenario, **cluster_settings(connect))


# Brokers


def test_a_broker_that_loses_its_session_comes_back_by_itself(zookeeper: ZooKeeperProcesses, tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster) -> None:
        await cluster.create("t", partitions=3)
        controller = cluster.controller
        epoch = controller.orders.broker_epoch
        store = controller.producer_ids._store
        assert isinstance(store, ZooKeeperStore)
        async with cluster.producer() as producer:
            await send_some(producer, "t", 50, "before")
            await asyncio.to_thread(end_session, zookeeper.connect, store.client_id)
            await send_some(producer, "t", 200, "meanwhile")
        await until(lambda: controller.orders.broker_epoch > epoch)
        await until(lambda: sum(broker.controller.is_active for broker in cluster.brokers.values()) == 1)
        await cluster.in_sync("t", 3, *IDS)
        cluster.assert_identical("t", 3)

    in_cluster(tmp_path, scenario, **cluster_settings(zookeeper.new_cluster()))


def test_without_zookeeper_nothing_is_decided_but_records_go_on(tmp_path: Path) -> None:
    ensemble = ZooKeeperProcesses(tmp_path / "zookeeper")
    ensemble.start()

    async def scenario(cluster: LocalCluster) -> None:
        await cluster.create("t", partitions=3)
        epochs = {broker_id: broker.orders.broker_epoch for broker_id, broker in cluster.brokers.items()}
        async with (
            cluster.producer() as producer,
            aio.Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin,
        ):
            await send_some(producer, "t", 20, "before")
            await asyncio.to_thread(ensemble.kill)
            await send_some(producer, "t", 100, "without")
            with pytest.raises(KafkaError, match=r"ZooKeeper \(127\.0\.0\.1:\d+\) cannot be reached"):
                (await admin.create_topics([NewTopic("u", 1, 3)])).check()
            await send_some(producer, "t", 100, "still without")
            await asyncio.to_thread(ensemble.start)
            await send_some(producer, "t", 20, "after")
            await until_created(admin, "u")
        assert epochs == {broker_id: broker.orders.broker_epoch for broker_id, broker in cluster.brokers.items()}, (
            "sessions outlive a ZooKeeper that is away"
        )
        await cluster.in_sync("t", 3, *IDS)
        cluster.assert_identical("t", 3)

    try:
        in_cluster(tmp_path, scenario, **cluster_settings(ensemble.new_cluster()))
    finally:
        ensemble.kill()


def test_whatever_is_asked_for_without_zookeeper_is_refused_by_its_name(tmp_path: Path) -> None:
    """At once or after a third of a session: nobody has to wait for as long as a request may take."""
    ensemble = ZooKeeperProcesses(tmp_path / "zookeeper")
    ensemble.start()
    moved, settings = TopicPartition("t", 0), ConfigChange("retention.ms", "86400000")
    limit = ConfigChange("message.max.bytes", "5000000")

    async def scenario(cluster: LocalCluster) -> None:
        await cluster.create("t", partitions=3)
        async with aio.Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            await asyncio.to_thread(ensemble.kill)
            for asked in (
                admin.create_topics([NewTopic("u", 1, 3)]),
                admin.delete_topics(["t"]),
                admin.create_partitions({"t": 5}),
                admin.incremental_alter_configs({ConfigResource.topic("t"): [settings]}),
                admin.incremental_alter_configs({ConfigResource.broker(): [limit]}),
                admin.incremental_alter_configs({ConfigResource.broker(2): [limit]}),
                admin.alter_partition_reassignments({moved: [1, 2]}),
                admin.elect_leaders([moved]),
                admin.elect_leaders([moved], kind=ElectionType.UNCLEAN),
                admin.elect_leaders(),
            ):
                outcomes: Outcomes[Any, Any] = await asked
                assert len(outcomes.results) == 0
                for error in outcomes.errors.values():
                    assert re.search(r"ZooKeeper \(127\.0\.0\.1:\d+\) cannot be reached", error.message), error
            # What brokers know they say.
            assert (await admin.describe_configs([ConfigResource.topic("t")])).errors == {}
            assert await admin.list_partition_reassignments() == {}
            assert set(await admin.list_topics()) == {"t"}
            await asyncio.to_thread(ensemble.start)
            await until_created(admin, "u")
            assert len((await admin.describe_topics(["t"]))["t"].partitions) == 3

    try:
        in_cluster(tmp_path, scenario, **cluster_settings(ensemble.new_cluster()))
    finally:
        ensemble.kill()


async def until_created(admin: aio.Admin, topic: str) -> None:
    while True:
        try:
            (await admin.create_topics([NewTopic(topic, 1, 3)])).check()
            return
        except KafkaError as e:
            assert "ZooKeeper" in e.message or "exists" in e.message, e
            if "exists" in e.message:
                return
            await asyncio.sleep(0.1)


# Bad input


async def refusal(connect: str, directory: Path, **settings: str) -> str:
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(directory),
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": "1000",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    with pytest.raises(StartError) as refused:
        await start_broker(BrokerConfig(config))
    return str(refused.value)


def test_who_may_not_join_is_told_why(zookeeper: ZooKeeperProcesses, tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster) -> None:
        connect = cluster.controller.config.text("zookeeper.connect")
        taken = await refusal(connect, tmp_path / "second", broker_id="2")
        assert taken.startswith("another live broker has the id 2; give this one another broker.id")
        await cluster.stop(3)
        directory = tmp_path / "broker-3"
        nowhere = await refusal(zookeeper.new_cluster(), directory, broker_id="3")
        assert "but there is no cluster at zookeeper.connect=" in nowhere
        other = zookeeper.new_cluster()
        of_other = LocalCluster(tmp_path / "other", **cluster_settings(other))
        await of_other.start(1)
        try:
            assert await refusal(other, directory, broker_id="3") == (
                f"the log directory {directory} belongs to cluster {cluster.controller.cluster_id}, "
                f"this cluster is {of_other.brokers[1].cluster_id}"
            )
        finally:
            await of_other.end()

    in_cluster(tmp_path, scenario, **cluster_settings(zookeeper.new_cluster()))


def test_a_zookeeper_that_is_not_there_is_named(tmp_path: Path) -> None:
    reason = run_async(refusal("127.0.0.1:1,127.0.0.1:2/kafka", tmp_path))
    assert reason.startswith("ZooKeeper (127.0.0.1:1,127.0.0.1:2) cannot be reached: 127.0.0.1:")
    assert "`ottla zookeeper start`" in reason


def test_nodes_that_cannot_be_understood_cost_their_own_topic_only(
    zookeeper: ZooKeeperProcesses, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    connect = zookeeper.new_cluster()

    async def scenario(cluster: LocalCluster) -> None:
        for topic in ("good", "old", "older", "bad", "worse", "empty", "deep"):
            await cluster.create(topic)
        await asyncio.to_thread(damage, connect)
        caplog.set_level(logging.ERROR)
        first = cluster.controller
        await cluster.stop(first.broker_id)
        await until(lambda: any(broker.controller.is_active for broker in cluster.brokers.values()))
        await cluster.start(first.broker_id)
        assert cluster.controller.controller.state.topics.keys() == {"good", "old", "older"}
        assert set(cluster.controller.controller.state.brokers) == set(IDS)
        said = caplog.text
        assert "topic 'bad' is set aside until its node is mended: /brokers/topics/bad: it holds no JSON" in said
        assert "/brokers/topics/worse/partitions/0/state: its isr are not lists of numbers" in said
        assert "/brokers/topics/empty: its partition 0 has no replicas" in said
        assert "/brokers/topics/deep: it holds no JSON: it is nested too deeply" in said
        assert "topic 'no name' is set aside until its node is mended: /brokers/topics/no name: " in said
        assert "broker 77 is left out, for its node /brokers/ids/77 cannot be used: it holds no JSON object" in said
        assert "broker 78 is left out, for its node /brokers/ids/78 cannot be used: its endpoints are no list" in said
        assert "the settings in /config/topics/good are left out, for they cannot be used: its config is no" in said
        assert "settings of topic old are left out, for they cannot be used: unknown topic setting colour" in said
        assert "a stored setting of all brokers is left out, for it cannot be used: unknown broker setting" in said
        returned = cluster.brokers[first.broker_id]
        assert returned.dynamic_configs.log_config("old").max_message_bytes == 5000
        assert returned.config.integer("log.cleaner.threads") == 2
        async with cluster.producer() as producer:
            for topic in ("good", "old", "older"):
                await send_some(producer, topic, 10, "x")
        for topic in ("good", "old", "older"):
            await cluster.in_sync(topic, 1, *IDS)
        async with aio.Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            with pytest.raises(KafkaError, match="cannot be used until its node in the metadata store is mended"):
                (await admin.create_topics([NewTopic("bad", 1, 3)])).check()

    in_cluster(tmp_path, scenario, **cluster_settings(connect))


def damage(connect: str) -> None:
    address = EnsembleAddress.parse(connect)
    client = KazooClient(address.hosts)
    client.start()
    try:
        topics = f"{address.chroot}/brokers/topics"
        client.set(f"{topics}/bad", b"\xff{ nothing")
        content = json.loads(client.get(f"{topics}/worse/partitions/0/state")[0])
        client.set(f"{topics}/worse/partitions/0/state", json.dumps({**content, "isr": "1,2"}).encode())
        # As Kafka 2 wrote it, with something that nobody knows.
        content = json.loads(client.get(f"{topics}/old")[0])
        old = {"version": 1, "partitions": content["partitions"], "colour": "green"}
        client.set(f"{topics}/old", json.dumps(old).encode())
        older = {"version": 2, "partitions": content["partitions"], "adding_replicas": {}, "removing_replicas": {}}
        client.set(f"{topics}/older", json.dumps(older).encode())
        client.set(f"{topics}/empty", b'{"version":1,"partitions":{"0":[]}}')
        client.set(f"{topics}/deep", b"[" * 100_000)
        client.create(f"{topics}/no name", json.dumps(old).encode())
        client.set(f"{address.chroot}/config/topics/good", b"{}")
        settings = {"version": 1, "config": {"colour": "green", "max.message.bytes": "5000"}}
        client.set(f"{address.chroot}/config/topics/old", json.dumps(settings).encode())
        settings = {"version": 1, "config": {"colour": "green", "log.cleaner.threads": "2"}}
        client.create(f"{address.chroot}/config/brokers/<default>", json.dumps(settings).encode())
        client.create(f"{address.chroot}/brokers/ids/77", b"[]", ephemeral=False)
        client.create(f"{address.chroot}/brokers/ids/78", b'{"endpoints":5}', ephemeral=False)
        client.create(f"{address.chroot}/isr_change_notification/isr_change_0000009999", b"nonsense")
        client.create(f"{address.chroot}/log_dir_event_notification/log_dir_event_0000009999", b"{}")
        client.create(f"{address.chroot}/config/changes/config_change_0000009999", b'{"version":2}')
    finally:
        client.stop()
        client.close()
