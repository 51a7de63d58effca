"""Brokers of Apache Kafka and ours in one cluster, on one ZooKeeper: whoever is the controller, whoever leads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.chaos.cluster import IDS
from tests.cluster.chaos.load import Load
from tests.cluster.chaos.mixed_cluster import KAFKAS, OTTLA, MixedCluster
from tests.cluster.chaos.mixed_rows import SETTINGS, Group, Mover, move_everything
from tests.interop.kafka_tools import KafkaTools, fetch_kafka_libs
from tests.interop.kafka_tools import kafka_commands_fixture as kafka_commands_fixture
from tests.zookeeper_process import ZooKeeperProcesses, require_zookeeper

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[MixedCluster]:
    require_zookeeper(tmp_path)
    libs = fetch_kafka_libs()
    zookeeper = ZooKeeperProcesses(tmp_path / "zookeeper").start()
    mixed = MixedCluster(libs, tmp_path / "cluster", zookeeper, SETTINGS)
    try:
        mixed.begin()
        yield mixed
    finally:
        mixed.end()
        zookeeper.kill()


def test_kafkas_brokers_and_ours_are_one_cluster(cluster: MixedCluster, kafka_commands: KafkaTools) -> None:
    """Each side is the controller for a while, and everything is moved to ours and back; the load judges what
    clients were told, and all copies at the end."""
    cluster.make_controller(OTTLA)
    with Load(cluster, transactions=True) as load:
        led_by = {each.leader_id for topic in load.topics for each in cluster.describe(topic)}
        assert led_by == {1, 2, 3}
        cluster.make_controller(KAFKAS[0])
        load.wait_for_more()
        cluster.make_controller(OTTLA)
        load.wait_for_more()
        mover, group = Mover(kafka_commands, cluster), Group(cluster.servers)
        move_everything(load, mover, group, (OTTLA,), IDS)
    assert load.figures.records > 0
