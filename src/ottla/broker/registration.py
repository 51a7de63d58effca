"""This broker's place among the live ones: its node in the metadata store, for as long as its session lasts.

The node's creation is the broker's epoch: what was meant for an earlier registration is refused. A session that is lost
takes all roles along, for others may have them by now; with the next one the broker registers anew and is told again.
It then names its first epoch, too: unlike a broker that was started again, it cannot have lost the tail of its log.
A session that is over for all others (`standing`) counts as lost, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ottla.base.clock import Clock
from ottla.base.errors import KafkaError, StartError
from ottla.broker.controller.controller import Controller
from ottla.broker.replicas import Replicas
from ottla.broker.replication.orders import Orders
from ottla.broker.standing import ASK_MS, AskPeers
from ottla.broker.tasks import Tasks
from ottla.machines.cluster.image import ClusterImage
from ottla.metadata import paths
from ottla.metadata.store import (
    Create,
    Delete,
    MetadataStore,
    NodeExistsError,
    Operation,
    SessionEvent,
    Set,
    StoreError,
)

log = logging.getLogger(__name__)

RETRY_MS = 500
_LOOK_MS = 200


class Registration:
    def __init__(
        self,
        broker_id: int,
        store: MetadataStore,
        clock: Clock,
        tasks: Tasks,
        *,
        describe: Callable[[], paths.BrokerNode],
        orders: Orders,
        replicas: Replicas,
        controller: Controller,
        image: ClusterImage,
        is_given_up: AskPeers,
        on_orphaned: Callable[[], None],
    ) -> None:
        """`on_orphaned` is told that there will be no session any more."""
        self._broker_id = broker_id
        self._path = f"{paths.BROKER_IDS}/{broker_id}"
        self._store = store
        self._clock = clock
        self._tasks = tasks
        self._describe = describe
        self._orders = orders
        self._replicas = replicas
        self._controller = controller
        self._image = image
        self._is_given_up = is_given_up
        self._on_orphaned = on_orphaned
        self._first_epoch: int | None = None
        self._told_epoch: int | None = None
        """What the node says of it."""
        self._is_cut_off = False
        self._is_asking = False
        self._has_roles = True
        self._returning_to: int | None = None
        """The session in which this broker is about to register again."""

    async def begin(self) -> None:
        """Raises StartError if another live broker has this id, and keeps it for longer than a dead one would."""
        await self._outlive_predecessor()
        await self._register()
        self._store.on_session(self._session_changed)

    async def _outlive_predecessor(self) -> None:
        """A broker that was killed has its session for a while yet. Who starts it again at once need not know that."""
        deadline_ms = self._clock.monotonic_ms() + self._store.session_outlives_ms
        is_said = False
        while (node := await self._store.get(self._path)) is not None and node.owner != self._store.session_id:
            if self._clock.monotonic_ms() >= deadline_ms:
                return
            if not is_said:
                wait_s = self._store.session_outlives_ms / 1000
                log.warning("another session has the broker id %d; it is given %.0f s to end", self._broker_id, wait_s)
                is_said = True
            await asyncio.sleep(_LOOK_MS / 1000)

    async def _register(self) -> None:
        operations: list[Operation] = []
        existing = await self._store.get(self._path)
        if existing is not None and existing.owner == self._store.session_id:
            operations.append(Delete(self._path))
        self._told_epoch = self._first_epoch
        described = self._describe()._replace(first_epoch=self._told_epoch)
        # In two steps, as Kafka does it: its people know the node at version 1.
        operations.append(Create(self._path, ephemeral=True))
        operations.append(Set(self._path, described.encode(self._clock.wall_ms()), version=0))
        try:
            await self._store.commit(operations)
        except NodeExistsError:
            raise StartError(
                f"another live broker has the id {self._broker_id}; give this one another broker.id, or stop that one"
            ) from None
        node = await self._store.get(self._path)
        if node is None or node.owner != self._store.session_id:
            raise StartError("the session with the metadata store was lost while this broker registered")
        self._orders.broker_epoch = node.created_id
        if self._first_epoch is None:
            self._first_epoch = node.created_id

    async def renew(self) -> None:
        """What the broker says of itself has changed. Its epoch has not: it is the same registration."""
        try:
            node = await self._store.get(self._path)
            if node is not None and node.owner == self._store.session_id:
                described = self._describe()._replace(first_epoch=self._told_epoch)
                await self._store.commit([Set(self._path, described.encode(self._clock.wall_ms()))])
        except (KafkaError, StoreError) as e:
            # With its next session the broker tells it anyway.
            log.error("the cluster cannot be told where broker %d listens now: %s", self._broker_id, e)

    def _session_changed(self, event: SessionEvent) -> None:
        self._is_cut_off = event in (SessionEvent.SUSPENDED, SessionEvent.LOST)
        if event is SessionEvent.SUSPENDED and not self._is_asking:
            self._is_asking = True
            self._tasks.spawn(self._ask_while_cut_off())
        elif event is SessionEvent.LOST:
            self._drop_roles("the session with the metadata store is lost")
        elif event in (SessionEvent.RENEWED, SessionEvent.RESUMED) and not self._has_roles:
            # Where the session was not over after all, only a new registration brings the roles back.
            if self._returning_to != self._store.session_id:
                self._returning_to = self._store.session_id
                self._tasks.spawn(self._return())
        elif event is SessionEvent.ENDED:
            self._on_orphaned()

    async def _ask_while_cut_off(self) -> None:
        try:
            while self._is_cut_off and self._has_roles:
                is_given_up = await self._is_given_up()
                if is_given_up and self._is_cut_off:
                    self._drop_roles("the metadata store cannot be reached, and others take this broker for gone")
                await asyncio.sleep(ASK_MS / 1000)
        finally:
            self._is_asking = False

    def _drop_roles(self, reason: str) -> None:
        if not self._has_roles:
            return
        log.warning("%s: this broker has no roles until it has another session", reason)
        self._has_roles = False
        self._controller.resign()
        self._replicas.drop_roles()
        # Clients that ask here who leads are not to be sent here.
        self._image.remove_broker(self._broker_id)

    async def _return(self) -> None:
        """Tries for as long as this session lasts: with the next one it begins anew."""
        session_id = self._store.session_id
        while self._store.session_id == session_id:
            try:
                await self._register()
            except (StartError, KafkaError) as e:
                log.error("this broker cannot be registered again, next try in %d ms: %s", RETRY_MS, e)
                await asyncio.sleep(RETRY_MS / 1000)
            else:
                self._has_roles, self._returning_to = True, None
                log.info("broker %d is registered again, epoch %d", self._broker_id, self._orders.broker_epoch)
                self._controller.look_out()
                return
