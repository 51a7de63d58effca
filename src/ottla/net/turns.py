"""Turns of the server: the requests of every socket that is ready, then one write to the logs, then all the replies.

Owns the order of work within a turn, and an epoll of which the event loop sees a single file descriptor. A
turn is one callback of the loop, so nothing else of the broker runs between a request that was staged and the write
that settles it. Knows no frames and no bytes.
"""

from __future__ import annotations

import asyncio
import logging
import select
from collections.abc import Callable, Sequence
from typing import Protocol

from ottla.net.service import Service

_log = logging.getLogger(__name__)

SOCKETS_PER_TURN = 256

TURNS_PER_CALLBACK = 8
"""A client alone often has its next request there as soon as it is answered, and then needs no way through the event
loop. Few, because everything else that is due in the loop has to wait for them."""

LINGERING_POLLS = 200
"""How often the server looks for the next request of a client alone before its thread sleeps: about 100 µs. To fall
asleep and to be woken takes longer than everything a small request needs, above all where the processor sleeps too."""

SKIPPED_AT_MOST = 1_024
"""A client that takes longer is waited for in vain. After each time nobody is waited for, for twice as many turns."""

_READABLE = select.EPOLLIN
_WRITABLE = select.EPOLLOUT


class TurnMember(Protocol):
    def end_turn(self) -> None:
        """Everything that was asked in this turn is done: the replies may leave."""


class Turns:
    """The order of work within a turn. Which sockets are ready is for who derives from it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, service: Service, on_settled: Callable[[], None]) -> None:
        self._loop = loop
        self._service = service
        self._callbacks: dict[int, Callable[[], None]] = {}
        """What to call for each socket that is watched; for one thing at a time, reading or writing."""
        self._members: list[TurnMember] = []
        self._is_running = False
        self.is_shared = False
        """Whether several sockets are ready in this turn. If not, nothing is gained by waiting for its end."""
        self.has_unsettled = False
        """Whether replies of this turn wait for `Service.settle`. Whoever has one sets this, and joins the turn."""
        self._on_settled = on_settled

    # What sockets are watched for

    def watch_readable(self, fd: int, callback: Callable[[], None]) -> None:
        raise NotImplementedError

    def watch_writable(self, fd: int, callback: Callable[[], None]) -> None:
        raise NotImplementedError

    def forget(self, fd: int) -> None:
        """For an open socket: a closed one would leave its number to another that may be watched already."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    # The turn

    def join(self, member: TurnMember) -> None:
        """Has `member.end_turn` called at the end of this turn; without one under way, soon."""
        if not self._members and not self._is_running:
            self._loop.call_soon(self._end)
        self._members.append(member)

    def _take_turn(self, ready: Sequence[tuple[int, int]]) -> None:
        self.is_shared = len(ready) > 1
        self._is_running = True
        callbacks = self._callbacks
        for fd, _ in ready:
            # An earlier one of this turn may have ended the watch.
            callback = callbacks.get(fd)
            if callback is not None:
                try:
                    callback()
                except Exception:
                    _log.exception("a socket could not be served")
        # Also without replies to send: somebody may wait for what was written in this turn, a follower above all.
        self._end()

    def settle(self) -> None:
        """Has the service complete its replies. Those of a service that failed at it stay empty."""
        try:
            self._service.settle()
        except Exception:
            _log.exception("requests could not be completed")

    def _end(self) -> None:
        if self.has_unsettled:
            self.has_unsettled = False
            self.settle()
            self._on_settled()
        try:
            self._service.end_turn()
        except Exception:
            _log.exception("late replies could not be completed")
        self._is_running = False
        members, self._members = self._members, []
        for member in members:
            try:
                member.end_turn()
            except Exception:
                _log.exception("the replies of a connection could not be sent")


class EpollTurns(Turns):
    def __init__(self, loop: asyncio.AbstractEventLoop, service: Service, on_settled: Callable[[], None]) -> None:
        super().__init__(loop, service, on_settled)
        self._epoll = select.epoll()
        self._poll = self._epoll.poll
        self._vain = 0
        """For how many turns nobody is waited for, after the last time that was in vain."""
        self._vain_left = 0
        loop.add_reader(self._epoll.fileno(), self._run)

    def watch_readable(self, fd: int, callback: Callable[[], None]) -> None:
        self._watch(fd, _READABLE, callback)

    def watch_writable(self, fd: int, callback: Callable[[], None]) -> None:
        self._watch(fd, _WRITABLE, callback)

    def _watch(self, fd: int, events: int, callback: Callable[[], None]) -> None:
        if fd in self._callbacks:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
        self._callbacks[fd] = callback

    def forget(self, fd: int) -> None:
        if self._callbacks.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def close(self) -> None:
        if not self._epoll.closed:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._callbacks.clear()

    def _run(self) -> None:
        for _ in range(TURNS_PER_CALLBACK):
            ready = self._poll(0, SOCKETS_PER_TURN) or self._linger()
            if not ready:
                return
            self._take_turn(ready)
            # Where there are many, more of them are ready after a while, and share a write.
            if self.is_shared or self._epoll.closed:
                return

    def _linger(self) -> list[tuple[int, int]]:
        """Looks out for another request for a moment, if that was of any use lately."""
        if self._vain_left:
            self._vain_left -= 1
            return []
        poll = self._poll
        for _ in range(LINGERING_POLLS):
            ready = poll(0, SOCKETS_PER_TURN)
            if ready:
                self._vain = 0
                return ready
        self._vain = min(2 * self._vain + 1, SKIPPED_AT_MOST)
        self._vain_left = self._vain
        return []
