"""Partitions that move while they are written: three processes become four, one replica becomes three, and back."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest

import ottla.aio as aio
from ottla import Admin
from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.admin.types import ConfigChange, ConfigResource, NewTopic
from ottla.machines.cluster.controller import LeaderAsked
from tests.access.test_refusals import served_store
from tests.broker_process import BrokerProcess
from tests.cluster.load import load
from tests.cluster.local_cluster import LocalCluster, in_cluster, send_some
from tests.ports import free_ports
from tests.waiting import PATIENCE_S, repeat_until, until
from tests.zookeeper_process import ZooKeeperProcesses

pytestmark = pytest.mark.timeout(240)

SETTINGS = {
    "zookeeper.session.timeout.ms": "4000",
    "offsets.topic.num.partitions": "2",
    "log.segment.delete.delay.ms": "100",
    "replica.fetch.wait.max.ms": "200",
}
PARTITIONS = 6
MEGABYTE = 1_000_000


class Processes:
    """Three brokers, and a fourth that is not started yet."""

    def __init__(self, directory: Path, store: dict[str, str]) -> None:
        first = free_ports(4)
        self.directory = directory
        self.brokers = {
            broker_id: BrokerProcess(
                directory / f"broker-{broker_id}",
                {
                    **SETTINGS,
                    "broker.id": str(broker_id),
                    "listeners": f"PLAINTEXT://127.0.0.1:{first + broker_id - 1}",
                    **store,
                },
            )
            for broker_id in (1, 2, 3, 4)
        }
        self.servers = ",".join(f"127.0.0.1:{first + place}" for place in range(3))
        self.admin = Admin({"bootstrap.servers": self.servers})

    def ottla(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "ottla", *arguments, "--bootstrap-server", self.servers],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def replicas(self, topic: str) -> dict[int, tuple[int, ...]]:
        return {info.partition: tuple(info.replicas) for info in self.admin.describe_topics([topic])[topic].partitions}

    def holders(self, topic: str, partition: int = 0) -> set[int]:
        """Brokers on whose disks the partition is."""
        return {b for b in self.brokers if (self.directory / f"broker-{b}" / f"{topic}-{partition}").exists()}


@contextmanager
def store_settings(kind: str, directory: Path, request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    if kind == "zookeeper":
        zookeeper: ZooKeeperProcesses = request.getfixturevalue("zookeeper")
        yield {"zookeeper.connect": zookeeper.new_cluster()}
    else:
        with served_store(directory):
            yield {"ottla.cluster.dir": str(directory)}


@pytest.fixture(scope="module", params=["served", "zookeeper"])
def processes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    directory = tmp_path_factory.mktemp("cluster")
    with store_settings(request.param, directory, request) as settings:
        made = Processes(directory, settings)
        try:
            for broker_id in (1, 2, 3):
                made.brokers[broker_id].start()
            yield made
        finally:
            made.admin.close()
            for broker in made.brokers.values():
                broker.kill()


def read_all(servers: str, topic: str, partitions: int) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "reader", "enable.partition.eof": True, "log_level": 0}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(partitions)])
    found: list[bytes] = []
    ends = 0
    try:
        while ends < partitions:
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            if message.error() is not None:
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
                ends += 1
            else:
                found.append(message.value() or b"")
        return found
    finally:
        consumer.close()


def test_a_fourth_broker_gets_its_share_under_load(processes: Processes) -> None:
    cluster = processes
    settings = {"min.insync.replicas": "2"}
    cluster.admin.create_topics([NewTopic("busy", PARTITIONS, 3, configs=settings)]).check()
    with load(cluster.servers, "busy") as acknowledged:
        cluster.brokers[4].start()
        repeat_until(lambda: 4 in cluster.admin.describe_cluster().brokers)
        shown = cluster.ottla("cluster", "add-broker", "4")
        assert "Nothing was moved" in shown and 4 not in {b for r in cluster.replicas("busy").values() for b in r}
        assert "Done: broker 4 holds" in cluster.ottla("cluster", "add-broker", "4", "--yes")
        count = len(acknowledged)
        repeat_until(lambda: len(acknowledged) > count + 100)
    assert "Nothing has to move" in cluster.ottla("cluster", "add-broker", "4")
    moved = cluster.replicas("busy")
    assert sum(4 in replicas for replicas in moved.values()) >= PARTITIONS * 3 // 4
    assert {len(replicas) for replicas in moved.values()} == {3}
    for index, replicas in moved.items():
        repeat_until(lambda index=index, replicas=replicas: cluster.holders("busy", index) == set(replicas))
    read = read_all(cluster.servers, "busy", PARTITIONS)
    assert sorted(read) == sorted(acknowledged), "nothing is lost, nothing is doubled"


def test_one_replica_becomes_three_slowly_and_can_be_called_off(processes: Processes, tmp_path: Path) -> None:
    cluster, total = processes, 12 * MEGABYTE
    cluster.admin.create_topics([NewTopic("big", assignments=[[1]])]).check()
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.servers, "acks": "all", "log_level": 0})
    for _ in range(total // 100_000):
        producer.produce("big", bytes(100_000))
    assert producer.flush(PATIENCE_S) == 0
    plan = tmp_path / "plan.json"
    plan.write_text('{"version":1,"partitions":[{"topic":"big","partition":0,"replicas":[2,1,3]}]}')
    with load(cluster.servers, "big") as acknowledged:
        said = cluster.ottla(
            "reassign", "--execute", "--reassignment-json-file", str(plan), "--throttle", str(MEGABYTE)
        )
        assert f"The inter-broker throttle limit was set to {MEGABYTE} B/s" in said
        assert said.endswith("Successfully started partition reassignment for big-0\n")
        assert cluster.ottla("reassign", "--list") == (
            "Current partition reassignments:\nbig-0: replicas: 2,1,3. adding: 2,3.\n"
        )
        assert "big-0 is still in progress" in cluster.ottla("reassign", "verify", str(plan))
        throttled = cluster.admin.describe_configs([ConfigResource.topic("big")])[ConfigResource.topic("big")]
        assert throttled["leader.replication.throttled.replicas"].value == "0:1"
        assert throttled["follower.replication.throttled.replicas"].value == "0:2,0:3"
        said = cluster.ottla("reassign", "cancel", str(plan))
        assert "Successfully cancelled partition reassignment for: big-0" in said
        assert cluster.replicas("big") == {0: (1,)}
        repeat_until(lambda: cluster.holders("big") == {1})
        limit, began_s = 8 * MEGABYTE, time.monotonic()
        said = cluster.ottla("reassign", "execute", str(plan), "--throttle", str(limit), "--wait")
        elapsed_s = time.monotonic() - began_s
        assert "Clearing topic-level throttles on topic big" in said
        # Two copies leave one broker. A lower bound: the machine may be slow, the throttle may not be fast.
        assert 2 * total / elapsed_s < 1.1 * limit
        assert cluster.replicas("big") == {0: (2, 1, 3)}
        assert len(acknowledged) > 0
    throttled = cluster.admin.describe_configs([ConfigResource.topic("big")])[ConfigResource.topic("big")]
    assert throttled["leader.replication.throttled.replicas"].value == ""
    assert cluster.ottla("elect-leaders", "--topic", "big", "--partition", "0") == (
        "Successfully completed leader election (PREFERRED) for partitions big-0\n"
    )
    assert cluster.ottla("elect-leaders", "--topic", "big", "--partition", "0") == (
        "Valid replica already elected for partitions big-0\n"
    )
    assert len(read_all(cluster.servers, "big", 1)) == total // 100_000 + len(acknowledged)


async def slow_move(cluster: LocalCluster, admin: aio.Admin, producer: aio.Producer[bytes, bytes]) -> TopicPartition:
    """A partition of brokers 1 and 2 on its way to 3 and 4, so slowly that it does not arrive by itself."""
    await cluster.start(4)
    (await admin.create_topics([NewTopic("t", assignments=[[1, 2]])])).check()
    for number in range(4):
        await send_some(producer, "t", 3, f"batch {number}")
    slow = {ConfigResource.topic("t"): [ConfigChange("leader.replication.throttled.replicas", "*")]}
    for broker_id in (1, 2):
        slow[ConfigResource.broker(broker_id)] = [ConfigChange("leader.replication.throttled.rate", 1)]
    (await admin.incremental_alter_configs(slow)).check()
    tp = TopicPartition("t", 0)
    (await admin.alter_partition_reassignments({tp: [3, 4]})).check()
    return tp


def test_a_move_goes_on_under_another_controller(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster) -> None:
        async with aio.Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin, cluster.producer() as producer:
            tp = await slow_move(cluster, admin, producer)
            old = cluster.controller
            assert list(await admin.list_partition_reassignments()) == [tp]
            await cluster.brokers.pop(old.broker_id).kill()
            await until(lambda: any(broker.controller.is_active for broker in cluster.brokers.values()))
            assert cluster.controller is not old
            await until(lambda: cluster.controller.controller.state.topics["t"].partitions[0].adding == (3, 4))
            fast = {ConfigResource.topic("t"): [ConfigChange("leader.replication.throttled.replicas", "")]}
            (await admin.incremental_alter_configs(fast)).check()
            await cluster.start(old.broker_id)
            await until(lambda: cluster.controller.controller.state.topics["t"].partitions[0].replicas == (3, 4))
            await cluster.in_sync("t", 1, 3, 4)
            # The broker that was down when it was to delete its copy finds out when it is back.
            await until(lambda: all(cluster.brokers[b].replicas.log_dirs.get(tp) is None for b in (1, 2)))
            assert cluster.leader_of("t") is cluster.brokers[3]
            await send_some(producer, "t", 5, "after")

    in_cluster(tmp_path, scenario)


def test_a_copy_that_was_moved_while_its_broker_was_away_is_deleted_when_it_is_back(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster) -> None:
        tp = TopicPartition("t", 0)
        async with aio.Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin, cluster.producer() as producer:
            (await admin.create_topics([NewTopic("t", assignments=[[1, 2]])])).check()
            await send_some(producer, "t", 20, "before")
            await cluster.brokers.pop(2).kill()
            (await admin.alter_partition_reassignments({tp: [1, 3]})).check()
            while await admin.list_partition_reassignments():
                await asyncio.sleep(0.01)
            assert (cluster.log_dirs_of(2)[0] / "t-0").exists()
            returned = await cluster.start(2)
            await until(lambda: returned.replicas.log_dirs.get(tp) is None)
            assert cluster.isr("t") == {1, 3}
            # Clients that still come here have to look where it is now.
            assert returned.replicas.not_held("t", 0).code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert returned.replicas.not_held("u", 0).code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    in_cluster(tmp_path, scenario)


def test_a_topic_can_be_deleted_while_it_is_moved(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster) -> None:
        async with aio.Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin, cluster.producer() as producer:
            tp = await slow_move(cluster, admin, producer)
            (await admin.delete_topics(["t"])).check()
            assert await admin.list_partition_reassignments() == {}
            assert all(broker.replicas.log_dirs.get(tp) is None for broker in cluster.brokers.values())

    in_cluster(tmp_path, scenario)


def test_nobody_counts_on_replicas_that_are_still_to_come(tmp_path: Path) -> None:
    """A topic of one replica with min.insync.replicas=2 takes acks=all, and so it does while it gets a second."""

    async def scenario(cluster: LocalCluster) -> None:
        async with aio.Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin, cluster.producer() as producer:
            settings = {"min.insync.replicas": "2", "leader.replication.throttled.replicas": "*"}
            (await admin.create_topics([NewTopic("t", assignments=[[1]], configs=settings)])).check()
            for number in range(4):
                await send_some(producer, "t", 3, f"batch {number}")
            slow = {ConfigResource.broker(1): [ConfigChange("leader.replication.throttled.rate", 1)]}
            (await admin.incremental_alter_configs(slow)).check()
            (await admin.alter_partition_reassignments({TopicPartition("t", 0): [1, 2]})).check()
            await until(lambda: cluster.brokers[2].replicas.find("t", 0) is not None)
            await send_some(producer, "t", 5, "meanwhile")
            assert len(await admin.list_partition_reassignments()) == 1

    in_cluster(tmp_path, scenario)


def test_leadership_goes_back_by_itself(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster) -> None:
        await cluster.create("t", partitions=3)
        states = cluster.controller.controller.state.topics["t"].partitions
        away = TopicPartition("t", 0)
        await cluster.controller.controller.submit(LeaderAsked(away, states[0].replicas[1]))
        assert states[0].leader != states[0].replicas[0]
        await until(lambda: states[0].leader == states[0].replicas[0])

    always = {"auto_leader_rebalance_enable": "true", "leader_imbalance_check_interval_seconds": "1"}
    in_cluster(tmp_path, scenario, **always)


def test_the_nodes_are_kafkas(tmp_path: Path) -> None:
    """As three real brokers left them for the same command (adding_replicas and removing_replicas, JSON version 3)."""

    async def scenario(cluster: LocalCluster) -> None:
        async with aio.Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin, cluster.producer() as producer:
            await slow_move(cluster, admin, producer)
            node = await cluster.store.store.get("/brokers/topics/t")
            assert node is not None
            stored = json.loads(node.data)
            assert stored["version"] == 3
            assert stored["partitions"] == {"0": [3, 4, 1, 2]}
            assert stored["adding_replicas"] == {"0": [3, 4]}
            assert stored["removing_replicas"] == {"0": [1, 2]}

    in_cluster(tmp_path, scenario)
