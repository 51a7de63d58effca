"""What moves of partitions and a lost controller leave in a real ZooKeeper: node by node what Apache Kafka leaves."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import ottla.aio as aio
from ottla import NewTopic
from ottla.base.types import TopicPartition
from tests.cluster.local_cluster import LocalCluster, in_cluster
from tests.cluster.test_zookeeper import cluster_settings, kept, nodes_of, topic_node
from tests.waiting import until
from tests.zookeeper_process import ZooKeeperProcesses


def state(leader: int, leader_epoch: int, isr: list[int], controller_epoch: int = 1) -> dict[str, Any]:
    epochs = {"controller_epoch": controller_epoch, "leader_epoch": leader_epoch}
    return {**epochs, "leader": leader, "version": 1, "isr": isr}


def test_moves_leave_what_kafka_leaves(zookeeper: ZooKeeperProcesses, tmp_path: Path) -> None:
    """One partition changes brokers, one gets two more replicas, one another order. Versions and epochs are those that
    three brokers of Kafka 3.9 had written; the in-sync sets are in another order, which says nothing."""
    connect = zookeeper.new_cluster()

    async def scenario(cluster: LocalCluster) -> None:
        async with aio.Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            topics = {"moved": [2], "grown": [2], "ordered": [3, 1, 2]}
            new = [NewTopic(name, assignments=[replicas]) for name, replicas in topics.items()]
            (await admin.create_topics(new)).check()
            wanted = {"moved": [3], "grown": [1, 2, 3], "ordered": [1, 2, 3]}
            (
                await admin.alter_partition_reassignments(
                    {TopicPartition(name, 0): replicas for name, replicas in wanted.items()}
                )
            ).check()
            while await admin.list_partition_reassignments():
                await asyncio.sleep(0.01)
        nodes = await asyncio.to_thread(nodes_of, connect)
        for name, replicas in wanted.items():
            assert nodes[f"/brokers/topics/{name}"][1:] == (False, topic_node({"0": replicas}))
        assert nodes["/brokers/topics/moved"][0] == nodes["/brokers/topics/grown"][0] == 2
        assert nodes["/brokers/topics/moved/partitions/0/state"] == kept(4, state(3, 3, [3]))
        assert nodes["/brokers/topics/grown/partitions/0/state"][2] == state(2, 2, [1, 2, 3])
        assert nodes["/brokers/topics/ordered/partitions/0/state"] == kept(1, state(3, 1, [3, 1, 2]))

    in_cluster(tmp_path, scenario, **cluster_settings(connect))


def test_a_lost_controller_leaves_what_kafka_leaves(zookeeper: ZooKeeperProcesses, tmp_path: Path) -> None:
    """Kafka's next controller writes a partition that the lost one has led twice: without a leader, then with one. Here
    it is written once, so its version and leader epoch are less by one; all else is the same."""
    connect = zookeeper.new_cluster()

    async def scenario(cluster: LocalCluster) -> None:
        async with aio.Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            assignments = [[1, 2, 3], [2, 3, 1], [3, 2]]
            new = [NewTopic("t", assignments=assignments[:2]), NewTopic("u", assignments=assignments[2:])]
            (await admin.create_topics(new)).check()
        before = await asyncio.to_thread(nodes_of, connect)
        lost = cluster.controller.broker_id
        assert lost == 1
        await cluster.brokers.pop(lost).kill()
        await until(lambda: cluster.isr("t", 0) == cluster.isr("t", 1) == {2, 3})
        after = await asyncio.to_thread(nodes_of, connect)
        _, _, controller = after["/controller"]
        assert controller["brokerid"] in (2, 3)
        changed = {
            "/controller": (0, True, {**before["/controller"][2], "brokerid": controller["brokerid"]}),
            "/controller_epoch": kept(2, 2),
            "/brokers/topics/t/partitions/0/state": kept(1, state(2, 1, [2, 3], controller_epoch=2)),
            "/brokers/topics/t/partitions/1/state": kept(1, state(2, 1, [2, 3], controller_epoch=2)),
        }
        del before["/brokers/ids/1"]
        assert after == {**before, **changed}

    in_cluster(tmp_path, scenario, **cluster_settings(connect))
