"""The simulated metadata store: what a party hears of its session while its link is cut, and afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from ottla.metadata.store import BadVersionError, Check, Committed, Create, SessionEvent, Set, StoreFailedError
from ottla.testing.sim.loop import Party, SimLoop
from ottla.testing.sim.network import SimNetwork
from ottla.testing.sim.store import STORE, SimEnsemble, SimStore

TIMEOUT_MS = 6_000


@pytest.mark.parametrize(
    ("cut_s", "expected"),
    [
        (1.0, [SessionEvent.SUSPENDED, SessionEvent.RESUMED]),
        (60.0, [SessionEvent.SUSPENDED, SessionEvent.LOST, SessionEvent.RENEWED]),
    ],
)
def test_a_cut_is_told_of_once_and_so_is_its_end(cut_s: float, expected: list[SessionEvent]) -> None:
    loop = SimLoop()  # type: ignore[abstract]
    network = SimNetwork(loop, Random(1))
    ensemble = SimEnsemble(network, Random(2))
    events: list[SessionEvent] = []

    async def scenario() -> None:
        store = await SimStore.open(ensemble, TIMEOUT_MS)
        store.on_session(events.append)
        await asyncio.sleep(5)
        assert events == []
        network.cut("a", STORE)
        await asyncio.sleep(cut_s)
        network.heal([("a", STORE)])
        await asyncio.sleep(5)
        await store.close()

    ensemble.start()
    loop.run_until_complete(Party("a").run(loop.create_task, scenario()))
    loop.close()
    assert events == expected


class World:
    """Two parties with a session each; links have no delay worth a word."""

    def __init__(self) -> None:
        self.loop = SimLoop()  # type: ignore[abstract]
        self.network = SimNetwork(self.loop, Random(1))
        self.ensemble = SimEnsemble(self.network, Random(2))
        self.ensemble.start()
        self.parties = [Party("a"), Party("b")]
        self.stores: list[SimStore] = []

    def run(self, scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
        async def run() -> None:
            for party in self.parties:
                self.stores.append(await party.run(self.loop.create_task, SimStore.open(self.ensemble, TIMEOUT_MS)))
            await scenario(self)

        self.loop.run_until_complete(run())
        assert self.loop.failures == []
        self.loop.close()


def test_everybody_is_told_of_what_was_changed_and_of_nothing_that_was_only_checked() -> None:
    async def scenario(world: World) -> None:
        one, other = world.stores
        await one.commit([Create("/a", b"1"), Create("/b", b"1")])
        told: dict[str, list[str]] = {"one": [], "other": []}
        ends = [store.watch("/", heard.append) for store, heard in zip(world.stores, told.values(), strict=True)]
        committed: list[list[Committed]] = []
        world.ensemble.on_commit = committed.append
        await other.commit([Check("/a", 0), Set("/b", b"2", 0)])
        await asyncio.sleep(5)
        assert told == {"one": ["/b"], "other": ["/b"]}
        assert [[done.path for done in each] for each in committed] == [["/a", "/b"]]
        node = await one.get("/b")
        assert node is not None and (node.data, node.version) == (b"2", 1)
        await one.commit([Create("/b/c", b"")])
        assert set(await one.tree("/b")) == {"/b", "/b/c"} and await one.children("/b") == ["c"]
        with pytest.raises(BadVersionError):
            await one.commit([Set("/b", b"3", 0)])
        for end in ends:
            end()

    World().run(scenario)


def test_a_store_out_of_reach_fails_after_a_third_of_the_session_s_time() -> None:
    async def scenario(world: World) -> None:
        (store, _), network = world.stores, world.network
        for link in (("a", STORE), (STORE, "a")):
            network.cut(*link)
            began_s = world.loop.time()
            with pytest.raises(StoreFailedError, match="the store cannot be reached"):
                await store.commit([Create(f"/{link[0]}", b"")])
            assert TIMEOUT_MS / 3000 <= world.loop.time() - began_s < TIMEOUT_MS / 3000 + 1
            network.heal([link])
            await asyncio.sleep(1)
        assert await store.get("/a") is None
        assert await store.get(f"/{STORE}") is not None, "only the answer was lost"

    World().run(scenario)


@pytest.mark.parametrize("why", ["dead", "held", "cut"])
def test_who_is_not_heard_of_loses_its_session_and_what_belongs_to_it(why: str) -> None:
    async def scenario(world: World) -> None:
        store, other = world.stores
        await store.commit([Create("/mine", b"", ephemeral=True)])
        began_s = world.loop.time()
        if why == "cut":
            world.network.cut(STORE, "a")
        else:
            setattr(world.parties[0], f"is_{why}", True)
        await asyncio.sleep(5)
        assert await other.get("/mine") is not None and world.ensemble.expired_sessions == 0
        await asyncio.sleep(3)
        assert await other.get("/mine") is None and world.ensemble.expired_sessions == 1
        assert not world.ensemble.is_alive(store.session_id) and world.ensemble.is_alive(other.session_id)
        assert world.loop.time() - began_s < 10

    World().run(scenario)


def test_a_session_that_was_closed_is_over_at_once() -> None:
    async def scenario(world: World) -> None:
        store, other = world.stores
        await store.commit([Create("/mine", b"", ephemeral=True)])
        told: list[str] = []
        store.watch("/", told.append)
        await store.close()
        await store.close()
        assert await other.get("/mine") is None and world.ensemble.expired_sessions == 0
        with pytest.raises(StoreFailedError, match="the store cannot be reached"):
            await store.get("/mine")
        assert told == []

    World().run(scenario)


def test_a_session_that_is_ended_is_followed_by_another_one() -> None:
    async def scenario(world: World) -> None:
        store, _ = world.stores
        events: list[SessionEvent] = []
        told: list[str] = []
        store.on_session(events.append)
        store.watch("/a", told.append)
        before = store.session_id
        await store.expire()
        assert events == [SessionEvent.LOST, SessionEvent.RENEWED] and store.session_id != before
        assert told == ["/a"], "it may have changed meanwhile"
        await store.commit([Create("/a", b"")])

    World().run(scenario)


def test_some_replies_are_lost_and_the_work_is_done() -> None:
    async def scenario(world: World) -> None:
        lost = [world.ensemble.loses_reply() for _ in range(20_000)]
        assert 0.001 < sum(lost) / len(lost) < 0.003 and world.ensemble.lost_replies == sum(lost)
        world.ensemble.loses_reply = lambda: True  # type: ignore[method-assign]
        with pytest.raises(StoreFailedError, match="the reply was lost"):
            await world.stores[0].commit([Create("/done", b"")])
        assert await world.stores[0].get("/done") is not None

    World().run(scenario)


# -- what a session keeps, and what it is told afterwards ---------------------------------------------------------


def test_a_session_keeps_its_order_both_ways() -> None:
    async def scenario(world: World) -> None:
        store, other = world.stores
        done: list[str] = []
        world.ensemble.on_commit = lambda committed: done.extend(each.path for each in committed)
        heard: list[str] = []
        other.watch("/", heard.append)
        answered: list[str] = []

        async def create(path: str) -> None:
            await store.commit([Create(path, b"")])
            answered.append(path)

        paths = [f"/{number}" for number in range(60)]
        began_s = world.loop.time()
        await asyncio.gather(*map(create, paths))
        assert done == answered == paths
        assert began_s < world.loop.time() < began_s + 20
        await asyncio.sleep(5)
        assert heard == paths

    World().run(scenario)


def test_an_answer_comes_no_sooner_than_word_of_what_it_shows() -> None:
    async def scenario(world: World) -> None:
        store, other = world.stores
        heard: list[str] = []
        other.watch("/", heard.append)
        for number in range(60):
            await store.commit([Create(f"/{number}", b"")])
            assert await other.get(f"/{number}") is not None
            assert heard == [f"/{each}" for each in range(number + 1)]

    World().run(scenario)


def test_an_error_takes_its_way_back_too() -> None:
    async def scenario(world: World) -> None:
        store, _ = world.stores
        world.network.latency_s = lambda: 0.25  # type: ignore[method-assign]
        began_s = world.loop.time()
        with pytest.raises(BadVersionError):
            await store.commit([Create("/a", b""), Set("/a", b"", 7)])
        assert world.loop.time() - began_s == pytest.approx(0.5)
        assert await store.get("/a") is None
        assert world.loop.time() - began_s == pytest.approx(1.0)

    World().run(scenario)


@pytest.mark.parametrize("how", ["close", "expire"])
def test_others_are_told_what_goes_with_a_session(how: str) -> None:
    async def scenario(world: World) -> None:
        store, other = world.stores
        await store.commit([Create("/mine", b"", ephemeral=True), Create("/ours", b"")])
        await asyncio.sleep(1)
        heard: list[str] = []
        other.watch("/", heard.append)
        await getattr(store, how)()
        await asyncio.sleep(1)
        assert heard == ["/mine"]
        world.ensemble.end(9_999)
        assert world.ensemble.expired_sessions == (how == "expire")
        assert SimStore.session_outlives_ms == 0, "the next one need not wait for the end of the last one"

    World().run(scenario)


@pytest.mark.parametrize("link", [("a", STORE), (STORE, "a")])
def test_a_session_begins_once_there_is_a_link_both_ways(link: tuple[str, str]) -> None:
    async def scenario(world: World) -> None:
        world.network.cut(*link)
        opening = world.parties[0].run(world.loop.create_task, SimStore.open(world.ensemble, TIMEOUT_MS))
        await asyncio.sleep(30)
        assert not opening.done()
        world.network.heal()
        opened = await asyncio.wait_for(opening, 1)
        assert world.ensemble.is_alive(opened.session_id) and opened.can_be_heard

    World().run(scenario)


def test_who_closes_while_it_cannot_be_heard_is_missed_later() -> None:
    async def scenario(world: World) -> None:
        store, other = world.stores
        await store.commit([Create("/mine", b"", ephemeral=True)])
        events: list[SessionEvent] = []
        store.on_session(events.append)
        world.network.cut("a", STORE)
        await store.close()
        assert world.ensemble.is_alive(store.session_id) and not store.can_be_heard
        world.network.heal()
        assert not store.can_be_heard
        await asyncio.sleep(5)
        assert await other.get("/mine") is not None
        await asyncio.sleep(2)
        assert await other.get("/mine") is None and events == []

    World().run(scenario)


def test_after_a_cut_all_that_is_watched_is_to_be_looked_at() -> None:
    async def scenario(world: World) -> None:
        store, other = world.stores
        events: list[tuple[str, SessionEvent]] = []
        for name in ("one", "two"):
            store.on_session(lambda event, name=name: events.append((name, event)))  # type: ignore[misc]
        heard: list[str] = []
        store.watch("/a", heard.append)
        world.network.cut(STORE, "a")
        await asyncio.sleep(1)
        await other.commit([Create("/a", b"")])
        await asyncio.sleep(1)
        assert heard == [] and events == [("one", SessionEvent.SUSPENDED), ("two", SessionEvent.SUSPENDED)]
        world.network.heal()
        await asyncio.sleep(1)
        assert heard == ["/a"]
        assert events[2:] == [("one", SessionEvent.RESUMED), ("two", SessionEvent.RESUMED)]
        assert world.ensemble.is_alive(store.session_id)

    World().run(scenario)


def test_a_cut_that_nobody_has_seen_is_made_up_for_if_something_was_missed() -> None:
    async def scenario(world: World) -> None:
        store, other = world.stores
        events: list[SessionEvent] = []
        store.on_session(events.append)
        heard: list[str] = []
        store.watch("/a", heard.append)
        original = world.ensemble.tell

        def tell_behind_a_cut(paths: Any) -> None:
            world.network.cut(STORE, "a")
            original(paths)
            world.network.heal()

        world.ensemble.tell = tell_behind_a_cut  # type: ignore[method-assign]
        await other.commit([Create("/a", b"")])
        await asyncio.sleep(1)
        assert heard == ["/a"] and events == [SessionEvent.RESUMED]

    World().run(scenario)


def test_a_watch_that_was_ended_tells_nothing_and_depth_is_kept() -> None:
    async def scenario(world: World) -> None:
        store, _ = world.stores
        heard: dict[str, list[str]] = {"near": [], "all": [], "ended": []}
        store.watch("/a", heard["near"].append, depth=1)
        store.watch("/a", heard["all"].append)
        store.watch("/a", heard["ended"].append)()
        await store.commit([Create("/a", b""), Create("/a/b", b""), Create("/a/b/c", b"")])
        await asyncio.sleep(1)
        assert heard["all"] == ["/a", "/a/b", "/a/b/c"] and heard["ended"] == []
        assert heard["near"] == ["/a", "/a/b"]

    World().run(scenario)
