"""The metadata store of a cluster that is one process: a SQLite file beside the logs.

Every commit is one durable SQLite transaction, made in a thread of its own so that its sync never stalls the loop.
Ephemeral nodes belong to the process that has the file open; what an earlier process left goes when it is opened.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from ottla.base.errors import StartError
from ottla.metadata.store import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Committed,
    Create,
    CreateSequential,
    Delete,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Set,
    StoreFailedError,
    Watcher,
)

_T = TypeVar("_T")

_log = logging.getLogger(__name__)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS node (
    path TEXT PRIMARY KEY,
    parent TEXT NOT NULL,
    data BLOB NOT NULL,
    version INTEGER NOT NULL,
    created_id INTEGER NOT NULL,
    modified_id INTEGER NOT NULL DEFAULT 0,
    ephemeral INTEGER NOT NULL,
    next_sequence INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS node_parent ON node (parent);
CREATE TABLE IF NOT EXISTS counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO counter VALUES ('commit', 0);
DELETE FROM node WHERE ephemeral;
"""


class EmbeddedStore:
    """MetadataStore on SQLite. Use `open`."""

    def __init__(self, connection: sqlite3.Connection, thread: ThreadPoolExecutor) -> None:
        self._connection = connection
        self._thread = thread
        self._watchers: list[tuple[str, Watcher]] = []

    @classmethod
    async def open(cls, path: Path) -> EmbeddedStore:
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata")
        try:
            connection = await asyncio.get_running_loop().run_in_executor(thread, _connect, path)
        except sqlite3.Error as e:
            thread.shutdown()
            raise StartError(f"the metadata file {path} cannot be used: {e}") from e
        return cls(connection, thread)

    async def get(self, path: str) -> Node | None:
        return await self._run(lambda: _get(self._connection, path))

    async def children(self, path: str) -> list[str]:
        def read() -> list[str]:
            rows = self._connection.execute("SELECT path FROM node WHERE parent = ? ORDER BY path", (path,))
            return [row[0].rsplit("/", 1)[1] for row in rows]

        return await self._run(read)

    async def tree(self, path: str) -> dict[str, Node]:
        def read() -> dict[str, Node]:
            rows = self._connection.execute(
                # '0' is the character after '/', so this range holds exactly the paths below `path`.
                "SELECT path, data, version, created_id, modified_id FROM node"
                " WHERE path = ? OR (path > ? AND path < ?)",
                (path, path + "/", path + "0"),
            )
            return {row[0]: Node(*row[1:]) for row in rows}

        return await self._run(read)

    async def commit(self, operations: Sequence[Operation]) -> list[Committed]:
        committed = await self._run(lambda: _commit(self._connection, operations))
        for operation, done in zip(operations, committed, strict=True):
            if not isinstance(operation, Check):
                self._tell_watchers(done.path)
        return committed

    def watch(self, path: str, watcher: Watcher) -> Callable[[], None]:
        entry = (path, watcher)
        self._watchers.append(entry)
        return lambda: self._watchers.remove(entry)

    async def close(self) -> None:
        def end() -> None:
            try:
                self._connection.execute("DELETE FROM node WHERE ephemeral")
            except sqlite3.Error as e:
                _log.warning("ephemeral nodes are left to the next start: %s", e)
            self._connection.close()

        await self._run(end)
        self._thread.shutdown()

    async def _run(self, work: Callable[[], _T]) -> _T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.Error as e:
            raise StoreFailedError(f"the metadata file cannot be used: {e}") from e

    def _tell_watchers(self, path: str) -> None:
        for watched, watcher in list(self._watchers):
            if path == watched or path.startswith(watched.rstrip("/") + "/"):
                watcher(path)


def _connect(path: Path) -> sqlite3.Connection:
    # An explicit BEGIN in `_commit` marks the transaction, so the module's own implicit ones are switched off.
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.executescript(_SCHEMA)
    columns = {row[1] for row in connection.execute("PRAGMA table_info(node)")}
    if "modified_id" not in columns:
        # Written by a version that did not keep it: as if all had been written long ago.
        connection.execute("ALTER TABLE node ADD COLUMN modified_id INTEGER NOT NULL DEFAULT 0")
    return connection


def _get(connection: sqlite3.Connection, path: str) -> Node | None:
    row = connection.execute(
        "SELECT data, version, created_id, modified_id FROM node WHERE path = ?", (path,)
    ).fetchone()
    return Node(*row) if row else None


def _commit(connection: sqlite3.Connection, operations: Sequence[Operation]) -> list[Committed]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        (commit_id,) = connection.execute(
            "UPDATE counter SET value = value + 1 WHERE name = 'commit' RETURNING value"
        ).fetchone()
        committed = [_apply(connection, operation, commit_id) for operation in operations]
        connection.execute("COMMIT")
    except BaseException:
        # After a failed write SQLite may have rolled back by itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return committed


def _apply(connection: sqlite3.Connection, operation: Operation, commit_id: int) -> Committed:
    match operation:
        case Create(path, data, ephemeral):
            _insert(connection, path, data, commit_id, ephemeral=ephemeral)
            return Committed(path, 0)
        case CreateSequential(prefix, data):
            path = f"{prefix}{_next_sequence(connection, _parent(prefix)):010d}"
            _insert(connection, path, data, commit_id, ephemeral=False)
            return Committed(path, 0)
        case Set(path, data, version):
            before = _expect(connection, path, version)
            connection.execute(
                "UPDATE node SET data = ?, version = ?, modified_id = ? WHERE path = ?",
                (data, before + 1, commit_id, path),
            )
            return Committed(path, before + 1)
        case Delete(path, version):
            _expect(connection, path, version)
            if connection.execute("SELECT 1 FROM node WHERE parent = ? LIMIT 1", (path,)).fetchone():
                raise NotEmptyError(path)
            connection.execute("DELETE FROM node WHERE path = ?", (path,))
            return Committed(path, ANY_VERSION)
        case Check(path, version):
            return Committed(path, _expect(connection, path, version))


def _insert(connection: sqlite3.Connection, path: str, data: bytes, commit_id: int, *, ephemeral: bool) -> None:
    parent = _parent(path)
    if parent and not connection.execute("SELECT 1 FROM node WHERE path = ?", (parent,)).fetchone():
        raise NoNodeError(parent)
    try:
        connection.execute(
            "INSERT INTO node (path, parent, data, version, created_id, modified_id, ephemeral)"
            " VALUES (?, ?, ?, 0, ?, ?, ?)",
            (path, parent, data, commit_id, commit_id, ephemeral),
        )
    except sqlite3.IntegrityError:
        raise NodeExistsError(path) from None


def _next_sequence(connection: sqlite3.Connection, parent: str) -> int:
    row = connection.execute(
        "UPDATE node SET next_sequence = next_sequence + 1 WHERE path = ? RETURNING next_sequence - 1", (parent,)
    ).fetchone()
    if row is None:
        raise NoNodeError(parent)
    return int(row[0])


def _expect(connection: sqlite3.Connection, path: str, version: int) -> int:
    """The version the node is at, which must be the one asked for."""
    node = _get(connection, path)
    if node is None:
        raise NoNodeError(path)
    if version not in (ANY_VERSION, node.version):
        raise BadVersionError(path)
    return node.version


def _parent(path: str) -> str:
    return path.rsplit("/", 1)[0]
