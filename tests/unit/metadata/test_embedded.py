"""The embedded store keeps ZooKeeper's promises: versions, atomic commits, ephemeral nodes, watches."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from ottla.base.errors import StartError
from ottla.metadata.embedded import EmbeddedStore
from ottla.metadata.store import (
    BadVersionError,
    Check,
    Create,
    CreateSequential,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Set,
)
from tests.waiting import run_async


def test_versions_guard_every_change(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await EmbeddedStore.open(tmp_path / "m.db")
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
        await store.close()

    run_async(scenario())


def test_a_commit_says_which_versions_it_has_made(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await EmbeddedStore.open(tmp_path / "m.db")
        await store.commit([Create("/a", b"one"), Create("/b"), Set("/a", b"two")])
        committed = await store.commit([Check("/a", 1), Set("/a", b"three"), Create("/c"), Delete("/b")])
        assert committed == [("/a", 1), ("/a", 2), ("/c", 0), ("/b", -1)]
        node, new = await store.get("/a"), await store.get("/c")
        assert node is not None and new is not None
        assert node.created_id < node.modified_id == new.created_id == new.modified_id
        await store.close()

    run_async(scenario())


def test_a_file_without_modification_ids_can_still_be_used(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await EmbeddedStore.open(tmp_path / "m.db")
        await store.commit([Create("/a", b"one")])
        await store.close()
        with sqlite3.connect(tmp_path / "m.db") as connection:
            connection.execute("ALTER TABLE node DROP COLUMN modified_id")
        store = await EmbeddedStore.open(tmp_path / "m.db")
        node = await store.get("/a")
        assert node is not None and (node.data, node.modified_id) == (b"one", 0)
        await store.commit([Set("/a", b"two")])
        node = await store.get("/a")
        assert node is not None and node.modified_id > node.created_id
        await store.close()

    run_async(scenario())


def test_a_commit_is_all_or_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await EmbeddedStore.open(tmp_path / "m.db")
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
        await store.close()

    run_async(scenario())


def test_persistent_nodes_survive_and_ephemeral_ones_do_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await EmbeddedStore.open(tmp_path / "m.db")
        await store.commit([Create("/kept", b"k"), Create("/gone", ephemeral=True)])
        first = await store.get("/gone")
        await store.close()

        store = await EmbeddedStore.open(tmp_path / "m.db")
        assert await store.get("/gone") is None
        kept = await store.get("/kept")
        assert kept is not None and kept.data == b"k"
        await store.commit([Create("/gone", ephemeral=True)])
        second = await store.get("/gone")
        assert first is not None and second is not None
        assert second.created_id > first.created_id
        await store.close()

    run_async(scenario())


def test_children_tree_and_sequences(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await EmbeddedStore.open(tmp_path / "m.db")
        await store.commit([Create("/a"), Create("/a/2"), Create("/a/1"), Create("/a/1/deep"), Create("/ab")])
        assert await store.children("/a") == ["1", "2"]
        assert await store.children("/nothing") == []
        assert sorted(await store.tree("/a")) == ["/a", "/a/1", "/a/1/deep", "/a/2"]
        made = [(await store.commit([CreateSequential("/a/n_")]))[0].path for _ in range(2)]
        await store.commit([Delete(made[1])])
        made += [done.path for done in await store.commit([CreateSequential("/a/n_")])]
        assert made == ["/a/n_0000000000", "/a/n_0000000001", "/a/n_0000000002"]
        await store.close()

    run_async(scenario())


def test_watchers_hear_of_changes_below_their_path_only(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await EmbeddedStore.open(tmp_path / "m.db")
        heard: list[str] = []
        end = store.watch("/a", heard.append)
        await store.commit([Create("/a"), Create("/ab"), Create("/a/x")])
        await store.commit([Check("/a", 0), Set("/a/x", b"1"), Delete("/ab")])
        end()
        await store.commit([Delete("/a/x")])
        assert heard == ["/a", "/a/x", "/a/x"]
        await store.close()

    run_async(scenario())


def test_a_file_that_is_no_database_is_refused_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    path.write_bytes(b"not a database, but long enough to be read as one" * 10)
    with pytest.raises(StartError, match=r"m\.db cannot be used"):
        run_async(EmbeddedStore.open(path))
