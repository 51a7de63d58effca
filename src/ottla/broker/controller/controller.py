"""The controller: takes what has happened, decides, commits, notes, tells. One event at a time.

Every commit checks the controller epoch. One that is refused for it means that another controller was elected: this one
resigns. One that is refused for anything else means that the cluster has changed under it: that part is read again and
the event decided anew. The state changes only after the store has agreed, and brokers hear only of what is stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from ottla.base.clock import Clock
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.controller import stored_state
from ottla.broker.controller.balance import Balance, keep_balance
from ottla.broker.controller.claim import claim, holder
from ottla.broker.controller.committing import Committing
from ottla.broker.controller.outgoing import BrokerLink, Outgoing
from ottla.broker.controller.triggers import Touched, TriggerRules, Triggers
from ottla.machines.cluster.controller import (
    BrokersChanged,
    ElectionAsked,
    ElectionKind,
    Event,
    ReplicasFailed,
    decide,
)
from ottla.machines.cluster.decision import Decision, tell_everything, tell_roles
from ottla.machines.cluster.image import NO_LEADER
from ottla.machines.cluster.reassignment import check_progress
from ottla.machines.cluster.requests import Sender
from ottla.machines.cluster.state import NO_VERSION, Change, ClusterState, NoteBrokers, RemoveTopic
from ottla.machines.cluster.topics import ReplicasDeleted
from ottla.metadata import paths
from ottla.metadata.store import Check, Delete, MetadataStore, Node, StoreError, StoreFailedError

log = logging.getLogger(__name__)

ATTEMPTS = 5
"""How often an event is decided anew because the cluster has changed under it."""
WAIT_MS = 300_000
"""How long somebody who asked for a change waits for brokers to follow: ten thousand new logs take their time."""
RETRY_MS = 100
"""When an event that nobody asked for is looked at again, after it could not be handled."""


class _BrokersTouched:
    """Some broker has come or gone: look which."""


class _DirectoriesTouched:
    """Some broker has told of a directory that failed: find out which of its replicas are affected."""


_Happening = Event | _BrokersTouched | _DirectoriesTouched | Touched


class Controller:
    def __init__(
        self,
        broker_id: int,
        store: MetadataStore,
        link: BrokerLink,
        clock: Clock,
        *,
        unclean_election_allowed: Callable[[str], bool],
        balance: Balance | None = None,
        triggers: TriggerRules | None = None,
    ) -> None:
        """`triggers`: others than brokers like this one write into the store, too."""
        self.broker_id = broker_id
        self.state = ClusterState()
        self.epoch = -1
        self._store = store
        self._link = link
        self._clock = clock
        self._unclean_election_allowed = unclean_election_allowed
        self._balance = balance
        self._trigger_rules = triggers
        self._triggers: Triggers | None = None
        self._epoch_version = NO_VERSION
        self._is_active = False
        self._is_stale = False
        """The fate of a commit is not known: the state must be read again before it is used."""
        self._queue: asyncio.Queue[tuple[_Happening, asyncio.Future[Any] | None]] = asyncio.Queue()
        self._outgoing: Outgoing | None = None
        self._worker: asyncio.Task[None] | None = None
        self._balancing: asyncio.Task[None] | None = None
        self._campaign: asyncio.Task[None] | None = None
        self._must_look = False
        self._campaigning = asyncio.Lock()
        """While it is held, this broker may own the role in the store and not have it yet."""
        self._gone: dict[str, list[asyncio.Future[None]]] = {}
        self._end_watch: Callable[[], None] = lambda: None

    @property
    def is_active(self) -> bool:
        return self._is_active

    def require_active(self) -> None:
        if not self._is_active:
            raise KafkaError(code=ErrorCode.NOT_CONTROLLER)

    async def elect_where_allowed(self) -> None:
        """Looks for leaders where there are none and an unclean election is allowed, perhaps only now."""
        leaderless = [tp for tp, partition in self.state.partitions() if partition.leader == NO_LEADER]
        allowed = tuple(tp for tp in leaderless if self._unclean_election_allowed(tp.topic))
        if self._is_active and allowed:
            await self.submit(ElectionAsked(allowed, ElectionKind.ANEW))

    # Being the controller

    async def campaign(self) -> bool:
        """Tries to become the controller; False if another broker is. Returns when this broker knows its roles."""
        async with self._campaigning:
            return await self._try_to_win()

    async def _try_to_win(self) -> bool:
        is_owner = self._is_unknowing_owner(await self._store.get(paths.CONTROLLER))
        won = await claim(self._store, self.broker_id, self._clock.wall_ms(), is_owner=is_owner)
        if won is not None:
            await self._take_over(*won)
        return won is not None

    def _is_unknowing_owner(self, node: Node | None) -> bool:
        """Whether this broker has won a campaign without hearing of it: the answer of the store was lost."""
        return (
            node is not None
            and not self._is_active
            and node.owner == self._store.session_id
            and holder(node) == self.broker_id
        )

    async def _take_over(self, epoch: int, epoch_version: int) -> None:
        self.epoch, self._epoch_version = epoch, epoch_version
        ends = [
            self._store.watch(paths.BROKER_IDS, self._brokers_touched),
            self._store.watch(paths.LOG_DIR_EVENTS, self._directories_touched),
        ]
        if self._trigger_rules is not None:
            self._triggers = Triggers(
                self._store, self._guard, self._trigger_rules, state=lambda: self.state, carry_out=self._carry_out
            )
            ends += self._triggers.watch(self._happened)

        def end_watch() -> None:
            for end in ends:
                end()

        try:
            self.state, event = await stored_state.load(self._store)
        except BaseException:
            end_watch()
            raise
        self._end_watch = end_watch
        self._is_stale = False
        for left in self._triggers.left_behind() if self._triggers is not None else ():
            self._happened(left)
        self._outgoing = Outgoing(
            self._link,
            Sender(self.broker_id, epoch),
            lambda: self.state,
            on_deleted=self._replicas_deleted,
            on_failed=self._replicas_failed,
            on_stale=self.resign,
        )
        taken_over = self._put_first(event)
        self._is_active = True
        self._worker = asyncio.get_running_loop().create_task(self._run())
        log.info("broker %d is the controller, epoch %d", self.broker_id, self.epoch)
        try:
            await taken_over
        except KafkaError:
            await self._give_up()
            raise
        if self._balance is not None:
            self._balancing = asyncio.get_running_loop().create_task(keep_balance(self._balance, self.submit))
        await self.delivered([self.broker_id])

    def _put_first(self, event: Event) -> asyncio.Future[Any]:
        """Before all that has happened since the state was read: a broker that came back meanwhile would pass for one
        that has never been away."""
        asker: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        since = [self._queue.get_nowait() for _ in range(self._queue.qsize())]
        for entry in [(event, asker), *since]:
            self._queue.put_nowait(entry)
        return asker

    async def _give_up(self) -> None:
        """Lets another broker try, or this one once more."""
        if self._is_active:
            self._step_down()
            try:
                await self._store.commit([self._guard, Delete(paths.CONTROLLER)])
            except (StoreError, StoreFailedError) as e:
                log.error("the role of the controller cannot be given back: %s", e)

    def resign(self) -> None:
        """Another controller was elected, or will be: this one decides nothing more."""
        if self._is_active:
            log.warning("broker %d is not the controller any more (epoch %d)", self.broker_id, self.epoch)
            self._step_down()

    def _step_down(self) -> None:
        self._is_active = False
        self._end_watch()
        if self._outgoing is not None:
            self._outgoing.close()
        if self._balancing is not None:
            self._balancing.cancel()
        reason = KafkaError(code=ErrorCode.NOT_CONTROLLER)
        while not self._queue.empty():
            _, asker = self._queue.get_nowait()
            _fail(asker, reason)
        for waiting in self._gone.values():
            for future in waiting:
                _fail(future, reason)
        self._gone.clear()
        if self._worker is not None and self._worker is not asyncio.current_task():
            self._worker.cancel()

    def stand_by(self) -> Callable[[], None]:
        """Campaigns whenever there is no controller, and resigns as soon as there is another; the result ends that."""
        return self._store.watch(paths.CONTROLLER, lambda path: self.look_out())

    async def stop(self) -> None:
        if self._campaign is not None:
            self._campaign.cancel()
        worker = self._worker
        if self._is_active:
            self._step_down()
        await asyncio.gather(*(task for task in (worker, self._campaign) if task is not None), return_exceptions=True)

    def look_out(self) -> None:
        """Campaigns if there is no controller, however often that takes."""
        self._must_look = True
        if self._campaign is None or self._campaign.done():
            self._campaign = asyncio.get_running_loop().create_task(self._look_at_controller())

    async def _look_at_controller(self) -> None:
        while self._must_look:
            self._must_look = False
            try:
                async with self._campaigning:
                    node = await self._store.get(paths.CONTROLLER)
                    if self._is_active and (node is None or holder(node) != self.broker_id):
                        self.resign()
                    if node is None or self._is_unknowing_owner(node):
                        await self._try_to_win()
            except KafkaError as e:
                log.error("this broker cannot become the controller, next try in %d ms: %s", RETRY_MS, e)
                await asyncio.sleep(RETRY_MS / 1000)
                self._must_look = True

    # Events

    async def submit(self, event: Event) -> Any:
        """The answer to the event once it is committed and noted; brokers may not have heard of it yet."""
        self.require_active()
        asker: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((event, asker))
        return await asker

    async def delivered(self, brokers: Iterable[int]) -> None:
        """Waits until the brokers have done what they were told, or are gone; raises KafkaError if it takes long."""
        if self._outgoing is None:
            return
        try:
            await asyncio.wait_for(self._outgoing.delivered(set(brokers)), WAIT_MS / 1000)
        except TimeoutError:
            raise KafkaError(code=ErrorCode.REQUEST_TIMED_OUT) from None

    async def deleted(self, topic: str) -> None:
        """Waits until a topic that is going to go is gone; raises KafkaError if it takes long."""
        if topic not in self.state.pending_deletions:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._gone.setdefault(topic, []).append(future)
        try:
            await asyncio.wait_for(future, WAIT_MS / 1000)
        except TimeoutError:
            raise KafkaError(code=ErrorCode.REQUEST_TIMED_OUT) from None

    def _brokers_touched(self, path: str) -> None:
        self._happened(_BrokersTouched())

    def _directories_touched(self, path: str) -> None:
        self._happened(_DirectoriesTouched())

    def _replicas_failed(self, broker_id: int, partitions: tuple[TopicPartition, ...]) -> None:
        self._happened(ReplicasFailed(broker_id, partitions))

    def _replicas_deleted(self, broker_id: int, partitions: tuple[TopicPartition, ...]) -> None:
        self._happened(ReplicasDeleted(broker_id, partitions))

    def _happened(self, event: _Happening) -> None:
        self._queue.put_nowait((event, None))

    async def _run(self) -> None:
        while self._is_active:
            event, asker = await self._queue.get()
            try:
                result = await self._process(event)
            except KafkaError as e:
                _fail(asker, e)
                if asker is None and self._is_active:
                    # It has happened all the same.
                    log.error("%s could not be handled, next try in %d ms: %s", type(event).__name__, RETRY_MS, e)
                    asyncio.get_running_loop().call_later(RETRY_MS / 1000, self._happened, event)
            except asyncio.CancelledError:
                _fail(asker, KafkaError(code=ErrorCode.NOT_CONTROLLER))
                raise
            except Exception:
                log.exception("%s could not be handled", type(event).__name__)
                self._is_stale = True
                _fail(asker, KafkaError(code=ErrorCode.UNKNOWN_SERVER_ERROR))
            else:
                if asker is not None and not asker.done():
                    asker.set_result(result)

    async def _process(self, event: _Happening) -> Any:
        if self._is_stale:
            await self._reload()
        if isinstance(event, _BrokersTouched):
            event = BrokersChanged(await stored_state.load_brokers(self._store))
        if isinstance(event, _DirectoriesTouched):
            return await self._ask_for_failures()
        if isinstance(event, Touched):
            assert self._triggers is not None
            return await self._triggers.look(event.path)
        result = await self._carry_out(event)
        if self._triggers is not None:
            await self._triggers.note_progress()
        return result

    async def _carry_out(self, event: Event) -> Any:
        for _ in range(ATTEMPTS):
            decision = decide(self.state, event, self._unclean_election_allowed)
            try:
                versions = await self._commit(decision.changes)
            except StoreError as e:
                if e.path == paths.CONTROLLER_EPOCH:
                    self.resign()
                    raise KafkaError(code=ErrorCode.NOT_CONTROLLER) from e
                await (self._reload() if self._is_stale else self._reload_part(e))
                continue
            except StoreFailedError:
                self._is_stale = True
                raise
            self._note(decision, versions)
            return decision.result
        raise KafkaError(
            f"{type(event).__name__} was given up: the metadata store has changed {ATTEMPTS} times meanwhile",
            code=ErrorCode.UNKNOWN_SERVER_ERROR,
        )

    async def _ask_for_failures(self) -> None:
        """A broker that is given its roles again answers which of them it cannot take."""
        assert self._outgoing is not None
        try:
            brokers = await stored_state.take_log_dir_events(self._store, self._guard)
        except StoreError as e:
            if e.path == paths.CONTROLLER_EPOCH:
                self.resign()
            raise KafkaError(str(e), code=ErrorCode.NOT_CONTROLLER) from e
        existing = [(tp, partition.replicas) for tp, partition in self.state.partitions()]
        self._outgoing.tell(tell_roles(existing, brokers & self.state.brokers.keys()))

    @property
    def _guard(self) -> Check:
        """What makes a commit fail if there is another controller by now."""
        return Check(paths.CONTROLLER_EPOCH, self._epoch_version)

    async def _commit(self, changes: list[Change]) -> list[int]:
        committing = Committing(self._store, self.epoch, self._guard)
        try:
            return await committing.commit(changes)
        except StoreError:
            # A part may be stored that the state does not know of.
            self._is_stale = committing.has_begun
            raise

    def _note(self, decision: Decision, versions: list[int]) -> None:
        assert self._outgoing is not None
        for change, version in zip(decision.changes, versions, strict=True):
            if isinstance(change, NoteBrokers):
                self._drop_queues_of_lost(change)
            self.state.note(change, version)
            if isinstance(change, RemoveTopic):
                log.info("topic %s was deleted with its %d partitions", change.topic, len(change.partitions))
                for future in self._gone.pop(change.topic, ()):
                    if not future.done():
                        future.set_result(None)
        for warning in decision.warnings:
            log.warning("%s", warning)
        self._outgoing.tell(decision.messages)
        if decision.next_event is not None:
            self._happened(decision.next_event)

    def _drop_queues_of_lost(self, change: NoteBrokers) -> None:
        assert self._outgoing is not None
        for broker_id, broker in self.state.brokers.items():
            now = change.brokers.get(broker_id)
            if now is None or now.epoch != broker.epoch:
                self._outgoing.drop(broker_id)

    async def _reload_part(self, refused: StoreError) -> None:
        """Somebody else has changed what this controller was about to: reads that topic again, or else everything."""
        name = stored_state.topic_of(refused.path)
        if name is None:
            await self._reload()
            return
        log.warning("topic '%s' has changed under the controller: %s", name, refused)
        await stored_state.reload_topic(self._store, self.state, name)
        self._go_on_from_stored()

    async def _reload(self) -> None:
        """Reads the whole state again, after a commit whose fate is not known."""
        node = await self._store.get(paths.CONTROLLER_EPOCH)
        if node is None or node.version != self._epoch_version:
            self.resign()
            raise KafkaError(code=ErrorCode.NOT_CONTROLLER)
        brokers, deleted, offline = self.state.brokers, self.state.deleted_replicas, self.state.offline
        self.state, _ = await stored_state.load(self._store)
        # Who came or went meanwhile is a question of its own, which is on its way.
        self.state.brokers, self.state.deleted_replicas, self.state.offline = brokers, deleted, offline
        self._is_stale = False
        self._go_on_from_stored()

    def _go_on_from_stored(self) -> None:
        """Brokers may have missed what the store has, and so may partitions that are being moved: the in-sync set that
        completes a move is there, and nobody will ask for it again."""
        assert self._outgoing is not None
        self._outgoing.tell(tell_everything(self.state, self.state.brokers, self.state.brokers))
        progress = check_progress(self.state, (tp for tp, _ in self.state.partitions()))
        if progress is not None:
            self._happened(progress)


def _fail(asker: asyncio.Future[Any] | None, reason: KafkaError) -> None:
    if asker is not None and not asker.done():
        asker.set_exception(reason)
