"""A simulated broker by itself: how it is set, what it is through its lives, and what each of them leaves."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla.base.types import TopicPartition, Uuid
from ottla.log.config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.records.builder import build_batch
from ottla.testing.sim import world as simulations
from ottla.testing.sim.brokers import SimBroker, SimClock
from ottla.testing.sim.disks import SyncedLengths
from ottla.testing.sim.loop import Party, SimLoop
from ottla.testing.sim.network import SimNetwork
from ottla.testing.sim.store import SimEnsemble

CLEAN = ".kafka_cleanshutdown"
TP = TopicPartition("t", 0)


class World:
    """One broker, number 7, alone with its store."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.loop = SimLoop()  # type: ignore[abstract]
        # What a killed broker leaves to be done must never be done, not even by the collection of its tasks.
        simulations._kept.append(self.loop.tasks)
        self.network = SimNetwork(self.loop, Random(1))
        self.ensemble = SimEnsemble(self.network, Random(2))
        self.ensemble.start()
        self.synced = SyncedLengths()
        self.broker = SimBroker(7, home, self.network, self.ensemble, self.synced, Random(3))

    def run(self, scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with self.synced.watching():
            self.loop.run_until_complete(scenario())
        assert self.loop.failures == []

    @property
    def directories(self) -> set[str]:
        return {path.name for path in self.home.iterdir() if path.is_dir()}

    def log_of(self) -> PartitionLog:
        """A log that the broker holds open, with one record that was not synced."""
        assert self.broker.serving is not None
        log = self.broker.serving.replicas.log_dirs.create(TP, Uuid(bytes(range(16))), LogConfig())
        records = memoryview(bytearray(build_batch([(b"k", b"v", (), 1)])))
        log.append_as_leader(records, leader_epoch=0, now_ms=1)
        return log


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.broker.close_files()


def test_a_simulated_broker_is_quick_and_its_logs_are_short(world: World) -> None:
    async def scenario() -> None:
        await world.broker.start()

    world.run(scenario)
    assert world.broker.broker is not None
    config = world.broker.broker.config
    wanted = {
        "broker.id": 7,
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 3,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": 3,
        "transaction.state.log.min.isr": 2,
        "log.segment.bytes": 2048,
        "log.index.size.max.bytes": 4096,
        "log.index.interval.bytes": 512,
        "replica.lag.time.max.ms": 2000,
        "replica.fetch.wait.max.ms": 200,
        "replica.fetch.backoff.ms": 100,
        "replica.high.watermark.checkpoint.interval.ms": 1000,
        "controlled.shutdown.retry.backoff.ms": 200,
        "zookeeper.session.timeout.ms": 1500,
        "ottla.slow.request.ms": 0,
    }
    assert {name: config.integer(name) for name in wanted} == wanted
    (endpoint,) = world.broker.broker.endpoints
    assert (endpoint.host, endpoint.port) == ("broker-7", 9092)
    assert world.broker.broker.replicas.log_dirs.paths == [world.home / "0"]


def test_its_clock_is_that_of_the_simulation() -> None:
    loop = SimLoop()  # type: ignore[abstract]
    clock = SimClock(loop)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (1_700_000_000_000, 0)
    loop.run_until_complete(asyncio.sleep(12.3459))
    assert (clock.wall_ms(), clock.monotonic_ms()) == (1_700_000_012_345, 12_345)


def state(broker: SimBroker) -> tuple[bool, bool, bool, bool]:
    return broker.is_up, broker.is_held, broker.broker is not None, broker.serving is not None


def test_what_a_broker_is_while_it_is_held(world: World) -> None:
    broker = world.broker
    assert (broker.broker_id, broker.name, broker.lives, state(broker)) == (7, "broker-7", 0, (False,) * 4)
    broker.hold()
    assert not broker.is_held, "there is nobody to be held"
    broker.resume()

    async def scenario() -> None:
        await broker.start()
        assert state(broker) == (True, False, True, True) and broker.broker is broker.serving
        sessions = world.ensemble.file.children("/brokers/ids")
        assert sessions == ["7"]
        broker.hold()
        assert state(broker) == (False, True, True, True)
        await asyncio.sleep(5)
        assert world.ensemble.file.children("/brokers/ids") == []
        broker.resume()
        assert state(broker) == (True, False, True, True)
        await asyncio.sleep(5)
        assert world.ensemble.file.children("/brokers/ids") == ["7"], "it has heard of it, and registers anew"

    world.run(scenario)
    assert broker.lives == 1


@pytest.mark.parametrize("power_loss", [True, False])
def test_a_broker_that_is_killed_comes_back_with_what_it_left(world: World, power_loss: bool) -> None:
    broker = world.broker

    async def scenario() -> None:
        await broker.start()
        size = world.log_of().size_bytes
        began_s = world.loop.time()
        lost = broker.kill(power_loss=power_loss)
        assert state(broker) == (False,) * 4 and broker.lives == 1
        assert world.directories == {"0", "1"}
        left = (world.home / "1" / "t-0" / f"{0:020}.log").stat().st_size
        assert left == size - lost and 0 <= lost <= size and (power_loss or lost == 0)
        assert not (world.home / "1" / CLEAN).exists()
        await broker.start()
        assert state(broker) == (True, False, True, True)
        assert world.loop.time() - began_s > 1, "its last life is still registered for a while"
        assert broker.serving is not None
        assert broker.lives >= 3 and world.directories == {str(number) for number in range(broker.lives)}
        log_dirs = broker.serving.replicas.log_dirs
        assert log_dirs.paths == [world.home / str(broker.lives - 1)]
        log = log_dirs.get(TP)
        assert log is not None and log.log_end_offset == (lost == 0) and not log_dirs.were_closed_cleanly

    world.run(scenario)


def test_a_broker_that_is_stopped_leaves_all_in_order(world: World) -> None:
    broker = world.broker

    async def scenario() -> None:
        await broker.start()
        world.log_of()
        stopping = asyncio.ensure_future(broker.stop())
        await asyncio.sleep(0)
        assert state(broker) == (False, False, True, True)
        await stopping
        assert state(broker) == (False,) * 4
        assert (world.home / "1" / CLEAN).exists()
        assert world.ensemble.file.children("/brokers/ids") == []
        began_s = world.loop.time()
        await broker.start()
        assert world.loop.time() - began_s < 0.5 and broker.lives == 2
        assert state(broker) == (True, False, True, True), "it is not stopping any more"
        assert broker.serving is not None and broker.serving.replicas.log_dirs.were_closed_cleanly

    world.run(scenario)


def test_a_party_that_has_died_stays_dead(world: World) -> None:
    async def scenario() -> None:
        await world.broker.start()
        party = world.broker._party
        were_dead = [party.is_dead]
        world.broker.kill(power_loss=False)
        were_dead.append(party.is_dead)
        with pytest.raises(ConnectionRefusedError):
            await Party("client").run(
                world.loop.create_task, world.network.connect(asyncio.BaseProtocol, "broker-7", 9092)
            )
        await world.broker.start()
        were_dead += [party.is_dead, world.broker._party.is_dead]
        assert were_dead == [False, True, True, False]
        assert party.name == world.broker._party.name == "broker-7"

    world.run(scenario)


def test_at_the_end_all_files_are_closed(tmp_path: Path) -> None:
    world = World(tmp_path)
    logs: list[PartitionLog] = []

    async def scenario() -> None:
        await world.broker.start()
        logs.append(world.log_of())
        world.broker.kill(power_loss=False)
        await world.broker.start()
        assert world.broker.serving is not None
        again = world.broker.serving.replicas.log_dirs.get(TP)
        assert again is not None
        logs.append(again)

    world.run(scenario)
    fds = [log.segments.active.log.fd for log in logs]
    names = [os.readlink(f"/proc/self/fd/{fd}") for fd in fds]
    assert names == [str(log.segments.active.log.path) for log in logs]
    world.broker.close_files()
    assert [log.segments.active.log.fd for log in logs] == [-1, -1]
    assert [log.segments.active.offset_index.is_writable for log in logs] == [False, False]
    assert [log.segments.active.time_index.is_writable for log in logs] == [False, False]
    assert not (world.home / str(world.broker.lives - 1) / CLEAN).exists()
