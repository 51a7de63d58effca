"""Listens, accepts within limits, and stops. What happens on an accepted connection is server_connection's.

The server owns its non-blocking sockets and only asks the loop when they are ready: no streams, no transports.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections import Counter
from typing import NamedTuple

from ottla.base.errors import StartError
from ottla.net.channel import Channel, PlainChannel
from ottla.net.connection_context import ConnectionContext, MakeTurns, ServerStats
from ottla.net.file_views import FileViews
from ottla.net.limits import OS_DEFAULT, UNLIMITED, ConnectionLimits
from ottla.net.server_connection import ClientConnection
from ottla.net.service import Service
from ottla.net.turns import EpollTurns

_log = logging.getLogger(__name__)

ACCEPTS_PER_TURN = 64
ACCEPT_PAUSE_S = 0.5
IDLE_SWEEPS = 8
"""A connection is idle once this many sweeps have found nothing moved, so it is closed at most an eighth late."""

_OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class _Listener(NamedTuple):
    name: str
    socket: socket.socket


class Server:
    def __init__(
        self,
        service: Service,
        limits: ConnectionLimits,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        make_turns: MakeTurns = EpollTurns,
    ) -> None:
        self._loop = loop if loop is not None else asyncio.get_running_loop()
        self._service = service
        self._limits = limits
        self._context = ConnectionContext(self._loop, service, limits, self._forget, make_turns)
        self._file_views = FileViews()
        self._listeners: list[_Listener] = []
        self._connections: dict[int, ClientConnection] = {}
        self._connections_by_host: Counter[str] = Counter()
        self._last_connection_id = 0
        self._is_short_of_resources = False
        self._paused_until_s: dict[_Listener, float] = {}
        self._all_closed: asyncio.Future[None] | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None

    @property
    def stats(self) -> ServerStats:
        return self._context.stats

    def bind(self, listener: str, host: str, port: int, *, backlog: int = 512) -> int:
        """Takes the port, a free one if `port` is 0, and returns it. Clients can connect, but nobody answers yet.

        An empty host means every address of this machine.
        """
        bound = _bind(host, port, self._limits)
        bound.listen(backlog)
        self._listeners.append(_Listener(listener, bound))
        actual_port: int = bound.getsockname()[1]
        return actual_port

    def start_accepting(self) -> None:
        """From now on the clients of every bound listener are served."""
        for entry in self._listeners:
            self._resume_accepting(entry)
        if self._sweep_timer is None and self._limits.max_idle_ms > 0:
            self._schedule_sweep()

    def listen(self, listener: str, host: str, port: int, *, backlog: int = 512) -> int:
        """`bind` and `start_accepting` at once, for a service that is ready."""
        actual_port = self.bind(listener, host, port, backlog=backlog)
        self.start_accepting()
        return actual_port

    def unbind(self, listener: str) -> None:
        """Gives a listener's port back and closes its connections."""
        for entry in [entry for entry in self._listeners if entry.name == listener]:
            self._listeners.remove(entry)
            self._loop.remove_reader(entry.socket.fileno())
            entry.socket.close()
        for connection in self.connections():
            if connection.listener == listener:
                connection.close()

    def set_limits(self, limits: ConnectionLimits) -> None:
        """From now on. If there are more connections than the server allows, those that were idle the longest go."""
        self._limits = self._context.limits = limits
        while len(self._connections) > limits.max_connections and self._close_longest_idle():
            pass

    def _close_longest_idle(self) -> bool:
        """Of those whose listener is not protected; False if there are none."""
        others = [found for found in self.connections() if not self._is_protected(found.listener)]
        if others:
            max(others, key=lambda found: found.idle_sweeps).close()
        return bool(others)

    def _is_protected(self, listener: str) -> bool:
        return listener == self._limits.protected_listener and len(self._listeners) > 1

    def connections(self) -> list[ClientConnection]:
        return list(self._connections.values())

    # Accepting

    def _accept(self, listener: _Listener) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                accepted, address = listener.socket.accept()
            except BlockingIOError:
                return
            except OSError as e:
                if e.errno in _OUT_OF_RESOURCES:
                    self._pause_accepting(listener, e)
                    return
                continue  # That one client gave up before we came to it.
            self._is_short_of_resources = False
            self._admit(listener.name, accepted, address)
            if self._slow_down(listener):
                return

    def _slow_down(self, listener: _Listener) -> bool:
        """Lets later connections wait if they come too fast, where the system keeps them: nobody is turned away."""
        now_ms = int(self._loop.time() * 1000)
        limits, own = self._limits, self._limits.by_listener.get(listener.name)
        wait_ms = own.creation_rate.record(1, now_ms) if own is not None and own.creation_rate is not None else 0
        if wait_ms > 0:
            self._pause(listener, wait_ms / 1000)
        if limits.creation_rate is None or self._is_protected(listener.name):
            return wait_ms > 0
        shared_wait_ms = limits.creation_rate.record(1, now_ms)
        if shared_wait_ms > 0:
            for other in self._listeners:
                if not self._is_protected(other.name):
                    self._pause(other, shared_wait_ms / 1000)
        return max(wait_ms, shared_wait_ms) > 0

    def _pause_accepting(self, listener: _Listener, error: OSError) -> None:
        if not self._is_short_of_resources:
            self._is_short_of_resources = True
            _log.error(
                "cannot accept connections: %s; trying again every %s s (is the limit of open files too low?)",
                error.strerror,
                ACCEPT_PAUSE_S,
            )
        self._pause(listener, ACCEPT_PAUSE_S)

    def _pause(self, listener: _Listener, pause_s: float) -> None:
        """The listening socket stays readable, so the loop would spin on it if it went on looking."""
        until_s = self._loop.time() + pause_s
        if until_s > self._paused_until_s.get(listener, 0.0):
            self._paused_until_s[listener] = until_s
            self._loop.remove_reader(listener.socket.fileno())
            self._loop.call_at(until_s, self._resume_accepting, listener, until_s)

    def _resume_accepting(self, listener: _Listener, paused_until_s: float = 0.0) -> None:
        if listener in self._listeners and self._paused_until_s.get(listener, 0.0) <= paused_until_s:
            self._paused_until_s.pop(listener, None)
            self._loop.add_reader(listener.socket.fileno(), self._accept, listener)

    def _admit(self, listener: str, accepted: socket.socket, address: tuple[str, int]) -> None:
        peer_host = address[0].removeprefix("::ffff:")
        refusal = self._refusal(listener, peer_host)
        if refusal is not None:
            self.stats.refused_total += 1
            self._context.complain("refused a connection from %s on %s: %s", peer_host, listener, refusal)
            accepted.close()
            return
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        is_peer_local = is_same_machine(address[0], accepted.getsockname()[0])
        channel = PlainChannel(accepted, self._file_views, is_peer_local=is_peer_local)
        self._open(listener, channel, peer_host, address[1])

    def _open(self, listener: str, channel: Channel, peer_host: str, peer_port: int) -> None:
        self._last_connection_id += 1
        connection = ClientConnection(
            self._context,
            channel,
            connection_id=self._last_connection_id,
            listener=listener,
            peer_host=peer_host,
            peer_port=peer_port,
        )
        self._connections[connection.id] = connection
        self._connections_by_host[peer_host] += 1
        self.stats.accepted_total += 1
        self.stats.open_connections += 1
        try:
            self._service.opened(connection)
        except Exception:
            _log.exception("closing %r, because the service failed on its arrival", connection)
            connection.close()
        if not connection.is_closed:
            connection.open()

    def _refusal(self, listener: str, peer_host: str) -> str | None:
        own = self._limits.by_listener.get(listener)
        if own is not None and own.max_connections < UNLIMITED:
            of_listener = sum(connection.listener == listener for connection in self._connections.values())
            if of_listener >= own.max_connections:
                return f"the listener has {of_listener} connections, as many as its max.connections allows"
        is_full = len(self._connections) >= self._limits.max_connections
        if is_full and not (self._is_protected(listener) and self._close_longest_idle()):
            return f"there are {len(self._connections)} connections, as many as max.connections allows"
        of_host = self._connections_by_host[peer_host]
        if of_host >= self._limits.max_connections_from(peer_host):
            return f"it has {of_host} connections, as many as max.connections.per.ip allows"
        return None

    def _forget(self, connection: ClientConnection) -> None:
        del self._connections[connection.id]
        self._connections_by_host[connection.peer_host] -= 1
        if not self._connections_by_host[connection.peer_host]:
            del self._connections_by_host[connection.peer_host]
        self.stats.open_connections -= 1
        if self._all_closed is not None and not self._connections and not self._all_closed.done():
            self._all_closed.set_result(None)
        try:
            self._service.closed(connection)
        except Exception:
            _log.exception("the service failed when it was told that %r has closed", connection)

    # Idle connections

    def _schedule_sweep(self) -> None:
        self._sweep_timer = self._loop.call_later(self._limits.max_idle_ms / IDLE_SWEEPS / 1000, self._sweep)

    def _sweep(self) -> None:
        self.sweep_idle()
        self._file_views.drop()
        self._schedule_sweep()

    def sweep_idle(self) -> None:
        """One timer looks at all connections now and then; a timer per request would cost more than the request."""
        for connection in self.connections():
            connection.idle_sweeps += 1
            if connection.idle_sweeps > IDLE_SWEEPS:
                self.stats.closed_idle_total += 1
                connection.close()

    # The end

    async def stop(self, grace_ms: int) -> None:
        """Accepts and handles nothing more, lets the replies that are due leave for up to `grace_ms`, and closes."""
        self._close_listeners()
        for connection in self.connections():
            connection.drain()
        if self._connections:
            self._all_closed = self._loop.create_future()
            await asyncio.wait([self._all_closed], timeout=grace_ms / 1000)
        self.close()

    def close(self) -> None:
        """Closes everything now, whatever is still due."""
        self._close_listeners()
        for connection in self.connections():
            connection.close()
        self._context.turns.close()

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            self._loop.remove_reader(listener.socket.fileno())
            listener.socket.close()
        self._listeners.clear()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None


def is_same_machine(peer_host: str, own_host: str) -> bool:
    """Whether a peer runs on this machine: then both ends of its connection have the same address."""
    return peer_host == own_host or peer_host.removeprefix("::ffff:").startswith("127.")


def _bind(host: str, port: int, limits: ConnectionLimits) -> socket.socket:
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as e:
        raise StartError(f"cannot listen on {host}:{port}: the host name is not known ({e.strerror})") from e
    # A name such as localhost has several addresses. The IPv4 one is what clients of every age can reach.
    family, kind, protocol, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setblocking(False)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit both sizes, and the receive window is negotiated before accept returns.
        if limits.send_buffer_bytes != OS_DEFAULT:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer_bytes)
        if limits.receive_buffer_bytes != OS_DEFAULT:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.receive_buffer_bytes)
        bound.bind(address)
    except OSError as e:
        bound.close()
        reason = "the port is in use already" if e.errno == errno.EADDRINUSE else e.strerror
        raise StartError(f"cannot listen on {host}:{port}: {reason}") from e
    return bound
