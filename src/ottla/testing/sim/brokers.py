"""A simulated broker through its lives: started, killed, held, stopped and started again on what it left."""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import suppress
from pathlib import Path
from random import Random

from ottla.base.errors import KafkaError, OttlaError, StartError
from ottla.base.ids import Ids
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.dispatch import Dispatch
from ottla.broker.handler import Handler
from ottla.broker.node import Broker
from ottla.broker.startup import Surroundings, start_broker
from ottla.log.log_dir import LogDirs
from ottla.log.segment import Segment
from ottla.metadata.store import MetadataStore
from ottla.net.limits import ConnectionLimits
from ottla.net.service import Service
from ottla.testing.sim.disks import SyncedLengths, leave_behind
from ottla.testing.sim.loop import Party, SimLoop
from ottla.testing.sim.network import SimNetwork, SimServer
from ottla.testing.sim.store import SimEnsemble, SimStore

PORT = 9092
_FIRST_WALL_MS = 1_700_000_000_000
_RETRY_S = 0.5

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "log.segment.bytes": "2048",
    "log.index.size.max.bytes": "4096",
    "log.index.interval.bytes": "512",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "200",
    "replica.fetch.backoff.ms": "100",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "controlled.shutdown.retry.backoff.ms": "200",
    "zookeeper.session.timeout.ms": "1500",
    # It goes by real time, which has no place here.
    "ottla.slow.request.ms": "0",
}


class SimClock:
    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def wall_ms(self) -> int:
        return _FIRST_WALL_MS + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000)


class SimBroker:
    def __init__(
        self,
        broker_id: int,
        home: Path,
        network: SimNetwork,
        ensemble: SimEnsemble,
        synced: SyncedLengths,
        draw: Random,
    ) -> None:
        self.broker_id = broker_id
        self.name = f"broker-{broker_id}"
        self.broker: Broker | None = None
        """While it runs, or is held."""
        self.serving: Broker | None = None
        """The same, but from the moment it answers others: a start ends with the controller's first word."""
        self.lives = 0
        self._home = home
        self._network = network
        self._ensemble = ensemble
        self._synced = synced
        self._draw = draw
        self._party = Party(self.name)
        self._directory = home / "0"
        self._is_stopping = False
        self._open_files: list[LogDirs] = []
        """Of lives that were killed. The system would close them."""

    @property
    def is_up(self) -> bool:
        return self.broker is not None and not self._party.is_held and not self._is_stopping

    @property
    def is_held(self) -> bool:
        return self.broker is not None and self._party.is_held

    async def start(self) -> None:
        """Tries until it runs: its last life may still be registered."""
        while True:
            self._party = Party(self.name)
            self.lives += 1
            task = self._party.run(asyncio.get_running_loop().create_task, self._begin())
            try:
                self.broker = await task
                return
            except (StartError, KafkaError):
                self.serving = None
                self._die(power_loss=False)
                await asyncio.sleep(_RETRY_S)

    async def _begin(self) -> Broker:
        async def open_store(config: BrokerConfig) -> MetadataStore:
            return await SimStore.open(self._ensemble, config.integer("zookeeper.session.timeout.ms"))

        def make_server(service: Service, limits: ConnectionLimits) -> SimServer:
            return SimServer(self._network, service, limits)

        config = BrokerConfig(
            {
                **SETTINGS,
                "broker.id": str(self.broker_id),
                "listeners": f"PLAINTEXT://{self.name}:{PORT}",
                "log.dirs": str(self._directory),
                "ottla.cluster.dir": str(self._home),
            }
        )

        def make_dispatch(broker: Broker, handlers: dict[int, Handler]) -> Dispatch:
            self.serving = broker
            return Dispatch(broker, handlers)

        around = Surroundings(
            clock=SimClock(self._network.loop),
            ids=Ids(random.Random(self._draw.random())),
            open_store=open_store,
            make_server=make_server,
            make_dispatch=make_dispatch,
        )
        return await start_broker(config, around)

    def kill(self, *, power_loss: bool) -> int:
        """Ends it between two instructions; returns how many bytes of records its disk has lost."""
        return self._die(power_loss=power_loss)

    def hold(self) -> None:
        self._party.is_held = True

    def resume(self) -> None:
        self._network.loop.resume(self._party)

    async def stop(self) -> None:
        """As an operator does: leaders move first."""
        assert self.broker is not None
        self._is_stopping = True
        await self._party.run(asyncio.get_running_loop().create_task, self.broker.stop())
        self.broker = self.serving = None
        self._die(power_loss=False)

    def close_files(self) -> None:
        """At the end of a simulation: what brokers held when they were killed, or when it ended."""
        if self.serving is not None:
            self._open_files.append(self.serving.replicas.log_dirs)
        for log_dirs in self._open_files:
            logs = [log for path in log_dirs.paths for log in log_dirs.logs_in(path)]
            with suppress(OSError, OttlaError):
                log_dirs.close(clean=False)
            for segment in (segment for log in logs for segment in log.segments.all()):
                _close_files_of(segment)

    def _die(self, *, power_loss: bool) -> int:
        if self.serving is not None:
            self._open_files.append(self.serving.replicas.log_dirs)
        self.broker = self.serving = None
        self._is_stopping = False
        self._party.is_dead = True
        self._network.process_ended(self._party)
        left = self._home / str(self.lives)
        lost = 0
        if self._directory.exists():
            lost = leave_behind(self._directory, left, self._synced, power_loss=power_loss, draw=self._draw)
        self._directory = left
        return lost


def _close_files_of(segment: Segment) -> None:
    """A segment is closed with its last holder, and here dead tasks hold it for ever."""
    if segment.log.fd >= 0:
        os.close(segment.log.fd)
        segment.log.fd = -1
    segment.offset_index.release()
    segment.time_index.release()
