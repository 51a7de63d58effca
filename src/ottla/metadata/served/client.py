"""A broker's session with a store that another process of this machine serves."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ottla.base.errors import StartError
from ottla.metadata.served import frames
from ottla.metadata.served.address import short_path
from ottla.metadata.served.frames import Frame, FrameError
from ottla.metadata.served.process import ServingProcess
from ottla.metadata.store import (
    PERSISTENT,
    Committed,
    Node,
    Operation,
    SessionEvent,
    SessionListener,
    StoreFailedError,
    Watcher,
)
from ottla.metadata.watching import Watchers

_log = logging.getLogger(__name__)

_READ_LIMIT = 1 << 20
_RECONNECT_MS, _RECONNECT_MS_MAX = 20, 1_000
_UNREACHABLE = "the metadata store cannot be reached"


class ServedStore:
    """MetadataStore behind a socket. Use `connect`."""

    session_outlives_ms = 0

    def __init__(self, directory: Path, session_timeout_ms: int) -> None:
        self.session_id = PERSISTENT
        self._directory = directory
        self._session_timeout_ms = session_timeout_ms
        self._watchers = Watchers()
        self._session_listeners: list[SessionListener] = []
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Frame]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._server: ServingProcess | None = None
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def connect(cls, directory: Path, *, session_timeout_ms: int) -> ServedStore:
        """Begins a session with the store that is served in `directory`."""
        store = cls(directory, session_timeout_ms)
        try:
            reader = await store._open()
        except (OSError, FrameError) as e:
            raise StartError(f"no metadata store is served in {directory}: {e}") from e
        store._task = asyncio.get_running_loop().create_task(store._run(reader))
        return store

    async def get(self, path: str) -> Node | None:
        return frames.unpack_node(await self._ask({"do": "get", "path": path}))

    async def children(self, path: str) -> list[str]:
        names: list[str] = await self._ask({"do": "children", "path": path})
        return names

    async def tree(self, path: str) -> dict[str, Node]:
        nodes = await self._ask({"do": "tree", "path": path})
        return {name: node for name, packed in nodes.items() if (node := frames.unpack_node(packed)) is not None}

    async def commit(self, operations: Sequence[Operation]) -> list[Committed]:
        packed = await self._ask({"do": "commit", "operations": frames.pack_operations(operations)})
        return frames.unpack_committed(packed)

    def watch(self, path: str, watcher: Watcher, *, depth: int | None = None) -> Callable[[], None]:
        return self._watchers.add(path, watcher, depth)

    def on_session(self, listener: SessionListener) -> None:
        self._session_listeners.append(listener)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self._hang_up()
        if self._server is not None:
            self._server.close()

    # The connection

    async def _open(self) -> asyncio.StreamReader:
        with short_path(self._directory) as path:
            reader, writer = await asyncio.open_unix_connection(path, limit=_READ_LIMIT)
        writer.write(frames.encode({"session_timeout_ms": self._session_timeout_ms}))
        greeting = await frames.read(reader)
        if greeting is None or not greeting.keys() >= {"session", "process"}:
            writer.close()
            raise FrameError("it answers something else")
        self.session_id = int(greeting["session"])
        if self._server is not None:
            self._server.close()
        self._server = ServingProcess(int(greeting["process"]))
        self._writer = writer
        return reader

    async def _run(self, reader: asyncio.StreamReader) -> None:
        while True:
            await self._follow(reader)
            # The server ends a session with its connection, so there is nothing to resume.
            await self._hang_up()
            self._tell_listeners(SessionEvent.LOST)
            reopened = await self._reopen()
            if reopened is None:
                self._tell_listeners(SessionEvent.ENDED)
                return
            reader = reopened
            self._tell_listeners(SessionEvent.RENEWED)
            self._watchers.tell_all()

    async def _reopen(self) -> asyncio.StreamReader | None:
        """None if the process that served the store is gone: nobody else may serve it to this broker."""
        wait_ms = _RECONNECT_MS
        while True:
            # A process that dies closes its connections a moment before it is gone.
            await asyncio.sleep(wait_ms / 1000)
            if self._server is not None and self._server.is_gone:
                return None
            try:
                return await self._open()
            except (OSError, FrameError) as e:
                wait_ms = min(wait_ms * 2, _RECONNECT_MS_MAX)
                _log.warning("%s, next try in %d ms: %s", _UNREACHABLE, wait_ms, e)

    async def _follow(self, reader: asyncio.StreamReader) -> None:
        """Takes what the server sends until the connection ends, and lets it hear of this client."""
        pinging = asyncio.get_running_loop().create_task(self._ping())
        try:
            while (frame := await frames.read(reader)) is not None:
                if "changed" in frame:
                    self._watchers.tell(frame["changed"])
                elif (waiting := self._waiting.pop(frame["id"], None)) is not None and not waiting.done():
                    waiting.set_result(frame)
        except FrameError as e:
            _log.error("the metadata store cannot be understood: %s", e)
        finally:
            pinging.cancel()

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(self._session_timeout_ms / 3000)
            with suppress(StoreFailedError):
                self._send({"do": "ping", "id": 0})

    async def _hang_up(self) -> None:
        writer, self._writer = self._writer, None
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(StoreFailedError(_UNREACHABLE))
        self._waiting.clear()
        if writer is not None:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def _send(self, frame: Frame) -> None:
        # Between the loss of the connection and the moment in which `_follow` notices it, a write would be an error of
        # the event loop's own.
        if self._writer is None or self._writer.is_closing():
            raise StoreFailedError(_UNREACHABLE)
        self._writer.write(frames.encode(frame))

    async def _ask(self, frame: Frame) -> Any:
        request_id = next(self._ids)
        self._send({**frame, "id": request_id})
        waiting: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = waiting
        reply = await waiting
        if "refused" in reply:
            raise frames.unpack_error(reply)
        if "failed" in reply:
            raise StoreFailedError(reply["failed"])
        return reply["result"]

    def _tell_listeners(self, event: SessionEvent) -> None:
        for listener in self._session_listeners:
            listener(event)
