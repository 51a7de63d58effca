"""A bad network on demand: a TCP proxy that cuts connections at any byte, refuses, delays, throttles and holds them.

It changes no byte and knows nothing of the protocol, so clients reach a broker through it only if the broker tells them
to: `FaultProxy.broker_settings` are the settings for that. Decisions come from a seed and the number of the connection;
when they take effect depends on who sends what, and when.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple, Self, TypeVar

import uvloop

T = TypeVar("T")

HOST = "127.0.0.1"
_BROKER_HOST = "127.0.0.2"
"""The broker's end has the same port at another loopback address: it can be named before the broker runs."""

_LISTENER = "PROXIED"
_PIECE_BYTES = 1 << 16
_CALL_TIMEOUT_S = 30
_NO_LINGER = struct.pack("ii", 1, 0)


class NetworkFaults(NamedTuple):
    """How bad the network is. Where a number is a mean, each connection draws its own."""

    request_bytes_until_cut: int | None = None
    """How much a connection carries to the broker, on average, before it is cut; None for any amount."""
    reply_bytes_until_cut: int | None = None
    """The same for what it carries to the client: the broker has done what was asked, and the client cannot know."""
    cut_share: float = 0.0
    """Of the pieces that pass, in either direction: those after some bytes of which the connection is cut."""
    refused_share: float = 0.0
    """Of the connections: those that are closed as soon as they are made."""
    delayed_share: float = 0.0
    """Of the pieces that pass, in either direction: those that are held back, for up to `delay_ms_max`."""
    delay_ms_max: int = 0
    bytes_per_second: int | None = None
    """How much passes in each direction of each connection."""


CALM = NetworkFaults()


@dataclass
class NetworkFigures:
    """What a proxy has done so far."""

    connections: int = 0
    refused: int = 0
    cut_in_requests: int = 0
    cut_in_replies: int = 0
    cut_on_demand: int = 0
    delayed: int = 0
    request_bytes: int = 0
    reply_bytes: int = 0

    @property
    def cut(self) -> int:
        return self.cut_in_requests + self.cut_in_replies + self.cut_on_demand


class FaultProxy:
    """Started by `start` or `with`; every method is for the test's thread, not for the proxy's."""

    def __init__(
        self, faults: NetworkFaults = CALM, *, seed: int = 0, forward_to: tuple[str, int] | None = None
    ) -> None:
        """Without `forward_to` the broker is expected where `broker_settings` put it."""
        self.figures = NetworkFigures()
        self.faults = faults
        """May be changed at any time, and is then true for open connections too. CALM lets everything pass."""
        self.seed = seed
        self._forward_to = forward_to
        self._port = 0
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._passing: asyncio.Event | None = None
        self._open: set[_Passage] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    # Life

    def start(self) -> Self:
        if self._thread is not None:
            raise RuntimeError("this proxy is running already")
        started: Future[int] = Future()
        thread = threading.Thread(target=self._run, args=(started,), name="ottla-proxy", daemon=True)
        thread.start()
        self._port = started.result(_CALL_TIMEOUT_S)
        self._thread = thread
        return self

    def stop(self) -> None:
        """Cuts what is open; the second time it does nothing."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        assert self._loop is not None
        assert self._stopping is not None
        self._loop.call_soon_threadsafe(self._stopping.set)
        thread.join(_CALL_TIMEOUT_S)
        if thread.is_alive():
            raise RuntimeError(f"the proxy did not stop within {_CALL_TIMEOUT_S} s")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # Where it is

    @property
    def port(self) -> int:
        return self._port

    @property
    def bootstrap_servers(self) -> str:
        """For the `bootstrap.servers` of a client that is to go through the proxy."""
        return f"{HOST}:{self._port}"

    def broker_settings(self, direct_port: int = 0) -> dict[str, str]:
        """Settings of a broker with two ways in: this proxy, and a port of its own that leads past it."""
        self._check_running()
        direct = f"PLAINTEXT://{HOST}:{direct_port}"
        return {
            "listeners": f"{direct},{_LISTENER}://{_BROKER_HOST}:{self._port}",
            "advertised.listeners": f"{direct},{_LISTENER}://{HOST}:{self._port}",
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{_LISTENER}:PLAINTEXT",
        }

    # Faults at a moment of the test's choice

    def cut_all(self) -> int:
        """Cuts the connections that are open now; returns how many there were."""

        def cut() -> int:
            for passage in self._open:
                passage.cut()
            self.figures.cut_on_demand += len(self._open)
            return len(self._open)

        return self._call(cut)

    def hold(self) -> None:
        """From now on nothing passes, the end of a connection neither: clients wait until they run out of time."""
        assert self._passing is not None
        self._call(self._passing.clear)

    def release(self) -> None:
        """What was held passes now, and all that follows."""
        assert self._passing is not None
        self._call(self._passing.set)

    # Inside

    def _check_running(self) -> asyncio.AbstractEventLoop:
        if self._thread is None:
            raise RuntimeError("this proxy is not running")
        assert self._loop is not None
        return self._loop

    def _call(self, work: Callable[[], T]) -> T:
        """Does something in the proxy's thread and waits for it."""
        done: Future[T] = Future()
        self._check_running().call_soon_threadsafe(lambda: done.set_result(work()))
        return done.result(_CALL_TIMEOUT_S)

    def _run(self, started: Future[int]) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve(started))

    async def _serve(self, started: Future[int]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._passing = asyncio.Event()
        self._passing.set()
        try:
            server = await asyncio.start_server(self._accepted, HOST, self._port, limit=_PIECE_BYTES)
        except OSError as e:
            started.set_exception(e)
            return
        started.set_result(server.sockets[0].getsockname()[1])
        await self._stopping.wait()
        # What is open ends with the runner, which cancels every task.
        server.close()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.figures.connections += 1
        rng = random.Random(f"{self.seed}/{self.figures.connections}")
        if rng.random() < self.faults.refused_share:
            self.figures.refused += 1
            _close(writer, reset=rng.random() < 0.5)
            return
        task = asyncio.get_running_loop().create_task(self._carry(reader, writer, rng))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rng: random.Random) -> None:
        assert self._passing is not None
        try:
            # Whether anybody listens there is something that must not pass, either.
            await self._passing.wait()
            broker = await asyncio.open_connection(
                *(self._forward_to or (_BROKER_HOST, self._port)), limit=_PIECE_BYTES
            )
        except OSError:
            _close(writer, reset=True)
            return
        except asyncio.CancelledError:
            _close(writer, reset=True)
            raise
        passage = _Passage(self, self._passing, (reader, writer), broker, rng)
        self._open.add(passage)
        try:
            await passage.run()
        finally:
            self._open.discard(passage)


class _Passage:
    """One connection of a client, and the one to the broker that belongs to it."""

    def __init__(
        self,
        proxy: FaultProxy,
        passing: asyncio.Event,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        broker: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        rng: random.Random,
    ) -> None:
        self._proxy = proxy
        self._passing = passing
        self._client = client
        self._broker = broker
        self._rng = rng
        self._left: dict[asyncio.StreamWriter, tuple[NetworkFaults, int | None]] = {}
        """What each direction still carries before it is cut, drawn for a network that was as bad as this."""
        self._is_cut = False
        self._cut: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def cut(self) -> None:
        if not self._cut.done():
            self._cut.set_result(None)

    async def run(self) -> None:
        """Ends when either side does, or by a fault; then both connections end."""
        loop = asyncio.get_running_loop()
        pumps = [loop.create_task(self._carry_requests()), loop.create_task(self._carry_replies())]
        try:
            await asyncio.wait([*pumps, self._cut], return_when=asyncio.FIRST_COMPLETED)
            pumps.append(loop.create_task(self._until_passing()))
            await asyncio.wait([pumps[-1], self._cut], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            reset = self._rng.random() < 0.5
            for _, writer in (self._client, self._broker):
                _close(writer, reset=reset)

    async def _until_passing(self) -> None:
        await self._passing.wait()

    async def _carry_requests(self) -> None:
        figures = self._proxy.figures
        async for piece, faults in self._pieces(self._client[0]):
            figures.request_bytes += len(piece)
            if not await self._pass_on(piece, self._broker[1], faults, faults.request_bytes_until_cut):
                figures.cut_in_requests += self._cut_now()
                return

    async def _carry_replies(self) -> None:
        figures = self._proxy.figures
        async for piece, faults in self._pieces(self._broker[0]):
            figures.reply_bytes += len(piece)
            if not await self._pass_on(piece, self._client[1], faults, faults.reply_bytes_until_cut):
                figures.cut_in_replies += self._cut_now()
                return

    def _cut_now(self) -> bool:
        """False for the second direction: both may come to their cuts in one turn, but it is one connection."""
        is_first, self._is_cut = not self._is_cut, True
        return is_first

    async def _pieces(self, reader: asyncio.StreamReader) -> AsyncIterator[tuple[bytes, NetworkFaults]]:
        """What comes, each piece when it may pass, and how bad the network is then."""
        while piece := await reader.read(_PIECE_BYTES):
            await self._passing.wait()
            faults = self._proxy.faults
            await self._pause(faults, len(piece))
            yield piece, faults

    async def _pass_on(
        self, piece: bytes, writer: asyncio.StreamWriter, faults: NetworkFaults, mean_bytes: int | None
    ) -> bool:
        """Whether all of it passed. If not, the part that did may end anywhere in a message."""
        drawn_for, left = self._left.get(writer, (None, None))
        if drawn_for is not faults:
            left = None if mean_bytes is None else int(self._rng.expovariate(1 / mean_bytes))
        if left is not None:
            left -= len(piece)
        self._left[writer] = (faults, left)
        if left is not None and left < 0:
            writer.write(piece[:left])
            return False
        if faults.cut_share and self._rng.random() < faults.cut_share:
            writer.write(piece[: self._rng.randrange(len(piece) + 1)])
            return False
        writer.write(piece)
        await writer.drain()
        return True

    async def _pause(self, faults: NetworkFaults, byte_count: int) -> None:
        pause_s = 0.0
        if faults.delayed_share and self._rng.random() < faults.delayed_share:
            self._proxy.figures.delayed += 1
            pause_s = self._rng.uniform(0, faults.delay_ms_max) / 1000
        if faults.bytes_per_second is not None:
            pause_s += byte_count / faults.bytes_per_second
        if pause_s:
            await asyncio.sleep(pause_s)


def _close(writer: asyncio.StreamWriter, *, reset: bool) -> None:
    """Politely, or so that the peer's next call fails."""
    if reset:
        connection: socket.socket | None = writer.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        writer.transport.abort()
    else:
        writer.close()
