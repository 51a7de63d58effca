"""`ottla cluster status` on three real brokers."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.local_cluster import IDS, LocalCluster, in_cluster
from tests.waiting import PATIENCE_S


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
