"""What a cluster is asked for and cannot or must not do: a reason, and nothing changes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import ottla.aio as aio
from ottla import NewTopic
from ottla.base.errors import StartError
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.startup import start_broker
from ottla.metadata.served.server import StoreServer
from tests.cluster.local_cluster import IDS, LocalCluster, in_cluster, send_some
from tests.waiting import until

pytestmark = pytest.mark.timeout(120)


async def refusal_to_start(directory: Path, broker_id: int, cluster: Path) -> str:
    settings = {
        "broker.id": str(broker_id),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(directory),
        "ottla.cluster.dir": str(cluster),
    }
    with pytest.raises(StartError) as refused:
        await start_broker(BrokerConfig(settings))
    return str(refused.value)


def test_a_second_broker_of_the_same_id_does_not_start(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster) -> None:
        before = {broker_id: broker.orders.broker_epoch for broker_id, broker in cluster.brokers.items()}
        reason = await refusal_to_start(tmp_path / "second", 2, tmp_path)
        assert reason.startswith("another live broker has the id 2")
        await cluster.create("t")
        assert before == {broker_id: broker.orders.broker_epoch for broker_id, broker in cluster.brokers.items()}

    in_cluster(tmp_path, scenario)


def test_a_directory_of_another_cluster_is_not_used(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster) -> None:
        await cluster.create("t")
        other = await StoreServer.start(tmp_path / "other")
        try:
            first = await start_broker(
                BrokerConfig(
                    {
                        "broker.id": "7",
                        "listeners": "PLAINTEXT://127.0.0.1:0",
                        "log.dirs": str(tmp_path / "other" / "broker-7"),
                        "ottla.cluster.dir": str(tmp_path / "other"),
                    }
                )
            )
            await cluster.stop(3)
            stolen = tmp_path / "broker-3"
            kept = {path: path.read_bytes() for path in stolen.rglob("*") if path.is_file()}
            reason = await refusal_to_start(stolen, 3, tmp_path / "other")
            assert reason == (
                f"the log directory {stolen} belongs to cluster {cluster.brokers[1].cluster_id}, "
                f"this cluster is {first.cluster_id}"
            )
            assert kept == {path: path.read_bytes() for path in stolen.rglob("*") if path.is_file()}
            assert list(first.image.brokers) == [7]
            await cluster.start(3)
            await cluster.in_sync("t", 1, *IDS)
            await first.stop()
        finally:
            await other.close()

    in_cluster(tmp_path, scenario)


def test_more_copies_than_brokers_cannot_be_had(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster) -> None:
        async with aio.Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            refused = (await admin.create_topics([NewTopic("t", 1, 4)])).errors["t"]
            assert "INVALID_REPLICATION_FACTOR" in str(refused)
            assert "replication factor 4 is larger than the number of available brokers, 3" in str(refused)
            assert not cluster.controller.controller.state.topics

    in_cluster(tmp_path, scenario)


def test_more_in_sync_than_replicas_means_all_of_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As Kafka has it: the topic can be written while all its replicas are in sync, and not with one less."""

    async def scenario(cluster: LocalCluster) -> None:
        new = NewTopic("t", assignments=[[1, 2]], configs={"min.insync.replicas": "3"})
        async with aio.Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            (await admin.create_topics([new])).check()
        await cluster.in_sync("t", 1, 1, 2)
        assert "topic t has min.insync.replicas=3, but only 2 replicas" in caplog.text
        async with cluster.producer(**{"delivery.timeout.ms": "1500", "request.timeout.ms": "500"}) as producer:
            await send_some(producer, "t", 10, "both")
            await cluster.stop(2)
            await until(lambda: cluster.isr("t") == {1})
            with pytest.raises(Exception, match=r"NOT_ENOUGH_REPLICAS|delivery\.timeout\.ms"):
                await asyncio.wait_for(await producer.send("t", b"alone"), 60)
        assert cluster.copy(cluster.brokers[1], "t").log.high_watermark == 10

    in_cluster(tmp_path, scenario)
