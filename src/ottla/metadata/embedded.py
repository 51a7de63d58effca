"""The metadata store of brokers in one process: a SQLite file beside the logs, and a session for each of them.

Work on the file is done in a thread of its own, so that waiting for the disk never stalls the loop. Sessions live as
long as the process: what an earlier one left goes when the file is opened.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from ottla.base.errors import StartError
from ottla.metadata.node_file import NodeFile
from ottla.metadata.store import (
    Check,
    Committed,
    Node,
    Operation,
    SessionEvent,
    SessionListener,
    StoreFailedError,
    Watcher,
)
from ottla.metadata.watching import Watchers

_T = TypeVar("_T")

_log = logging.getLogger(__name__)


class _Shared:
    """The file, its thread, and everybody who watches: one for all sessions."""

    def __init__(self, file: NodeFile, thread: ThreadPoolExecutor) -> None:
        self.file = file
        self.watchers = Watchers()
        self.sessions = 0
        self._thread = thread

    async def run(self, work: Callable[[], _T]) -> _T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.Error as e:
            raise StoreFailedError(f"the metadata file cannot be used: {e}") from e

    async def close(self) -> None:
        await self.run(self.file.close)
        self._thread.shutdown()


class EmbeddedStore:
    """MetadataStore on SQLite: one session. `open` begins the first, `new_session` others."""

    session_outlives_ms = 0

    def __init__(self, shared: _Shared, session_id: int) -> None:
        self.session_id = session_id
        self._shared = shared
        self._end_watches: list[Callable[[], None]] = []
        self._session_listeners: list[SessionListener] = []
        self._is_closed = False
        shared.sessions += 1

    @classmethod
    async def open(cls, path: Path) -> EmbeddedStore:
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata")
        try:
            file = await asyncio.get_running_loop().run_in_executor(thread, NodeFile, path)
        except sqlite3.Error as e:
            thread.shutdown()
            raise StartError(f"the metadata file {path} cannot be used: {e}") from e
        shared = _Shared(file, thread)
        return cls(shared, await shared.run(file.begin_session))

    async def new_session(self) -> EmbeddedStore:
        return EmbeddedStore(self._shared, await self._shared.run(self._shared.file.begin_session))

    async def get(self, path: str) -> Node | None:
        return await self._shared.run(lambda: self._shared.file.get(path))

    async def children(self, path: str) -> list[str]:
        return await self._shared.run(lambda: self._shared.file.children(path))

    async def tree(self, path: str) -> dict[str, Node]:
        return await self._shared.run(lambda: self._shared.file.tree(path))

    async def commit(self, operations: Sequence[Operation]) -> list[Committed]:
        session_id = self.session_id
        committed = await self._shared.run(lambda: self._shared.file.commit(operations, session_id))
        self._shared.watchers.tell(
            done.path for operation, done in zip(operations, committed, strict=True) if not isinstance(operation, Check)
        )
        return committed

    def watch(self, path: str, watcher: Watcher, *, depth: int | None = None) -> Callable[[], None]:
        end = self._shared.watchers.add(path, watcher, depth)
        self._end_watches.append(end)
        return end

    def on_session(self, listener: SessionListener) -> None:
        self._session_listeners.append(listener)

    async def expire(self) -> None:
        """Ends the session as a store does that has not heard of its owner for long, and begins another."""
        await self._end_session()
        self._tell_listeners(SessionEvent.LOST)
        self.session_id = await self._shared.run(self._shared.file.begin_session)
        self._tell_listeners(SessionEvent.RENEWED)

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        for end in self._end_watches:
            end()
        self._end_watches.clear()
        try:
            await self._end_session()
        except StoreFailedError as e:
            _log.warning("ephemeral nodes are left to the next start: %s", e)
        self._shared.sessions -= 1
        if not self._shared.sessions:
            await self._shared.close()

    async def _end_session(self) -> None:
        gone: Iterable[str] = await self._shared.run(lambda: self._shared.file.end_session(self.session_id))
        self._shared.watchers.tell(gone)

    def _tell_listeners(self, event: SessionEvent) -> None:
        for listener in self._session_listeners:
            listener(event)
