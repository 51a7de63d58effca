"""What moves of partitions leave in a real ZooKeeper: node by node what Apache Kafka leaves for the same command."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import ottla.aio as aio
from ottla import NewTopic
from ottla.base.types import TopicPartition
from tests.cluster.local_cluster import LocalCluster, in_cluster
from tests.cluster.test_zookeeper import cluster_settings, kept, nodes_of, topic_node
from tests.zookeeper_process import ZooKeeperProcesses


def state(leader: int, leader_epoch: int, isr: list[int]) -> dict[str, Any]:
    return {"controller_epoch": 1, "leader": leader, "version": 1, "leader_epoch": leader_epoch, "isr": isr}


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
