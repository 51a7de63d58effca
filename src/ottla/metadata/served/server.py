"""Serves a metadata store to the processes of this machine, a session for each connection."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ottla.base.errors import StartError
from ottla.metadata.embedded import EmbeddedStore
from ottla.metadata.served import frames
from ottla.metadata.served.address import SOCKET_NAME, short_path
from ottla.metadata.served.frames import Frame, FrameError
from ottla.metadata.store import PERSISTENT, StoreError, StoreFailedError

_log = logging.getLogger(__name__)

METADATA_FILE = "metadata.db"
MIN_TIMEOUT_MS = 100


class StoreServer:
    """Use `start`; `close` ends every session."""

    def __init__(self, store: EmbeddedStore, directory: Path) -> None:
        self.store = store
        self._directory = directory
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self._end_watch = store.watch("/", self._changed)
        self._changes: list[str] = []

    @classmethod
    async def start(cls, directory: Path) -> StoreServer:
        """Serves the store whose file and socket are in `directory`."""
        directory.mkdir(parents=True, exist_ok=True)
        store = await EmbeddedStore.open(directory / METADATA_FILE)
        server = cls(store, directory)
        # A socket that a killed server left would keep its name taken.
        (directory / SOCKET_NAME).unlink(missing_ok=True)
        try:
            with short_path(directory) as path:
                server._server = await asyncio.start_unix_server(server._accepted, path)
        except OSError as e:
            await store.close()
            raise StartError(f"the metadata store cannot be served in {directory}: {e}") from e
        (directory / SOCKET_NAME).chmod(0o600)
        return server

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.cancel()
        while self._connections:
            await asyncio.sleep(0.001)
        self._end_watch()
        await self.store.close()
        (self._directory / SOCKET_NAME).unlink(missing_ok=True)

    def end_session(self, session_id: int) -> None:
        """As if nothing had been heard of it for its time-out."""
        for connection in list(self._connections):
            if connection.session_id == session_id:
                connection.cancel()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(reader, writer, before_reply=self._tell_changes)
        self._connections.add(connection)
        try:
            await connection.serve(self.store)
        except FrameError as e:
            _log.warning("a connection to the metadata store was closed: %s", e)
        finally:
            self._connections.discard(connection)

    def _changed(self, path: str) -> None:
        """All changes of one commit travel together."""
        if not self._changes:
            asyncio.get_running_loop().call_soon(self._tell_changes)
        self._changes.append(path)

    def _tell_changes(self) -> None:
        changes, self._changes = self._changes, []
        if changes:
            for connection in self._connections:
                if connection.has_session:
                    connection.send({"changed": changes})


class _Connection:
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, before_reply: Callable[[], None]
    ) -> None:
        """`before_reply` is called first: whoever reads something new has heard that it changed."""
        self._reader = reader
        self._writer = writer
        self._before_reply = before_reply
        self.session_id = PERSISTENT
        self._task = asyncio.current_task()

    @property
    def has_session(self) -> bool:
        """Before, the client waits for the number of its session and for nothing else."""
        return self.session_id != PERSISTENT

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def send(self, frame: Frame) -> None:
        if not self._writer.is_closing():
            self._writer.write(frames.encode(frame))

    async def serve(self, store: EmbeddedStore) -> None:
        session = None
        try:
            hello = await frames.read(self._reader)
            if hello is None:
                return
            timeout_s = max(_integer(hello, "session_timeout_ms"), MIN_TIMEOUT_MS) / 1000
            session = await store.new_session()
            self.session_id = session.session_id
            self.send({"session": self.session_id, "process": os.getpid()})
            while (frame := await asyncio.wait_for(frames.read(self._reader), timeout_s)) is not None:
                if "id" in frame:
                    answer = await self._answer(session, frame)
                    self._before_reply()
                    self.send({"id": frame["id"], **answer})
        except TimeoutError:
            _log.warning("session %d of the metadata store has expired", self.session_id)
        except asyncio.CancelledError:
            pass
        finally:
            # Whoever ends it from now on comes too late, and must not break off what follows.
            self._task = None
            self._writer.close()
            if session is not None:
                await session.close()
            with suppress(ConnectionError):
                await self._writer.wait_closed()

    async def _answer(self, session: EmbeddedStore, frame: Frame) -> Frame:
        try:
            return {"result": await _perform(session, frame)}
        except StoreError as e:
            return frames.pack_error(e)
        except StoreFailedError as e:
            return {"failed": e.message}


async def _perform(session: EmbeddedStore, frame: Frame) -> Any:
    match frame.get("do"):
        case "get":
            return frames.pack_node(await session.get(frame["path"]))
        case "children":
            return await session.children(frame["path"])
        case "tree":
            nodes = await session.tree(frame["path"])
            return {path: frames.pack_node(node) for path, node in nodes.items()}
        case "commit":
            return frames.pack_committed(await session.commit(frames.unpack_operations(frame["operations"])))
        case "ping":
            return None
        case other:
            raise FrameError(f"there is no request {other!r}")


def _integer(frame: Frame, key: str) -> int:
    value = frame.get(key)
    if not isinstance(value, int):
        raise FrameError(f"{key} is missing")
    return value
