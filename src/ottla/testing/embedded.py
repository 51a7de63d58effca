"""One broker in a thread of this process, with an event loop of its own. All of it is real, except the process."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self, TypeVar

import uvloop

from ottla.base.clock import Clock, SystemClock
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.admission import AccessRules
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.node import Broker
from ottla.broker.startup import Route, Surroundings, direct_route, start_broker
from ottla.client.core.settings import merge_settings
from ottla.machines.cluster.controller import DemotionAsked, ElectionAsked, ElectionKind
from ottla.machines.cluster.state import ClusterState
from ottla.machines.cluster.topics import NewTopic
from ottla.testing.faults import Faults
from ottla.testing.proxy import FaultProxy

T = TypeVar("T")

DEFAULTS: dict[str, object] = {
    # Nobody waits for other members in a test, and fifty partitions of offsets would take longer than the test.
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    # These run by real time; a test that moves the clock has not long to wait for what expires by it.
    "offsets.retention.check.interval.ms": 100,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 100,
    # Tests write records with timestamps of long ago, and mean to read them.
    "log.retention.check.interval.ms": 86_400_000,
}
_CALL_TIMEOUT_S = 30
_HOST = "127.0.0.1"


class EmbeddedBroker:
    """Started by `start` or `with`; every method is for the test's thread, not for the broker's.

    `config` are broker settings by Kafka's names; without `port` it listens on a free one. Without `data_dir` the data
    lie in a temporary directory that goes with the broker. `clock` is what the broker takes the time of records from,
    and the age of offsets and transactions: give it a ManualClock to own it. How long it waits for a client or a timer
    is always real time. With `network`, a proxy that is running, the clients that come through it are told to come back
    the same way. `access` says who may do what, and how fast; without it everybody may do everything. `route` says how
    it reaches other brokers.
    """

    def __init__(
        self,
        data_dir: str | Path | None = None,
        *,
        port: int = 0,
        config: Mapping[str, object] | None = None,
        clock: Clock | None = None,
        network: FaultProxy | None = None,
        access: AccessRules | None = None,
        route: Route = direct_route,
    ) -> None:
        self.faults = Faults()
        self._given_dir = None if data_dir is None else Path(data_dir)
        self._own_dir: Path | None = None
        self._config = merge_settings(config, {})
        self._clock = clock or SystemClock()
        self._network = network
        self._access = access or AccessRules()
        self._route = route
        self._port = port
        self._names = itertools.count(1)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._broker: Broker | None = None
        self._paused: threading.Event | None = None
        """Set to let a paused broker go on."""
        self._must_die = False

    # Life

    def start(self) -> Self:
        """Returns once clients can connect. Raises StartError or InvalidConfigError if it cannot be."""
        if self._thread is not None:
            raise RuntimeError("this broker is running already")
        if self._given_dir is None and self._own_dir is None:
            self._own_dir = Path(tempfile.mkdtemp(prefix="ottla-"))
        try:
            self._start_thread(self._broker_config())
        except BaseException:
            self._remove_own_dir()
            raise
        return self

    def stop(self) -> None:
        """Stops cleanly and removes the temporary directory; the second time it does nothing."""
        self.resume()
        self._stop_thread()
        self._remove_own_dir()

    def restart(self) -> None:
        """Stops and starts again on the same port with the same data: clients have to find their way back."""
        self.resume()
        self._stop_thread()
        self.start()

    def kill(self) -> None:
        """Ends it at once, as `kill -9` ends a process: connections break, nothing is answered, handed over or noted.

        `restart` brings it back, with what is in its files.
        """
        self._must_die = True
        self.resume()
        self._stop_thread()

    def pause(self) -> None:
        """From now on it stands still, as a stopped process does: clients can connect, but nobody answers.

        The session of a broker that is one of several may expire meanwhile. `resume` ends it.
        """
        if self._paused is not None:
            return
        loop = self._running_loop
        paused = self._paused = threading.Event()
        stands_still = threading.Event()

        def stand_still() -> None:
            stands_still.set()
            paused.wait()

        loop.call_soon_threadsafe(stand_still)
        if not stands_still.wait(_CALL_TIMEOUT_S):
            raise RuntimeError(f"the broker did not come to a halt within {_CALL_TIMEOUT_S} s")

    def resume(self) -> None:
        """Goes on after `pause`; without one it does nothing."""
        paused, self._paused = self._paused, None
        if paused is not None:
            paused.set()

    @property
    def is_running(self) -> bool:
        """Whether it answers: it was started, and is neither ended nor paused."""
        return self._thread is not None and self._paused is None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # Where it is

    @property
    def host(self) -> str:
        return _HOST

    @property
    def port(self) -> int:
        return self._port

    @property
    def bootstrap_servers(self) -> str:
        """For the `bootstrap.servers` of a client."""
        return f"{_HOST}:{self._port}"

    @property
    def data_dir(self) -> Path:
        directory = self._given_dir or self._own_dir
        if directory is None:
            raise RuntimeError("this broker has no data yet: it was never started")
        return directory

    # What a test wants of it

    def create_topic(self, name: str, *, partitions: int = 1, config: Mapping[str, object] | None = None) -> str:
        """Creates a topic and returns its name. Raises KafkaError if it cannot be."""
        configs = {key: str(value) for key, value in (config or {}).items()}
        self.call(self.running.topic_admin.create(NewTopic(name, partitions, 1, configs=configs)))
        return name

    def new_topic(
        self, prefix: str = "topic", *, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> str:
        """Creates a topic with a name that nobody else has got from this broker: for tests that share one."""
        return self.create_topic(f"{prefix}-{next(self._names)}", partitions=partitions, config=config)

    def take_leader_away(self, topic: str, partition: int = 0) -> None:
        """Leaves the partition without a leader, as if the broker that led it had died; `elect_leader` ends that.

        Raises KafkaError if there is no such partition, as `elect_leader` does.
        """
        self.call(self._demote(TopicPartition(topic, partition)))

    def elect_leader(self, topic: str, partition: int = 0) -> None:
        """Elects a leader anew, under the next leader epoch: clients with the old one are fenced (KIP-320)."""
        self.call(self._elect(TopicPartition(topic, partition)))

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine in the broker's loop and waits for its result."""
        try:
            loop = self._running_loop
        except RuntimeError:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, loop).result(_CALL_TIMEOUT_S)

    # Inside

    @property
    def running(self) -> Broker:
        """The broker itself, for `call`: it lives in another thread."""
        if self._broker is None:
            raise RuntimeError("this broker is not running")
        return self._broker

    @property
    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None or self._thread is None:
            raise RuntimeError("this broker is not running")
        if self._paused is not None:
            raise RuntimeError("this broker is paused, and answers nothing before resume()")
        return self._loop

    def _broker_config(self) -> BrokerConfig:
        settings = {
            "listeners": f"PLAINTEXT://{_HOST}:{self._port}",
            "log.dirs": str(self.data_dir),
            **(self._network.broker_settings(self._port) if self._network is not None else {}),
            **DEFAULTS,
            **self._config,
        }
        return BrokerConfig.load(None, [f"{name}={_text(value)}" for name, value in settings.items()], {})

    def _start_thread(self, config: BrokerConfig) -> None:
        started: Future[Broker] = Future()
        name = "ottla-broker" if config.broker_id is None else f"ottla-broker-{config.broker_id}"
        thread = threading.Thread(target=self._run, args=(config, started), name=name, daemon=True)
        thread.start()
        try:
            self._broker = started.result(_CALL_TIMEOUT_S)
        except BaseException:
            thread.join(_CALL_TIMEOUT_S)
            raise
        self._thread = thread
        self._port = self._broker.endpoints[0].port

    def _run(self, config: BrokerConfig, started: Future[Broker]) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve(config, started))

    async def _serve(self, config: BrokerConfig, started: Future[Broker]) -> None:
        try:
            around = Surroundings(
                clock=self._clock,
                make_dispatch=self.faults.make_dispatch,
                access=self._access,
                route=self._route,
            )
            broker = await start_broker(config, around)
        except BaseException as e:
            started.set_exception(e)
            return
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        started.set_result(broker)
        await self._stopping.wait()
        self.faults.let_go()
        await (broker.kill() if self._must_die else broker.stop())

    async def _demote(self, tp: TopicPartition) -> None:
        await self._change_leader(tp, DemotionAsked(tp))

    async def _elect(self, tp: TopicPartition) -> None:
        await self._change_leader(tp, ElectionAsked((tp,), ElectionKind.ANEW))

    async def _change_leader(self, tp: TopicPartition, event: DemotionAsked | ElectionAsked) -> None:
        controller = self.running.controller
        _check_exists(controller.state, tp)
        await controller.submit(event)
        await controller.delivered([controller.broker_id])

    def _stop_thread(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        assert self._loop is not None
        assert self._stopping is not None
        self._loop.call_soon_threadsafe(self._stopping.set)
        thread.join(_CALL_TIMEOUT_S)
        if thread.is_alive():
            raise RuntimeError(f"the broker did not stop within {_CALL_TIMEOUT_S} s")
        self._broker = self._loop = self._stopping = None
        self._must_die = False

    def _remove_own_dir(self) -> None:
        directory, self._own_dir = self._own_dir, None
        if directory is not None:
            shutil.rmtree(directory)


def _check_exists(state: ClusterState, tp: TopicPartition) -> None:
    topic = state.topics.get(tp.topic)
    if topic is None:
        names = ", ".join(sorted(state.topics)) or "none"
        raise KafkaError(
            f"there is no topic {tp.topic!r}; there are: {names}", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    if tp.partition not in topic.partitions:
        raise KafkaError(
            f"topic {tp.topic!r} has no partition {tp.partition}, but 0 to {len(topic.partitions) - 1}",
            code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )


def _text(value: object) -> str:
    """Kafka writes booleans in small letters."""
    return str(value).lower() if isinstance(value, bool) else str(value)
