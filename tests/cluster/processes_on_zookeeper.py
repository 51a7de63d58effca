"""Broker processes on one ZooKeeper, each Apache Kafka's or ours: what is compared between both, or tried on both."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ottla import Admin
from tests.broker_process import BrokerProcess
from tests.interop.kafka_tools import fetch_kafka_libs
from tests.kafka_process import KafkaOnZooKeeper
from tests.ports import free_ports
from tests.waiting import repeat_until

KAFKA, OTTLA = "Apache Kafka", "Ottla"
IDS = (1, 2, 3)
SETTINGS = {
    # A Java process can stand still for three seconds where tests share two cores, and a broker of Kafka whose session
    # has ended meanwhile answers with UNKNOWN_SERVER_ERROR. The tests' ZooKeeper grants ten seconds at most.
    "zookeeper.session.timeout.ms": "9000",
    "auto.leader.rebalance.enable": "false",
    "auto.create.topics.enable": "false",
    "controlled.shutdown.retry.backoff.ms": "200",
    "log.segment.delete.delay.ms": "100",
    "replica.fetch.wait.max.ms": "100",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class ProcessesOnZooKeeper:
    """`kinds` says whose broker each id is. `begin` starts them one after the other, so the first is the controller."""

    def __init__(
        self,
        directory: Path,
        connect: str,
        kinds: Mapping[int, str],
        *,
        log_dirs: int = 1,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.connect = connect
        self._log_dirs = log_dirs
        self._settings = {**SETTINGS, **(settings or {}), "zookeeper.connect": connect}
        first = free_ports(len(kinds))
        self.ports = {broker_id: first + place for place, broker_id in enumerate(kinds)}
        self.brokers = {broker_id: self._broker(broker_id, kind) for broker_id, kind in kinds.items()}

    def _broker(self, broker_id: int, kind: str) -> BrokerProcess | KafkaOnZooKeeper:
        settings = {
            **self._settings,
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[broker_id]}",
            "log.dirs": ",".join(map(str, self.log_dirs_of(broker_id))),
        }
        home = self.directory / f"home-{broker_id}"
        if kind == KAFKA:
            return KafkaOnZooKeeper(fetch_kafka_libs(), home, self.ports[broker_id], settings)
        return BrokerProcess(home, settings)

    def begin(self) -> None:
        first, *others = self.brokers.values()
        first.start()
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda broker: broker.start(), others))
        # A Kafka broker answers before it knows the others.
        for broker_id in self.brokers:
            with self.admin(broker_id) as admin:
                repeat_until(lambda admin=admin: set(admin.describe_cluster().brokers) == set(self.brokers))

    def end(self) -> None:
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda broker: broker.kill(), self.brokers.values()))

    def log_dirs_of(self, broker_id: int) -> list[Path]:
        return [self.directory / f"disk-{broker_id}-{number}" for number in range(1, self._log_dirs + 1)]

    @property
    def servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def admin(self, broker_id: int | None = None) -> Admin:
        """An admin client that asks this broker first, or any."""
        return Admin({"bootstrap.servers": self.servers if broker_id is None else f"127.0.0.1:{self.ports[broker_id]}"})
