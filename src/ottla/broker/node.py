"""One running broker: the parts its handlers work with. `startup.start_broker` makes it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from ottla.base.clock import Clock
from ottla.base.ids import Ids
from ottla.base.types import Endpoint
from ottla.broker.authorizer import Authorizer
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.config.dynamic import DynamicConfigs
from ottla.broker.controller.controller import Controller
from ottla.broker.coordinators.groups import GroupCoordinator
from ottla.broker.coordinators.markers import Markers
from ottla.broker.coordinators.producer_ids import ProducerIds
from ottla.broker.coordinators.transactions import TransactionCoordinator
from ottla.broker.handler import Handler
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.parked import Parked
from ottla.broker.quotas import ClientQuotas
from ottla.broker.replica_moves import ReplicaMoves
from ottla.broker.replicas import Replicas
from ottla.broker.replication.controller_client import ControllerClient
from ottla.broker.replication.orders import Orders
from ottla.broker.replication.peers import Peers
from ottla.broker.replication.throttles import ReplicationThrottle
from ottla.broker.slow_requests import SlowRequests
from ottla.broker.tasks import Tasks
from ottla.broker.topic_admin import TopicAdmin
from ottla.machines.cluster.image import ClusterImage
from ottla.machines.cluster.topics import NewTopic
from ottla.machines.fetch_session import FetchSessions
from ottla.wire.fused.fetch import FetchPartition


@dataclass(slots=True, eq=False, kw_only=True)
class Broker:
    broker_id: int
    cluster_id: str
    clock: Clock
    ids: Ids
    authorizer: Authorizer
    quotas: ClientQuotas
    leader_throttle: ReplicationThrottle
    dynamic_configs: DynamicConfigs
    image: ClusterImage
    parked: Parked
    replicas: Replicas
    replica_moves: ReplicaMoves
    fetch_sessions: FetchSessions[FetchPartition]
    metadata_cache: MetadataCache
    producer_ids: ProducerIds
    groups: GroupCoordinator
    markers: Markers
    transactions: TransactionCoordinator
    controller: Controller
    orders: Orders
    peers: Peers
    controller_client: ControllerClient
    topic_admin: TopicAdmin
    handlers: dict[int, Handler]
    tasks: Tasks
    slow_requests: SlowRequests
    failed: asyncio.Event
    """Set when the broker cannot go on: every log directory has failed."""
    orphaned: asyncio.Event
    """Set when whoever ran this broker and its metadata store is gone: nothing can be decided any more."""
    introduced: asyncio.Event
    """Set once the controller has spoken for the first time, or is waited for no longer."""
    undo: AsyncExitStack
    """What stops the parts, in the reverse order of their start."""
    endpoints: list[Endpoint] = field(default_factory=list)
    """Where clients reach this broker."""
    is_killed: bool = False
    """It ends like a process that is killed: nothing is handed over, answered, flushed or noted."""

    @property
    def config(self) -> BrokerConfig:
        """The configuration in force: what the broker was started with, and what was changed since."""
        return self.dynamic_configs.broker

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.spawn(work)

    async def create_missing_topic(self, name: str) -> None:
        """Creates a topic somebody asked for without creating it, with the broker's defaults."""
        await self.topic_admin.create_here_or_there(
            NewTopic(name, self.config.integer("num.partitions"), self.config.integer("default.replication.factor"))
        )

    async def stop(self) -> None:
        await self.undo.aclose()

    async def kill(self) -> None:
        """For tests of what a crash does to others: all that is left of the broker is its files, as they are now."""
        self.is_killed = True
        await self.undo.aclose()
