"""Starts a broker: builds its parts in order, each with what it needs, and notes how to stop each of them.

A start that fails undoes what it has done so far, so there is never half a broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field

from ottla.base.clock import Clock, SystemClock
from ottla.base.errors import KafkaError, StartError
from ottla.base.ids import Ids
from ottla.base.types import Endpoint
from ottla.broker.admission import AccessRules
from ottla.broker.adoption import adopt_topics
from ottla.broker.background import BackgroundThreads, thread_count
from ottla.broker.cleaner import LogCleaner
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.config.dynamic import DynamicConfigs
from ottla.broker.controller.balance import Balance
from ottla.broker.controller.broker_link import ClusterLink
from ottla.broker.controller.controller import Controller
from ottla.broker.controller.triggers import TriggerRules
from ottla.broker.coordinators.groups import GroupCoordinator
from ottla.broker.coordinators.markers import Markers
from ottla.broker.coordinators.peers import TransactionPeers
from ottla.broker.coordinators.producer_ids import ProducerIds
from ottla.broker.coordinators.transactions import TransactionCoordinator
from ottla.broker.departure import leave_cluster
from ottla.broker.dispatch import Dispatch
from ottla.broker.handler import Handler
from ottla.broker.handlers import all_handlers, client_handlers
from ottla.broker.housekeeping import Housekeeping
from ottla.broker.identity import choose_broker_id, ensure_cluster
from ottla.broker.listening import Listening, connection_limits
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.metadata_store import open_store
from ottla.broker.node import Broker
from ottla.broker.parked import Parked
from ottla.broker.quotas import ClientQuotas
from ottla.broker.registration import Registration
from ottla.broker.replica_moves import ReplicaMoves
from ottla.broker.replicas import Replicas
from ottla.broker.replication.controller_client import ControllerClient
from ottla.broker.replication.fetchers import ReplicaFetchers
from ottla.broker.replication.isr_changes import IsrChanges
from ottla.broker.replication.orders import Orders
from ottla.broker.replication.peers import Peers
from ottla.broker.replication.throttles import ReplicationThrottle
from ottla.broker.slow_requests import SlowRequests
from ottla.broker.standing import ask_peers
from ottla.broker.tasks import Tasks
from ottla.broker.topic_admin import TopicAdmin
from ottla.log.log_dir import LogDirs
from ottla.machines.cluster.image import ClusterImage
from ottla.machines.fetch_session import FetchSessions
from ottla.metadata import paths
from ottla.metadata.store import (
    CreateSequential,
    MetadataStore,
    StoreError,
    StoreFailedError,
)
from ottla.net.limits import ConnectionLimits
from ottla.net.server import Server
from ottla.net.service import Service

log = logging.getLogger(__name__)

STOP_GRACE_MS = 5_000
FIRST_WORD_MS = 10_000

MakeDispatch = Callable[[Broker, dict[int, Handler]], Dispatch]
OpenStore = Callable[[BrokerConfig], Awaitable[MetadataStore]]
MakeServer = Callable[[Service, ConnectionLimits], Server]
Route = Callable[[int, Endpoint], Endpoint]
"""Where to connect in order to reach a broker that listens at an address."""


def direct_route(broker_id: int, endpoint: Endpoint) -> Endpoint:
    return endpoint


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a broker finds around it. Tests and simulations give it others."""

    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=Ids)
    access: AccessRules = field(default_factory=AccessRules)
    make_dispatch: MakeDispatch = Dispatch
    open_store: OpenStore = open_store
    make_server: MakeServer = Server
    route: Route = direct_route


async def start_broker(config: BrokerConfig, around: Surroundings | None = None) -> Broker:
    """Raises StartError if the broker cannot run; nothing of it is left then."""
    async with AsyncExitStack() as undo:
        try:
            broker = await _start(config, around or Surroundings(), undo)
        except KafkaError as e:
            raise StartError(e.message) from e
        except StoreError as e:
            raise StartError(f"the metadata store refuses {e}") from e
        broker.undo = undo.pop_all()
        return broker


async def _start(config: BrokerConfig, around: Surroundings, undo: AsyncExitStack) -> Broker:
    config.require_no_refusals()
    log_dirs = await asyncio.to_thread(LogDirs.claim, config.log_dirs, around.ids)
    broker: Broker | None = None

    async def close_log_dirs() -> None:
        # A controller speaks to a broker once it has decided what an unclean stop of it means. Until then a clean one
        # must not hide it.
        is_known = broker is not None and broker.image.controller_id >= 0
        await asyncio.to_thread(log_dirs.close, clean=is_known or log_dirs.were_closed_cleanly)

    undo.push_async_callback(close_log_dirs)
    store = await around.open_store(config)
    undo.push_async_callback(store.close)
    cluster_id = await ensure_cluster(store, log_dirs, config, around.ids)
    broker_id = await choose_broker_id(store, log_dirs, config)
    await adopt_topics(store, log_dirs, broker_id, config, around.ids)
    configs = DynamicConfigs(store, broker_id, config)
    await configs.start()
    threads = BackgroundThreads(thread_count(configs.broker))
    undo.callback(threads.close)
    await asyncio.to_thread(
        log_dirs.load,
        broker_id=broker_id,
        cluster_id=cluster_id,
        clock=around.clock,
        config_for=configs.log_config,
        recovery_threads_per_dir=configs.broker.integer("num.recovery.threads.per.data.dir"),
    )
    broker = _build(broker_id, cluster_id, around, configs, log_dirs, threads, store, undo)
    server = around.make_server(around.make_dispatch(broker, broker.handlers), connection_limits(broker.config))
    undo.push_async_callback(_stop_serving, broker, server)
    listening = Listening(server, broker.config)
    registration = _registration(broker, listening, store)
    await registration.begin()
    undo.callback(broker.controller.stand_by())
    await broker.controller.campaign()
    broker.groups.start()
    broker.tasks.spawn(broker.slow_requests.watch_event_loop())
    server.start_accepting()
    listening.on_moved = lambda: _follow_listeners(broker, listening, registration)
    configs.on_broker_changed = _each(
        configs.on_broker_changed,
        lambda: threads.resize(thread_count(broker.config)),
        lambda: listening.reconfigured(broker.config),
    )
    housekeeping = Housekeeping(broker.replicas, around.clock, broker.config)
    housekeeping.start()
    undo.push_async_callback(housekeeping.stop)
    cleaner = LogCleaner(broker.replicas, around.clock, lambda: broker.config)
    cleaner.start()
    undo.push_async_callback(cleaner.stop)
    await _until_told(broker)
    return broker


async def _until_told(broker: Broker) -> None:
    """Clients that come before the controller's first word would find a cluster without brokers, and some of them do
    not ask again for long: they are answered afterwards. If there is no controller, they have to see that."""
    deadline_ms = broker.clock.monotonic_ms() + FIRST_WORD_MS
    while broker.image.controller_id < 0 and broker.clock.monotonic_ms() < deadline_ms:
        await asyncio.sleep(0.005)
    broker.introduced.set()


def _build(
    broker_id: int,
    cluster_id: str,
    around: Surroundings,
    configs: DynamicConfigs,
    log_dirs: LogDirs,
    threads: BackgroundThreads,
    store: MetadataStore,
    undo: AsyncExitStack,
) -> Broker:
    config, clock = configs.broker, around.clock
    failed = asyncio.Event()
    tasks = Tasks()
    undo.push_async_callback(tasks.cancel_all)
    image = ClusterImage(cluster_id)
    parked = Parked(asyncio.get_running_loop())
    replicas = Replicas(
        broker_id,
        log_dirs,
        parked,
        clock,
        threads,
        read_config=configs.read_topic,
        on_all_failed=failed.set,
        lag_ms_max=lambda: configs.broker.integer("replica.lag.time.max.ms"),
    )
    groups = GroupCoordinator(config, configs.consumer_timeouts, image, replicas, parked, clock, tasks)
    markers = Markers(replicas, parked, clock, groups.runtime)
    orders = Orders(replicas, image, on_metadata=_on_metadata(configs, groups))

    def peers_at(listener: str) -> Peers:
        def address_of(peer: int) -> Endpoint | None:
            endpoint = _address_of(peer, listener, image, controller)
            return None if endpoint is None else around.route(peer, endpoint)

        reached = Peers(
            broker_id,
            address_of,
            setup_timeout_ms=config.integer("socket.connection.setup.timeout.ms"),
            setup_timeout_max_ms=config.integer("socket.connection.setup.timeout.max.ms"),
        )
        undo.callback(reached.close)
        return reached

    peers = peers_at(config.inter_broker_listener_name)
    ordered_peers = peers_at(config.control_plane_listener_name)
    trigger_rules = TriggerRules(
        lambda name: image.topic_id(name) or around.ids.uuid(),
        deletion_allowed=lambda: configs.broker.flag("delete.topic.enable"),
    )
    controller = Controller(
        broker_id,
        store,
        ClusterLink(broker_id, orders, ordered_peers, timeout_ms=config.integer("controller.socket.timeout.ms")),
        clock,
        unclean_election_allowed=lambda topic: configs.log_config(topic).unclean_leader_election_enable,
        balance=Balance.of(config),
        triggers=None if config.optional_text("zookeeper.connect") is None else trigger_rules,
    )
    undo.push_async_callback(controller.stop)
    throttles = {
        side: ReplicationThrottle(side, broker_id, lambda: configs.broker, configs.topic_overrides_in_force, clock)
        for side in ("leader", "follower")
    }
    fetchers = ReplicaFetchers(
        broker_id,
        peers,
        replicas,
        clock,
        lambda: configs.broker,
        lambda: orders.broker_epoch,
        throttle=throttles["follower"],
    )
    undo.push_async_callback(fetchers.stop)
    replicas.following = fetchers
    replicas.is_elsewhere = lambda tp: image.partition(tp) is not None
    controller_client = ControllerClient(
        image,
        controller,
        peers,
        timeout_ms=config.integer("controller.socket.timeout.ms"),
        topic_timeout_ms=config.integer("request.timeout.ms"),
    )
    replicas.propose_isr = IsrChanges(
        broker_id,
        controller_client.alter_partition,
        tasks,
        broker_epoch=lambda: orders.broker_epoch,
        on_changed=replicas.isr_changed,
    ).propose
    _follow_config_changes(
        configs, replicas, fetchers, throttles.values(), lambda: tasks.spawn(_elect_leaders_again(controller))
    )
    replicas.on_directory_failed = lambda: tasks.spawn(_tell_of_failed_directory(store, broker_id))
    return Broker(
        broker_id=broker_id,
        cluster_id=cluster_id,
        clock=clock,
        ids=around.ids,
        authorizer=around.access.authorizer,
        quotas=ClientQuotas(
            around.access.quotas,
            samples=config.integer("quota.window.num"),
            window_ms=config.integer("quota.window.size.seconds") * 1000,
        ),
        leader_throttle=throttles["leader"],
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
        transactions=TransactionCoordinator(
            config,
            image,
            replicas,
            parked,
            clock,
            markers,
            TransactionPeers(broker_id, image, peers, timeout_ms=config.integer("request.timeout.ms")),
            tasks,
        ),
        controller=controller,
        orders=orders,
        peers=peers,
        controller_client=controller_client,
        topic_admin=TopicAdmin(
            controller,
            validate_configs=configs.validate_topic,
            ids=around.ids,
            ask_controller=controller_client.create_topic,
        ),
        handlers=client_handlers() if config.is_a_cluster_of_its_own else all_handlers(),
        tasks=tasks,
        slow_requests=SlowRequests(lambda: configs.broker.integer("ottla.slow.request.ms")),
        failed=failed,
        orphaned=asyncio.Event(),
        introduced=asyncio.Event(),
        undo=undo,
    )


def _address_of(broker_id: int, listener: str, image: ClusterImage, controller: Controller) -> Endpoint | None:
    """Where a broker listens for others. A controller knows it from the store before anybody has been told."""
    known = image.brokers.get(broker_id)
    if known is not None and (endpoint := known.endpoint(listener)) is not None:
        return endpoint
    live = controller.state.brokers.get(broker_id)
    endpoints = () if live is None else live.endpoints
    return next((endpoint for endpoint, _ in endpoints if endpoint.listener == listener), None)


async def _tell_of_failed_directory(store: MetadataStore, broker_id: int) -> None:
    """The controller then asks for which replicas others have to take over."""
    event = CreateSequential(f"{paths.LOG_DIR_EVENTS}/log_dir_event_", paths.encode_log_dir_event(broker_id))
    try:
        await store.commit([event])
    except (StoreError, StoreFailedError) as e:
        log.error("the controller cannot be told of a failed directory: %s", e)


def _on_metadata(configs: DynamicConfigs, groups: GroupCoordinator) -> Callable[[set[str]], None]:
    def cluster_changed(deleted_topics: set[str]) -> None:
        for topic in deleted_topics:
            configs.forget_topic(topic)
        groups.cluster_changed(deleted_topics)

    return cluster_changed


async def _elect_leaders_again(controller: Controller) -> None:
    """Whoever allows unclean elections wants the partitions led that could not be led without."""
    with suppress(KafkaError):
        await controller.elect_where_allowed()


def _follow_config_changes(
    configs: DynamicConfigs,
    replicas: Replicas,
    fetchers: ReplicaFetchers,
    throttles: Iterable[ReplicationThrottle],
    elect_again: Callable[[], None],
) -> None:
    def topic_changed(topic: str) -> None:
        replicas.set_topic_config(topic, configs.log_config(topic))
        elect_again()

    def broker_changed() -> None:
        for topic in replicas.topics():
            replicas.set_topic_config(topic, configs.log_config(topic))
        elect_again()
        fetchers.reconfigured()
        for throttle in throttles:
            throttle.reconfigured()

    configs.on_topic_changed = topic_changed
    configs.on_broker_changed = broker_changed


def _each(*calls: Callable[[], None]) -> Callable[[], None]:
    def call_each() -> None:
        for call in calls:
            call()

    return call_each


def _follow_listeners(broker: Broker, listening: Listening, registration: Registration) -> None:
    broker.endpoints = listening.endpoints
    broker.tasks.spawn(registration.renew())


def _registration(broker: Broker, listening: Listening, store: MetadataStore) -> Registration:
    broker.endpoints = listening.endpoints

    def describe() -> paths.BrokerNode:
        protocols = {listener.name: listener.protocol for listener in broker.config.listeners}
        endpoints = [(endpoint, protocols[endpoint.listener]) for endpoint in broker.endpoints]
        is_clean = broker.replicas.log_dirs.were_closed_cleanly
        return paths.BrokerNode(endpoints, broker.config.optional_text("broker.rack"), was_stopped_cleanly=is_clean)

    return Registration(
        broker.broker_id,
        store,
        broker.clock,
        broker.tasks,
        describe=describe,
        orders=broker.orders,
        replicas=broker.replicas,
        controller=broker.controller,
        image=broker.image,
        is_given_up=ask_peers(broker.broker_id, broker.image, broker.peers),
        on_orphaned=broker.orphaned.set,
    )


async def _stop_serving(broker: Broker, server: Server) -> None:
    if broker.is_killed:
        server.close()
        await broker.replica_moves.stop()
        broker.replicas.log_dirs.close(clean=False)
        return
    await leave_cluster(broker)
    await broker.replica_moves.stop()
    # The server stops taking requests first; then whoever waits is answered, so that nobody is waited for.
    await asyncio.gather(server.stop(grace_ms=STOP_GRACE_MS), _answer_waiting(broker))


async def _answer_waiting(broker: Broker) -> None:
    broker.parked.expire_all(broker.replicas)
    await broker.groups.stop()
    await broker.transactions.stop()
