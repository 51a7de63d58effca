"""Scripted faults of a broker: errors, delays, lost replies and lost connections, for the next requests of an API.

They are made in front of the broker's handlers, so that a request either really happens or really does not: whoever
tests retries must be able to say which.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

from ottla.base.errors import ErrorCode
from ottla.broker.authorizer import AllowAll
from ottla.broker.handler import Handler, RequestContext
from ottla.broker.node import Broker
from ottla.net.outgoing import Piece
from ottla.net.service import Deferred, Outcome
from ottla.testing.error_replies import Refused, with_error
from ottla.wire.api_keys import ApiKey

_NEVER_LEFT_OUT = frozenset({ApiKey.METADATA, ApiKey.API_VERSIONS})
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


class _AllowAllTheLongWay(AllowAll):
    """Allows everything, as before. The broker takes no short cuts past its handlers for an authorizer of any kind."""


class Faults:
    """The faults of one broker. The oldest that is not used up meets a request; then it is the next one's turn.

    `times` is how many requests a fault meets, None for all until it is cancelled. `client_id` restricts it to the
    requests of one client. With `applied` the request has its effect and only the reply is spoilt; otherwise the broker
    does nothing.
    """

    def __init__(self) -> None:
        self._broker: Broker | None = None
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
        if applied and api == ApiKey.FETCH:
            raise ValueError("a fetch has no effect that could be applied")
        is_applied = applied or api in _NEVER_LEFT_OUT

        def act(faults: Faults, context: RequestContext, handler: Handler) -> Outcome:
            asked = context if is_applied else Refused(context)
            outcome = handler.handle(asked)
            return _then(outcome, lambda pieces: with_error(context, pieces, code, everywhere=is_applied))

        return self._add(api, act, times, client_id)

    def delay(self, api: ApiKey, ms: int, *, times: int | None = 1, client_id: str | None = None) -> Fault:
        """Handles the request at once and keeps the reply for a while, and with it all later ones of its connection."""

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

    def attach(self, broker: Broker) -> None:
        self._broker = broker
        for api_key, handler in broker.handlers.items():
            broker.handlers[api_key] = replace(handler, handle=self._in_front_of(handler))
        if self._by_api.get(ApiKey.PRODUCE):
            broker.authorizer = _AllowAllTheLongWay()

    def detach(self) -> None:
        """Lets go of clients that would wait for ever, and the broker, when it stops, for them."""
        unanswered, self._unanswered = self._unanswered, []
        for deferred in unanswered:
            deferred.close_connection()
        self._broker = None

    def _add(self, api: ApiKey, act: _Act, times: int | None, client_id: str | None) -> Fault:
        if times is not None and times < 1:
            raise ValueError(f"a fault must be met at least once, not {times} times")
        fault = Fault(act, times, client_id)
        # A new list, because the broker's thread may be walking through the old one.
        self._by_api[api] = [*(known for known in self._by_api.get(api, ()) if not known.is_used_up), fault]
        if api == ApiKey.PRODUCE and self._broker is not None:
            self._broker.authorizer = _AllowAllTheLongWay()
        return fault

    def _in_front_of(self, handler: Handler) -> Callable[[RequestContext], Outcome]:
        def handle(context: RequestContext) -> Outcome:
            for fault in self._by_api.get(context.api_key, ()):
                if fault.take(context.client_id):
                    return fault.act(self, context, handler)
            return handler.handle(context)

        return handle


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
