"""The network between simulated brokers and clients: byte streams that are slow, stall, break and end.

A connection is two streams. Each keeps its order, as TCP does; different ones overtake each other. A link that is cut
one way loses nothing of an open connection: what is under way arrives after the link has healed, unless one side has
given up by then.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from ottla.base.types import FileSlice
from ottla.net.channel import FileTruncatedError
from ottla.net.limits import ConnectionLimits
from ottla.net.server import Server
from ottla.net.service import Service
from ottla.net.turns import Turns
from ottla.testing.sim.loop import Party, SimLoop, current_party

_USUAL_S = (0.0001, 0.002)
_SLOW_S = (0.005, 0.2)
_SLOW_SHARE = 0.02
_SPLIT_SHARE = 0.05
"""Of deliveries that come in two parts, as they may from a socket."""


class SimNetwork:
    def __init__(self, loop: SimLoop, draw: Random) -> None:
        self.loop = loop
        self._draw = draw
        self._cuts: set[tuple[str, str]] = set()
        self._servers: dict[tuple[str, int], SimServer] = {}
        self._connections: list[_Connection] = []
        self._last_fd = 1_000_000
        loop.network = self

    def latency_s(self) -> float:
        low, high = _SLOW_S if self._draw.random() < _SLOW_SHARE else _USUAL_S
        return self._draw.uniform(low, high)

    def split_at(self, size: int) -> int | None:
        return self._draw.randrange(1, size) if size > 1 and self._draw.random() < _SPLIT_SHARE else None

    def next_fd(self) -> int:
        self._last_fd += 1
        return self._last_fd

    # Links

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    def cut(self, source: str, target: str) -> None:
        """From now on nothing gets from `source` to `target`; the other way is another link."""
        self._cuts.add((source, target))

    def heal(self, links: Iterable[tuple[str, str]] | None = None) -> None:
        healed = set(links) if links is not None else set(self._cuts)
        self._cuts -= healed
        for connection in self._connections:
            for stream in connection.streams:
                stream.go_on()

    # Servers

    def add_server(self, host: str, port: int, server: SimServer) -> None:
        self._servers[host, port] = server

    def remove_server(self, server: SimServer) -> None:
        for address in [address for address, known in self._servers.items() if known is server]:
            del self._servers[address]

    # Connections

    async def connect(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        party = current_party()
        assert party is not None
        await asyncio.sleep(self.latency_s())
        while self.is_cut(party.name, host) or self.is_cut(host, party.name):
            # A handshake is tried again and again; whoever waits has a time-out.
            await asyncio.sleep(0.2)
        server = self._servers.get((host, port))
        if server is None or server.party.is_dead:
            raise ConnectionRefusedError(111, "Connection refused")
        protocol = protocol_factory()
        connection = _Connection(self, party, server, protocol)
        self._connections.append(connection)
        protocol.connection_made(connection.transport)
        return connection.transport, protocol

    def forget(self, connection: _Connection) -> None:
        if connection in self._connections:
            self._connections.remove(connection)

    def process_ended(self, party: Party) -> None:
        """The system that a process ran on ends its connections."""
        for connection in list(self._connections):
            connection.end_of(party)
        for address in [address for address, server in self._servers.items() if server.party is party]:
            del self._servers[address]

    def reset_some(self, count: int) -> int:
        """Breaks so many connections, of whomever; returns how many there were."""
        chosen = self._draw.sample(self._connections, min(count, len(self._connections)))
        for connection in chosen:
            connection.reset()
        return len(chosen)


class _Stream:
    """One direction of a connection."""

    def __init__(self, network: SimNetwork, source: str, target: Party, deliver: Callable[[bytes], None]) -> None:
        self._network = network
        self._source = source
        self._target = target
        self._deliver = deliver
        self._under_way: deque[bytes] = deque()
        """An empty one is the end."""
        self._is_moving = False

    def send(self, data: bytes) -> None:
        split = self._network.split_at(len(data))
        if split is None:
            self._under_way.append(data)
        else:
            self._under_way += (data[:split], data[split:])
        self.go_on()

    def end(self) -> None:
        self._under_way.append(b"")
        self.go_on()

    def drop(self) -> None:
        """What has not arrived never will."""
        self._under_way.clear()

    def go_on(self) -> None:
        if self._under_way and not self._is_moving and not self._network.is_cut(self._source, self._target.name):
            self._is_moving = True
            self._network.loop.call_as(self._target, self._network.latency_s(), self._arrive)

    def _arrive(self) -> None:
        self._is_moving = False
        if self._under_way and not self._network.is_cut(self._source, self._target.name):
            self._deliver(self._under_way.popleft())
        self.go_on()


class _Connection:
    def __init__(self, network: SimNetwork, party: Party, server: SimServer, protocol: asyncio.BaseProtocol) -> None:
        self._network = network
        self._party = party
        self._server_party = server.party
        self.transport = SimTransport(self, protocol)
        self.channel = SimChannel(self, server.turns, network.next_fd())
        to_server = _Stream(network, party.name, server.party, self.channel.arrived)
        to_client = _Stream(network, server.party.name, party, self.transport.arrived)
        self.streams = (to_server, to_client)
        network.loop.call_as(server.party, 0, server.take, self.channel, party.name)

    def send_to_server(self, data: bytes) -> None:
        self.streams[0].send(data)

    def send_to_client(self, data: bytes) -> None:
        self.streams[1].send(data)

    def client_closed(self) -> None:
        self.streams[0].end()
        self._network.forget(self)

    def server_closed(self) -> None:
        self.streams[1].end()
        self._network.forget(self)

    def end_of(self, party: Party) -> None:
        if party is self._party:
            self.client_closed()
        elif party is self._server_party:
            self.server_closed()

    def reset(self) -> None:
        self._network.forget(self)
        for stream in self.streams:
            stream.drop()
            stream.end()


class SimTransport(asyncio.Transport):
    """The calling side, as `net.connection` wants it of a loop."""

    def __init__(self, connection: _Connection, protocol: Any) -> None:
        super().__init__()
        self._connection = connection
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._is_closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_closing:
            self._connection.send_to_server(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._connection.client_closed()
            self._loop.call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def arrived(self, data: bytes) -> None:
        if not data:
            self.close()
        left = memoryview(data)
        while left and not self._is_closing:
            buffer = self._protocol.get_buffer(len(left))
            count = min(len(buffer), len(left))
            buffer[:count] = left[:count]
            self._protocol.buffer_updated(count)
            left = left[count:]


class SimChannel:
    """The accepted side."""

    def __init__(self, connection: _Connection, turns: SimTurns, fd: int) -> None:
        self._connection = connection
        self._turns = turns
        self._fd = fd
        self._received = bytearray()
        self._has_ended = False
        self.receive_into: Callable[[memoryview], int] = self._receive_into
        self.send: Callable[[bytes | memoryview, int], int] = self._send
        turns.channels[fd] = self

    @property
    def is_readable(self) -> bool:
        return bool(self._received) or self._has_ended

    def arrived(self, data: bytes) -> None:
        self._received += data
        self._has_ended = self._has_ended or not data
        self._turns.wake()

    def _receive_into(self, buffer: memoryview) -> int:
        if not self.is_readable:
            raise BlockingIOError
        count = min(len(buffer), len(self._received))
        buffer[:count] = self._received[:count]
        del self._received[:count]
        return count

    def _send(self, data: bytes | memoryview, flags: int) -> int:
        self._connection.send_to_client(bytes(data))
        return len(data)

    def send_file(self, file_slice: FileSlice, max_bytes: int) -> int:
        data = os.pread(file_slice.file.fd, min(file_slice.length, max_bytes), file_slice.position)
        if not data:
            raise FileTruncatedError(file_slice)
        return self.send(data, 0)

    def peer_has_closed(self) -> bool:
        return self._has_ended and not self._received

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        if self._turns.channels.pop(self._fd, None) is not None:
            self._connection.server_closed()


class SimTurns(Turns):
    def __init__(self, loop: asyncio.AbstractEventLoop, service: Service, on_settled: Callable[[], None]) -> None:
        super().__init__(loop, service, on_settled)
        self.channels: dict[int, SimChannel] = {}
        self._writers: set[int] = set()
        self._is_woken = False

    def watch_readable(self, fd: int, callback: Callable[[], None]) -> None:
        self._writers.discard(fd)
        self._callbacks[fd] = callback
        self.wake()

    def watch_writable(self, fd: int, callback: Callable[[], None]) -> None:
        self._writers.add(fd)
        self._callbacks[fd] = callback
        self.wake()

    def forget(self, fd: int) -> None:
        self._callbacks.pop(fd, None)

    def close(self) -> None:
        self._callbacks.clear()

    def wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._is_woken = False
        ready = [(fd, 0) for fd in self._callbacks if fd in self._writers or self._is_readable(fd)]
        if ready:
            self._take_turn(ready)
        if any(fd in self._writers or self._is_readable(fd) for fd in self._callbacks):
            self.wake()

    def _is_readable(self, fd: int) -> bool:
        channel = self.channels.get(fd)
        return channel is not None and channel.is_readable


class SimServer(Server):
    """The broker's server, with connections of the simulated network."""

    def __init__(self, network: SimNetwork, service: Service, limits: ConnectionLimits) -> None:
        super().__init__(service, limits, make_turns=SimTurns)
        party = current_party()
        assert party is not None
        self.party = party
        self._network = network
        self._is_accepting = False
        self._early: list[tuple[SimChannel, str]] = []
        self._bound: list[tuple[str, str, int]] = []

    @property
    def turns(self) -> SimTurns:
        turns = self._context.turns
        assert isinstance(turns, SimTurns)
        return turns

    def bind(self, listener: str, host: str, port: int, *, backlog: int = 512) -> int:
        self._network.add_server(host, port, self)
        self._bound.append((listener, host, port))
        return port

    def start_accepting(self) -> None:
        self._is_accepting = True
        early, self._early = self._early, []
        for channel, peer in early:
            self.take(channel, peer)

    def take(self, channel: SimChannel, peer: str) -> None:
        if self._is_accepting:
            self._open(self._bound[0][0], channel, peer, 1)
        else:
            self._early.append((channel, peer))

    def _close_listeners(self) -> None:
        self._is_accepting = False
        self._network.remove_server(self)
