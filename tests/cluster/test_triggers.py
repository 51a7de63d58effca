"""What old tools and old brokers write into ZooKeeper: the controller does it, and removes what asked for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from ottla.base.types import NIL_UUID, TopicPartition, uuid_to_text
from ottla.metadata.zookeeper.address import EnsembleAddress
from tests.cluster.local_cluster import IDS, LocalCluster, in_cluster, send_some
from tests.cluster.test_zookeeper import cluster_settings, kept, nodes_of
from tests.waiting import repeat_until, until
from tests.zookeeper_process import ZooKeeperProcesses

pytestmark = pytest.mark.timeout(240)

REASSIGN, ELECT = "/admin/reassign_partitions", "/admin/preferred_replica_election"


class Tool:
    """Writes nodes as Kafka's tools did before they spoke to brokers."""

    def __init__(self, connect: str) -> None:
        self._address = EnsembleAddress.parse(connect)
        self._connect = connect

    async def write(self, path: str, content: Any, *, is_new: bool = True, sequence: bool = False) -> None:
        def work(client: KazooClient) -> None:
            data = json.dumps(content).encode() if content is not None else b""
            full_path = self._address.chroot + path
            if is_new:
                client.create(full_path, data, sequence=sequence)
            else:
                client.set(full_path, data)

        await asyncio.to_thread(self._do, work)

    def _do(self, work: Callable[[KazooClient], None]) -> None:
        client = KazooClient(self._address.hosts)
        client.start()
        try:
            work(client)
        finally:
            client.stop()
            client.close()

    async def nodes(self) -> dict[str, Any]:
        return await asyncio.to_thread(nodes_of, self._connect)

    async def gone(self, *paths: str) -> None:
        def work(client: KazooClient) -> None:
            repeat_until(lambda: not any(client.exists(self._address.chroot + path) for path in paths))

        await asyncio.to_thread(self._do, work)


def listed(*partitions: dict[str, Any]) -> dict[str, Any]:
    return {"version": 1, "partitions": list(partitions)}


def partition(topic: str, index: int, **more: Any) -> dict[str, Any]:
    return {"topic": topic, "partition": index, **more}


def with_tool(
    zookeeper: ZooKeeperProcesses,
    directory: Path,
    scenario: Callable[[LocalCluster, Tool], Awaitable[None]],
    **settings: str,
) -> None:
    connect = zookeeper.new_cluster()

    async def run(cluster: LocalCluster) -> None:
        await scenario(cluster, Tool(connect))

    in_cluster(directory, run, **cluster_settings(connect), **settings)


def test_a_topic_and_more_partitions_of_it_are_written_by_hand(zookeeper: ZooKeeperProcesses, tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster, tool: Tool) -> None:
        # As TopicCommand did before there were ids of topics: of the first version, settings before the topic.
        await tool.write("/config/topics/old", {"version": 1, "config": {"retention.ms": "86400000"}})
        await tool.write("/brokers/topics/old", {"version": 1, "partitions": {"0": [1, 2, 3], "1": [2, 3, 1]}})
        await until(lambda: cluster.leader_of("old", 1) is not None)
        await cluster.in_sync("old", 2, *IDS)
        nodes = await tool.nodes()
        _, _, topic = nodes["/brokers/topics/old"]
        assert topic["version"] == 3 and topic["topic_id"], "it has an id from now on"
        assert nodes["/brokers/topics/old/partitions/1/state"][2]["isr"] == [2, 3, 1]
        copy = cluster.copy(cluster.controller, "old")
        assert copy.topic_id != NIL_UUID
        topic["partitions"]["2"] = [3, 1, 2]
        topic["topic_id"] = uuid_to_text(copy.topic_id)
        await tool.write("/brokers/topics/old", topic, is_new=False)
        await until(lambda: cluster.leader_of("old", 2) is cluster.brokers[3])
        async with cluster.producer() as producer:
            await send_some(producer, "old", 60, "v")
        await cluster.in_sync("old", 3, *IDS)
        cluster.assert_identical("old", 3)

    with_tool(zookeeper, tmp_path, scenario)


def test_moves_and_elections_are_asked_for_by_hand(zookeeper: ZooKeeperProcesses, tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster, tool: Tool) -> None:
        await tool.write("/brokers/topics/m", {"version": 1, "partitions": {"0": [1, 2], "1": [2, 1]}})
        await cluster.in_sync("m", 2, 1, 2)
        moves = listed(
            partition("m", 0, replicas=[3, 1]),
            partition("m", 1, replicas=[2, 1]),
            partition("m", 7, replicas=[1]),
            partition("none", 0, replicas=[9]),
        )
        await tool.write(REASSIGN, moves)
        await tool.gone(REASSIGN)
        await cluster.in_sync("m", 1, 1, 3)
        assert (await tool.nodes())["/brokers/topics/m"][2]["partitions"] == {"0": [3, 1], "1": [2, 1]}
        assert cluster.leader_of("m") is cluster.brokers[1]
        await tool.write(ELECT, listed(partition("m", 0), partition("m", 1), partition("none", 3)))
        await tool.gone(ELECT)
        await until(lambda: cluster.leader_of("m") is cluster.brokers[3])
        for path in (REASSIGN, ELECT):
            await tool.write(path, "garbage")
            await tool.gone(path)

    with_tool(zookeeper, tmp_path, scenario)


def test_a_topic_is_deleted_by_hand(zookeeper: ZooKeeperProcesses, tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster, tool: Tool) -> None:
        before = await tool.nodes()
        await cluster.create("d", partitions=2)
        await tool.write("/admin/delete_topics/d", None)
        await tool.write("/admin/delete_topics/none", None)
        await tool.gone("/admin/delete_topics/d", "/admin/delete_topics/none", "/brokers/topics/d")
        assert await tool.nodes() == before
        await until(lambda: not any(broker.replicas.find("d", 0) for broker in cluster.brokers.values()))

    with_tool(zookeeper, tmp_path, scenario)


def test_what_was_asked_for_while_there_was_no_controller_is_done(
    zookeeper: ZooKeeperProcesses, tmp_path: Path
) -> None:
    """An in-sync set that an old leader has written itself is taken over, and told."""

    async def scenario(cluster: LocalCluster, tool: Tool) -> None:
        controller = cluster.controller.broker_id
        left = sorted(set(IDS) - {controller})
        await tool.write("/brokers/topics/t", {"version": 1, "partitions": {"0": [*left, controller]}})
        await until(lambda: cluster.leader_of("t") is not None)
        await cluster.in_sync("t", 1, *IDS)
        leader = cluster.brokers[left[0]]
        state = (await tool.nodes())["/brokers/topics/t/partitions/0/state"][2]
        await tool.write("/brokers/topics/t/partitions/0/state", {**state, "isr": [leader.broker_id]}, is_new=False)
        notification = "/isr_change_notification/isr_change_"
        await tool.write(notification, listed(partition("t", 0)), sequence=True)
        await tool.gone(f"{notification}0000000000")
        tp = TopicPartition("t", 0)
        seen = cluster.controller.controller.state.partition(tp)
        assert seen is not None and (seen.isr, seen.partition_epoch) == ((leader.broker_id,), 1)
        await until(
            lambda: all(
                (image := broker.image.partition(tp)) is not None and image.isr == (leader.broker_id,)
                for broker in cluster.brokers.values()
            )
        )
        await cluster.stop(controller)
        await tool.write(REASSIGN, listed(partition("t", 0, replicas=left)))
        await tool.gone(REASSIGN)
        assert (await tool.nodes())["/brokers/topics/t"][2]["partitions"] == {"0": left}

    with_tool(zookeeper, tmp_path, scenario)


def test_topics_cannot_be_deleted_by_hand_where_deleting_is_not_allowed(
    zookeeper: ZooKeeperProcesses, tmp_path: Path
) -> None:
    async def scenario(cluster: LocalCluster, tool: Tool) -> None:
        await cluster.create("d")
        before = await tool.nodes()
        await tool.write("/admin/delete_topics/d", None)
        await tool.gone("/admin/delete_topics/d")
        assert await tool.nodes() == before and before["/config/topics/d"] == kept(0, {"version": 1, "config": {}})

    with_tool(zookeeper, tmp_path, scenario, delete_topic_enable="false")
