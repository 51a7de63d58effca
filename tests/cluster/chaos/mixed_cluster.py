"""One cluster of Apache Kafka's brokers and ours, on one ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from ottla.metadata.paths import decode_controller
from tests.cluster.chaos.cluster import IDS, Cluster, Member, short_sleep
from tests.cluster.chaos.proxies import Proxies
from tests.kafka_process import KafkaOnZooKeeper
from tests.waiting import repeat_until
from tests.zookeeper_process import ZooKeeperProcesses

KAFKAS = (1, 2)
OTTLA = 3


class MixedCluster(Cluster):
    """Brokers 1 and 2 are Apache Kafka, 3 is ours."""

    has_brokers_of_kafka = True

    def __init__(
        self, libs: Path, directory: Path, zookeeper: ZooKeeperProcesses, settings: dict[str, str] | None = None
    ) -> None:
        self._libs = libs
        super().__init__(directory, settings, zookeeper, links=Proxies(zookeeper))

    def _broker(self, broker_id: int, settings: dict[str, str]) -> Member:
        ours = super()._broker(broker_id, settings)
        # Nothing stands between these brokers: links tell ours apart by names that Kafka's do not have.
        ours.overrides["advertised.listeners"] = ours.overrides["listeners"]
        if broker_id not in KAFKAS:
            return ours
        overrides = {**ours.overrides, "log.dirs": str(self.data_of(broker_id))}
        _, port = self.links.address(broker_id)
        return KafkaOnZooKeeper(self._libs, self.directory / f"kafka-{broker_id}", port, overrides)

    def make_controller(self, broker_id: int) -> None:
        """Takes the role away from whoever has it, while all but that broker are held for a moment."""
        assert self.zookeeper is not None
        others = [each for each in IDS if each != broker_id]
        client = KazooClient(self.zookeeper.connect)
        client.start()
        for other in others:
            self.hold(other)
        try:
            if _holder(client) != broker_id:
                with suppress(NoNodeError):
                    client.delete("/kafka/controller")
            repeat_until(lambda: _holder(client) == broker_id)
        finally:
            for other in others:
                self.resume(other)
            client.stop()
            client.close()
        repeat_until(lambda: all(self._metadata(None, [each]).controller_id == broker_id for each in IDS), short_sleep)

    def live_brokers(self, ask: Iterable[int]) -> set[int]:
        return {broker.node_id for broker in self._metadata(None, ask).brokers}


def _holder(client: KazooClient) -> int | None:
    with suppress(NoNodeError):
        data, _ = client.get("/kafka/controller")
        return decode_controller(data)
    return None
