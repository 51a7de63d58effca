"""Controllers on the embedded store, with brokers that only write down what they are told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ottla.base.clock import ManualClock
from ottla.base.ids import Ids
from ottla.base.types import Endpoint
from ottla.broker.controller.controller import Controller
from ottla.broker.topic_admin import TopicAdmin
from ottla.machines.cluster.controller import ElectionAsked, ElectionKind
from ottla.machines.cluster.topics import NewTopic
from ottla.metadata import paths
from ottla.metadata.embedded import EmbeddedStore
from ottla.metadata.store import Committed, Create, Delete, Node, Operation, Set, StoreFailedError, Watcher
from ottla.wire.apis import response_class
from ottla.wire.message import Request, Response

R = TypeVar("R", bound=Request)

DEADLINE_S = 20


class RecordingLink:
    def __init__(self) -> None:
        self.sent: list[tuple[int, Request]] = []
        self.held: dict[int, asyncio.Event] = {}
        """Brokers that do not answer until the event is set."""
        self.faults: dict[int, list[Exception | Response]] = {}
        """What meets a broker's next requests instead of an answer."""

    async def send(self, broker_id: int, request: Request) -> Response:
        if broker_id in self.held:
            await self.held[broker_id].wait()
        faults = self.faults.get(broker_id)
        if faults:
            fault = faults.pop(0)
            if isinstance(fault, Exception):
                raise fault
            self.sent.append((broker_id, request))
            return fault
        self.sent.append((broker_id, request))
        return response_class(request.API_KEY)()

    def take(self, kind: type[R]) -> list[tuple[int, R]]:
        """What of this kind was sent since the last look, with the receiver."""
        found = [(broker_id, request) for broker_id, request in self.sent if isinstance(request, kind)]
        self.sent = [(broker_id, request) for broker_id, request in self.sent if not isinstance(request, kind)]
        return found


class FaultyStore:
    """The embedded store, with commits that go wrong when a test says so."""

    session_outlives_ms = 0

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self.lost: list[bool] = []
        """For each of the next commits that fail: whether it was made all the same."""
        self.before_commit: list[Callable[[], Awaitable[object]]] = []
        """Done before each of the next commits, behind the controller's back."""
        self.commits: list[list[Operation]] = []
        self.get = store.get
        self.children = store.children
        self.tree = store.tree
        self.close = store.close
        self.on_session = store.on_session

    @property
    def session_id(self) -> int:
        return self._store.session_id

    async def commit(self, operations: Sequence[Operation]) -> list[Committed]:
        if self.before_commit:
            await self.before_commit.pop(0)()
        if self.lost:
            if self.lost.pop(0):
                await self._store.commit(operations)
            raise StoreFailedError("the connection to the store was lost")
        committed = await self._store.commit(operations)
        self.commits.append(list(operations))
        return committed

    def watch(self, path: str, watcher: Watcher, *, depth: int | None = None) -> Callable[[], None]:
        return self._store.watch(path, watcher, depth=depth)

    async def behind_its_back(self, *operations: Operation) -> None:
        await self._store.commit(operations)


class Cluster:
    """A store with registered brokers, and controllers that compete for it."""

    def __init__(self, store: FaultyStore) -> None:
        self.store = store
        self.link = RecordingLink()
        self.unclean_topics: set[str] = set()
        self.controllers: list[Controller] = []

    async def register(self, broker_id: int, rack: str | None = None) -> None:
        node = paths.BrokerNode([(Endpoint("PLAINTEXT", f"host{broker_id}", 9092), "PLAINTEXT")], rack)
        await self.store.behind_its_back(Create(f"{paths.BROKER_IDS}/{broker_id}", node.encode(0), ephemeral=True))

    async def lose(self, broker_id: int) -> None:
        await self.store.behind_its_back(Delete(f"{paths.BROKER_IDS}/{broker_id}"))

    async def bounce(self, broker_id: int, *, is_same_process: bool = False, is_clean: bool = False) -> None:
        """Gone and back before anybody could look."""
        node = await self.store.get(f"{paths.BROKER_IDS}/{broker_id}")
        assert node is not None
        path = f"{paths.BROKER_IDS}/{broker_id}"
        first_epoch = node.created_id if is_same_process else None
        described = paths.BrokerNode.decode(node.data)._replace(first_epoch=first_epoch, was_stopped_cleanly=is_clean)
        data = described.encode(0)
        await self.store.behind_its_back(Delete(path), Create(path, data, ephemeral=True))

    def controller(self, broker_id: int) -> Controller:
        controller = Controller(
            broker_id,
            self.store,
            self.link,
            ManualClock(),
            unclean_election_allowed=lambda topic: topic in self.unclean_topics,
        )
        self.controllers.append(controller)
        return controller

    async def elected(self, broker_id: int = 1) -> Controller:
        """A new controller in the place of whoever was it."""
        for controller in self.controllers:
            await controller.stop()
        return await self.usurper(broker_id)

    async def usurper(self, broker_id: int) -> Controller:
        """A new controller; the old one has not noticed yet."""
        if await self.store.get(paths.CONTROLLER) is not None:
            await self.store.behind_its_back(Delete(paths.CONTROLLER))
        controller = self.controller(broker_id)
        assert await asyncio.wait_for(controller.campaign(), DEADLINE_S)
        await self.settle(controller)
        return controller

    async def settle(self, controller: Controller) -> None:
        """Everything that has happened so far is decided, and everybody who can be told was told."""
        await controller.submit(ElectionAsked((), ElectionKind.ANEW))
        await controller.delivered(set(controller.state.brokers) - set(self.link.held))

    def admin(self, controller: Controller) -> TopicAdmin:
        async def nobody_else(new: NewTopic) -> None:
            raise AssertionError(f"{new.name} is to be created here")

        return TopicAdmin(
            controller,
            validate_configs=lambda configs: None,
            ids=Ids(random.Random(0)),
            ask_controller=nobody_else,
        )

    async def state(self, topic: str, index: int = 0) -> paths.PartitionStateNode:
        return paths.PartitionStateNode.decode((await self.node(topic, index)).data)

    async def node(self, topic: str, index: int = 0) -> Node:
        node = await self.store.get(paths.partition_state(topic, index))
        assert node is not None
        return node

    async def overwrite(self, topic: str, index: int = 0, **fields: Any) -> None:
        """Changes a partition's state without asking the controller."""
        stored = (await self.state(topic, index))._replace(**fields)
        await self.store.behind_its_back(Set(paths.partition_state(topic, index), stored.encode()))

    async def replicas(self, topic: str) -> dict[int, list[int]]:
        node = await self.store.get(paths.topic(topic))
        assert node is not None
        return paths.TopicNode.decode(node.data).partitions


def run(tmp_path: Path, scenario: Callable[[Cluster], Awaitable[None]], brokers: int = 3) -> None:
    async def start() -> None:
        store = await EmbeddedStore.open(tmp_path / "metadata.db")
        cluster = Cluster(FaultyStore(store))
        try:
            await store.commit([Create(path) for path in paths.PERSISTENT_PATHS])
            for broker_id in range(1, brokers + 1):
                await cluster.register(broker_id)
            await asyncio.wait_for(scenario(cluster), DEADLINE_S)
        finally:
            for controller in cluster.controllers:
                await controller.stop()
            await store.close()

    asyncio.run(start())


async def until(holds: Callable[[], bool]) -> None:
    """Waits for something that a task will bring about; the run has a deadline."""
    while not holds():
        await asyncio.sleep(0.001)
