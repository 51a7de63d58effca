"""The replies of one connection in the order of their requests, however late some of them come."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ottla.net.outgoing import Outgoing, Piece
from ottla.net.service import Deferred, LateReply


class ReplyQueue:
    """In front of what is on its way out: a late reply, and all that has to wait behind it."""

    __slots__ = ("_outgoing", "_waiting", "_waiting_max", "unsent_bytes")

    def __init__(self, outgoing: Outgoing, waiting_max: int) -> None:
        self.unsent_bytes = 0
        """Bytes of replies in memory, whether they may be sent yet or not."""
        self._outgoing = outgoing
        self._waiting: deque[Deferred | Sequence[Piece]] = deque()
        self._waiting_max = waiting_max

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def add(self, pieces: Sequence[Piece]) -> bool:
        """A reply that is there. True if the queue is full now."""
        self.count(pieces)
        if not self._waiting:
            self._outgoing.extend(pieces)
            return False
        self._waiting.append(pieces)
        return len(self._waiting) == self._waiting_max

    def wait_for(self, late: Deferred | LateReply) -> bool:
        """A reply that will come. True if the queue is full now."""
        self._waiting.append(late)
        return len(self._waiting) == self._waiting_max

    def count(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            if isinstance(piece, bytes):
                self.unsent_bytes += len(piece)

    def release(self) -> bool:
        """Lets go what waits for nothing any more. True if the queue was full and is not now."""
        waiting = self._waiting
        was_full = len(waiting) >= self._waiting_max
        came: list[list[Piece]] = []
        while waiting:
            head = waiting[0]
            if type(head) is LateReply:
                if not head:
                    break
                came.append(head)
                waiting.popleft()
                continue
            if isinstance(head, Deferred):
                if head.pieces is None:
                    break
                head = head.pieces
            self._send_late(came)
            waiting.popleft()
            self._outgoing.extend(head)
        self._send_late(came)
        return was_full and len(waiting) < self._waiting_max

    def _send_late(self, came: list[list[Piece]]) -> None:
        if came:
            reply = joined(came)
            self.unsent_bytes += len(reply)
            self._outgoing.extend((reply,))
            came.clear()

    def all_sent(self) -> None:
        """Nothing is on its way out any more."""
        self.unsent_bytes = 0
        for waiting in self._waiting:
            # Late replies are counted when they may leave; before, they are few bytes each.
            if type(waiting) is not LateReply:
                self.count((waiting.pieces or ()) if isinstance(waiting, Deferred) else waiting)

    def clear(self) -> list[Deferred]:
        """Replies that nobody waits for any more."""
        abandoned = [late for late in self._waiting if isinstance(late, Deferred)]
        self._waiting.clear()
        return abandoned


def joined(replies: Sequence[list[Piece]]) -> bytes:
    """Of replies that were empty and have come: each is one piece of bytes."""
    if len(replies) == 1:
        return replies[0][0]  # type: ignore[return-value]
    return b"".join([pieces[0] for pieces in replies])  # type: ignore[misc]
