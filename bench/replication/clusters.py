"""Clusters of three brokers that are measured, each broker a process. Stopped when their block ends."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench import apache_kafka
from bench.peers import BROKER_COMMAND, first_answer, running
from tests.ports import free_ports

IDS = (1, 2, 3)
START_TIMEOUT_S = 120
_CREATE_TIMEOUT_S = 300


@dataclass
class Cluster:
    name: str
    ports: dict[int, int]
    pids: dict[int, int]
    """Of the brokers, by id."""
    supervisor: int | None = None
    """The process that keeps our cluster's metadata; Apache Kafka has its controller in the first broker."""

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    @property
    def _processes(self) -> list[psutil.Process]:
        pids = [*self.pids.values(), *([] if self.supervisor is None else [self.supervisor])]
        return [psutil.Process(pid) for pid in pids]

    def rss_mb(self) -> float:
        return float(sum(process.memory_info().rss for process in self._processes) / 1e6)

    def cpu_s(self) -> float:
        return float(sum(sum(process.cpu_times()[:2]) for process in self._processes))

    def kill(self, broker_id: int) -> None:
        os.kill(self.pids.pop(broker_id), signal.SIGKILL)
        del self.ports[broker_id]

    def create_topic(self, topic: str, assignment: list[list[int]]) -> None:
        """Returns when every partition is led by its first replica and all replicas are in sync."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        new = NewTopic(topic, len(assignment), replica_assignment=assignment)
        admin.create_topics([new], operation_timeout=60, request_timeout=_CREATE_TIMEOUT_S)[topic].result()
        deadline_s = time.monotonic() + _CREATE_TIMEOUT_S
        while time.monotonic() < deadline_s:
            try:
                found = admin.list_topics(topic, timeout=20).topics[topic].partitions
            except KafkaException:
                continue
            if len(found) == len(assignment) and all(
                partition.leader == assignment[index][0] and set(partition.isrs) == set(assignment[index])
                for index, partition in found.items()
            ):
                return
            time.sleep(0.05)
        raise TimeoutError(f"{self.name}: the topic {topic} did not get its leaders and replicas")

    def delete_topic(self, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        admin.delete_topics([topic], operation_timeout=60)[topic].result()


@contextmanager
def our_cluster(directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """As a user would start it. A broker that is killed stays away."""
    first_port = free_ports(len(IDS))
    ports = {broker_id: first_port + place for place, broker_id in enumerate(IDS)}
    command = [*BROKER_COMMAND, "--brokers", str(len(IDS)), "--port", str(first_port), "--data", str(directory)]
    overrides = {"log.segment.delete.delay.ms": "0", **(settings or {})}
    command += ["--no-restart", *(part for item in overrides.items() for part in ("--override", "=".join(item)))]
    log = directory.with_suffix(".out")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    begun_s = time.perf_counter()
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, text=True, env=environment)
    with running(process):
        for port in ports.values():
            if first_answer(process, port, begun_s, START_TIMEOUT_S) is None:
                raise RuntimeError(f"the cluster did not start:\n{log.read_text()[-2000:]}")
        pids = {broker_id: int((directory / f"broker-{broker_id}" / "pid").read_text()) for broker_id in IDS}
        yield Cluster("broker", ports, pids, process.pid)


@contextmanager
def kafka_cluster(libs: Path, directory: Path) -> Iterator[Cluster]:
    """KRaft, with the controller in the first broker."""
    directory.mkdir()
    first_port = free_ports(len(IDS) + 1)
    ports = {broker_id: first_port + 1 + place for place, broker_id in enumerate(IDS)}
    for broker_id in IDS:
        apache_kafka.prepare_node(
            libs, directory / str(broker_id), node_id=broker_id, port=ports[broker_id], controller=(IDS[0], first_port)
        )
    with ExitStack() as stack:
        nodes = {
            broker_id: stack.enter_context(apache_kafka.running_node(libs, directory / str(broker_id)))
            for broker_id in IDS
        }
        begun_s = time.perf_counter()
        for broker_id, process in nodes.items():
            if first_answer(process, ports[broker_id], begun_s, START_TIMEOUT_S) is None:
                raise RuntimeError(f"broker {broker_id} of {apache_kafka.NAME} did not start")
        yield Cluster(apache_kafka.NAME, ports, {broker_id: process.pid for broker_id, process in nodes.items()})
