"""Scripted faults of a broker: errors, delays, lost replies and lost connections, for the next requests of an API.

They are made in front of everything that answers, so that a request either really happens or really does not: whoever
tests retries must be able to say which.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, Self

from ottla.base.errors import ErrorCode
from ottla.broker.dispatch import Dispatch
from ottla.broker.handler import Handler, RequestContext
from ottla.broker.node import Broker
from ottla.net.outgoing import Piece
from ottla.net.server_connection import ClientConnection
from ottla.net.service import Deferred, Outcome
from ottla.testing.error_replies import Refused, with_error
from ottla.wire.api_keys import ApiKey

_NEVER_LEFT_OUT = frozenset({ApiKey.METADATA, ApiKey.API_VERSIONS, ApiKey.DESCRIBE_LOG_DIRS})
"""Asking these changes nothing, and an error needs the whole answer around it."""

_Act = Callable[["Faults", RequestContext, Handler], Outcome]


class Fault:
    """One scripted fault. As a context manager it ends with the block, if it has not been used up before."""

    def __init__(self, act: _Act, times: int | None, client_id: str | None) -> None:
        self.hits = 0
        """How many requests it has met."""
        self._act = act
        self._times = times
        self._client_id = client_id
        self._used_up = threading.Event()

    @property
    def is_used_up(self) -> bool:
        return self._used_up.is_set()

    def wait(self, timeout_s: float = 10) -> None:
        """Waits until it has met as many requests as it was made for. Raises TimeoutError if they do not come."""
        if not self._used_up.wait(timeout_s):
            raise TimeoutError(f"only {self.hits} of {self._times or 'any number of'} requests came in {timeout_s} s")

    def cancel(self) -> None:
        self._used_up.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def take(self, client_id: str | None) -> bool:
        """For the broker's thread: whether this request is one to be met, which counts it."""
        if self._used_up.is_set() or self._client_id not in (None, client_id):
            return False
        self.hits += 1
        if self.hits == self._times:
            self._used_up.set()
        return True

    def act(self, faults: Faults, context: RequestContext, handler: Handler) -> Outcome:
        return self._act(faults, context, handler)


class Faults:
    """The faults of one broker. The oldest that is not used up meets a request; then it is the next one's turn.

    `times` is how many requests a fault meets, None for all until it is cancelled. `client_id` restricts it to the
    requests of one client. With `applied` the request has its effect and only the reply is spoilt; otherwise the broker
    does nothing.
    """

    def __init__(self) -> None:
        self._by_api: dict[int, list[Fault]] = {}
        self._unanswered: list[Deferred] = []

    def error(
        self,
        api: ApiKey,
        code: ErrorCode,
        *,
        times: int | None = 1,
        applied: bool = False,
        client_id: str | None = None,
    ) -> Fault:
        """Replies with the error code, for every topic and partition of the request where the API has one for each."""
        code = ErrorCode(code)
        # A fetch has no effect that could be left out, and a refused one has no records, as with any error.
        is_applied = api in _NEVER_LEFT_OUT or (applied and api != ApiKey.FETCH)

        def act(faults: Faults, context: RequestContext, handler: Handler) -> Outcome:
            asked = context if is_applied else Refused(context)
            outcome = handler.handle(asked)
            return _then(outcome, lambda pieces: with_error(context, pieces, code, everywhere=is_applied))

        return self._add(api, act, times, client_id)

    def delay(self, api: ApiKey, ms: int, *, times: int | None = 1, client_id: str | None = None) -> Fault:
        """Handles the request at once and keeps the reply for a while, and with it all later ones of its connection."""
        given: object = ms
        if not isinstance(given, int | float) or not 0 <= given < math.inf:
            raise ValueError(f"a delay is a number of milliseconds, but was {ms!r}")

        def act(faults: Faults, context: RequestContext, handler: Handler) -> Outcome:
            late = Deferred()
            loop = asyncio.get_running_loop()

            def wait_and_reply(pieces: Sequence[Piece]) -> None:
                loop.call_later(ms / 1000, late.complete, pieces)

            _when_complete(handler.handle(context), wait_and_reply, late)
            return late

        return self._add(api, act, times, client_id)

    def disconnect(
        self, api: ApiKey, *, times: int | None = 1, applied: bool = False, client_id: str | None = None
    ) -> Fault:
        """Closes the connection instead of replying."""

        def act(faults: Faults, context: RequestContext, handler: Handler) -> Outcome:
            closing = Deferred()
            if applied:
                _when_complete(handler.handle(context), lambda _: closing.close_connection(), closing)
            else:
                closing.close_connection()
            return closing

        return self._add(api, act, times, client_id)

    def drop(self, api: ApiKey, *, times: int | None = 1, applied: bool = False, client_id: str | None = None) -> Fault:
        """Never replies, nor to anything that comes later on the same connection: the client has to time out."""

        def act(faults: Faults, context: RequestContext, handler: Handler) -> Outcome:
            silent = Deferred()
            faults._unanswered.append(silent)
            if applied:
                _when_complete(handler.handle(context), lambda _: None, silent)
            return silent

        return self._add(api, act, times, client_id)

    def clear(self) -> None:
        """Cancels everything that is not used up."""
        for faults in list(self._by_api.values()):
            for fault in list(faults):
                fault.cancel()

    # For the embedded broker, in its thread

    def make_dispatch(self, broker: Broker, handlers: dict[int, Handler]) -> Dispatch:
        return _DispatchWithFaults(broker, handlers, self)

    @property
    def were_made(self) -> bool:
        return bool(self._by_api)

    def take(self, context: RequestContext) -> Fault | None:
        """The fault that meets this request, which counts it."""
        for fault in self._by_api.get(context.api_key, ()):
            if fault.take(context.client_id):
                return fault
        return None

    def let_go(self) -> None:
        """Of clients that would wait for ever, and the broker, when it stops, for them."""
        unanswered, self._unanswered = self._unanswered, []
        for deferred in unanswered:
            deferred.close_connection()

    def _add(self, api: ApiKey, act: _Act, times: int | None, client_id: str | None) -> Fault:
        if times is not None and times < 1:
            raise ValueError(f"a fault must be met at least once, not {times} times")
        # What no request ever has, such as its name, would never be met, and a test pass that has tried nothing.
        api = ApiKey(api)
        fault = Fault(act, times, client_id)
        # A new list, because the broker's thread may be walking through the old one.
        self._by_api[api] = [*(known for known in self._by_api.get(api, ()) if not known.is_used_up), fault]
        return fault


class _DispatchWithFaults(Dispatch):
    """Faults come first, before the short ways, on which a request is never seen by a handler."""

    def __init__(self, broker: Broker, handlers: dict[int, Handler], faults: Faults) -> None:
        super().__init__(broker, handlers)
        self._faults = faults

    def handle(self, connection: ClientConnection, frame: memoryview) -> Outcome:
        if self._faults.were_made:
            handler, context = self.find(connection, frame)
            fault = self._faults.take(context)
            if fault is not None:
                # What was staged before this request has happened before it.
                self.settle()
                return fault.act(self._faults, context, handler)
        return super().handle(connection, frame)


def _then(outcome: Outcome, change: Callable[[Sequence[Piece]], Sequence[Piece]]) -> Outcome:
    if not isinstance(outcome, Deferred):
        return change(outcome)
    changed = Deferred(holds_connection=outcome.holds_connection)
    _when_complete(outcome, lambda pieces: changed.complete(change(pieces)), changed)
    return changed


def _when_complete(outcome: Outcome, receive: Callable[[Sequence[Piece]], Any], in_place_of_it: Deferred) -> None:
    """Calls `receive` with the reply once it is there; `in_place_of_it` is what the connection waits for meanwhile."""
    if not isinstance(outcome, Deferred):
        receive(outcome)
    elif outcome.is_complete:
        receive(outcome.pieces or ())
    else:
        in_place_of_it.on_abandoned = outcome.abandon
        outcome.attach(_Intercepted(receive, in_place_of_it))


class _Intercepted:
    """Stands where the connection would and receives a late reply in its place."""

    def __init__(self, receive: Callable[[Sequence[Piece]], Any], in_place_of_it: Deferred) -> None:
        self._receive = receive
        self._in_place_of_it = in_place_of_it

    def deferred_completed(self, deferred: Deferred) -> None:
        self._receive(deferred.pieces or ())

    def deferred_failed(self) -> None:
        self._in_place_of_it.close_connection()
