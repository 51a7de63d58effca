"""The calling side of a connection: many requests under way at once, each matched with its reply.

Owns correlation ids, time-outs and the versions both sides speak. Knows no topics and never retries: whoever calls
decides what a lost connection means.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeVar, cast

from ottla.base.errors import ErrorCode, KafkaError, OttlaError, ProtocolError
from ottla.net.negotiation import ask_versions, newest_common
from ottla.net.replies import Frame, ToldReply, api_key_of, copy_of, forget
from ottla.net.sockets import send_now, why_not_connected
from ottla.wire.api_keys import ApiKey
from ottla.wire.frame import BufferPool, FrameReader
from ottla.wire.header import encode_request_frame, read_response_header
from ottla.wire.message import Request, Response

R = TypeVar("R", bound=Response)

DEFAULT_TIMEOUT_MS = 30_000
MAX_RESPONSE_BYTES = 2**30
"""Memory is taken as bytes arrive, not for a length that is announced, so this can be generous. It is below what the
first letters of an HTTP server's answer come to as a length."""

SHARED_BUFFER_BYTES = 65_536
TRUSTED_RESPONSE_BYTES = 64 << 20
"""A reply up to this size is received straight into its own memory: growing with it would mean to copy it."""

DIRECT_REQUEST_BYTES = 65_536
"""Requests in parts that are this large are written to the socket at once."""

_CORRELATION_ID_BYTES = 4


class Connection:
    """Made by `Connection.connect`. Every method is for the thread of the event loop."""

    def __init__(self, host: str, port: int, *, client_id: str | None, buffers: BufferPool | None = None) -> None:
        self.host = host
        self.port = port
        self.client_id = client_id
        self.api_versions: dict[int, range] = {}
        """What the peer speaks, by API key; empty until `negotiate` has run."""
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(
            MAX_RESPONSE_BYTES, buffers or BufferPool(SHARED_BUFFER_BYTES), trusted_bytes=TRUSTED_RESPONSE_BYTES
        )
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[tuple[int, asyncio.Future[memoryview] | ToldReply]] = deque()
        """Correlation ids in the order of their requests, which is the order of the replies."""
        self._watch: asyncio.Handle | None = None
        """Goes off when the first request of `begin` may be late. Most are answered long before: timers of their own
        would only be made and thrown away."""
        self._watch_s = 0.0
        """When it goes off. The handle cannot be asked: uvloop's has no time if there is next to nothing to wait."""
        self._last_correlation_id = -1
        self._idle_watch: asyncio.TimerHandle | None = None
        self._used_at_s = self._loop.time()
        self._socket_buffers: dict[int, int] = {}
        self._closed: asyncio.Future[KafkaError] = self._loop.create_future()
        self.on_late: Callable[[KafkaError], None] | None = None
        """Called if a request is not answered in time, which ends the connection."""
        self._writable: asyncio.Future[None] | None = None
        self._direct: socket.socket | None = None
        """The same socket, for large requests: event loops put their parts together, or hold the lock while writing."""

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        *,
        client_id: str | None = None,
        connect_timeout_ms: int = 10_000,
        tls: ssl.SSLContext | None = None,
        buffers: BufferPool | None = None,
        idle_ms: int = -1,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
    ) -> Connection:
        """A connection without requests for `idle_ms` closes itself; -1 for never, and for the system's buffers."""
        connection = cls(host, port, client_id=client_id, buffers=buffers)
        connection._socket_buffers = {socket.SO_SNDBUF: send_buffer_bytes, socket.SO_RCVBUF: receive_buffer_bytes}
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(connect_timeout_ms / 1000):
                await loop.create_connection(lambda: _Receiver(connection), host, port, ssl=tls)
        except TimeoutError as e:
            raise connection._error(f"there was no answer within {connect_timeout_ms} ms") from e
        except (OSError, UnicodeError) as e:
            raise connection._error(why_not_connected(e)) from e
        if idle_ms >= 0:
            connection._used_at_s = loop.time()
            connection._close_when_idle(idle_ms / 1000)
        return connection

    def __repr__(self) -> str:
        return f"<Connection to {self.host}:{self.port}{' (closed)' if self.is_closed else ''}>"

    @property
    def is_closed(self) -> bool:
        return self._closed.done()

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    # Requests

    async def request(
        self,
        message: Request,
        response_class: type[R],
        *,
        version: int | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> R:
        """Sends `message` and returns its reply; without `version`, in the newest version both sides speak.

        Raises KafkaError if the connection is lost or the time is up. Error codes inside the reply are the caller's.
        """
        used = self.version_for(type(message)) if version is None else version
        frame = await self.exchange(
            lambda correlation_id: encode_request_frame(message, used, correlation_id, self.client_id),
            timeout_ms=timeout_ms,
        )
        _, position = read_response_header(frame, message.API_KEY, used)
        return response_class.decode(frame, used, position)[0]

    async def exchange(self, encode: Callable[[int], Frame], *, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> memoryview:
        """One request, already encoded, for one reply, not yet decoded.

        `encode` gets the correlation id and gives the whole frame, size included, or its parts. The reply comes without
        its size and belongs to the caller: nothing else will write to that memory.
        """
        await self.wait_until_writable()
        frame = encode(self._next_correlation_id())
        reply: asyncio.Future[memoryview] = self._loop.create_future()
        due_s = self._loop.time() + timeout_ms / 1000
        self._waiting.append((self._last_correlation_id, reply))
        self._write(frame)
        try:
            async with asyncio.timeout_at(due_s):
                return await reply
        except TimeoutError as e:
            error = self._too_late(api_key_of(frame), timeout_ms)
            self._give_up(error)
            raise error from e
        except asyncio.CancelledError:
            self._watch_on(reply, ToldReply(forget, api_key_of(frame), due_s, timeout_ms))
            raise

    def _watch_on(self, reply: asyncio.Future[memoryview], successor: ToldReply) -> None:
        """Nobody waits for the reply any more. But if it stays out, the connection is dead, and others use it."""
        for place, (correlation_id, waiting) in enumerate(self._waiting):
            if waiting is reply:
                self._waiting[place] = correlation_id, successor
                self._watch_soon(successor.due_s)
                return

    @property
    def is_writable(self) -> bool:
        """Whether a request can be written at once."""
        return (
            self._writable is None
            and not self.is_closed
            and self._transport is not None
            and not self._transport.is_closing()
        )

    def begin(
        self,
        encode: Callable[[int], Frame],
        then: Callable[[memoryview | OttlaError], None],
        *,
        api_key: int,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> None:
        """The same as `exchange` for a connection that `is_writable`: the request is written when this returns.

        `then` gets the reply, or why there is none. It is called as soon as that is known, not in the event loop's next
        round, and must not raise.
        """
        frame = encode(self._next_correlation_id())
        reply = ToldReply(then, api_key, self._loop.time() + timeout_ms / 1000, timeout_ms)
        self._waiting.append((self._last_correlation_id, reply))
        self._watch_soon(reply.due_s)
        self._write(frame)

    def request_then(
        self,
        message: Request,
        response_class: type[R],
        then: Callable[[R | OttlaError], None],
        *,
        version: int,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> None:
        """The same as `request`, in the way of `begin`."""

        def take(frame: memoryview | OttlaError) -> None:
            if isinstance(frame, OttlaError):
                then(frame)
                return
            try:
                _, position = read_response_header(frame, message.API_KEY, version)
                response = response_class.decode(frame, version, position)[0]
            except OttlaError as e:
                then(e)
            else:
                then(response)

        self.begin(
            lambda correlation_id: encode_request_frame(message, version, correlation_id, self.client_id),
            take,
            api_key=message.API_KEY,
            timeout_ms=timeout_ms,
        )

    def _watch_soon(self, due_s: float) -> None:
        if self._watch is None or due_s < self._watch_s:
            self._watch_until(due_s)

    def _watch_until(self, due_s: float) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch_s = due_s
        self._watch = self._loop.call_at(due_s, self._look_for_late)

    def _look_for_late(self) -> None:
        self._watch = None
        told = (reply for _, reply in self._waiting if isinstance(reply, ToldReply))
        first = min(told, key=lambda reply: reply.due_s, default=None)
        if first is None:
            return
        if first.due_s <= self._loop.time():
            self._give_up(self._too_late(first.api_key, first.timeout_ms), first)
        else:
            self._watch_until(first.due_s)

    def _give_up(self, error: KafkaError, reply: ToldReply | None = None) -> None:
        """`reply` is whose the error is; without, the caller raises it."""
        # Replies come in order, so everything behind a late one is late as well: the connection is of no more use.
        reason = "a request before this one was not answered in time"
        self._lose(self._error(reason), abort=True, late=None if reply is None else (reply, error))
        if self.on_late is not None:
            self.on_late(error)

    def _too_late(self, api_key: int, timeout_ms: int) -> KafkaError:
        reason = f"no answer to {ApiKey(api_key).name} within {timeout_ms} ms"
        return self._error(reason, ErrorCode.REQUEST_TIMED_OUT)

    async def send(self, message: Request, *, version: int | None = None) -> None:
        """Sends a request that has no reply, such as a produce with acks=0."""
        used = self.version_for(type(message)) if version is None else version
        await self.wait_until_writable()
        self._write(encode_request_frame(message, used, self._next_correlation_id(), self.client_id))

    async def wait_until_writable(self) -> None:
        while self._writable is not None and not self.is_closed:
            await asyncio.shield(self._writable)
        # A write that failed is told to us only in the loop's next round. Until then writing would only be noise.
        if self._transport is not None and self._transport.is_closing():
            self._lose(self._error("it was lost"), abort=False)
        if self.is_closed:
            raise copy_of(self._closed.result())

    def _next_correlation_id(self) -> int:
        self._last_correlation_id = (self._last_correlation_id + 1) & 0x7FFFFFFF
        self._used_at_s = self._loop.time()
        return self._last_correlation_id

    def _write(self, frame: Frame) -> None:
        assert self._transport is not None
        if isinstance(frame, bytes):
            self._transport.write(frame)
            return
        left: list[bytes | memoryview] = [*frame]
        # What the event loop has yet to write goes first.
        is_idle = not self._transport.get_write_buffer_size()
        if is_idle and self._direct is not None and sum(map(len, frame)) >= DIRECT_REQUEST_BYTES:
            left = send_now(self._direct, left)
        if left:
            self._transport.writelines(left)

    # Versions

    async def negotiate(self, *, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> None:
        """Learns which versions the peer speaks."""
        self.api_versions = await ask_versions(partial(self.exchange, timeout_ms=timeout_ms), self.client_id)

    def version_for(self, request_class: type[Request]) -> int:
        """The newest version of a request that both sides speak."""
        if not self.api_versions:
            raise RuntimeError("the versions of the peer are not known before negotiate()")
        theirs = self.api_versions.get(request_class.API_KEY)
        return newest_common(request_class, theirs, f"{self.host}:{self.port}")

    # The end

    def close(self) -> None:
        self._lose(self._error("it was closed on this side"), abort=False)

    def _close_when_idle(self, idle_s: float) -> None:
        if self.is_closed:
            return
        now_s = self._loop.time()
        due_s = (now_s if self._waiting else self._used_at_s) + idle_s
        if due_s <= now_s and not self._waiting:
            self._lose(self._error("it was idle and has been closed on this side"), abort=False)
        else:
            self._idle_watch = self._loop.call_at(due_s, self._close_when_idle, idle_s)

    def _lose(self, error: KafkaError, *, abort: bool, late: tuple[ToldReply, KafkaError] | None = None) -> None:
        """Everybody who waits is told `error`, but for one who has an error of its own."""
        if self.is_closed:
            return
        self._closed.set_result(error)
        for timer in (self._watch, self._idle_watch):
            if timer is not None:
                timer.cancel()
        self._reader.close()
        if self._direct is not None:
            self._direct.close()
        self._resume_writing()
        waiting, self._waiting = self._waiting, deque()
        for _, reply in waiting:
            if not reply.done():
                reply.set_exception(late[1] if late is not None and reply is late[0] else copy_of(error))
        if self._transport is not None:
            if abort:
                self._transport.abort()
            else:
                self._transport.close()

    async def wait_closed(self) -> KafkaError:
        """Waits until the connection is lost; returns why."""
        return await asyncio.shield(self._closed)

    def _error(self, reason: str, code: ErrorCode = ErrorCode.NETWORK_EXCEPTION) -> KafkaError:
        return KafkaError(f"connection to {self.host}:{self.port}: {reason}", code=code)

    # What the receiver reports

    def _opened(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for option, size in self._socket_buffers.items():
                if size >= 0:
                    sock.setsockopt(socket.SOL_SOCKET, option, size)
            if transport.get_extra_info("sslcontext") is None:
                self._direct = socket.socket(fileno=os.dup(sock.fileno()))
                self._direct.setblocking(False)

    def receive_now(self) -> bool:
        """Takes in what has come already, as the event loop would; whether anything had.

        For the thread of the loop, while that does not run. The end of the connection, and whatever is wrong with it,
        is left for the loop to find.
        """
        has_received = False
        while self._direct is not None and self._waiting and not self.is_closed:
            buffer = self._reader.receive_buffer()
            try:
                count = self._direct.recv_into(buffer)
            except OSError:
                break
            if not count:
                break
            has_received = True
            self._received(count)
            if count < len(buffer):
                break
        return has_received

    @property
    def awaited_socket(self) -> socket.socket | None:
        """The socket that a reply is to come from, for who waits without the event loop."""
        return self._direct if self._waiting and not self.is_closed else None

    def _received(self, count: int) -> None:
        try:
            frames = self._reader.received(count)
            for frame in self._reader.detach(frames) if frames else ():
                self._take_reply(frame)
        except ProtocolError as e:
            self._lose(self._error(str(e)), abort=True)

    def _take_reply(self, frame: memoryview) -> None:
        if not self._waiting:
            raise ProtocolError("a reply came that nobody has asked for")
        correlation_id, reply = self._waiting.popleft()
        received_id = int.from_bytes(frame[:_CORRELATION_ID_BYTES], "big", signed=True)
        if len(frame) < _CORRELATION_ID_BYTES or received_id != correlation_id:
            self._waiting.appendleft((correlation_id, reply))
            raise ProtocolError(f"the reply to request {correlation_id} carries the correlation id {received_id}")
        if not reply.done():
            reply.set_result(frame)

    def _pause_writing(self) -> None:
        if self._writable is None:
            self._writable = self._loop.create_future()

    def _resume_writing(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)


class _Receiver(asyncio.BufferedProtocol):
    """What the event loop calls. It receives straight into the buffers of the frame reader."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection._opened(cast(asyncio.Transport, transport))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._connection._reader.receive_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if not self._connection.is_closed:
            self._connection._received(nbytes)

    def pause_writing(self) -> None:
        self._connection._pause_writing()

    def resume_writing(self) -> None:
        self._connection._resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        reason = "the peer closed it" if exc is None else f"it was lost ({exc})"
        self._connection._lose(self._connection._error(reason), abort=False)
