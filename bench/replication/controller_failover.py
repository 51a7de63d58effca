"""How long partitions are without a leader when the controller of a cluster on ZooKeeper is killed, and how that grows.

Beside Apache Kafka 3.9 in its ZooKeeper mode. Brokers have a session of six seconds; what is counted begins when
ZooKeeper has ended that of the one that was killed.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from bench import apache_kafka
from bench.peers import first_answer
from bench.replication.clusters import IDS, START_TIMEOUT_S, Cluster, our_cluster
from tests.ports import free_ports
from tests.zookeeper_process import ZooKeeperProcesses

SESSION_MS = 6_000
_PER_TOPIC = 100
_PATIENCE_S = 600


@dataclass(frozen=True)
class Failover:
    partitions: int
    session_s: float
    """Until ZooKeeper had ended the session of the one that was killed."""
    elected_s: float
    """From there until another broker was the controller."""
    led_s: float
    """From the end of the session until both others say that every partition has a leader."""
    cpu_s: float
    """Processor time of both for it."""

    def __str__(self) -> str:
        per_partition_ms = self.led_s * 1000 / self.partitions
        return (
            f"{self.partitions} partitions: session over after {self.session_s:.1f} s, then a controller after "
            f"{self.elected_s:.2f} s, all led after {self.led_s:.2f} s ({per_partition_ms:.2f} ms per partition, "
            f"{self.cpu_s:.1f} s of processor time)"
        )


def create(cluster: Cluster, partitions: int) -> None:
    """In topics of a hundred, with three replicas each."""
    # A client that asks a broker which has not heard of the others yet does not ask again for minutes.
    _wait_until_led(cluster, 0, {*IDS}, in_sync=0)
    patient = {"socket.timeout.ms": 300_000, "log_level": 0}
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **patient})
    for number in range(partitions // _PER_TOPIC):
        new = NewTopic(f"many-{number}", _PER_TOPIC, 3)
        for made in admin.create_topics([new], operation_timeout=300, request_timeout=_PATIENCE_S).values():
            made.result()
    _wait_until_led(cluster, partitions, {1, 2, 3}, in_sync=3)


def fail_over(cluster: Cluster, connect: str, partitions: int) -> Failover:
    client = KazooClient(connect)
    client.start()
    try:
        victim = _controller(client)
        assert victim is not None
        killed_s = time.monotonic()
        cluster.kill(victim)
        while _controller(client) == victim:
            time.sleep(0.01)
        over_s, cpu_s = time.monotonic(), cluster.cpu_s()
        while _controller(client) is None:
            time.sleep(0.005)
        elected_s = time.monotonic()
        _wait_until_led(cluster, partitions, {*IDS} - {victim}, in_sync=2)
        led_s, spent_s = time.monotonic() - over_s, cluster.cpu_s() - cpu_s
        return Failover(partitions, over_s - killed_s, elected_s - over_s, led_s, spent_s)
    finally:
        client.stop()
        client.close()


def _controller(client: KazooClient) -> int | None:
    try:
        return int(json.loads(client.get("/controller")[0])["brokerid"])
    except NoNodeError:
        return None


def _wait_until_led(cluster: Cluster, partitions: int, leaders: set[int], *, in_sync: int) -> None:
    """As each broker says."""
    deadline_s = time.monotonic() + _PATIENCE_S
    for port in cluster.ports.values():
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
        while True:
            try:
                listed = admin.list_topics(timeout=30)
                brokers, topics = listed.brokers, listed.topics
            except KafkaException:
                brokers, topics = {}, {}
            found = [p for name, topic in topics.items() if name.startswith("many-") for p in topic.partitions.values()]
            is_led = all(p.leader in leaders and len(p.isrs) >= in_sync for p in found)
            if leaders <= brokers.keys() and len(found) == partitions and is_led:
                break
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{cluster.name}: {len(found)} partitions, not all of them led")
            time.sleep(0.05)


@contextmanager
def ours_on_zookeeper(directory: Path, connect: str) -> Iterator[Cluster]:
    settings = {"zookeeper.connect": connect, "zookeeper.session.timeout.ms": str(SESSION_MS)}
    with our_cluster(directory, settings) as cluster:
        yield cluster


@contextmanager
def kafka_on_zookeeper(libs: Path, directory: Path, connect: str) -> Iterator[Cluster]:
    directory.mkdir()
    first_port = free_ports(len(IDS))
    ports = {broker_id: first_port + place for place, broker_id in enumerate(IDS)}
    with ExitStack() as stack:
        pids = {}
        begun_s = time.perf_counter()
        for broker_id, port in ports.items():
            apache_kafka.write_properties(
                directory / str(broker_id),
                {
                    "broker.id": str(broker_id),
                    "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                    "zookeeper.connect": connect,
                    "zookeeper.session.timeout.ms": str(SESSION_MS),
                    "log.dirs": str(directory / str(broker_id) / "logs"),
                },
            )
            process = stack.enter_context(apache_kafka.running_node(libs, directory / str(broker_id)))
            pids[broker_id] = process.pid
            if first_answer(process, port, begun_s, START_TIMEOUT_S) is None:
                raise RuntimeError(f"broker {broker_id} of {apache_kafka.NAME} did not start")
        yield Cluster(apache_kafka.NAME, ports, pids)


def measured_failovers(directory: Path, counts: Sequence[int], libs: Path | None) -> Iterator[tuple[str, Failover]]:
    ensemble = ZooKeeperProcesses(directory / "failover-zookeeper").start()
    try:
        for count in counts:
            for name in ("ours", *([] if libs is None else ["kafka"])):
                place, connect = directory / f"{name}-{count}", f"{ensemble.connect}/{name}-{count}"
                with (
                    ours_on_zookeeper(place, connect)
                    if name == "ours"
                    else kafka_on_zookeeper(libs or Path(), place, connect)
                ) as cluster:
                    create(cluster, count)
                    yield cluster.name, fail_over(cluster, connect, count)
                shutil.rmtree(place, ignore_errors=True)
    finally:
        ensemble.kill()
