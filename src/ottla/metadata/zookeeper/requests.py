"""Requests to ZooKeeper: so many at once and no more, in order, and none that waits for an ensemble for ever.

While there is no connection requests wait, for a leader of the ensemble that changes is no reason to fail. But not for
long: after `patience_ms` without one they fail, and new ones at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from kazoo.exceptions import ConnectionLoss, SessionExpiredError, ZookeeperError

from ottla.metadata.store import StoreUnreachableError

Send = Callable[[], Any]
"""Hands a request to kazoo and returns its AsyncResult."""


def describe(problem: BaseException) -> str:
    """Kazoo's exceptions have no words, but telling names."""
    return str(problem) or type(problem).__name__


class _Request(NamedTuple):
    send: Send
    answer: asyncio.Future[Any]
    is_read: bool


class Requests:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        max_in_flight: int,
        patience_ms: int,
        is_live: Callable[[], bool],
        say_why: Callable[[], str],
    ) -> None:
        """`is_live` knows of a lost connection before it is told here, `say_why` why ZooKeeper cannot be reached."""
        self._loop = loop
        self._is_live = is_live
        self._max_in_flight = max_in_flight
        self._patience_s = patience_ms / 1000
        self._say_why = say_why
        self._waiting: deque[_Request] = deque()
        self._sent: dict[asyncio.Future[Any], _Request] = {}
        self._is_connected = False
        self._has_given_up = False
        self._patience: asyncio.TimerHandle | None = None

    def read(self, send: Send) -> asyncio.Future[Any]:
        """A request that changes nothing, and is sent again if the connection is lost before its answer."""
        return self._submit(send, is_read=True)

    def write(self, send: Send) -> asyncio.Future[Any]:
        return self._submit(send, is_read=False)

    def connected(self) -> None:
        self._is_connected, self._has_given_up = True, False
        self._stop_timer()
        self._send_waiting()

    def disconnected(self) -> None:
        self._is_connected = False
        if self._patience is None and not self._has_given_up:
            self._patience = self._loop.call_later(self._patience_s, self._give_up)

    def session_lost(self) -> None:
        """What the session was to write is not written by another one: its owner does not know yet that it has one."""
        self._fail(lambda request: not request.is_read, "the session with ZooKeeper is over")

    def refused(self) -> None:
        """To wait for a server that does not know this client's credentials would be in vain."""
        self._stop_timer()
        self._give_up()

    def close(self) -> None:
        self._is_connected, self._has_given_up = False, True
        self._stop_timer()
        self._fail(lambda request: True, "the session with ZooKeeper was closed")

    def _submit(self, send: Send, *, is_read: bool) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = self._loop.create_future()
        if self._has_given_up:
            answer.set_exception(StoreUnreachableError(self._say_why()))
        else:
            self._waiting.append(_Request(send, answer, is_read))
            self._send_waiting()
        return answer

    def _send_waiting(self) -> None:
        while self._waiting and self._is_connected and len(self._sent) < self._max_in_flight:
            request = self._waiting.popleft()
            if request.answer.done():
                continue
            self._sent[request.answer] = request
            request.send().rawlink(partial(self._answered, request))

    def _answered(self, request: _Request, result: Any) -> None:
        del self._sent[request.answer]
        problem = result.exception
        is_lost = isinstance(problem, ConnectionLoss | SessionExpiredError)
        if is_lost and not self._is_live():
            # Word of it follows. What is sent until it comes would wait in kazoo, for as long as it takes.
            self.disconnected()
        if request.answer.done():
            pass  # whoever asked has stopped waiting
        elif problem is None:
            request.answer.set_result(result.value)
        elif not is_lost:
            is_answer = isinstance(problem, ZookeeperError)
            request.answer.set_exception(
                problem if is_answer else StoreUnreachableError(f"ZooKeeper: {describe(problem)}")
            )
        elif request.is_read and not self._has_given_up:
            self._waiting.appendleft(request)
        else:
            request.answer.set_exception(StoreUnreachableError(self._say_why()))
        self._send_waiting()

    def _give_up(self) -> None:
        self._patience = None
        self._has_given_up = True
        self._fail(lambda request: True, self._say_why())

    def _fail(self, is_meant: Callable[[_Request], bool], reason: str) -> None:
        waiting, self._waiting = self._waiting, deque()
        for request in self._sent.values():
            if is_meant(request) and not request.answer.done():
                request.answer.set_exception(StoreUnreachableError(reason))
        for request in waiting:
            if not is_meant(request):
                self._waiting.append(request)
            elif not request.answer.done():
                request.answer.set_exception(StoreUnreachableError(reason))

    def _stop_timer(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
