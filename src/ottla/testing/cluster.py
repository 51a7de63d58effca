"""Several brokers in this process, which make up one cluster: each in a thread, on a metadata store in another.

All of it is as in `ottla start --brokers`, but for the processes. Whatever a broker asks of another goes through a
proxy of its own for that way, so that it can be cut without either noticing.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import Endpoint, TopicPartition
from ottla.client.core.settings import merge_settings
from ottla.client.sync.loop_thread import LoopThread
from ottla.machines.cluster.controller import LeaderAsked
from ottla.machines.cluster.image import NO_LEADER
from ottla.machines.cluster.topics import NewTopic
from ottla.metadata import paths
from ottla.metadata.served.server import StoreServer
from ottla.metadata.store import Node
from ottla.testing.embedded import EmbeddedBroker
from ottla.testing.proxy import FaultProxy

DEFAULTS: dict[str, object] = {
    # What takes half a minute in production is over before somebody who watches a test wonders.
    "replica.lag.time.max.ms": 2_000,
    "zookeeper.session.timeout.ms": 3_000,
    "replica.fetch.wait.max.ms": 100,
    "replica.fetch.backoff.ms": 50,
    "controlled.shutdown.retry.backoff.ms": 50,
    # Who leads is what the test says.
    "auto.leader.rebalance.enable": False,
}
_FIRST_ID = 1
_POLL_S = 0.005


class EmbeddedCluster:
    """Started by `start` or `with`; every method is for the test's thread.

    `config` are the settings of all brokers by Kafka's names, `broker_config` those of some, by broker id. Brokers have
    the ids 1, 2, 3; `cluster[2]` is one of them, with its faults. They listen on `port` and those that follow, or on
    free ones.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        port: int | None = None,
        config: Mapping[str, object] | None = None,
        broker_config: Mapping[int, Mapping[str, object]] | None = None,
    ) -> None:
        self.ids = tuple(range(_FIRST_ID, _FIRST_ID + brokers))
        self._config = {**DEFAULTS, "default.replication.factor": brokers, **merge_settings(config, {})}
        self._broker_config = {
            broker_id: merge_settings(given, {}) for broker_id, given in (broker_config or {}).items()
        }
        self._first_port = port
        self._directory: Path | None = None
        self._brokers: dict[int, EmbeddedBroker] = {}
        self._links: dict[tuple[int, int], FaultProxy] = {}
        self._linking = threading.Lock()
        self._cut: set[tuple[int, int]] = set()
        self._loop: LoopThread | None = None
        self._store: StoreServer | None = None

    # Life

    def start(self) -> Self:
        """Returns once all brokers know each other. Raises StartError or InvalidConfigError if it cannot be."""
        if self._loop is not None:
            raise RuntimeError("this cluster is running already")
        directory = self._directory = Path(tempfile.mkdtemp(prefix="ottla-"))
        self._loop = LoopThread("ottla-metadata", on_fork=lambda: None)
        try:
            self._store = self._loop.call(StoreServer.start(directory))
            self._brokers = {broker_id: self._new_broker(broker_id, directory) for broker_id in self.ids}
            with ThreadPoolExecutor(len(self.ids)) as starting:
                list(starting.map(EmbeddedBroker.start, self._brokers.values()))
            self._wait_until(self._is_complete, "the brokers do not know each other")
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Ends all of it and removes the data; the second time it does nothing."""
        for broker in self._brokers.values():
            # Nobody is left to take over, and nothing of theirs is kept.
            broker.kill()
        self._brokers.clear()
        for link in self._links.values():
            link.stop()
        self._links.clear()
        self._cut.clear()
        store, self._store = self._store, None
        loop, self._loop = self._loop, None
        if loop is not None:
            if store is not None:
                loop.call(store.close())
            loop.stop()
        directory, self._directory = self._directory, None
        if directory is not None:
            shutil.rmtree(directory)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # Where it is

    def __getitem__(self, broker_id: int) -> EmbeddedBroker:
        if broker_id not in self._brokers:
            known = ", ".join(map(str, self._brokers)) or "none: the cluster is not running"
            raise KeyError(f"there is no broker {broker_id!r}; there are {known}")
        return self._brokers[broker_id]

    @property
    def bootstrap_servers(self) -> str:
        """For the `bootstrap.servers` of a client."""
        return ",".join(broker.bootstrap_servers for broker in self._brokers.values())

    @property
    def controller_id(self) -> int:
        """The broker that decides who leads. Between the loss of one and the election of the next this waits."""
        return self._controller().running.broker_id

    @property
    def running_ids(self) -> list[int]:
        """The brokers that are neither ended nor paused."""
        return [broker_id for broker_id, broker in self._brokers.items() if broker.is_running]

    # Topics

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        replicas: Mapping[int, list[int]] | None = None,
        config: Mapping[str, object] | None = None,
    ) -> str:
        """Creates a topic, on all brokers unless told otherwise, and returns its name.

        `replicas` chooses the brokers of each partition; the first of them leads. Raises KafkaError if it cannot be.
        """
        factor = len(self.ids) if replication_factor is None else replication_factor
        configs = {key: str(value) for key, value in (config or {}).items()}
        new = NewTopic(name, partitions, factor, configs=configs)
        if replicas is not None:
            new = NewTopic(name, -1, -1, dict(replicas), configs)
        controller = self._controller()
        controller.call(controller.running.topic_admin.create(new))
        self._tell_all(controller)
        return name

    def leader_of(self, topic: str, partition: int = 0) -> int | None:
        """The broker that leads the partition, None if nobody does. Raises KafkaError if there is no such partition."""
        leader = self._state_of(topic, partition).leader
        return None if leader == NO_LEADER else leader

    def isr_of(self, topic: str, partition: int = 0) -> set[int]:
        """The brokers that are in sync, as all of them have agreed."""
        return set(self._state_of(topic, partition).isr)

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Has another member of the in-sync set lead, under the next leader epoch. Raises KafkaError if it cannot."""
        controller = self._controller()
        controller.call(controller.running.controller.submit(LeaderAsked(TopicPartition(topic, partition), to)))
        self._tell_all(controller)

    def wait_in_sync(self, topic: str, *, timeout_s: float = 30) -> None:
        """Waits until every broker that has a copy of the topic is in sync. Raises TimeoutError if that takes long."""
        self._wait_until(lambda: self._is_in_sync(topic), f"{topic!r} is not in sync", timeout_s)

    # Faults

    def kill(self, broker_id: int) -> None:
        """Ends a broker as `kill -9` does: connections break, its session ends, nothing is handed over."""
        self[broker_id].kill()
        self._wait_until(lambda: self._registered(broker_id) is None, f"broker {broker_id} is still registered")

    def restart(self, broker_id: int) -> None:
        """Starts a broker that was killed, on its port with its data; one that is running is stopped cleanly first."""
        self[broker_id].restart()

    def pause(self, broker_id: int) -> None:
        """A broker stands still until `resume`, and does not know it; after a while its session expires."""
        self[broker_id].pause()

    def resume(self, broker_id: int) -> None:
        self[broker_id].resume()

    def expire_session(self, broker_id: int) -> None:
        """The metadata store takes the broker for dead, which has to register anew."""
        node = self._registered(broker_id)
        if node is None:
            raise RuntimeError(f"broker {broker_id} has no session")
        loop, store = self._running_store

        async def expire() -> None:
            store.end_session(node.owner)

        loop.call(expire())
        self._wait_until(lambda: self._registered(broker_id) != node, f"broker {broker_id} is still registered")

    def cut(self, a: int, b: int, *, one_way: bool = False) -> None:
        """Nothing that broker `a` asks of `b` arrives any more, and nobody is told; nor the other way, unless one-way.

        Clients still reach both, and both their metadata store.
        """
        for way in [(a, b)] if one_way else [(a, b), (b, a)]:
            self.link(*way).hold()
            self._cut.add(way)

    def heal(self) -> None:
        """Ends every cut. What was under way arrives now, late."""
        for way in self._cut:
            self._links[way].release()
        self._cut.clear()

    def link(self, a: int, b: int) -> FaultProxy:
        """The network between two brokers, for what `a` asks of `b`: its faults can be changed."""
        if a == b:
            raise ValueError(f"broker {a} does not ask itself over the network")
        return self._link(a, b, self[b].port)

    # Inside

    def _new_broker(self, broker_id: int, directory: Path) -> EmbeddedBroker:
        def route(peer: int, endpoint: Endpoint) -> Endpoint:
            return endpoint._replace(port=self._link(broker_id, peer, endpoint.port).port)

        port = 0 if self._first_port is None else self._first_port + self.ids.index(broker_id)
        return EmbeddedBroker(
            directory / f"broker-{broker_id}",
            port=port,
            config={
                **self._config,
                **self._broker_config.get(broker_id, {}),
                "broker.id": broker_id,
                "ottla.cluster.dir": directory,
            },
            route=route,
        )

    def _link(self, a: int, b: int, port_of_b: int) -> FaultProxy:
        with self._linking:
            if (a, b) not in self._links:
                self._links[a, b] = FaultProxy(forward_to=(self._brokers[b].host, port_of_b)).start()
            return self._links[a, b]

    def _controller(self) -> EmbeddedBroker:
        """The broker that decides; there is none for a moment after the last one was lost."""
        self._wait_until(lambda: self._find_controller() is not None, "no broker is the controller")
        found = self._find_controller()
        assert found is not None
        return found

    def _find_controller(self) -> EmbeddedBroker | None:
        for broker_id in self.running_ids:
            broker = self._brokers[broker_id]
            if broker.running.controller.is_active:
                return broker
        return None

    def _tell_all(self, controller: EmbeddedBroker) -> None:
        """Waits until those brokers have heard it that can."""
        decider = controller.running.controller
        told = [b for b in self.running_ids if not {(decider.broker_id, b), (b, decider.broker_id)} & self._cut]
        controller.call(decider.delivered(told))

    def _state_of(self, topic: str, partition: int) -> paths.PartitionStateNode:
        node = self._stored(paths.partition_state(topic, partition))
        if node is None:
            raise KafkaError(
                f"there is no partition {partition} of a topic {topic!r}", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        return paths.PartitionStateNode.decode(node.data)

    def _is_in_sync(self, topic: str) -> bool:
        node = self._stored(paths.topic(topic))
        if node is None:
            raise KafkaError(f"there is no topic {topic!r}", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partitions = paths.TopicNode.decode(node.data).partitions
        return all(self.isr_of(topic, index) == set(replicas) for index, replicas in partitions.items())

    def _is_complete(self) -> bool:
        return all(broker.running.image.brokers.keys() == set(self.ids) for broker in self._brokers.values())

    def _registered(self, broker_id: int) -> Node | None:
        return self._stored(f"{paths.BROKER_IDS}/{broker_id}")

    def _stored(self, path: str) -> Node | None:
        loop, store = self._running_store
        return loop.call(store.store.get(path))

    @property
    def _running_store(self) -> tuple[LoopThread, StoreServer]:
        if self._loop is None or self._store is None:
            raise RuntimeError("this cluster is not running")
        return self._loop, self._store

    def _wait_until(self, is_so: Callable[[], bool], what_not: str, timeout_s: float = 30) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not is_so():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{what_not}, after {timeout_s} s")
            time.sleep(_POLL_S)
