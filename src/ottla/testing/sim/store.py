"""A metadata store that behaves like an ensemble far away: slow, out of reach at times, and strict about sessions.

The tree is one for all; a `SimStore` is one party's session with it. Whoever is not heard of for the time of its
session loses it, and learns that when it can reach the store again. A commit whose reply is lost has been done all the
same. Word of changes comes late, but never after the answer to a read that shows them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import TypeVar

from ottla.metadata.node_file import NodeFile
from ottla.metadata.store import (
    Check,
    Committed,
    Node,
    Operation,
    SessionEvent,
    SessionListener,
    StoreError,
    StoreFailedError,
    Watcher,
)
from ottla.metadata.watching import Watchers
from ottla.testing.sim.loop import Party, current_party
from ottla.testing.sim.network import SimNetwork

T = TypeVar("T")

STORE = "store"
"""Its name in the network: links to it can be cut as any others."""
_TICK_S = 0.1
_LOST_REPLY_SHARE = 0.002


class SimEnsemble:
    def __init__(self, network: SimNetwork, draw: Random) -> None:
        self.network = network
        self.file = NodeFile(Path(":memory:"))
        self.on_commit: Callable[[list[Committed]], None] = lambda committed: None
        self.lost_replies = 0
        self.expired_sessions = 0
        self._draw = draw
        self._sessions: dict[int, SimStore] = {}
        self._heard_s: dict[int, float] = {}

    def start(self) -> None:
        self.network.loop.call_as(None, _TICK_S, self._tick)

    def begin(self, store: SimStore) -> int:
        session_id = self.file.begin_session()
        self._sessions[session_id] = store
        self._heard_s[session_id] = self.network.loop.time()
        return session_id

    def is_alive(self, session_id: int) -> bool:
        return session_id in self._sessions

    def end(self, session_id: int) -> None:
        if self._sessions.pop(session_id, None) is not None:
            self.tell(self.file.end_session(session_id))

    def expire(self, session_id: int) -> None:
        self.expired_sessions += 1
        self.end(session_id)

    def tell(self, paths: Sequence[str]) -> None:
        for store in list(self._sessions.values()):
            store.receive(store.told, paths)

    def loses_reply(self) -> bool:
        is_lost = self._draw.random() < _LOST_REPLY_SHARE
        self.lost_replies += is_lost
        return is_lost

    def _tick(self) -> None:
        now_s = self.network.loop.time()
        for session_id, store in list(self._sessions.items()):
            if store.can_be_heard:
                self._heard_s[session_id] = now_s
            elif now_s - self._heard_s[session_id] > store.timeout_s:
                self.expire(session_id)
        self.start()


class SimStore:
    """MetadataStore of one party."""

    session_outlives_ms = 0

    def __init__(self, ensemble: SimEnsemble, party: Party, timeout_ms: int) -> None:
        self.timeout_s = timeout_ms / 1000
        self._ensemble = ensemble
        self._network = ensemble.network
        self._party = party
        self._watchers = Watchers()
        self._listeners: list[SessionListener] = []
        self._leaves_s = self._arrives_s = 0.0
        """When the last of what was sent gets there, or comes here: a session keeps its order both ways."""
        self._is_out_of_reach = False
        self._is_closed = False
        self.session_id = 0

    @classmethod
    async def open(cls, ensemble: SimEnsemble, timeout_ms: int) -> SimStore:
        party = current_party()
        assert party is not None
        store = cls(ensemble, party, timeout_ms)
        while not store._has_link:
            await asyncio.sleep(_TICK_S)
        store.session_id = ensemble.begin(store)
        asyncio.get_running_loop().call_later(_TICK_S, store._look_at_link)
        return store

    # The tree

    async def get(self, path: str) -> Node | None:
        return await self._ask(lambda: self._ensemble.file.get(path))

    async def children(self, path: str) -> list[str]:
        return await self._ask(lambda: self._ensemble.file.children(path))

    async def tree(self, path: str) -> dict[str, Node]:
        return await self._ask(lambda: self._ensemble.file.tree(path))

    async def commit(self, operations: Sequence[Operation]) -> list[Committed]:
        def work() -> list[Committed]:
            committed = self._ensemble.file.commit(operations, self.session_id)
            changed = [
                done.path
                for operation, done in zip(operations, committed, strict=True)
                if not isinstance(operation, Check)
            ]
            self._ensemble.on_commit(committed)
            self._ensemble.tell(changed)
            return committed

        result = await self._ask(work)
        if self._ensemble.loses_reply():
            raise StoreFailedError("the reply was lost")
        return result

    def watch(self, path: str, watcher: Watcher, *, depth: int | None = None) -> Callable[[], None]:
        return self._watchers.add(path, watcher, depth)

    def on_session(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            if self._has_link:
                self._ensemble.end(self.session_id)

    async def expire(self) -> None:
        """Ends the session as the ensemble does with one that it has not heard of."""
        self._ensemble.expire(self.session_id)
        self._find_out()

    # The way there and back

    @property
    def _has_link(self) -> bool:
        name = self._party.name
        return not self._network.is_cut(name, STORE) and not self._network.is_cut(STORE, name)

    @property
    def can_be_heard(self) -> bool:
        return self._has_link and not self._is_closed and not self._party.is_dead and not self._party.is_held

    async def _ask(self, work: Callable[[], T]) -> T:
        session_id = self.session_id
        now_s = self._network.loop.time()
        self._leaves_s = max(self._leaves_s, now_s + self._network.latency_s())
        await asyncio.sleep(self._leaves_s - now_s)
        if self._is_closed or self._network.is_cut(self._party.name, STORE):
            await self._wait_in_vain()
        if not self._ensemble.is_alive(session_id):
            raise StoreFailedError("the session is over")
        try:
            result = work()
        except StoreError:
            await self._reply_arrives()
            raise
        await self._reply_arrives()
        return result

    async def _reply_arrives(self) -> None:
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.receive(_set, arrived)
        try:
            await asyncio.wait_for(arrived, self.timeout_s / 3)
        except TimeoutError:
            raise StoreFailedError("the store cannot be reached") from None

    async def _wait_in_vain(self) -> None:
        await asyncio.sleep(self.timeout_s / 3)
        raise StoreFailedError("the store cannot be reached")

    def receive(self, callback: Callable[[T], None], argument: T) -> None:
        """Something comes from the store, after all that is on its way already; nothing does if the link is cut."""
        if self._network.is_cut(STORE, self._party.name):
            # However short the cut was: what is missed now has to be looked up afterwards.
            self._is_out_of_reach = True
            return
        loop = self._network.loop
        self._arrives_s = max(self._arrives_s, loop.time() + self._network.latency_s())
        loop.call_as(self._party, self._arrives_s - loop.time(), callback, argument)

    def told(self, paths: Sequence[str]) -> None:
        if not self._is_closed:
            self._watchers.tell(paths)

    # The session

    def _look_at_link(self) -> None:
        if self._is_closed:
            return
        if not self._has_link and not self._is_out_of_reach:
            self._is_out_of_reach = True
            self._tell_listeners(SessionEvent.SUSPENDED)
        elif self._has_link:
            self._find_out()
        self._network.loop.call_later(_TICK_S, self._look_at_link)

    def _find_out(self) -> None:
        was_out_of_reach, self._is_out_of_reach = self._is_out_of_reach, False
        if not self._ensemble.is_alive(self.session_id):
            self._tell_listeners(SessionEvent.LOST)
            self.session_id = self._ensemble.begin(self)
            self._tell_listeners(SessionEvent.RENEWED)
            self._watchers.tell_all()
        elif was_out_of_reach:
            self._tell_listeners(SessionEvent.RESUMED)
            self._watchers.tell_all()

    def _tell_listeners(self, event: SessionEvent) -> None:
        for listener in self._listeners:
            listener(event)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
