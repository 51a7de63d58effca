"""The embedded store's file: what survives a restart, and which files are refused."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from ottla.base.errors import StartError
from ottla.metadata.embedded import EmbeddedStore
from ottla.metadata.store import Create, Set
from tests.waiting import run_async


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


def test_a_file_that_is_no_database_is_refused_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    path.write_bytes(b"not a database, but long enough to be read as one" * 10)
    with pytest.raises(StartError, match=r"m\.db cannot be used"):
        run_async(EmbeddedStore.open(path))
