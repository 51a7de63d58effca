"""The served store: what happens to sessions when processes stop, hang or talk nonsense."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from ottla.base.errors import ErrorCode, StartError
from ottla.metadata.served.address import SOCKET_NAME, short_path
from ottla.metadata.served.client import ServedStore
from ottla.metadata.served.frames import encode
from ottla.metadata.served.server import StoreServer
from ottla.metadata.store import Create, SessionEvent, StoreFailedError
from tests.waiting import in_time, run_async, until

LONG_MS = 60_000


def served(directory: Path, scenario: Callable[[StoreServer], Awaitable[None]]) -> None:
    async def run() -> None:
        server = await StoreServer.start(directory)
        try:
            await scenario(server)
        finally:
            await server.close()

    run_async(run())


def test_a_client_that_hangs_loses_its_session(tmp_path: Path) -> None:
    async def scenario(server: StoreServer) -> None:
        with short_path(tmp_path) as path:
            _, writer = await asyncio.open_unix_connection(path)
        operations = [["Create", "/mine", "", True]]
        writer.write(encode({"session_timeout_ms": 100}) + encode({"id": 1, "do": "commit", "operations": operations}))
        witness = await ServedStore.connect(tmp_path, session_timeout_ms=LONG_MS)
        heard: list[str] = []
        witness.watch("/mine", heard.append)
        while await witness.get("/mine") is None and not heard:
            await asyncio.sleep(0.002)
        await until(lambda: len(heard) >= 1)
        while await witness.get("/mine") is not None:
            await asyncio.sleep(0.002)
        writer.close()
        await witness.close()

    served(tmp_path, scenario)


def test_a_client_that_is_heard_of_keeps_its_session(tmp_path: Path) -> None:
    async def scenario(server: StoreServer) -> None:
        store = await ServedStore.connect(tmp_path, session_timeout_ms=600)
        events: list[SessionEvent] = []
        store.on_session(events.append)
        await asyncio.sleep(1.5)
        assert events == []
        await store.close()

    served(tmp_path, scenario)


def test_a_call_right_after_the_connection_was_lost_fails_as_any_other(tmp_path: Path) -> None:
    """On the brokers' event loop, which does not take writes to a closed connection."""

    async def run() -> None:
        server = await StoreServer.start(tmp_path)
        store = await ServedStore.connect(tmp_path, session_timeout_ms=LONG_MS)
        assert store._writer is not None and store._task is not None
        store._task.cancel()  # it would notice
        store._writer.transport.abort()
        await asyncio.sleep(0.05)
        with pytest.raises(StoreFailedError, match="cannot be reached"):
            await store.get("/kept")
        await store.close()
        await server.close()

    uvloop.run(in_time(run()))


def test_calls_that_wait_for_an_answer_end_with_the_connection(tmp_path: Path) -> None:
    async def scenario(server: StoreServer) -> None:
        store = await ServedStore.connect(tmp_path, session_timeout_ms=LONG_MS)
        calls = [asyncio.ensure_future(store.get("/kept")) for _ in range(2)]
        await asyncio.sleep(0)
        assert store._waiting
        calls[0].cancel()
        await store.close()
        with pytest.raises(StoreFailedError, match="cannot be reached"):
            await calls[1]

    served(tmp_path, scenario)


def test_while_nobody_serves_calls_fail_and_afterwards_they_work(tmp_path: Path) -> None:
    async def run() -> None:
        server = await StoreServer.start(tmp_path)
        store = await ServedStore.connect(tmp_path, session_timeout_ms=LONG_MS)
        events: list[SessionEvent] = []
        store.on_session(events.append)
        await store.commit([Create("/kept"), Create("/gone", ephemeral=True)])
        await server.close()
        await until(lambda: events == [SessionEvent.LOST])
        with pytest.raises(StoreFailedError, match="cannot be reached") as failure:
            await store.get("/kept")
        assert failure.value.code is ErrorCode.KAFKA_STORAGE_ERROR, "what a client may try again"
        server = await StoreServer.start(tmp_path)
        await until(lambda: events == [SessionEvent.LOST, SessionEvent.RENEWED])
        assert await store.get("/kept") is not None
        assert await store.get("/gone") is None
        await store.close()
        await server.close()

    run_async(run())


@pytest.mark.parametrize(
    "nonsense",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">I", 4) + b"[1]\n",
        encode({"session_timeout_ms": "soon"}),
        encode({"session_timeout_ms": 1000}) + encode({"id": 1, "do": "dance"}),
        encode({"session_timeout_ms": 1000}) + encode({"id": 1, "do": "commit", "operations": [["Explode", "/a"]]}),
    ],
)
def test_nonsense_costs_nobody_else_anything(nonsense: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(server: StoreServer) -> None:
        store = await ServedStore.connect(tmp_path, session_timeout_ms=LONG_MS)
        with short_path(tmp_path) as path:
            reader, writer = await asyncio.open_unix_connection(path)
        writer.write(nonsense)
        await reader.read()
        writer.close()
        await store.commit([Create("/a")])
        assert await store.get("/a") is not None
        await store.close()

    served(tmp_path, scenario)
    said = [entry for entry in caplog.records if entry.name == "ottla.metadata.served.server"]
    assert len(said) == 1 and said[0].exc_info is None


def test_a_directory_without_a_server_is_said_to_be_one(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="no metadata store is served in"):
        run_async(ServedStore.connect(tmp_path, session_timeout_ms=LONG_MS))


def test_the_socket_is_for_its_owner_alone_and_goes_with_the_server(tmp_path: Path) -> None:
    async def scenario(server: StoreServer) -> None:
        assert (tmp_path / SOCKET_NAME).stat().st_mode & 0o777 == 0o600

    served(tmp_path, scenario)
    assert not (tmp_path / SOCKET_NAME).exists()


def test_a_server_that_closes_while_a_session_is_ending_lets_it_end(tmp_path: Path) -> None:
    """The file stays open as long as one is left."""

    async def run() -> None:
        server = await StoreServer.start(tmp_path)
        client = await ServedStore.connect(tmp_path, session_timeout_ms=LONG_MS)
        disk = threading.Event()
        slow = asyncio.create_task(server.store._shared.run(disk.wait))
        await client.close()
        for _ in range(20):
            await asyncio.sleep(0.001)
        closing = asyncio.create_task(server.close())
        await asyncio.sleep(0)
        disk.set()
        await asyncio.gather(slow, closing)
        with pytest.raises(RuntimeError, match="shutdown"):
            await server.store.get("/")

    run_async(run())
