"""An event loop whose time is a number: when nothing is left to do now, it is at once as late as the next timer.

Everything that runs belongs to a party, a broker or a client, by the context it was scheduled in. What a party that has
died left behind never runs; what one that is held left behind runs when it goes on. Threads do not exist: work for them
is done on the spot, so that a seed decides the order of everything.
"""

from __future__ import annotations

import asyncio
import heapq
import traceback
from asyncio import events
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, Protocol, TypeVar, TypeVarTuple, Unpack, cast

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Party:
    """A broker's process or a client: what is scheduled for it dies and waits with it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_held = False
        self._waiting: list[events.Handle] = []

    def __repr__(self) -> str:
        return f"<Party {self.name}>"

    def run(self, function: Callable[[Unpack[Ts]], T], *arguments: *Ts) -> T:
        """Calls `function` as this party: all that follows from it is this party's, too."""
        context = copy_context()
        context.run(_PARTY.set, self)
        return context.run(function, *arguments)


_PARTY: ContextVar[Party | None] = ContextVar("party", default=None)


def current_party() -> Party | None:
    return _PARTY.get()


class SimConnector(Protocol):
    """Whoever makes connections: the network."""

    async def connect(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]: ...


class NothingLeftError(Exception):
    """There is neither work nor a timer: whoever is waited for will never come."""


class SimLoop(asyncio.AbstractEventLoop):
    def __init__(self) -> None:
        self.network: SimConnector | None = None
        self.events = 0
        """How many callbacks have run."""
        self.after_event: Callable[[Party | None], None] = lambda party: None
        self.failures: list[str] = []
        """What would have been a traceback in a log."""
        self.tasks: list[asyncio.Task[Any]] = []
        """Kept: one that were collected would run its clean-up, as no process does that was killed."""
        self._now_s = 0.0
        self._ready: deque[tuple[events.Handle, Party | None]] = deque()
        self._timers: list[tuple[float, int, events.TimerHandle, Party | None]] = []
        self._last_number = 0
        self._is_closed = False

    # Time and callbacks

    def time(self) -> float:
        return self._now_s

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> events.Handle:
        context = context if context is not None else copy_context()
        handle = events.Handle(callback, args, self, context)
        self._ready.append((handle, context.get(_PARTY)))
        return handle

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> events.TimerHandle:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> events.TimerHandle:
        context = context if context is not None else copy_context()
        handle = events.TimerHandle(when, callback, args, self, context)
        self._last_number += 1
        heapq.heappush(self._timers, (when, self._last_number, handle, context.get(_PARTY)))
        return handle

    def call_as(
        self, party: Party | None, delay_s: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts
    ) -> None:
        """What happens to a party from outside: a message arrives, its process ends."""
        context = copy_context()
        context.run(_PARTY.set, party)
        self.call_later(delay_s, callback, *args, context=context)

    def resume(self, party: Party) -> None:
        """Goes on with what waited while the party was held."""
        party.is_held = False
        waiting, party._waiting = party._waiting, []
        self._ready.extend((handle, party) for handle in waiting)

    def _timer_handle_cancelled(self, handle: events.TimerHandle) -> None:
        """Part of what asyncio's handles ask of a loop."""

    # Running

    def run_until_complete(self, future: Awaitable[T]) -> T:  # type: ignore[override]
        task = asyncio.ensure_future(future, loop=self)
        self.run_while(lambda: not task.done())
        return task.result()

    def run_while(self, goes_on: Callable[[], bool]) -> None:
        events._set_running_loop(self)
        try:
            while goes_on():
                self._run_one()
        finally:
            events._set_running_loop(None)

    def _run_one(self) -> None:
        if not self._ready:
            self._take_due()
        handle, party = self._ready.popleft()
        if handle.cancelled() or (party is not None and party.is_dead):
            return
        if party is not None and party.is_held:
            party._waiting.append(handle)
            return
        handle._run()
        self.events += 1
        self.after_event(party)

    def _take_due(self) -> None:
        timers = self._timers
        while timers and (timers[0][2].cancelled() or _is_dead(timers[0][3])):
            heapq.heappop(timers)
        if not timers:
            raise NothingLeftError
        self._now_s = max(self._now_s, timers[0][0])
        while timers and timers[0][0] <= self._now_s:
            _, _, handle, party = heapq.heappop(timers)
            self._ready.append((handle, party))

    def is_running(self) -> bool:
        return events._get_running_loop() is self

    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True
        self._ready.clear()
        self._timers.clear()

    # What asyncio makes on a loop

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self.tasks.append(task)
        return task

    def run_in_executor(self, executor: object, func: Callable[[Unpack[Ts]], T], *args: *Ts) -> asyncio.Future[T]:
        """On the spot; whoever waits for it goes on in the next round, as with a thread."""
        future: asyncio.Future[T] = self.create_future()
        try:
            result = func(*args)
        except Exception as e:
            self.call_soon(_fail, future, e)
        else:
            self.call_soon(_succeed, future, result)
        return future

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **_: object
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        assert self.network is not None
        return await self.network.connect(protocol_factory, host, port)

    # Debugging

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = cast(BaseException | None, context.get("exception"))
        lines = traceback.format_exception(error) if error is not None else []
        self.failures.append(f"{context.get('message')}\n{''.join(lines)}")


def _is_dead(party: Party | None) -> bool:
    return party is not None and party.is_dead


def _succeed(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
