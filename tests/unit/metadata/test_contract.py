"""What every metadata store promises, whoever implements it: versions, atomic commits, sessions, watches."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla.metadata.store import (
    PERSISTENT,
    BadVersionError,
    Check,
    Create,
    CreateSequential,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionEvent,
    Set,
)
from tests.unit.metadata.stores import EmbeddedStores, ServedStores, SimulatedStores, Stores, ZooKeeperStores
from tests.waiting import until
from tests.zookeeper_process import ZooKeeperProcesses


@pytest.fixture(params=["embedded", "served", "simulated", "zookeeper"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Stores:
    match request.param:
        case "embedded":
            return EmbeddedStores(tmp_path)
        case "served":
            return ServedStores(tmp_path)
        case "simulated":
            return SimulatedStores(tmp_path)
        case _:
            zookeeper: ZooKeeperProcesses = request.getfixturevalue("zookeeper")
            return ZooKeeperStores(zookeeper.new_cluster())


def test_versions_guard_every_change(stores: Stores) -> None:
    async def scenario() -> None:
        store = await stores.session()
        await store.commit([Create("/a", b"one")])
        await store.commit([Set("/a", b"two", version=0)])
        node = await store.get("/a")
        assert node is not None and (node.data, node.version) == (b"two", 1)
        with pytest.raises(BadVersionError, match="/a"):
            await store.commit([Set("/a", b"three", version=0)])
        with pytest.raises(BadVersionError):
            await store.commit([Delete("/a", version=0)])
        with pytest.raises(BadVersionError):
            await store.commit([Check("/a", 0), Create("/b")])
        assert await store.get("/b") is None

    stores.run(scenario)


def test_a_commit_says_which_versions_it_has_made(stores: Stores) -> None:
    async def scenario() -> None:
        store = await stores.session()
        await store.commit([Create("/a", b"one"), Create("/b"), Set("/a", b"two")])
        committed = await store.commit([Check("/a", 1), Set("/a", b"three"), Create("/c"), Delete("/b")])
        assert committed == [("/a", 1), ("/a", 2), ("/c", 0), ("/b", -1)]
        node, new = await store.get("/a"), await store.get("/c")
        assert node is not None and new is not None
        assert node.created_id < node.modified_id == new.created_id == new.modified_id

    stores.run(scenario)


def test_a_commit_is_all_or_nothing(stores: Stores) -> None:
    async def scenario() -> None:
        store = await stores.session()
        await store.commit([Create("/a"), Create("/a/x")])
        with pytest.raises(NodeExistsError):
            await store.commit([Create("/b"), Set("/a", b"changed"), Create("/a/x")])
        with pytest.raises(NoNodeError, match="/missing"):
            await store.commit([Create("/b"), Create("/missing/child")])
        with pytest.raises(NotEmptyError):
            await store.commit([Create("/b"), Delete("/a")])
        assert await store.get("/b") is None
        node = await store.get("/a")
        assert node is not None and node.data == b""

    stores.run(scenario)


def test_children_tree_and_sequences(stores: Stores) -> None:
    async def scenario() -> None:
        store = await stores.session()
        await store.commit([Create("/a"), Create("/a/2"), Create("/a/1"), Create("/a/1/deep"), Create("/ab")])
        assert await store.children("/a") == ["1", "2"]
        assert await store.children("/nothing") == []
        assert sorted(await store.tree("/a")) == ["/a", "/a/1", "/a/1/deep", "/a/2"]
        made = [(await store.commit([CreateSequential("/a/n_")]))[0].path for _ in range(2)]
        await store.commit([Delete(made[1])])
        made += [done.path for done in await store.commit([CreateSequential("/a/n_")])]
        assert all(re.fullmatch(r"/a/n_\d{10}", path) for path in made)
        assert made == sorted(set(made)), "the number of one that is gone is not used again"

    stores.run(scenario)


def test_watchers_hear_of_as_many_levels_as_they_want(stores: Stores) -> None:
    async def scenario() -> None:
        store = await stores.session()
        await store.commit([Create("/a"), Create("/a/b"), Create("/a/b/c")])
        heard: dict[int, set[str]] = {0: set(), 1: set(), 2: set()}
        for depth, paths in heard.items():
            store.watch("/a", paths.add, depth=depth)
        await store.get("/a")
        # One after the other: between two looks changes may come together.
        for path in ("/a/b/c", "/a/b", "/a"):
            await store.commit([Set(path, b"new")])
            await store.get(path)
        await store.commit([Create("/a/d")])
        await until(lambda: heard[2] == {"/a", "/a/b", "/a/b/c", "/a/d"} and heard[1] == {"/a", "/a/b", "/a/d"})
        assert heard[0] == {"/a"}

    stores.run(scenario)


def test_watchers_hear_of_changes_below_their_path_only(stores: Stores) -> None:
    async def scenario() -> None:
        store = await stores.session()
        heard: list[str] = []
        end = store.watch("/a", heard.append)
        await store.commit([Create("/a"), Create("/ab"), Create("/a/x")])
        await store.commit([Check("/a", 0), Set("/a/x", b"1"), Delete("/ab")])
        end()
        await store.commit([Delete("/a/x")])
        assert heard == ["/a", "/a/x", "/a/x"]

    stores.run(scenario)


# Several sessions


def test_everybody_sees_and_hears_what_one_has_done(stores: Stores) -> None:
    async def scenario() -> None:
        one, other = await stores.session(), await stores.session()
        heard: list[str] = []
        other.watch("/a", heard.append)
        await one.commit([Create("/a"), Create("/a/x", bytes(range(256)))])
        node = await other.get("/a/x")
        assert node is not None and node.data == bytes(range(256))
        assert heard == ["/a", "/a/x"], "before anything new could be read"

    stores.run(scenario)


def test_a_version_lets_one_of_two_win(stores: Stores) -> None:
    async def scenario() -> None:
        one, other = await stores.session(), await stores.session()
        await one.commit([Create("/epoch", b"0")])
        await one.commit([Create("/leader", b"one", ephemeral=True), Set("/epoch", b"1", version=0)])
        with pytest.raises(NodeExistsError, match="/leader"):
            await other.commit([Create("/leader", b"other", ephemeral=True), Set("/epoch", b"1", version=0)])
        with pytest.raises(BadVersionError, match="/epoch"):
            await other.commit([Check("/epoch", 0), Create("/b")])

    stores.run(scenario)


def test_ephemeral_nodes_belong_to_their_session_and_go_with_it(stores: Stores) -> None:
    async def scenario() -> None:
        one, other = await stores.session(), await stores.session()
        heard: list[str] = []
        await other.commit([Create("/ids"), Create("/ids/other", ephemeral=True), Create("/kept")])
        other.watch("/ids", heard.append)
        await one.commit([Create("/ids/one", b"1", ephemeral=True)])
        node, persistent = await other.get("/ids/one"), await other.get("/kept")
        assert node is not None and node.owner == one.session_id != other.session_id
        assert persistent is not None and persistent.owner == PERSISTENT
        await one.close()
        await until(lambda: len(heard) == 2)
        assert await other.children("/ids") == ["other"]
        assert heard == ["/ids/one", "/ids/one"]

    stores.run(scenario)


def test_whoever_loses_a_session_is_told_and_gets_another(stores: Stores) -> None:
    async def scenario() -> None:
        one, other = await stores.session(), await stores.session()
        events: list[SessionEvent] = []
        one.on_session(events.append)
        heard: list[str] = []
        one.watch("/b", heard.append)
        await one.commit([Create("/mine", ephemeral=True)])
        before = one.session_id
        await stores.expire(one)
        await until(lambda: SessionEvent.RENEWED in events)
        assert [event for event in events if event is not SessionEvent.SUSPENDED] == [
            SessionEvent.LOST,
            SessionEvent.RENEWED,
        ]
        assert await other.get("/mine") is None
        assert one.session_id != before
        await one.commit([Create("/mine", ephemeral=True)])
        node = await other.get("/mine")
        assert node is not None and node.owner == one.session_id
        heard.clear()
        await other.commit([Create("/b")])
        assert await one.get("/b") is not None
        assert heard == ["/b"], "watches go on"

    stores.run(scenario)


def test_numbers_of_commits_grow_whoever_makes_them(stores: Stores) -> None:
    async def scenario() -> None:
        one, other = await stores.session(), await stores.session()
        ids = []
        for name, store in (("/a", one), ("/b", other), ("/c", one)):
            await store.commit([Create(name)])
            node = await other.get(name)
            assert node is not None
            ids.append(node.created_id)
        assert ids == sorted(set(ids))

    stores.run(scenario)
