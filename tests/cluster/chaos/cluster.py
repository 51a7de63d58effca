"""Three broker processes of this machine, each of which can be killed, held, stopped, cut off and started again."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import confluent_kafka.admin

from ottla.metadata.served.server import StoreServer
from ottla.wire.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.broker_process import BrokerProcess
from tests.cluster.chaos.links import Links
from tests.kafka_process import KafkaOnZooKeeper
from tests.raw_client import ConnectionClosedError, RawClient
from tests.waiting import PATIENCE_S, repeat_until
from tests.zookeeper_process import ZooKeeperProcesses

IDS = (1, 2, 3)
CLIENTS = 0
"""Their number in `links.cut`."""
SETTINGS = {
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "2000",
    "zookeeper.session.timeout.ms": "4000",
    "controlled.shutdown.retry.backoff.ms": "200",
    "log.segment.bytes": "200000",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
}


Member = BrokerProcess | KafkaOnZooKeeper


class Cluster:
    """`brokers` by id, each a process. Their metadata store is served by this process, or is `zookeeper`."""

    has_brokers_of_kafka = False

    def __init__(
        self,
        directory: Path,
        settings: dict[str, str] | None = None,
        zookeeper: ZooKeeperProcesses | None = None,
        *,
        links: Links,
    ) -> None:
        self.directory = directory
        directory.mkdir(parents=True)
        self.zookeeper = zookeeper
        self.links = links
        self.brokers = {broker_id: self._broker(broker_id, settings or {}) for broker_id in IDS}
        self._held: set[int] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="store", daemon=True)

    def _broker(self, broker_id: int, settings: dict[str, str]) -> Member:
        broker = BrokerProcess(
            self.data_of(broker_id),
            {
                **SETTINGS,
                **settings,
                "broker.id": str(broker_id),
                **self.links.listeners(broker_id),
                **self._store_settings(broker_id),
            },
        )
        broker.prefix = self.links.command(broker_id)
        return broker

    def _store_settings(self, broker_id: int) -> dict[str, str]:
        if self.zookeeper is None:
            return {"ottla.cluster.dir": str(self.directory)}
        return {"zookeeper.connect": f"{self.links.zookeepers(broker_id)}/kafka"}

    def data_of(self, broker_id: int) -> Path:
        return self.directory / f"broker-{broker_id}"

    @property
    def servers(self) -> str:
        return self.links.servers

    # Life and death

    def begin(self) -> None:
        self._thread.start()
        if self.zookeeper is None:
            self._store = self._call(StoreServer.start(self.directory))
        self._call(self.links.open())
        self.start(*IDS)

    def end(self) -> None:
        """Stops whatever still runs, and the store. May be called twice."""
        if not self._thread.is_alive():
            return
        for broker_id in list(self._held):
            self.resume(broker_id)
        self.links.cut, self.links.loss, self.links.bytes_per_s = set(), 0.0, {}
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda broker: broker.stop(), self.brokers.values()))
        if self.zookeeper is None:
            self._call(self._store.close())
        self._loop.call_soon_threadsafe(self.links.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)

    def _call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def start(self, *broker_ids: int) -> None:
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda broker_id: self.brokers[broker_id].start(), broker_ids))

    def kill(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.brokers[broker_id].kill()

    def stop(self, broker_id: int) -> None:
        assert self.brokers[broker_id].stop() == 0, "\n".join(self.brokers[broker_id].log_lines)

    def hold(self, broker_id: int) -> None:
        self._held.add(broker_id)
        os.kill(self.brokers[broker_id].pid, signal.SIGSTOP)

    def resume(self, broker_id: int) -> None:
        self._held.discard(broker_id)
        os.kill(self.brokers[broker_id].pid, signal.SIGCONT)

    def to_zookeeper(self, broker_id: int) -> set[tuple[int, int]]:
        """Links of a broker to all servers, to be cut."""
        assert self.zookeeper is not None
        return {(broker_id, -server.number) for server in self.zookeeper.servers}

    # What brokers say

    def raw_client(self, broker_id: int, timeout_s: float = 20) -> RawClient:
        """Of a broker that answers whatever becomes of the network."""
        host, port = self.links.address(broker_id)
        return RawClient(port, host=host, timeout_s=timeout_s)

    def create(self, topic: str, partitions: int, ask: Iterable[int] = IDS, **configs: str) -> None:
        """All of `ask` have to be in sync."""
        asked = tuple(ask)
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        config = {name.replace("_", "."): value for name, value in configs.items()}
        new = confluent_kafka.admin.NewTopic(
            topic, num_partitions=partitions, replication_factor=len(asked), config=config
        )
        admin.create_topics([new])[topic].result(PATIENCE_S)
        self.wait_until_well(topic, ask=asked)

    def controller(self, ask: Iterable[int] = IDS) -> int:
        return self._metadata([], ask).controller_id

    def view(self, broker_id: int) -> str:
        """All that one broker tells clients of the cluster."""
        return repr(self._metadata(None, [broker_id]))

    def describe(self, topic: str, ask: Iterable[int] = IDS) -> list[Any]:
        """Partitions of Metadata, with leaders, epochs and in-sync sets, as the first broker that answers says."""
        response = self._metadata([topic], ask)
        partitions = response.topics[0].partitions if response.topics else []
        return sorted(partitions, key=lambda partition: partition.partition_index)

    def _metadata(self, topics: list[str] | None, ask: Iterable[int]) -> MetadataResponse:
        """What the first broker says that says something; nothing if none does. None asks for all topics."""
        asked = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
        for broker_id in ask:
            try:
                with self.raw_client(broker_id, timeout_s=2) as client:
                    response = client.call(MetadataRequest(topics=asked, allow_auto_topic_creation=False), 9)
                    assert isinstance(response, MetadataResponse)
            except (OSError, ConnectionClosedError):
                continue
            if response.brokers and all(each.partitions for each in response.topics):
                return response
        return MetadataResponse()

    def leader(self, topic: str, partition: int = 0) -> int:
        found: list[int] = []

        def has_leader() -> bool:
            found[:] = [each.leader_id for each in self.describe(topic) if each.partition_index == partition]
            return bool(found) and found[0] > 0

        repeat_until(has_leader, short_sleep)
        return found[0]

    def isr(self, topic: str, partition: int, ask: Iterable[int] = IDS) -> set[int]:
        return {
            member
            for each in self.describe(topic, ask)
            if each.partition_index == partition
            for member in each.isr_nodes
        }

    def wait_for_isr(self, topic: str, partition: int, members: set[int], ask: Iterable[int] = IDS) -> None:
        asked = tuple(ask)
        repeat_until(lambda: self.isr(topic, partition, asked) == members, short_sleep)

    def wait_until_well(self, *topics: str, ask: Iterable[int] = IDS) -> None:
        """Until every copy of every partition is in sync, as all that are asked see it."""
        asked = set(ask)

        def is_well() -> bool:
            for topic in topics:
                for broker_id in asked:
                    found = self.describe(topic, [broker_id])
                    if not found or any(set(each.isr_nodes) != asked for each in found):
                        return False
            return True

        repeat_until(is_well, short_sleep)


def short_sleep() -> None:
    time.sleep(0.1)
