"""One client's connection to the server: reads frames, has them answered in order, sends the replies in that order.

Owns when the socket is read and when it is not. It is not read while replies are stuck in it, while a request that
holds the connection is unanswered, while it is muted, or while frames that were read already wait for their turn.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from ottla.base.errors import ProtocolError
from ottla.net.channel import Channel, FileTruncatedError
from ottla.net.connection_context import ConnectionContext
from ottla.net.outgoing import Flushed, Outgoing, Piece
from ottla.net.reply_queue import ReplyQueue, joined
from ottla.net.service import Deferred, LateReply
from ottla.wire.frame import FrameReader

_log = logging.getLogger(__name__)

RECEIVE_BYTES_PER_TURN = 1_048_576
REQUESTS_PER_TURN = 512
UNSENT_BYTES_PER_TURN = 1_048_576
"""One client that sends without pause gets no more than these per turn of the loop. The last bounds memory, too:
small requests can have large replies."""

REPLY_AT_ONCE_BYTES = 131_072
"""After so many bytes of requests the replies do not wait for the end of the turn. A client with a few large requests
in flight would otherwise send the next ones only when all of these are done, and one side would always be idle."""

HELD_ROOM_BYTES = 65_536
"""Frames stay in the shared buffer until the end of the turn while it has this much room for those of others."""

_NO_REPLIES: Sequence[list[Piece]] = ()


class ClientConnection:
    """The public attributes are for the service; the rest belongs to the server."""

    __slots__ = (
        "_channel",
        "_context",
        "_fd",
        "_handle",
        "_holds",
        "_is_blocked",
        "_is_closed",
        "_is_draining",
        "_is_in_turn",
        "_is_reading",
        "_outgoing",
        "_reader",
        "_replies",
        "_stats",
        "_turns",
        "_unserved",
        "_unsettled",
        "id",
        "idle_sweeps",
        "listener",
        "peer_host",
        "peer_port",
        "state",
    )

    def __init__(
        self,
        context: ConnectionContext,
        channel: Channel,
        *,
        connection_id: int,
        listener: str,
        peer_host: str,
        peer_port: int,
    ) -> None:
        self.id = connection_id
        self.listener = listener
        self.peer_host = peer_host
        self.peer_port = peer_port
        self.state: Any = None
        """What the service knows of who is at the other end; set by `Service.opened`."""
        self.idle_sweeps = 0
        """How many sweeps for idle connections have passed since anything moved here."""
        self._context = context
        self._turns = context.turns
        self._stats = context.stats
        self._channel = channel
        self._fd = channel.fileno()
        self._handle = context.service.handle
        self._reader = FrameReader(context.limits.max_request_bytes, context.buffers)
        self._outgoing = Outgoing(channel)
        self._replies = ReplyQueue(self._outgoing, context.limits.max_deferred_per_connection)
        self._unserved: list[memoryview] = []
        """Frames that were received but not handled yet."""
        self._unsettled: Sequence[list[Piece]] = _NO_REPLIES
        """Replies of this turn that its end completes. Their requests lie in the shared buffer until then."""
        self._holds = 0
        """How many reasons there are to handle no further request: late replies that hold, and mutes."""
        self._is_reading = False
        self._is_blocked = False
        self._is_in_turn = False
        self._is_draining = False
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<ClientConnection {self.id} {self.peer_host}:{self.peer_port} on {self.listener}>"

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def open(self) -> None:
        self._start_reading()

    # Receiving

    def _on_readable(self) -> None:
        if self._holds:
            self._while_held()
            return
        self.idle_sweeps = 0
        reader = self._reader
        receive_into = self._channel.receive_into
        received_bytes = 0
        while not self._is_closed:
            buffer = reader.receive_buffer()
            try:
                count = receive_into(buffer)
            except BlockingIOError:
                break
            except OSError:
                self.close()
                break
            if count == 0:
                self._flush_and_close()
                break
            received_bytes += count
            try:
                frames = reader.received(count)
            except ProtocolError as e:
                self._protocol_failed(e)
                break
            if frames and not self._serve_received(frames, buffer, count):
                break
            # A short read has emptied the socket: asking again would only cost a system call.
            if count < len(buffer):
                break
            # Stopping right behind a large frame would keep its buffer for as long as the peer is silent.
            if received_bytes >= RECEIVE_BYTES_PER_TURN and reader.is_mid_frame:
                break
        self._stats.received_bytes_total += received_bytes
        # A blocked connection goes on when its socket is writable.
        if self._is_blocked or self._is_closed:
            return
        if not self._is_reading:
            # It was stuck for a moment, or has requests left: the end of the turn sees to it that it is read again.
            self._join_turn()
        elif self._outgoing:
            if self._turns.is_shared:
                self._join_turn()
            else:
                self._flush()

    def _while_held(self) -> None:
        """Later requests stay in the kernel, where they cost us no memory; but a peer that left is noticed."""
        if self._channel.peer_has_closed():
            self.close()
        else:
            self._stop_reading()

    def _serve_received(self, frames: list[memoryview], buffer: memoryview, count: int) -> bool:
        """Serves what `count` bytes in `buffer` have completed. False if reading must stop for now."""
        # A short read is the last one of this turn, and what it has completed lies in the shared buffer.
        served = self._serve(frames, may_leave_unsettled=len(buffer) - count >= HELD_ROOM_BYTES)
        if self._unsettled:
            turns = self._turns
            if turns.is_shared:
                self._context.buffers.hold(buffer[count:])
                turns.has_unsettled = True
                self._join_turn()
            else:
                turns.settle()
                self._send_settled()
        if self._is_closed:
            return False
        if served < len(frames):
            self._unserved = self._reader.detach(frames[served:])
            self._stop_reading()
            self._join_turn()
            return False
        return not self._holds and not self._is_blocked and self._replies.unsent_bytes < UNSENT_BYTES_PER_TURN

    def _serve(self, frames: Sequence[memoryview], *, may_leave_unsettled: bool = False) -> int:
        """Has frames answered, in order, until one has to wait. Returns how many were taken."""
        handle = self._handle
        replies = self._replies
        unsettled: list[list[Piece]] = []
        served = 0
        request_bytes = 0
        try:
            for frame in frames if len(frames) <= REQUESTS_PER_TURN else frames[:REQUESTS_PER_TURN]:
                if self._holds or replies.unsent_bytes >= UNSENT_BYTES_PER_TURN:
                    break
                served += 1
                request_bytes += len(frame)
                outcome = handle(self, frame)
                if outcome:
                    self._settle(unsettled)
                    if isinstance(outcome, Deferred):
                        self._add_deferred(outcome)
                    else:
                        self._add_reply(outcome)
                elif isinstance(outcome, list):
                    unsettled.append(outcome)
                if self._is_closed:
                    break
                if request_bytes >= REPLY_AT_ONCE_BYTES:
                    request_bytes = 0
                    self._settle(unsettled)
                    if self._outgoing and not self._flush():
                        break
        except ProtocolError as e:
            self._settle(unsettled)
            self._protocol_failed(e)
        except Exception:
            self._stats.service_failures_total += 1
            _log.exception("closing %r, because a request of it failed", self)
            self._settle(unsettled)
            self._flush_and_close()
        else:
            if may_leave_unsettled and not self._is_closed:
                self._unsettled = unsettled
            else:
                self._settle(unsettled)
        self._stats.requests_total += served
        return served

    def _settle(self, unsettled: list[list[Piece]]) -> None:
        """Completes replies that others of this read are behind, and queues them as one."""
        if unsettled:
            self._turns.settle()
            self._add_settled(unsettled)
            unsettled.clear()

    def _add_settled(self, settled: Sequence[list[Piece]]) -> None:
        if self._is_closed:
            return
        if all(settled):
            self._add_reply((joined(settled),))
            return
        for reply in settled:
            if reply:
                self._add_reply(reply)
            elif type(reply) is LateReply:
                self._wait_for(reply)
            else:
                # Whatever broke `Service.settle` is in the log. A reply that is missing would shift those behind it.
                self._stats.service_failures_total += 1
                self._flush_and_close()
                return

    def _send_settled(self) -> bool:
        """The usual way of replies to small requests: all of a turn, past the queue if nothing is in it.

        Returns whether the connection is still open.
        """
        settled, self._unsettled = self._unsettled, _NO_REPLIES
        if self._replies.is_waiting or self._outgoing or not all(settled):
            self._add_settled(settled)
            return not self._is_closed
        reply = joined(settled)
        try:
            sent = self._outgoing.send_first(reply)
        except OSError:
            self.close()
            return False
        self._stats.sent_bytes_total += sent
        if sent < len(reply):
            self._replies.unsent_bytes += len(reply)
        return True

    # Replies, in the order of their requests

    def _add_deferred(self, deferred: Deferred) -> None:
        if deferred.pieces is not None:
            if deferred.pieces:
                self._add_reply(deferred.pieces)
            return
        if deferred.holds_connection:
            self._holds += 1
        self._wait_for(deferred)
        deferred.attach(self)

    def _add_reply(self, pieces: Sequence[Piece]) -> None:
        if self._replies.add(pieces):
            self._holds += 1

    def _wait_for(self, late: Deferred | LateReply) -> None:
        if self._replies.wait_for(late):
            self._holds += 1

    def deferred_completed(self, deferred: Deferred) -> None:
        if self._is_closed:
            return
        if deferred.holds_connection:
            self._holds -= 1
        if deferred.pieces:
            self._replies.count(deferred.pieces)
        self.late_replies_came()

    def late_replies_came(self) -> None:
        """Some replies are there that were not when their requests were handled or settled."""
        if self._is_closed:
            return
        self.idle_sweeps = 0
        if self._replies.release():
            self._holds -= 1
        self._join_turn()

    def deferred_failed(self) -> None:
        self._flush_and_close()

    def mute(self, duration_ms: int) -> None:
        """Handles no further request of this connection for a while: how a client over its quota is slowed down."""
        self._holds += 1
        self._context.loop.call_later(duration_ms / 1000, self._unmute)

    def _unmute(self) -> None:
        self._holds -= 1
        self._join_turn()

    # Sending, at the end of the turn

    def _join_turn(self) -> None:
        if not self._is_in_turn:
            self._is_in_turn = True
            self._turns.join(self)

    def end_turn(self) -> None:
        self._is_in_turn = False
        if self._is_closed:
            return
        if self._unsettled and not self._send_settled():
            return
        if self._is_blocked or (self._outgoing and not self._flush()):
            return
        if self._holds or self._unserved or self._is_draining or not self._is_reading:
            self._go_on()

    def _flush(self) -> bool:
        """Whether everything that may be sent is out."""
        before = self._outgoing.sent_bytes
        try:
            flushed = self._outgoing.flush()
        except OSError as e:
            if isinstance(e, FileTruncatedError):
                self._context.complain("closing %r: %s", self, e.strerror)
            self.close()
            return False
        self._stats.sent_bytes_total += self._outgoing.sent_bytes - before
        if flushed is Flushed.ALL:
            if self._is_blocked:
                self._is_blocked = False
                self._turns.forget(self._fd)
            self._replies.all_sent()
            return True
        self._stop_reading()
        if flushed is Flushed.BUDGET_SPENT and not self._is_blocked:
            self._join_turn()
        elif not self._is_blocked:
            self._is_blocked = True
            self._turns.watch_writable(self._fd, self._on_writable)
        return False

    def _on_writable(self) -> None:
        self.idle_sweeps = 0
        if self._flush():
            self._go_on()

    def _go_on(self) -> None:
        """Everything is sent: take up requests that had to wait, then the socket."""
        if self._is_draining:
            self.drain()
            return
        if self._holds:
            return
        if self._unserved:
            frames = self._unserved
            served = self._serve(frames)
            if self._is_closed:
                return
            self._unserved = frames[served:]
            # Where nothing could be served, replies wait behind a late one: its completion makes room, not a next turn.
            if self._outgoing or (self._unserved and served):
                self._join_turn()
        if not (self._unserved or self._is_reading or self._is_blocked):
            self._start_reading()

    # Registration with the loop, and the end

    def _start_reading(self) -> None:
        self._is_reading = True
        self._turns.watch_readable(self._fd, self._on_readable)

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._turns.forget(self._fd)

    def _protocol_failed(self, error: ProtocolError) -> None:
        self._stats.protocol_errors_total += 1
        self._context.complain("closing %r: %s", self, str(error).partition("\n")[0])
        self._flush_and_close()

    def _flush_and_close(self) -> None:
        """Replies to what the peer asked before are given one chance to leave."""
        if self._outgoing and not self._is_blocked and not self._is_closed:
            try:
                self._outgoing.flush()
            except OSError as e:
                _log.debug("%r is lost already: %s", self, e)
        self.close()

    def drain(self) -> None:
        """Handles nothing further, and closes once every reply that is due has been sent."""
        self._is_draining = True
        self._stop_reading()
        if not self._outgoing and not self._replies.is_waiting:
            self.close()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._turns.forget(self._fd)
        self._is_reading = False
        self._channel.close()
        self._reader.close()
        self._unserved = []
        for deferred in self._replies.clear():
            try:
                deferred.abandon()
            except Exception:
                _log.exception("the late reply of %r could not be abandoned", self)
        self._context.on_closed(self)
