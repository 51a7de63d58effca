"""The metadata stores there are, each as a tests' world that hands out sessions and can end them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Protocol

from kazoo.client import KazooClient

from ottla.metadata.embedded import EmbeddedStore
from ottla.metadata.served.client import ServedStore
from ottla.metadata.served.server import StoreServer
from ottla.metadata.store import MetadataStore
from ottla.metadata.zookeeper.address import EnsembleAddress
from ottla.metadata.zookeeper.store import SessionOptions, ZooKeeperStore
from ottla.testing.sim.loop import Party, SimLoop
from ottla.testing.sim.network import SimNetwork
from ottla.testing.sim.store import SimEnsemble, SimStore
from tests.waiting import run_async

SESSION_TIMEOUT_MS = 60_000


class Stores(Protocol):
    def run(self, scenario: Callable[[], Awaitable[None]]) -> None:
        """Runs a scenario with this store, and ends all its sessions."""

    async def session(self) -> MetadataStore: ...

    async def expire(self, store: MetadataStore) -> None:
        """Has the store end a session that its owner has not given up."""


class EmbeddedStores:
    def __init__(self, directory: Path) -> None:
        self._path = directory / "m.db"
        self._sessions: list[EmbeddedStore] = []

    def run(self, scenario: Callable[[], Awaitable[None]]) -> None:
        async def all_of_it() -> None:
            try:
                await scenario()
            finally:
                for session in self._sessions:
                    await session.close()

        run_async(all_of_it())

    async def session(self) -> MetadataStore:
        if self._sessions:
            self._sessions.append(await self._sessions[0].new_session())
        else:
            self._sessions.append(await EmbeddedStore.open(self._path))
        return self._sessions[-1]

    async def expire(self, store: MetadataStore) -> None:
        assert isinstance(store, EmbeddedStore)
        await store.expire()


class ServedStores:
    def __init__(self, directory: Path) -> None:
        self._directory = directory / ("a" * 120)
        self._sessions: list[ServedStore] = []

    def run(self, scenario: Callable[[], Awaitable[None]]) -> None:
        async def all_of_it() -> None:
            self.server = await StoreServer.start(self._directory)
            try:
                await scenario()
            finally:
                for session in self._sessions:
                    await session.close()
                await self.server.close()

        run_async(all_of_it())

    async def session(self) -> MetadataStore:
        self._sessions.append(await ServedStore.connect(self._directory, session_timeout_ms=SESSION_TIMEOUT_MS))
        return self._sessions[-1]

    async def expire(self, store: MetadataStore) -> None:
        self.server.end_session(store.session_id)


class SimulatedStores:
    def __init__(self, directory: Path) -> None:
        self._loop = SimLoop()  # type: ignore[abstract]
        self._ensemble = SimEnsemble(SimNetwork(self._loop, Random(1)), Random(2))

    def run(self, scenario: Callable[[], Awaitable[None]]) -> None:
        async def all_of_it() -> None:
            await scenario()

        self._ensemble.start()
        self._loop.run_until_complete(Party("a").run(self._loop.create_task, all_of_it()))
        self._loop.close()

    async def session(self) -> MetadataStore:
        return await SimStore.open(self._ensemble, SESSION_TIMEOUT_MS)

    async def expire(self, store: MetadataStore) -> None:
        assert isinstance(store, SimStore)
        await store.expire()


class ZooKeeperStores:
    def __init__(self, connect: str) -> None:
        self._address = EnsembleAddress.parse(connect)
        self._sessions: list[ZooKeeperStore] = []

    def run(self, scenario: Callable[[], Awaitable[None]]) -> None:
        async def all_of_it() -> None:
            try:
                await scenario()
            finally:
                for session in self._sessions:
                    await session.close()

        run_async(all_of_it())

    async def session(self) -> ZooKeeperStore:
        options = SessionOptions(session_timeout_ms=10_000)
        self._sessions.append(await ZooKeeperStore.connect(self._address, options))
        return self._sessions[-1]

    async def expire(self, store: MetadataStore) -> None:
        """As anybody could who knows the session's secret: who closes it, ends it for all."""
        assert isinstance(store, ZooKeeperStore)
        await asyncio.to_thread(end_session, self._address.hosts, store.client_id)


def end_session(hosts: str, client_id: tuple[int, bytes]) -> None:
    client = KazooClient(hosts, client_id=client_id)
    client.start()
    client.stop()
    client.close()
