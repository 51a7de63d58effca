"""`ottla cluster status`: what it makes of descriptions, and on three real brokers."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.base.types import Uuid
from ottla.cli.cluster import as_json, as_text, status_of
from ottla.client.core.admin.types import ClusterDescription, TopicDescription
from ottla.client.core.metadata import BrokerAddress
from ottla.client.core.topic_info import PartitionInfo
from tests.cluster.local_cluster import IDS, LocalCluster, in_cluster
from tests.waiting import PATIENCE_S


def partition(index: int, leader: int, replicas: tuple[int, ...], isr: tuple[int, ...]) -> PartitionInfo:
    return PartitionInfo(index, leader, 4, replicas, isr, ())


CLUSTER = ClusterDescription("abc", 2, {1: BrokerAddress(1, "h1", 9092, "r1"), 2: BrokerAddress(2, "h2", 9092, None)})
TOPIC = TopicDescription(
    "t",
    Uuid(bytes(16)),
    False,
    (partition(0, 1, (1, 2), (1, 2)), partition(1, 2, (2, 3), (2,)), partition(2, -1, (3, 1), (3,))),
)


def test_what_is_wrong_is_found() -> None:
    found = status_of(CLUSTER, [TOPIC])
    assert [one.partition for one in found.under_replicated] == ["t-1", "t-2"]
    assert [one.partition for one in found.offline] == ["t-2"]
    assert [(b.broker_id, b.is_alive, b.leads, b.replicas, b.in_sync) for b in found.brokers] == [
        (1, True, 1, 2, 1),
        (2, True, 1, 2, 2),
        (3, False, 0, 2, 1),
    ]
    assert json.loads(json.dumps(as_json(found)))["controller"] == 2


def test_people_can_read_it() -> None:
    text = as_text(status_of(CLUSTER, [TOPIC]), in_colour=False)
    assert "cluster abc: controlled by broker 2, 1 topics with 3 partitions" in text
    assert "alive, controller" in text and "not alive" in text
    assert "1 partitions without a leader" in text and "2 partitions under-replicated" in text
    assert "\x1b" not in text


def test_a_well_cluster_has_nothing_wrong() -> None:
    text = as_text(status_of(CLUSTER, []), in_colour=False)
    assert "no partitions without a leader" in text and "no partitions under-replicated" in text


def status(servers: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla", "cluster", "status", "--bootstrap-server", servers, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)


@pytest.mark.timeout(120)
def test_three_brokers_of_which_one_stops(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster) -> None:
        await cluster.create("t", partitions=2)
        controller = cluster.controller.broker_id
        done = await asyncio.to_thread(status, cluster.bootstrap_servers, "-o", "json")
        assert done.returncode == 0, done.stderr
        well = json.loads(done.stdout)
        assert (well["controller"], well["under_replicated"], well["offline"]) == (controller, [], [])
        assert [broker["broker_id"] for broker in well["brokers"]] == [*IDS]
        lost = next(broker_id for broker_id in IDS if broker_id != controller)
        await cluster.stop(lost)
        done = await asyncio.to_thread(status, cluster.bootstrap_servers)
        assert "2 partitions under-replicated" in done.stdout and "no partitions without a leader" in done.stdout

    in_cluster(tmp_path, scenario)


def test_without_a_broker_it_says_so_in_a_sentence() -> None:
    done = status("127.0.0.1:1")
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr and "Traceback" not in done.stderr
