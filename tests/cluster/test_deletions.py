"""Topics that are deleted while a broker is away: they wait for it, whoever is the controller by then."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import ottla.aio as aio
from ottla import NewTopic
from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from tests.cluster.local_cluster import IDS, LocalCluster, in_cluster, send_some
from tests.cluster.test_zookeeper import cluster_settings, nodes_of
from tests.waiting import until
from tests.zookeeper_process import ZooKeeperProcesses

pytestmark = pytest.mark.timeout(240)

MARK = "/admin/delete_topics/t"


def test_a_deletion_goes_on_when_the_broker_is_back(zookeeper: ZooKeeperProcesses, tmp_path: Path) -> None:
    connect = zookeeper.new_cluster()

    async def scenario(cluster: LocalCluster) -> None:
        async def nodes() -> set[str]:
            return set(await asyncio.to_thread(nodes_of, connect))

        before = await nodes()
        await cluster.create("t", partitions=3)
        async with cluster.producer() as producer:
            await send_some(producer, "t", 30, "x")
        first = cluster.controller.broker_id
        away = next(broker_id for broker_id in IDS if broker_id != first)
        await cluster.stop(away)
        async with aio.Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            deleting = asyncio.create_task(admin.delete_topics(["t"], timeout_ms=5_000))
            await until(lambda: "t" in cluster.controller.controller.state.pending_deletions)
            assert {MARK, "/brokers/topics/t"} <= await nodes()
            again = (await admin.create_topics([NewTopic("t", 1, 1)])).errors["t"]
            assert again.code is ErrorCode.TOPIC_ALREADY_EXISTS
            await asyncio.gather(deleting, return_exceptions=True)
        assert has_files(cluster, away)
        # Another controller finds the mark.
        await cluster.stop(first)
        await cluster.start(first)
        assert cluster.controller.broker_id not in (first, away)
        assert MARK in await nodes()
        await cluster.start(away)
        await until(lambda: "t" not in cluster.controller.controller.state.topics)
        brokers = {f"/brokers/ids/{broker_id}" for broker_id in IDS}
        assert await nodes() == before | brokers
        await until(lambda: not any(has_files(cluster, broker_id) for broker_id in IDS))
        await cluster.create("t", partitions=2)
        await cluster.in_sync("t", 2, *IDS)
        assert all(cluster.copy(broker, "t", 1).log.log_end_offset == 0 for broker in cluster.brokers.values())

    in_cluster(tmp_path, scenario, **cluster_settings(connect), log_segment_delete_delay_ms="100")


def has_files(cluster: LocalCluster, broker_id: int) -> bool:
    tp = TopicPartition("t", 0)
    return any((path / str(tp)).exists() for path in cluster.log_dirs_of(broker_id))
