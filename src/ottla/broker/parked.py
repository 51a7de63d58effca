"""Requests that wait: for records to arrive, for replicas to catch up, for a time to pass. Nobody polls.

A waiter is tried again when one of its partitions has moved, at the end of the same turn of the event loop, so that one
reply covers all that arrived in that turn; it is completed in any case when its time is up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol


class Waiter(Protocol):
    def try_complete(self) -> bool:
        """Replies if what it waits for is there; says whether it did."""

    def expire(self) -> None:
        """Replies with what there is: the time is up."""


class InWaiting(Protocol):
    """What stands in a place of waiting: one parked request, or many in a queue."""

    def try_complete(self) -> object:
        """The place has moved."""

    def time_is_up(self) -> None:
        """Nothing more will come."""


class Waitable:
    """Something that moves and that waiters can wait for: a partition."""

    __slots__ = ("is_moved", "waiters")

    def __init__(self) -> None:
        self.waiters: dict[InWaiting, None] = {}
        self.is_moved = False


class ParkedRequest:
    """One waiter in its places of waiting."""

    __slots__ = ("_timer", "_waitables", "_waiter")

    def __init__(self, waiter: Waiter, waitables: list[Waitable]) -> None:
        self._waiter = waiter
        self._waitables = waitables
        self._timer: asyncio.TimerHandle | None = None
        for waitable in waitables:
            waitable.waiters[self] = None

    def start_timer(self, loop: asyncio.AbstractEventLoop, wait_ms: int) -> None:
        self._timer = loop.call_later(wait_ms / 1000, self.time_is_up)

    def try_complete(self) -> None:
        if self._timer is not None and self._waiter.try_complete():
            self.forget()

    def time_is_up(self) -> None:
        if self._timer is not None:
            self.forget()
            self._waiter.expire()

    def forget(self) -> None:
        """Stops waiting without a reply: it was given, or nobody is there to receive it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for waitable in self._waitables:
            waitable.waiters.pop(self, None)


class UnplacedRequest(ParkedRequest):
    __slots__ = ("_unplaced",)

    def __init__(self, waiter: Waiter, unplaced: dict[ParkedRequest, None]) -> None:
        super().__init__(waiter, [])
        self._unplaced = unplaced
        unplaced[self] = None

    def forget(self) -> None:
        super().forget()
        self._unplaced.pop(self, None)


class Parked:
    """Every parked request of a broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._moved: list[Waitable] = []
        self._soon: dict[ParkedRequest, None] = {}
        self._unplaced: dict[ParkedRequest, None] = {}
        """Those that wait for nothing that moves by itself: whoever knows better calls `soon`."""

    def park(self, waiter: Waiter, waitables: Iterable[Waitable], wait_ms: int) -> ParkedRequest:
        parked = ParkedRequest(waiter, list(waitables))
        parked.start_timer(self.loop, wait_ms)
        return parked

    def park_unplaced(self, waiter: Waiter, wait_ms: int) -> ParkedRequest:
        """For a request that is to be tried when `soon` is called for it."""
        parked = UnplacedRequest(waiter, self._unplaced)
        parked.start_timer(self.loop, wait_ms)
        return parked

    def soon(self, parked: ParkedRequest) -> None:
        """Tries a request at the end of the turn, once, however often this is called."""
        if not self._soon and not self._moved:
            self.loop.call_soon(self.try_moved)
        self._soon[parked] = None

    def moved(self, waitable: Waitable) -> None:
        """Called whenever anything a waiter may look at has changed; cheap if nobody waits."""
        if waitable.waiters and not waitable.is_moved:
            waitable.is_moved = True
            if not self._moved and not self._soon:
                self.loop.call_soon(self.try_moved)
            self._moved.append(waitable)

    def expire_all(self, waitables: Iterable[Waitable]) -> None:
        """Answers everybody who waits for one of `waitables`, because nothing more will come."""
        for waitable in list(waitables):
            for parked in list(waitable.waiters):
                parked.time_is_up()
        for unplaced in list(self._unplaced):
            unplaced.time_is_up()

    def try_moved(self) -> None:
        """Lets everybody look who waits for something that has moved; without this call it happens a little later."""
        moved, self._moved = self._moved, []
        for waitable in moved:
            waitable.is_moved = False
            for parked in list(waitable.waiters):
                parked.try_complete()
        if self._soon:
            soon, self._soon = self._soon, {}
            for request in soon:
                request.try_complete()
