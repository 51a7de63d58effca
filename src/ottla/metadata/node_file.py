"""The tree of nodes in a SQLite file: reads, and commits that are one durable transaction each.

Knows sessions only as numbers that own ephemeral nodes. Not for several threads at once, and not for the event loop: a
commit waits for the disk.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from ottla.metadata.store import (
    ANY_VERSION,
    PERSISTENT,
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
)

_SCHEMA = f"""
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
INSERT OR IGNORE INTO counter VALUES ('commit', 0), ('session', 0);
DELETE FROM node WHERE ephemeral != {PERSISTENT};
"""
"""`ephemeral` is the session that owns the node. Sessions end with the process that has the file open."""

_COLUMNS = "data, version, created_id, modified_id, ephemeral"


class NodeFile:
    def __init__(self, path: Path) -> None:
        # An explicit BEGIN marks every transaction, so the module's own implicit ones are switched off.
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.executescript(_SCHEMA)
        columns = {row[1] for row in self._connection.execute("PRAGMA table_info(node)")}
        if "modified_id" not in columns:
            # Written by a version that did not keep it: as if all had been written long ago.
            self._connection.execute("ALTER TABLE node ADD COLUMN modified_id INTEGER NOT NULL DEFAULT 0")

    def get(self, path: str) -> Node | None:
        row = self._connection.execute(f"SELECT {_COLUMNS} FROM node WHERE path = ?", (path,)).fetchone()
        return Node(*row) if row else None

    def children(self, path: str) -> list[str]:
        rows = self._connection.execute("SELECT path FROM node WHERE parent = ? ORDER BY path", (path,))
        return [row[0].rsplit("/", 1)[1] for row in rows]

    def tree(self, path: str) -> dict[str, Node]:
        rows = self._connection.execute(
            # '0' is the character after '/', so this range holds exactly the paths below `path`.
            f"SELECT path, {_COLUMNS} FROM node WHERE path = ? OR (path > ? AND path < ?)",
            (path, path + "/", path + "0"),
        )
        return {row[0]: Node(*row[1:]) for row in rows}

    def begin_session(self) -> int:
        (session_id,) = self._connection.execute(
            "UPDATE counter SET value = value + 1 WHERE name = 'session' RETURNING value"
        ).fetchone()
        return int(session_id)

    def end_session(self, session_id: int) -> list[str]:
        """Removes the session's ephemeral nodes and returns their paths."""
        rows = self._connection.execute("DELETE FROM node WHERE ephemeral = ? RETURNING path", (session_id,))
        return sorted(row[0] for row in rows)

    def commit(self, operations: Sequence[Operation], session_id: int) -> list[Committed]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            (commit_id,) = self._connection.execute(
                "UPDATE counter SET value = value + 1 WHERE name = 'commit' RETURNING value"
            ).fetchone()
            committed = [self._apply(operation, commit_id, session_id) for operation in operations]
            self._connection.execute("COMMIT")
        except BaseException:
            # After a failed write SQLite may have rolled back by itself.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        return committed

    def close(self) -> None:
        self._connection.close()

    def _apply(self, operation: Operation, commit_id: int, session_id: int) -> Committed:
        match operation:
            case Create(path, data, ephemeral):
                self._insert(path, data, commit_id, session_id if ephemeral else PERSISTENT)
                return Committed(path, 0)
            case CreateSequential(prefix, data):
                path = f"{prefix}{self._next_sequence(_parent(prefix)):010d}"
                self._insert(path, data, commit_id, PERSISTENT)
                return Committed(path, 0)
            case Set(path, data, version):
                before = self._expect(path, version)
                self._connection.execute(
                    "UPDATE node SET data = ?, version = ?, modified_id = ? WHERE path = ?",
                    (data, before + 1, commit_id, path),
                )
                return Committed(path, before + 1)
            case Delete(path, version):
                self._expect(path, version)
                if self._connection.execute("SELECT 1 FROM node WHERE parent = ? LIMIT 1", (path,)).fetchone():
                    raise NotEmptyError(path)
                self._connection.execute("DELETE FROM node WHERE path = ?", (path,))
                return Committed(path, ANY_VERSION)
            case Check(path, version):
                return Committed(path, self._expect(path, version))

    def _insert(self, path: str, data: bytes, commit_id: int, owner: int) -> None:
        parent = _parent(path)
        if parent and self.get(parent) is None:
            raise NoNodeError(parent)
        try:
            self._connection.execute(
                "INSERT INTO node (path, parent, data, version, created_id, modified_id, ephemeral)"
                " VALUES (?, ?, ?, 0, ?, ?, ?)",
                (path, parent, data, commit_id, commit_id, owner),
            )
        except sqlite3.IntegrityError:
            raise NodeExistsError(path) from None

    def _next_sequence(self, parent: str) -> int:
        row = self._connection.execute(
            "UPDATE node SET next_sequence = next_sequence + 1 WHERE path = ? RETURNING next_sequence - 1", (parent,)
        ).fetchone()
        if row is None:
            raise NoNodeError(parent)
        return int(row[0])

    def _expect(self, path: str, version: int) -> int:
        """The version the node is at, which must be the one asked for."""
        node = self.get(path)
        if node is None:
            raise NoNodeError(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersionError(path)
        return node.version


def _parent(path: str) -> str:
    return path.rsplit("/", 1)[0]
