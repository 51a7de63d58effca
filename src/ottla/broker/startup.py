"""Starts a broker: builds its parts in order, each with what it needs, and notes how to stop each of them.

A start that fails undoes what it has done so far, so there is never half a broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from ottla.base.clock import Clock, SystemClock
from ottla.base.errors import KafkaError, StartError
from ottla.base.ids import Ids
from ottla.base.types import Endpoint, uuid_to_text
from ottla.broker.admission import AccessRules
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.config.dynamic import DynamicConfigs
from ottla.broker.controller.controller import Controller
from ottla.broker.coordinators.groups import GroupCoordinator
from ottla.broker.coordinators.markers import Markers
from ottla.broker.coordinators.producer_ids import ProducerIds
from ottla.broker.coordinators.transactions import TransactionCoordinator
from ottla.broker.dispatch import Dispatch
from ottla.broker.handler import Handler
from ottla.broker.handlers import all_handlers
from ottla.broker.housekeeping import Housekeeping
from ottla.broker.local_link import LocalLink
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.node import Broker
from ottla.broker.parked import Parked
from ottla.broker.quotas import ClientQuotas
from ottla.broker.replica_moves import ReplicaMoves
from ottla.broker.replicas import Replicas
from ottla.broker.slow_requests import SlowRequests
from ottla.broker.tasks import Tasks
from ottla.broker.topic_admin import TopicAdmin
from ottla.log.log_dir import LogDirs
from ottla.machines.cluster.image import ClusterImage
from ottla.machines.fetch_session import FetchSessions
from ottla.metadata import paths
from ottla.metadata.embedded import EmbeddedStore
from ottla.metadata.store import Create, MetadataStore, Set
from ottla.net.limits import OS_DEFAULT, UNLIMITED, ConnectionLimits
from ottla.net.server import Server

METADATA_FILE = "ottla-metadata.db"
STOP_GRACE_MS = 5_000

MakeDispatch = Callable[[Broker, dict[int, Handler]], Dispatch]


async def start_broker(
    config: BrokerConfig,
    *,
    clock: Clock | None = None,
    ids: Ids | None = None,
    make_dispatch: MakeDispatch = Dispatch,
    access: AccessRules | None = None,
) -> Broker:
    """Raises StartError if the broker cannot run; nothing of it is left then."""
    async with AsyncExitStack() as undo:
        try:
            broker = await _start(
                config, clock or SystemClock(), ids or Ids(), make_dispatch, access or AccessRules(), undo
            )
        except KafkaError as e:
            raise StartError(e.message) from e
        broker.undo = undo.pop_all()
        return broker


async def _start(
    config: BrokerConfig,
    clock: Clock,
    ids: Ids,
    make_dispatch: MakeDispatch,
    access: AccessRules,
    undo: AsyncExitStack,
) -> Broker:
    config.require_no_refusals()
    log_dirs = await asyncio.to_thread(LogDirs.claim, config.log_dirs)
    undo.push_async_callback(asyncio.to_thread, log_dirs.close)
    store = await EmbeddedStore.open(_metadata_file(config))
    undo.push_async_callback(store.close)
    cluster_id = await _ensure_cluster(store, log_dirs, ids)
    broker_id = await _choose_broker_id(store, log_dirs, config)
    configs = DynamicConfigs(store, broker_id, config)
    await configs.start()
    await asyncio.to_thread(
        log_dirs.load,
        broker_id=broker_id,
        cluster_id=cluster_id,
        clock=clock,
        config_for=configs.log_config,
        recovery_threads_per_dir=configs.broker.integer("num.recovery.threads.per.data.dir"),
    )
    broker = _build(broker_id, cluster_id, clock, ids, configs, access, log_dirs, store, undo)
    server = Server(make_dispatch(broker, broker.handlers), limits=connection_limits(broker.config))
    undo.push_async_callback(_stop_serving, broker, server)
    broker.endpoints = _bind(server, broker.config)
    await _register(broker, store)
    if not await broker.controller.campaign():
        raise StartError("another broker is the controller of this embedded cluster; only one process can use it")
    undo.callback(broker.controller.stand_by())
    broker.groups.start()
    broker.tasks.spawn(broker.slow_requests.watch_event_loop())
    server.start_accepting()
    housekeeping = Housekeeping(broker.replicas, clock, broker.config)
    housekeeping.start()
    undo.push_async_callback(housekeeping.stop)
    return broker


def _metadata_file(config: BrokerConfig) -> Path:
    directory = config.optional_text("metadata.log.dir")
    return (Path(directory) if directory else config.log_dirs[0]) / METADATA_FILE


async def _ensure_cluster(store: MetadataStore, log_dirs: LogDirs, ids: Ids) -> str:
    """The cluster's id; the first start makes one, and the nodes every cluster has."""
    existing = await store.tree("")
    missing = [Create(path) for path in paths.PERSISTENT_PATHS if path not in existing]
    if missing:
        await store.commit(missing)
    node = await store.get(paths.CLUSTER_ID)
    if node is not None:
        return paths.decode_cluster_id(node.data)
    cluster_id = log_dirs.stored_cluster_id() or uuid_to_text(ids.uuid())
    await store.commit([Create(paths.CLUSTER_ID, paths.encode_cluster_id(cluster_id))])
    return cluster_id


async def _choose_broker_id(store: MetadataStore, log_dirs: LogDirs, config: BrokerConfig) -> int:
    """The configured id, else the one the log directories were made with, else a new one above the reserved."""
    if config.broker_id is not None:
        return config.broker_id
    stored = log_dirs.stored_broker_id()
    if stored is not None:
        return stored
    await store.commit([Set(paths.BROKER_SEQUENCE, b"")])
    node = await store.get(paths.BROKER_SEQUENCE)
    assert node is not None
    return config.integer("reserved.broker.max.id") + node.version


def _build(
    broker_id: int,
    cluster_id: str,
    clock: Clock,
    ids: Ids,
    configs: DynamicConfigs,
    access: AccessRules,
    log_dirs: LogDirs,
    store: MetadataStore,
    undo: AsyncExitStack,
) -> Broker:
    config = configs.broker
    failed = asyncio.Event()
    tasks = Tasks()
    undo.push_async_callback(tasks.cancel_all)
    image = ClusterImage(cluster_id)
    parked = Parked(asyncio.get_running_loop())
    replicas = Replicas(broker_id, log_dirs, parked, clock, read_config=configs.read_topic, on_all_failed=failed.set)
    groups = GroupCoordinator(config, configs.consumer_timeouts, image, replicas, parked, clock, tasks)
    markers = Markers(replicas, parked, clock, groups.runtime)
    controller = Controller(
        broker_id,
        store,
        LocalLink(broker_id, replicas, image, on_metadata=_on_metadata(configs, groups)),
        clock,
        unclean_election_allowed=lambda topic: configs.log_config(topic).unclean_leader_election_enable,
    )
    undo.push_async_callback(controller.stop)
    _follow_config_changes(configs, replicas)
    return Broker(
        broker_id=broker_id,
        cluster_id=cluster_id,
        clock=clock,
        ids=ids,
        authorizer=access.authorizer,
        quotas=ClientQuotas(
            access.quotas,
            samples=config.integer("quota.window.num"),
            window_ms=config.integer("quota.window.size.seconds") * 1000,
        ),
        dynamic_configs=configs,
        image=image,
        parked=parked,
        replicas=replicas,
        replica_moves=ReplicaMoves(
            replicas,
            clock,
            parallel_moves=config.optional_integer("num.replica.alter.log.dirs.threads") or len(log_dirs.paths),
            bytes_per_second=lambda: configs.broker.integer("replica.alter.log.dirs.io.max.bytes.per.second"),
        ),
        fetch_sessions=FetchSessions(config.integer("max.incremental.fetch.session.cache.slots")),
        metadata_cache=MetadataCache(),
        producer_ids=ProducerIds(store, broker_id),
        groups=groups,
        markers=markers,
        transactions=TransactionCoordinator(config, image, replicas, parked, clock, markers, tasks),
        controller=controller,
        topic_admin=TopicAdmin(controller, validate_configs=configs.validate_topic, ids=ids),
        handlers=all_handlers(),
        tasks=tasks,
        slow_requests=SlowRequests(lambda: configs.broker.integer("ottla.slow.request.ms")),
        failed=failed,
        undo=undo,
    )


def _on_metadata(configs: DynamicConfigs, groups: GroupCoordinator) -> Callable[[set[str]], None]:
    def cluster_changed(deleted_topics: set[str]) -> None:
        for topic in deleted_topics:
            configs.forget_topic(topic)
        groups.cluster_changed(deleted_topics)

    return cluster_changed


def _follow_config_changes(configs: DynamicConfigs, replicas: Replicas) -> None:
    def topic_changed(topic: str) -> None:
        replicas.set_topic_config(topic, configs.log_config(topic))

    def broker_changed() -> None:
        for topic in replicas.topics():
            topic_changed(topic)

    configs.on_topic_changed = topic_changed
    configs.on_broker_changed = broker_changed


def _bind(server: Server, config: BrokerConfig) -> list[Endpoint]:
    backlog = config.integer("socket.listen.backlog.size")
    ports = {
        listener.name: server.bind(listener.name, listener.host, listener.port, backlog=backlog)
        for listener in config.listeners
    }
    return [
        Endpoint(listener.name, listener.host, listener.port or ports[listener.name])
        for listener in config.advertised_listeners
    ]


async def _register(broker: Broker, store: MetadataStore) -> None:
    protocols = {listener.name: listener.protocol for listener in broker.config.listeners}
    node = paths.BrokerNode(
        [(endpoint, protocols[endpoint.listener]) for endpoint in broker.endpoints],
        broker.config.optional_text("broker.rack"),
    )
    path = f"{paths.BROKER_IDS}/{broker.broker_id}"
    await store.commit([Create(path, node.encode(broker.clock.wall_ms()), ephemeral=True)])


async def _stop_serving(broker: Broker, server: Server) -> None:
    await broker.replica_moves.stop()
    # The server stops taking requests first; then whoever waits is answered, so that nobody is waited for.
    await asyncio.gather(server.stop(grace_ms=STOP_GRACE_MS), _answer_waiting(broker))


async def _answer_waiting(broker: Broker) -> None:
    broker.parked.expire_all(broker.replicas)
    await broker.groups.stop()
    await broker.transactions.stop()


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
