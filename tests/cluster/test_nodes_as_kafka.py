"""ZooKeeper's nodes after each of the same commands: those of three brokers of Apache Kafka, of ours, and of both."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla import Admin, ConfigChange, ConfigOperation, ConfigResource, NewPartitions, NewTopic
from ottla.base.types import TopicPartition
from tests.cluster.processes_on_zookeeper import IDS, KAFKA, OTTLA, ProcessesOnZooKeeper
from tests.cluster.test_zookeeper import nodes_of
from tests.waiting import repeat_until
from tests.zookeeper_process import ZooKeeperProcesses

pytestmark = pytest.mark.timeout(600)

Nodes = dict[str, tuple[int, bool, Any]]
MOVES = {"moved": ([2], [3]), "grown": ([2], [2, 3]), "ordered": ([3, 1, 2], [1, 2, 3])}
STEPS_SINCE_MOVE = ("move", "election", "deletion", "failover", "return")
QUIET_S = 1.0


class Pictures:
    """What a cluster leaves, step by step."""

    def __init__(self, cluster: ProcessesOnZooKeeper) -> None:
        self._cluster = cluster
        self.taken: dict[str, Nodes] = {}

    def nodes(self) -> Nodes:
        """Ports made equal, and in-sync sets put in order: theirs says nothing."""
        found = nodes_of(self._cluster.connect)
        for broker_id in IDS:
            path = f"/brokers/ids/{broker_id}"
            if path in found:
                version, is_ephemeral, content = found[path]
                port = content.pop("port")
                content["endpoints"] = [each.replace(str(port), "<port>") for each in content["endpoints"]]
                found[path] = (version, is_ephemeral, content)
        for content in _states(found).values():
            content["isr"].sort()
        return found

    def take(self, step: str, is_done: Callable[[Nodes], bool] = lambda nodes: True) -> Nodes:
        """Once it is done, and nothing changes any more."""
        repeat_until(lambda: is_done(self.nodes()))
        last = self.nodes()
        while True:
            time.sleep(QUIET_S)
            if (now := self.nodes()) == last:
                break
            last = now
        self.taken[step] = last
        return last


def pictures_of(cluster: ProcessesOnZooKeeper) -> dict[str, Nodes]:
    """Broker 1 is the controller, and is killed at the end."""
    pictures = Pictures(cluster)
    pictures.take("start")
    with cluster.admin() as admin:
        new = [NewTopic("t", assignments=[[3, 1, 2], [1, 2, 3]], configs={"retention.ms": "86400000"})]
        new += [NewTopic(name, assignments=[replicas]) for name, (replicas, _) in MOVES.items()]
        for each in new:
            admin.create_topics([each]).check()
        pictures.take("create")
        _change_settings(admin)
        pictures.take("settings")
        admin.create_partitions({"t": NewPartitions(3, [[2, 3, 1]])}).check()
        pictures.take("grow")
        for name, (_, replicas) in MOVES.items():
            admin.alter_partition_reassignments({TopicPartition(name, 0): replicas}).check()
        pictures.take("move", _are_moved)
        admin.elect_leaders([TopicPartition("ordered", 0)]).check()
        pictures.take("election")
        admin.delete_topics(["grown"]).check()
        pictures.take("deletion", lambda nodes: "/brokers/topics/grown" not in nodes)
    cluster.brokers[1].kill()
    pictures.take("failover", _are_without_1)
    cluster.brokers[1].start()
    pictures.take("return", lambda nodes: all(len(each) == 3 for each in _isrs(nodes, "t")))
    return pictures.taken


def _change_settings(admin: Admin) -> None:
    topic, broker, all_brokers = ConfigResource.topic("t"), ConfigResource.broker(2), ConfigResource.broker()
    for resource, change in (
        (topic, ConfigChange("max.message.bytes", "2000000")),
        (topic, ConfigChange("retention.ms", None, ConfigOperation.DELETE)),
        (broker, ConfigChange("log.cleaner.threads", "2")),
        (all_brokers, ConfigChange("message.max.bytes", "3000000")),
        (broker, ConfigChange("log.cleaner.threads", None, ConfigOperation.DELETE)),
    ):
        admin.incremental_alter_configs({resource: [change]}).check()


def _states(nodes: Nodes) -> dict[str, Any]:
    return {path: content for path, (_, _, content) in nodes.items() if path.endswith("/state")}


def _isrs(nodes: Nodes, topic: str) -> list[list[int]]:
    return [content["isr"] for path, content in _states(nodes).items() if path.startswith(f"/brokers/topics/{topic}/")]


def _are_moved(nodes: Nodes) -> bool:
    wanted = {name: {"0": replicas} for name, (_, replicas) in MOVES.items()}
    return all(
        (content := nodes[f"/brokers/topics/{name}"][2])["partitions"] == partitions
        and content["adding_replicas"] == content["removing_replicas"] == {}
        for name, partitions in wanted.items()
    )


def _are_without_1(nodes: Nodes) -> bool:
    return (
        "/brokers/ids/1" not in nodes
        and "/controller" in nodes
        and all(content["leader"] not in (1, -1) for content in _states(nodes).values())
        and all(1 not in content["isr"] for content in _states(nodes).values())
    )


@pytest.fixture(scope="module")
def kafkas(zookeeper: ZooKeeperProcesses, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Nodes]:
    return _pictures(tmp_path_factory.mktemp("kafka"), zookeeper, dict.fromkeys(IDS, KAFKA))


def _pictures(directory: Path, zookeeper: ZooKeeperProcesses, kinds: dict[int, str]) -> dict[str, Nodes]:
    cluster = ProcessesOnZooKeeper(directory, zookeeper.new_cluster(), kinds)
    try:
        cluster.begin()
        return pictures_of(cluster)
    finally:
        cluster.end()


def as_written_by(kafkas: dict[str, Nodes], first: str, second: str) -> dict[str, Nodes]:
    """What is expected of such a controller before and after the failover. Ours writes twice less than Kafka's: a new
    order of replicas is done with one write of the topic, and a partition that has lost its leader together with the
    controller goes to the next leader without an epoch that has none."""
    expected = {step: dict(nodes) for step, nodes in kafkas.items()}
    lost = [path for path, content in _states(kafkas["deletion"]).items() if content["leader"] == 1]
    assert len(lost) == 2
    for step in STEPS_SINCE_MOVE if first == OTTLA else ():
        version, is_ephemeral, content = expected[step]["/brokers/topics/ordered"]
        expected[step]["/brokers/topics/ordered"] = (version - 1, is_ephemeral, content)
    for step in ("failover", "return") if second == OTTLA else ():
        for path in lost:
            version, is_ephemeral, content = expected[step][path]
            content = {**content, "leader_epoch": content["leader_epoch"] - 1}
            expected[step][path] = (version - 1, is_ephemeral, content)
    return expected


@pytest.mark.parametrize(
    "kinds",
    [(OTTLA, OTTLA, OTTLA), (KAFKA, KAFKA, OTTLA), (OTTLA, OTTLA, KAFKA)],
    ids=["ours", "under Kafka's controller", "under ours"],
)
def test_the_same_commands_leave_the_same_nodes(
    kafkas: dict[str, Nodes], zookeeper: ZooKeeperProcesses, tmp_path: Path, kinds: tuple[str, ...]
) -> None:
    kind_of = dict(zip(IDS, kinds, strict=True))
    found = _pictures(tmp_path, zookeeper, kind_of)
    second = found["failover"]["/controller"][2]["brokerid"]
    expected = as_written_by(kafkas, kind_of[1], kind_of[second])
    for step in ("failover", "return"):
        version, is_ephemeral, content = expected[step]["/controller"]
        expected[step]["/controller"] = (version, is_ephemeral, {**content, "brokerid": second})
    differences = {
        (step, path): (nodes.get(path), found[step].get(path))
        for step, nodes in expected.items()
        for path in nodes.keys() | found[step].keys()
        if nodes.get(path) != found[step].get(path)
    }
    assert differences == {}
