"""One broker: puts its parts together, starts them in order and stops them in the reverse order."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from ottla.base.clock import Clock, SystemClock
from ottla.base.errors import KafkaError, StartError
from ottla.base.types import Endpoint, random_uuid, uuid_to_text
from ottla.broker.authorizer import AllowAll, Authorizer
from ottla.broker.config import BrokerConfig
from ottla.broker.controller import Controller
from ottla.broker.dispatch import Dispatch
from ottla.broker.dynamic_configs import DynamicConfigs
from ottla.broker.group_coordinator import GroupCoordinator
from ottla.broker.handler import Handler
from ottla.broker.handlers import all_handlers
from ottla.broker.housekeeping import Housekeeping
from ottla.broker.local_link import LocalLink
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.parked import Parked
from ottla.broker.producer_ids import ProducerIds
from ottla.broker.replica_moves import ReplicaMoves
from ottla.broker.replicas import Replicas
from ottla.broker.topic_admin import NewTopic, TopicAdmin
from ottla.broker.transaction_coordinator import TransactionCoordinator
from ottla.log.log_dir import LogDirs
from ottla.machines.cluster.image import ClusterImage
from ottla.machines.fetch_session import FetchSessions
from ottla.metadata import paths
from ottla.metadata.embedded import EmbeddedStore
from ottla.metadata.store import Create, MetadataStore, Set
from ottla.net.limits import OS_DEFAULT, UNLIMITED, ConnectionLimits
from ottla.net.server import Server
from ottla.wire.fused.fetch import FetchPartition

log = logging.getLogger(__name__)

METADATA_FILE = "ottla-metadata.db"
STOP_GRACE_MS = 5_000


class Broker:
    """Made by `start`; until then only `config`, `clock` and `random` are there."""

    store: MetadataStore
    broker_id: int
    cluster_id: str
    image: ClusterImage
    dynamic_configs: DynamicConfigs
    replicas: Replicas
    replica_moves: ReplicaMoves
    controller: Controller
    topic_admin: TopicAdmin
    producer_ids: ProducerIds
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    parked: Parked
    fetch_sessions: FetchSessions[FetchPartition]
    metadata_cache: MetadataCache
    server: Server
    handlers: dict[int, Handler]

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        randomness: random.Random | None = None,
        make_dispatch: Callable[[Broker, dict[int, Handler]], Dispatch] = Dispatch,
    ) -> None:
        self._static_config = config
        self.clock = clock or SystemClock()
        self.random = randomness or random.Random()
        self._make_dispatch = make_dispatch
        self.authorizer: Authorizer = AllowAll()
        self.endpoints: list[Endpoint] = []
        """Where clients reach this broker, once it has started."""
        self.failed = asyncio.Event()
        """Set when the broker cannot go on: every log directory has failed."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._housekeeping: Housekeeping | None = None
        self._log_dirs: LogDirs | None = None

    @property
    def config(self) -> BrokerConfig:
        """The configuration in force: what the broker was started with, and what was changed since."""
        return self.dynamic_configs.broker

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs `work` beside everything else; it is cancelled when the broker stops."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def start(self) -> None:
        try:
            await self._start()
        except KafkaError as e:
            await self.stop()
            raise StartError(e.message) from e
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        config = self._static_config
        if not config.uses_embedded_store:
            raise StartError(
                "zookeeper.connect is set, but this version runs on its embedded store only; leave it out to start"
            )
        self._log_dirs = await asyncio.to_thread(LogDirs.claim, config.log_dirs)
        self.store = await EmbeddedStore.open(self._metadata_file(config))
        self.cluster_id = await self._ensure_cluster()
        self.broker_id = await self._choose_broker_id(self._log_dirs)
        self.dynamic_configs = DynamicConfigs(self.store, self.broker_id, config)
        await self.dynamic_configs.start()
        await self._load_logs(self._log_dirs)
        self._build(self._log_dirs)
        self._bind()
        await self._register()
        if not await self.controller.campaign():
            raise StartError("another broker is the controller of this embedded cluster; only one process can use it")
        await self.topic_admin.resume_deletions()
        self.groups.start()
        self.server.start_accepting()
        self._housekeeping = Housekeeping(self)
        self._housekeeping.start()

    def _metadata_file(self, config: BrokerConfig) -> Path:
        directory = config.optional_text("metadata.log.dir")
        return (Path(directory) if directory else config.log_dirs[0]) / METADATA_FILE

    async def _ensure_cluster(self) -> str:
        """The cluster's id; the first start makes one, and the nodes every cluster has."""
        existing = await self.store.tree("")
        missing = [Create(path) for path in paths.PERSISTENT_PATHS if path not in existing]
        if missing:
            await self.store.commit(missing)
        node = await self.store.get(paths.CLUSTER_ID)
        if node is not None:
            return paths.decode_cluster_id(node.data)
        cluster_id = self._log_dirs.stored_cluster_id() if self._log_dirs is not None else None
        cluster_id = cluster_id or uuid_to_text(random_uuid())
        await self.store.commit([Create(paths.CLUSTER_ID, paths.encode_cluster_id(cluster_id))])
        return cluster_id

    async def _choose_broker_id(self, log_dirs: LogDirs) -> int:
        """The configured id, else the one the log directories were made with, else a new one above the reserved."""
        configured = self._static_config.broker_id
        if configured is not None:
            return configured
        stored = log_dirs.stored_broker_id()
        if stored is not None:
            return stored
        await self.store.commit([Set(paths.BROKER_SEQUENCE, b"")])
        node = await self.store.get(paths.BROKER_SEQUENCE)
        assert node is not None
        return self._static_config.integer("reserved.broker.max.id") + node.version

    async def _load_logs(self, log_dirs: LogDirs) -> None:
        await asyncio.to_thread(
            log_dirs.load,
            broker_id=self.broker_id,
            cluster_id=self.cluster_id,
            clock=self.clock,
            config_for=self.dynamic_configs.log_config,
            recovery_threads_per_dir=self.config.integer("num.recovery.threads.per.data.dir"),
        )

    def _build(self, log_dirs: LogDirs) -> None:
        self.image = ClusterImage(self.cluster_id)
        self.parked = Parked(asyncio.get_running_loop())
        self.replicas = Replicas(
            self.broker_id,
            log_dirs,
            self.parked,
            read_config=self.dynamic_configs.read_topic,
            on_all_failed=self.failed.set,
        )
        self.replica_moves = ReplicaMoves(
            self.replicas,
            self.clock,
            parallel_moves=self.config.optional_integer("num.replica.alter.log.dirs.threads") or len(log_dirs.paths),
            bytes_per_second=lambda: self.config.integer("replica.alter.log.dirs.io.max.bytes.per.second"),
        )
        self.metadata_cache = MetadataCache()
        self.fetch_sessions = FetchSessions(self.config.integer("max.incremental.fetch.session.cache.slots"))
        self.producer_ids = ProducerIds(self.store, self.broker_id)
        self.groups = GroupCoordinator(self)
        self.transactions = TransactionCoordinator(self)
        self.controller = Controller(
            self.broker_id,
            self.store,
            LocalLink(self.broker_id, self.replicas, self.image, on_metadata=self._cluster_changed),
            self.clock,
            unclean_election_allowed=lambda topic: (
                self.dynamic_configs.log_config(topic).unclean_leader_election_enable
            ),
        )
        self.topic_admin = TopicAdmin(
            self.controller, validate_configs=self.dynamic_configs.validate_topic, randomness=self.random
        )
        self.dynamic_configs.on_topic_changed = self._topic_config_changed
        self.dynamic_configs.on_broker_changed = self._broker_config_changed
        self.handlers = all_handlers()
        self.server = Server(self._make_dispatch(self, self.handlers), limits=connection_limits(self.config))

    def _cluster_changed(self, deleted_topics: set[str]) -> None:
        for topic in deleted_topics:
            self.dynamic_configs.forget_topic(topic)
        self.groups.cluster_changed(deleted_topics)

    def _topic_config_changed(self, topic: str) -> None:
        self.replicas.set_topic_config(topic, self.dynamic_configs.log_config(topic))

    def _broker_config_changed(self) -> None:
        for topic in self.replicas.topics():
            self._topic_config_changed(topic)

    def _bind(self) -> None:
        backlog = self.config.integer("socket.listen.backlog.size")
        ports = {
            listener.name: self.server.bind(listener.name, listener.host, listener.port, backlog=backlog)
            for listener in self.config.listeners
        }
        self.endpoints = [
            Endpoint(listener.name, listener.host, listener.port or ports[listener.name])
            for listener in self.config.advertised_listeners
        ]

    async def _register(self) -> None:
        protocols = {listener.name: listener.protocol for listener in self.config.listeners}
        node = paths.BrokerNode(
            [(endpoint, protocols[endpoint.listener]) for endpoint in self.endpoints],
            self.config.optional_text("broker.rack"),
        )
        path = f"{paths.BROKER_IDS}/{self.broker_id}"
        await self.store.commit([Create(path, node.encode(self.clock.wall_ms()), ephemeral=True)])

    async def create_missing_topic(self, name: str) -> None:
        """Creates a topic somebody asked for without creating it, with the broker's defaults."""
        await self.topic_admin.create(
            NewTopic(name, self.config.integer("num.partitions"), self.config.integer("default.replication.factor"))
        )

    async def stop(self) -> None:
        """Stops in the reverse order of the start; what was never started is left out."""
        if self._housekeeping is not None:
            await self._housekeeping.stop()
        if hasattr(self, "server"):
            await self.replica_moves.stop()
            # The server stops taking requests first; then whoever waits is answered, so that nobody is waited for.
            await asyncio.gather(self.server.stop(grace_ms=STOP_GRACE_MS), self._answer_waiting())
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if hasattr(self, "store"):
            await self.store.close()
        if self._log_dirs is not None:
            await asyncio.to_thread(self._log_dirs.close)
            self._log_dirs = None

    async def _answer_waiting(self) -> None:
        self.parked.expire_all(self.replicas)
        await self.groups.stop()
        await self.transactions.stop()


def connection_limits(config: BrokerConfig) -> ConnectionLimits:
    return ConnectionLimits(
        max_request_bytes=config.integer("socket.request.max.bytes"),
        max_connections=min(config.integer("max.connections"), UNLIMITED),
        max_connections_per_ip=config.integer("max.connections.per.ip"),
        max_connections_per_ip_overrides=config.max_connections_per_ip_overrides,
        max_idle_ms=config.integer("connections.max.idle.ms"),
        send_buffer_bytes=max(config.integer("socket.send.buffer.bytes"), 1_048_576),
        # Left alone, the system lets the buffer grow with what a client sends. A fixed one of Kafka's default size
        # would take eight reads for a frame of a megabyte.
        receive_buffer_bytes=(
            config.integer("socket.receive.buffer.bytes")
            if "socket.receive.buffer.bytes" in config.given
            else OS_DEFAULT
        ),
    )
