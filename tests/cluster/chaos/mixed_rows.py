"""M: brokers of Apache Kafka and ours in one cluster, on one ZooKeeper, moved from one to the other under load."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import partial

import confluent_kafka
import pytest

from tests.cluster.chaos.cluster import IDS, short_sleep
from tests.cluster.chaos.load import IN_TRANSACTIONS, PLAIN, Load
from tests.cluster.chaos.mixed_cluster import KAFKAS, OTTLA, MixedCluster
from tests.cluster.chaos.table import NotHereError, Scene, row
from tests.interop.kafka_tools import KafkaToolError, KafkaTools, fetch_kafka_libs
from tests.waiting import repeat_until

_REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
SETTINGS = {"min.insync.replicas": "1", "transaction.state.log.min.isr": "1"}
"""With only one broker of ours, everything is on one broker for a while."""
_INTERNAL = ("__consumer_offsets", "__transaction_state")


def mixed_cluster(scene: Scene) -> MixedCluster:
    try:
        libs = fetch_kafka_libs()
    except pytest.skip.Exception as e:
        raise NotHereError(str(e)) from e
    cluster = MixedCluster(libs, scene.directory / "cluster", scene.zookeeper(nodes=1), SETTINGS)
    scene.undo.callback(cluster.end)
    cluster.begin()
    return cluster


class Mover:
    """Kafka's own tool for reassignments."""

    def __init__(self, tools: KafkaTools, cluster: MixedCluster) -> None:
        self._tools = tools
        self._cluster = cluster
        self._file = cluster.directory / "plan.json"

    def move(self, topics: Iterable[str], *replicas: int) -> None:
        """All partitions of the topics to these brokers; returns when they are there, and only there."""
        moves = [
            {"topic": topic, "partition": each.partition_index, "replicas": list(replicas)}
            for topic in topics
            for each in self._cluster.describe(topic)
        ]
        self._file.write_text(json.dumps({"version": 1, "partitions": moves}))
        self._run("--execute")
        repeat_until(self._is_done, short_sleep)

    def _is_done(self) -> bool:
        said = self._run("--verify")
        return "is still in progress" not in said and "is completed" in said

    def _run(self, what: str) -> str:
        servers = ["--bootstrap-server", self._cluster.servers, "--reassignment-json-file", str(self._file)]
        try:
            return self._tools.run(_REASSIGN, *servers, what)
        except KafkaToolError as e:
            # Whom it has asked is not the controller any more.
            assert what == "--verify", e
            return ""


class Group:
    """A consumer group that reads a little now and then, and goes on where it stopped, whoever coordinates it."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._expected: dict[int, int] = {}

    def go_on(self, records: int = 50) -> None:
        settings = {"group.id": "mixed", "enable.auto.commit": False, "auto.offset.reset": "earliest", "log_level": 0}
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self._servers, **settings})
        try:
            consumer.subscribe([PLAIN])
            read: list[confluent_kafka.Message] = []
            repeat_until(lambda: len(read) >= records, lambda: read.extend(_without_errors(consumer)))
            for message in read:
                expected = self._expected.get(message.partition(), 0)
                assert message.offset() == expected, f"{message.offset()} was read, and {expected} is the next"
                self._expected[message.partition()] = message.offset() + 1
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()


def _without_errors(consumer: confluent_kafka.Consumer) -> list[confluent_kafka.Message]:
    return [message for message in consumer.consume(20, 0.5) if message.error() is None]


def move_everything(load: Load, mover: Mover, group: Group, *stations: Sequence[int]) -> None:
    """To the brokers of each station in turn."""
    for replicas in stations:
        group.go_on()
        mover.move([PLAIN, IN_TRANSACTIONS, *_INTERNAL], *replicas)
        load.wait_for_more()
        group.go_on()


@row("M1", "Apache Kafka and Ottla are one cluster: Kafka's tool moves everything from one to the other and back")
def move_between(scene: Scene) -> None:
    if scene.java is None:
        raise NotHereError("Kafka's tools are not here")
    cluster = mixed_cluster(scene)
    mover, group = Mover(scene.java, cluster), Group(cluster.servers)
    with scene.load(cluster, transactions=True) as load:
        for controller in (KAFKAS[0], OTTLA):
            cluster.make_controller(controller)
            load.wait_for_more()
            move_everything(load, mover, group, (OTTLA,), KAFKAS, IDS)


@row("M2", "Apache Kafka and Ottla are one cluster: each controller is killed, and the next time stopped")
def kill_each(scene: Scene) -> None:
    cluster = mixed_cluster(scene)
    controllers = []
    with scene.load(cluster, transactions=True) as load:
        for number, victim in enumerate(scene.times(2, 1) * IDS):
            others = [broker_id for broker_id in IDS if broker_id != victim]
            cluster.make_controller(victim)
            (cluster.kill if number < len(IDS) else cluster.stop)(victim)
            load.wait_for_more()
            # Kafka does not start while its last session is there.
            repeat_until(partial(_are_alone, cluster, others), short_sleep)
            controllers.append(cluster.controller())
            cluster.start(victim)
            cluster.wait_until_well(PLAIN, IN_TRANSACTIONS)
            load.wait_for_more()
    scene.note = f"controllers were then {controllers}"


def _are_alone(cluster: MixedCluster, brokers: Sequence[int]) -> bool:
    return cluster.live_brokers(brokers) == set(brokers)
