"""Who has a broker's id: one that is dead for a while yet, another one that lives, or this one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ottla.base.clock import ManualClock
from ottla.base.errors import StartError
from ottla.base.types import Endpoint
from ottla.broker import registration
from ottla.broker.registration import Registration
from ottla.broker.tasks import Tasks
from ottla.machines.cluster.image import ClusterImage
from ottla.metadata import paths
from ottla.metadata.embedded import EmbeddedStore
from ottla.metadata.store import Create, Delete, Node, SessionEvent
from tests.unit.broker.controller.cluster import FaultyStore
from tests.unit.broker.test_registration import OWN_PATH, Opinion, Roles
from tests.waiting import run_async, until


class World:
    """A store with another session, and a registration that says it listens on `port`."""

    def __init__(self, store: EmbeddedStore, other: EmbeddedStore) -> None:
        self.other = other
        self.store = FaultyStore(store)
        self.store.get = self._look  # type: ignore[method-assign]
        self.own = store
        self.looks = 0
        self.before_look: dict[int, Callable[[], Awaitable[None]]] = {}
        """What happens behind the registration's back just before it looks at its node, by the number of the look."""
        self.clock = ManualClock()
        self.roles, self.tasks = Roles(), Tasks()
        self.port = 9092
        self.orphaned = 0
        self.registration = Registration(
            1,
            self.store,
            self.clock,
            self.tasks,
            describe=lambda: paths.BrokerNode([(Endpoint("PLAINTEXT", "here", self.port), "PLAINTEXT")], None),
            orders=self.roles,  # type: ignore[arg-type]
            replicas=self.roles,  # type: ignore[arg-type]
            controller=self.roles,  # type: ignore[arg-type]
            image=ClusterImage("c"),
            is_given_up=Opinion(),
            on_orphaned=self._count_orphaned,
        )

    def _count_orphaned(self) -> None:
        self.orphaned += 1

    async def _look(self, path: str) -> Node | None:
        self.looks += 1
        if (happens := self.before_look.get(self.looks)) is not None:
            await happens()
        return await self.own.get(path)

    async def node(self) -> Node:
        found = await self.own.get(OWN_PATH)
        assert found is not None
        return found


def run_world(tmp_path: Path, scenario: Callable[[World], Awaitable[None]]) -> None:
    async def all_of_it() -> None:
        store = await EmbeddedStore.open(tmp_path / "m.db")
        other = await store.new_session()
        await store.commit([Create(path) for path in ("/brokers", paths.BROKER_IDS)])
        world = World(store, other)
        await scenario(world)
        await world.tasks.cancel_all()
        await other.close()
        await store.close()

    run_async(all_of_it())


async def begin_beside_another(world: World, *, outlives_ms: int) -> asyncio.Future[None]:
    """A registration that has seen its id with another session, and waits for that to end."""
    await world.other.commit([Create(OWN_PATH, ephemeral=True)])
    world.store.session_outlives_ms = outlives_ms
    beginning = asyncio.ensure_future(world.registration.begin())
    await until(lambda: world.looks >= 1)
    return beginning


def test_another_live_broker_keeps_its_id(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.other.commit([Create(OWN_PATH, b"theirs", ephemeral=True)])
        with pytest.raises(StartError, match="another live broker has the id 1"):
            await world.registration.begin()
        assert (await world.node()).data == b"theirs"
        assert world.roles.broker_epoch == -1

    run_world(tmp_path, scenario)


def test_a_dead_predecessor_is_given_the_time_its_session_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "_LOOK_MS", 1)

    async def scenario(world: World) -> None:
        beginning = await begin_beside_another(world, outlives_ms=1000)
        world.clock.advance(999)
        looks = world.looks
        await until(lambda: world.looks >= looks + 2 or beginning.done())
        assert not beginning.done(), "its time is not over yet"
        await world.other.commit([Delete(OWN_PATH)])
        await beginning
        assert (await world.node()).owner == world.own.session_id

    run_world(tmp_path, scenario)


def test_who_outlives_the_time_of_a_session_is_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "_LOOK_MS", 1)

    async def scenario(world: World) -> None:
        beginning = await begin_beside_another(world, outlives_ms=1000)
        world.clock.advance(1000)
        with pytest.raises(StartError, match="another live broker"):
            await beginning

    run_world(tmp_path, scenario)


@pytest.mark.parametrize("has_successor", [False, True], ids=["nobody has it now", "another one has it now"])
def test_a_session_that_ends_during_the_registration_is_no_start(tmp_path: Path, has_successor: bool) -> None:
    async def scenario(world: World) -> None:
        async def end() -> None:
            await world.own.commit([Delete(OWN_PATH)])
            if has_successor:
                await world.other.commit([Create(OWN_PATH, ephemeral=True)])

        world.before_look[3] = end
        with pytest.raises(StartError, match="lost while this broker registered"):
            await world.registration.begin()
        assert world.roles.broker_epoch == -1

    run_world(tmp_path, scenario)


def test_what_a_broker_says_of_itself_is_renewed_in_the_same_registration(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.registration.begin()
        before = await world.node()
        assert (before.version, before.created_id) == (1, world.roles.broker_epoch)
        world.port = 9093
        await world.registration.renew()
        after = await world.node()
        assert (after.created_id, after.owner) == (before.created_id, before.owner)
        assert [endpoint.port for endpoint, _ in paths.BrokerNode.decode(after.data).endpoints] == [9093]

    run_world(tmp_path, scenario)


def test_a_node_that_is_not_its_own_is_not_renewed(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.registration.begin()
        await world.own.commit([Delete(OWN_PATH)])
        await world.registration.renew()
        assert await world.own.get(OWN_PATH) is None
        await world.other.commit([Create(OWN_PATH, b"theirs", ephemeral=True)])
        await world.registration.renew()
        assert (await world.node()).data == b"theirs"

    run_world(tmp_path, scenario)


def test_a_renewal_that_fails_is_left_to_the_next_registration(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.registration.begin()
        before = await world.node()
        world.store.lost = [False]
        await world.registration.renew()
        assert await world.node() == before

    run_world(tmp_path, scenario)


def test_a_renewal_keeps_the_first_epoch_that_the_node_names(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.registration.begin()
        first = world.roles.broker_epoch
        await world.registration.renew()
        assert paths.BrokerNode.decode((await world.node()).data).first_epoch is None
        await world.own.expire()
        await until(lambda: "looks for a controller" in world.roles.seen)
        await world.registration.renew()
        assert paths.BrokerNode.decode((await world.node()).data).first_epoch == first

    run_world(tmp_path, scenario)


def test_without_any_session_to_come_the_broker_is_an_orphan(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.registration.begin()
        for event in (SessionEvent.SUSPENDED, SessionEvent.RESUMED):
            world.own._tell_listeners(event)
        assert world.orphaned == 0
        world.own._tell_listeners(SessionEvent.ENDED)
        assert world.orphaned == 1
        assert world.roles.seen == []

    run_world(tmp_path, scenario)
