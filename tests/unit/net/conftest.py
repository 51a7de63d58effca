"""A server on a free port of the loopback, a service that does as the frame says, and blocking clients."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest
import uvloop

from ottla.base.errors import ProtocolError
from ottla.base.types import FileSlice
from ottla.net.limits import ConnectionLimits
from ottla.net.outgoing import Piece
from ottla.net.server import Server
from ottla.net.server_connection import ClientConnection
from ottla.net.service import Deferred, LateReply, Outcome

T = TypeVar("T")


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class StoredFile:
    """A file that closes its descriptor with its last holder, as the log's files do."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDONLY)

    def __del__(self) -> None:
        os.close(self.fd)


class ScriptedService:
    """Echoes a frame, unless its first word is a command.

    hold:NAME, later:NAME   a deferred reply, with and without holding the connection; the test completes it
    wait:NAME               a reply that is settled without coming; the test fills it
    silent                  no reply
    slice:POSITION:LENGTH   a reply whose body is that range of `self.file`
    big:LENGTH              a reply of so many bytes in memory
    staged                  a reply that `settle` gives, from the frame as it is by then
    bad, crash, close       protocol error, exception, closed by the service
    """

    def __init__(self) -> None:
        self.handled: list[bytes] = []
        self.deferred: dict[str, Deferred] = {}
        self.late: dict[str, tuple[ClientConnection, LateReply]] = {}
        self.abandoned: list[str] = []
        self.opened_ids: list[int] = []
        self.closed_ids: list[int] = []
        self.file: StoredFile | None = None
        self.staged: list[tuple[list[Piece], memoryview]] = []
        self.is_settling_broken = False
        self.settled: list[int] = []
        self.turns_ended = 0

    def opened(self, connection: ClientConnection) -> None:
        self.opened_ids.append(connection.id)

    def settle(self) -> None:
        self.settled.append(len(self.staged))
        if self.is_settling_broken:
            self.staged.clear()
            raise ZeroDivisionError
        for reply, frame in self.staged:
            reply.append(framed(bytes(frame)))
        self.staged.clear()

    def end_turn(self) -> None:
        self.turns_ended += 1

    def closed(self, connection: ClientConnection) -> None:
        self.closed_ids.append(connection.id)

    def handle(self, connection: ClientConnection, frame: memoryview) -> Outcome:
        body = bytes(frame)
        self.handled.append(body)
        command, *arguments = body.split(b":")
        if command in (b"hold", b"later"):
            return self._defer(arguments[0].decode(), holds=command == b"hold")
        if command == b"instant":
            deferred = Deferred()
            deferred.complete([framed(body)])
            return deferred
        if command == b"staged":
            reply: list[Piece] = []
            self.staged.append((reply, frame))
            return reply
        if command == b"wait":
            late = LateReply()
            self.late[arguments[0].decode()] = connection, late
            return late
        if command == b"silent":
            return ()
        if command == b"slice":
            assert self.file is not None
            position, length = int(arguments[0]), int(arguments[1])
            return [struct.pack(">i", length), FileSlice(self.file, position, length)]
        if command == b"big":
            return [framed(bytes(int(arguments[0])))]
        if command == b"mute":
            connection.mute(int(arguments[0]))
        if command == b"bad":
            raise ProtocolError("the request is not one")
        if command == b"crash":
            raise ZeroDivisionError
        if command == b"close":
            connection.close()
        return [framed(body)]

    def fill(self, name: str, body: bytes) -> None:
        connection, late = self.late.pop(name)
        late.append(framed(body))
        connection.late_replies_came()

    def _defer(self, name: str, *, holds: bool) -> Deferred:
        deferred = Deferred(holds_connection=holds)
        deferred.on_abandoned = lambda: self.abandoned.append(name)
        self.deferred[name] = deferred
        return deferred


class Client:
    """A blocking socket that speaks frames."""

    def __init__(self, port: int, *, receive_buffer_bytes: int = 0) -> None:
        self.socket = socket.socket()
        if receive_buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(10)
        self.socket.connect(("127.0.0.1", port))

    def send(self, *bodies: bytes) -> None:
        self.socket.sendall(b"".join(framed(body) for body in bodies))

    def receive(self) -> bytes:
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def ask(self, body: bytes) -> bytes:
        self.send(body)
        return self.receive()

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            chunk = self.socket.recv(min(count - len(data), 1 << 20))
            if not chunk:
                raise EOFError
            data += chunk
        return bytes(data)

    def is_closed_by_server(self) -> bool:
        try:
            return not self.socket.recv(1)
        except ConnectionError:
            return True

    def close(self) -> None:
        self.socket.close()


@dataclass
class RunningServer:
    """A server whose loop runs in a thread of its own, so that tests read like clients."""

    loop: asyncio.AbstractEventLoop
    server: Server
    service: ScriptedService
    port: int
    clients: list[Client] = field(default_factory=list)

    def client(self, *, receive_buffer_bytes: int = 0) -> Client:
        client = Client(self.port, receive_buffer_bytes=receive_buffer_bytes)
        self.clients.append(client)
        return client

    def call(self, function: Callable[[], T]) -> T:
        """Runs `function` on the loop's thread."""

        async def run() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(timeout=10)

    @contextmanager
    def one_turn(self) -> Iterator[None]:
        """All that clients send meanwhile is there when the loop looks again, so that one turn finds it."""
        is_waiting, go_on = threading.Event(), threading.Event()

        def wait() -> None:
            is_waiting.set()
            go_on.wait(timeout=10)

        self.loop.call_soon_threadsafe(wait)
        assert is_waiting.wait(timeout=10)
        try:
            yield
        finally:
            go_on.set()

    def complete(self, name: str, pieces: Sequence[bytes | FileSlice]) -> None:
        self.call(lambda: self.service.deferred[name].complete(pieces))

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Waits for something that has no reply to wait for, turn by turn of the loop."""
        for _ in range(20_000):
            if self.call(condition):
                return
        raise AssertionError("it never became true")

    def stop(self, grace_ms: int = 0) -> None:
        asyncio.run_coroutine_threadsafe(self.server.stop(grace_ms), self.loop).result(timeout=10)


StartServer = Callable[..., RunningServer]


@pytest.fixture(params=["uvloop", "asyncio"])
def new_loop(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    return uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop


@pytest.fixture
def start_server(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> Iterator[StartServer]:
    running: list[tuple[RunningServer, threading.Thread]] = []

    def start(**limits: object) -> RunningServer:
        loop = new_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        service = ScriptedService()

        async def listen() -> tuple[Server, int]:
            server = Server(service, limits=ConnectionLimits(**limits))  # type: ignore[arg-type]
            return server, server.listen("PLAINTEXT", "127.0.0.1", 0)

        server, port = asyncio.run_coroutine_threadsafe(listen(), loop).result(timeout=10)
        started = RunningServer(loop, server, service, port)
        running.append((started, thread))
        return started

    yield start
    for started, thread in running:
        started.call(started.server.close)
        for client in started.clients:
            client.close()
        started.loop.call_soon_threadsafe(started.loop.stop)
        thread.join(timeout=10)
        started.loop.close()
