"""Three brokers in this process, on a metadata store that is served over a socket, or on the ZooKeeper that settings
name: what tests of clusters share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import ottla.aio as aio
from ottla import NewTopic
from ottla.base.types import TopicPartition
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.node import Broker
from ottla.broker.partition import Partition
from ottla.broker.startup import start_broker
from ottla.metadata.served.server import StoreServer
from tests.waiting import run_async, until

IDS = (1, 2, 3)
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "replica.lag.time.max.ms": "1000",
    "replica.fetch.wait.max.ms": "100",
    "replica.fetch.backoff.ms": "50",
    "controlled.shutdown.retry.backoff.ms": "50",
    "auto.leader.rebalance.enable": "false",
}


class LocalCluster:
    def __init__(self, directory: Path, *, log_dirs: int = 1, **settings: str) -> None:
        self.directory = directory
        self._log_dirs = log_dirs
        self.brokers: dict[int, Broker] = {}
        self._settings = {**SETTINGS, **{name.replace("_", "."): value for name, value in settings.items()}}
        self._ports: dict[int, int] = {}

    async def begin(self) -> None:
        if "zookeeper.connect" not in self._settings:
            self.store = await StoreServer.start(self.directory)
            self._settings["ottla.cluster.dir"] = str(self.directory)
        for broker_id in IDS:
            await self.start(broker_id)

    async def end(self) -> None:
        for broker_id in list(self.brokers):
            await self.stop(broker_id)
        if "ottla.cluster.dir" in self._settings:
            await self.store.close()

    async def start(self, broker_id: int) -> Broker:
        config = BrokerConfig(
            {
                "broker.id": str(broker_id),
                "listeners": f"PLAINTEXT://127.0.0.1:{self._ports.get(broker_id, 0)}",
                "log.dirs": ",".join(map(str, self.log_dirs_of(broker_id))),
                **self._settings,
            }
        )
        broker = self.brokers[broker_id] = await start_broker(config)
        self._ports[broker_id] = broker.endpoints[0].port
        return broker

    def log_dirs_of(self, broker_id: int) -> list[Path]:
        first = self.directory / f"broker-{broker_id}"
        return [first, *(self.directory / f"broker-{broker_id}-{number}" for number in range(2, self._log_dirs + 1))]

    async def stop(self, broker_id: int) -> None:
        await self.brokers.pop(broker_id).stop()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    @property
    def controller(self) -> Broker:
        (active,) = [broker for broker in self.brokers.values() if broker.controller.is_active]
        return active

    def leader_of(self, topic: str, index: int = 0) -> Broker | None:
        led = [broker for broker in self.brokers.values() if (p := broker.replicas.find(topic, index)) and p.leader]
        return max(led, key=lambda broker: self.copy(broker, topic, index).leader_epoch, default=None)

    @staticmethod
    def copy(broker: Broker, topic: str, index: int = 0) -> Partition:
        partition = broker.replicas.find(topic, index)
        assert partition is not None
        return partition

    def copies(self, topic: str, index: int = 0) -> Iterator[Partition]:
        for broker in self.brokers.values():
            if (partition := broker.replicas.find(topic, index)) is not None:
                yield partition

    def isr(self, topic: str, index: int = 0) -> frozenset[int]:
        leader = self.leader_of(topic, index)
        machine = None if leader is None else self.copy(leader, topic, index).leader
        return frozenset() if machine is None else machine.isr

    async def in_sync(self, topic: str, partitions: int, *members: int) -> None:
        """Waits until these are in sync and have all that the leader has, committed."""

        def is_so() -> bool:
            return all(
                self.isr(topic, index) == set(members)
                and len({(copy.log.log_end_offset, copy.log.high_watermark) for copy in self.copies(topic, index)}) == 1
                for index in range(partitions)
            )

        await until(is_so)

    async def create(self, topic: str, *, partitions: int = 1, **configs: str) -> None:
        async with aio.Admin({"bootstrap.servers": self.bootstrap_servers}) as admin:
            new = NewTopic(topic, partitions, 3, configs={name.replace("_", "."): v for name, v in configs.items()})
            (await admin.create_topics([new])).check()
        await self.in_sync(topic, partitions, *IDS)

    def producer(self, **settings: str) -> aio.Producer[bytes, bytes]:
        return aio.Producer({"bootstrap.servers": self.bootstrap_servers, "acks": "all", **settings})

    def bytes_of(self, partition: Partition) -> bytes:
        """All batches of a copy, as they lie in its files."""
        return b"".join(Path(segment.log.path).read_bytes()[: segment.size] for segment in partition.log.segments.all())

    def assert_identical(self, topic: str, partitions: int) -> None:
        for index in range(partitions):
            copies = list(self.copies(topic, index))
            assert len({self.bytes_of(copy) for copy in copies}) == 1, (
                f"the copies of {TopicPartition(topic, index)} differ"
            )


def in_cluster(
    directory: Path, scenario: Callable[[LocalCluster], Awaitable[None]], *, log_dirs: int = 1, **settings: str
) -> None:
    async def run() -> None:
        cluster = LocalCluster(directory, log_dirs=log_dirs, **settings)
        await cluster.begin()
        try:
            await scenario(cluster)
        finally:
            await cluster.end()

    run_async(run())


async def send_some(producer: aio.Producer[bytes, bytes], topic: str, count: int, name: str) -> list[bytes]:
    """Sends records and waits until each is acknowledged."""
    values = [f"{name}-{number}".encode() for number in range(count)]
    waiting = [await producer.send(topic, value, key=value) for value in values]
    await producer.flush()
    for sent in waiting:
        await asyncio.wait_for(sent, 60)
    return values
