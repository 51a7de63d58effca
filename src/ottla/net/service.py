"""What the server and the code that answers requests say to each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from ottla.net.outgoing import Piece

if TYPE_CHECKING:
    from ottla.net.server_connection import ClientConnection


class DeferredOwner(Protocol):
    """The connection a late reply belongs to."""

    def deferred_completed(self, deferred: Deferred) -> None: ...

    def deferred_failed(self) -> None: ...


class Deferred:
    """A reply that will come later. Every method is for the thread of the event loop.

    With `holds_connection` later requests of the connection wait until this one is answered (a parked fetch, a
    group join). Without it they are handled meanwhile, and only their replies wait for their turn (a produce that
    was appended and waits for its replicas).
    """

    __slots__ = ("_is_abandoned", "_owner", "_wants_close", "holds_connection", "on_abandoned", "pieces")

    def __init__(self, *, holds_connection: bool = True) -> None:
        self.holds_connection = holds_connection
        self.on_abandoned: Callable[[], None] | None = None
        """Called once if the connection closes before the reply is there."""
        self.pieces: Sequence[Piece] | None = None
        self._owner: DeferredOwner | None = None
        self._wants_close = False
        self._is_abandoned = False

    @property
    def is_complete(self) -> bool:
        return self.pieces is not None

    def complete(self, pieces: Sequence[Piece]) -> None:
        """Gives the reply, exactly once; an empty one means that nothing is sent. Ignored if the peer has gone."""
        if self._is_abandoned:
            return
        if self.pieces is not None:
            raise RuntimeError("a deferred reply was completed twice")
        self.pieces = pieces
        if self._owner is not None:
            self._owner.deferred_completed(self)

    def forward_to(self, other: Deferred) -> None:
        """Gives this reply as that of `other`, for a request that turned out to need a second wait."""
        self._owner = _Forward(other)
        if self.pieces is not None:
            other.complete(self.pieces)
        other.on_abandoned = self.abandon

    def close_connection(self) -> None:
        """Instead of a reply: the request turned out to break the protocol, or must not be answered."""
        self._wants_close = True
        if self._owner is not None and not self._is_abandoned:
            self._owner.deferred_failed()

    def attach(self, owner: DeferredOwner) -> None:
        """For the connection only: from now on it is told what becomes of this reply."""
        self._owner = owner
        if self._wants_close:
            owner.deferred_failed()

    def abandon(self) -> None:
        """For the connection only: the peer has gone."""
        if self._is_abandoned or self.pieces is not None:
            return
        self._is_abandoned = True
        if self.on_abandoned is not None:
            self.on_abandoned()


class _Forward:
    """Stands in for the connection where a reply is handed on to another one."""

    def __init__(self, target: Deferred) -> None:
        self._target = target

    def deferred_completed(self, deferred: Deferred) -> None:
        self._target.complete(deferred.pieces or ())

    def deferred_failed(self) -> None:
        self._target.close_connection()


class LateReply(list[Piece]):
    """A reply that is empty until its time comes, without a `Deferred` of its own: there may be thousands of them.

    `Service.settle` may leave it empty. Whoever fills it later, as one piece of bytes, tells the connection by
    `ClientConnection.late_replies_came`, once for all of its replies that have come.
    """

    __slots__ = ()


Outcome = Sequence[Piece] | Deferred
"""The pieces of a whole reply frame, length included; an empty tuple where the request has no reply. An empty list is a
reply that is not there yet: `Service.settle` will have put it into the list, as one piece of bytes; into a `LateReply`
somebody will later."""


class Service(Protocol):
    def opened(self, connection: ClientConnection) -> None: ...

    def handle(self, connection: ClientConnection, frame: memoryview) -> Outcome:
        """Answers one request. `frame`, without its length, is valid only during the call.

        ProtocolError closes the connection with one line in the log; any other exception closes it with a traceback.
        """

    def settle(self) -> None:
        """Completes the replies that were returned as empty lists. Called before the frames they answer are void."""

    def end_turn(self) -> None:
        """The replies of a turn are about to leave. Late replies that are completed now leave together with them."""

    def closed(self, connection: ClientConnection) -> None: ...
