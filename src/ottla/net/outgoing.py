"""The replies of one connection on their way out: bytes and file ranges, in order, as far as the socket takes them.

Owns the queue and the choice of system call; does not know the event loop, nor why the pieces are in this order.
"""

from __future__ import annotations

import enum
import socket
from collections import deque
from collections.abc import Iterable

from ottla.base.types import FileSlice
from ottla.net.channel import Channel, read_slice

Piece = bytes | FileSlice

SMALL_SLICE_BYTES = 8_192
"""Below this a read into the joined buffer is cheaper than a sendfile call of its own."""

JOIN_BYTES = 65_536
"""Small pieces are joined up to this size; joining more would copy more than a system call costs."""

FLUSH_BYTES = 4_259_840
"""One flush sends no more than this, so that a fast reader of large replies does not keep the others waiting. Four
partitions of a megabyte, with what is around them, go out in one."""

_MORE = socket.MSG_MORE


class Flushed(enum.Enum):
    ALL = "everything is out"
    BLOCKED = "the socket takes no more at the moment"
    BUDGET_SPENT = "more could be sent, but it is others' turn"


class Outgoing:
    __slots__ = ("_channel", "_pieces", "sent_bytes")

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._pieces: deque[bytes | memoryview | FileSlice] = deque()
        self.sent_bytes = 0
        """Since this object was made; never reset."""

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def extend(self, pieces: Iterable[Piece]) -> None:
        self._pieces.extend(pieces)

    def send_first(self, reply: bytes) -> int:
        """Sends a reply while nothing is queued; what the socket does not take is queued. Returns how much it took."""
        try:
            sent = self._channel.send(reply, 0)
        except BlockingIOError:
            sent = 0
        self.sent_bytes += sent
        if sent < len(reply):
            self._pieces.append(memoryview(reply)[sent:])
        return sent

    def flush(self) -> Flushed:
        """Raises OSError when the connection is lost or a file is not as long as promised."""
        pieces = self._pieces
        if len(pieces) == 1 and self._send_only_piece(pieces[0]):
            return Flushed.ALL
        budget = self.sent_bytes + FLUSH_BYTES
        try:
            while pieces:
                head = pieces[0]
                if isinstance(head, FileSlice) and head.length > SMALL_SLICE_BYTES:
                    self._send_file(head, budget - self.sent_bytes)
                else:
                    self._send_bytes()
                if self.sent_bytes >= budget and pieces:
                    return Flushed.BUDGET_SPENT
        except BlockingIOError:
            return Flushed.BLOCKED
        return Flushed.ALL

    def _send_only_piece(self, piece: bytes | memoryview | FileSlice) -> bool:
        """The usual case, without the loop. Whatever does not go out at once is left to the loop."""
        if type(piece) is not bytes:
            return False
        try:
            sent = self._channel.send(piece, 0)
        except BlockingIOError:
            return False
        self.sent_bytes += sent
        if sent == len(piece):
            self._pieces.clear()
            return True
        self._pieces[0] = memoryview(piece)[sent:]
        return False

    def _send_file(self, head: FileSlice, max_bytes: int) -> None:
        sent = self._channel.send_file(head, max_bytes)
        self.sent_bytes += sent
        if sent == head.length:
            self._pieces.popleft()
        else:
            self._pieces[0] = FileSlice(head.file, head.position + sent, head.length - sent)

    def _send_bytes(self) -> None:
        pieces = self._pieces
        chunk = self._join_small()
        # Without MSG_MORE the header of a fetch reply would travel as a packet of its own.
        try:
            sent = self._channel.send(chunk, _MORE if pieces else 0)
        except BlockingIOError:
            pieces.appendleft(chunk)
            raise
        self.sent_bytes += sent
        if sent < len(chunk):
            pieces.appendleft(memoryview(chunk)[sent:])

    def _join_small(self) -> bytes | memoryview:
        """Takes the next run of small pieces off the queue, as one buffer. A large one is taken alone, uncopied."""
        pieces = self._pieces
        first = _in_memory(pieces.popleft())
        if not pieces:
            return first
        run = [first]
        size = len(first)
        while pieces:
            following = pieces[0]
            if isinstance(following, FileSlice):
                if following.length > SMALL_SLICE_BYTES:
                    break
                size += following.length
            else:
                size += len(following)
            if size > JOIN_BYTES:
                break
            run.append(_in_memory(pieces.popleft()))
        return run[0] if len(run) == 1 else b"".join(run)


def _in_memory(piece: bytes | memoryview | FileSlice) -> bytes | memoryview:
    return read_slice(piece) if isinstance(piece, FileSlice) else piece
