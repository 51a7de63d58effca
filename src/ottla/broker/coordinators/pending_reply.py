"""A request that a coordinator will answer, sooner or later: what machines hold as a token."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ottla.base.errors import KafkaError
from ottla.broker.handler import RequestContext
from ottla.net.service import Deferred
from ottla.wire.message import Response


class PendingReply:
    """Answered exactly once, by `complete` or by `fail`; a later answer is ignored, as is one nobody waits for."""

    __slots__ = ("_context", "_shape", "_shape_error", "deferred")

    def __init__(
        self,
        context: RequestContext,
        *,
        shape: Callable[[Any], Response],
        shape_error: Callable[[KafkaError], Response],
    ) -> None:
        """`shape` makes the response of what the machine replied, `shape_error` that of a failure around it."""
        self.deferred = Deferred()
        self._context = context
        self._shape = shape
        self._shape_error = shape_error
        context.let_go_of_frame()

    def shape_with(self, shape: Callable[[Any], Response]) -> None:
        """From now on, makes the response of what the machine replies in another way."""
        self._shape = shape

    def complete(self, result: Any) -> None:
        if not self.deferred.is_complete:
            self.deferred.complete(self._context.encode(self._shape(result)))

    def fail(self, error: KafkaError) -> None:
        if not self.deferred.is_complete:
            self.deferred.complete(self._context.encode(self._shape_error(error)))


T = TypeVar("T")


class PendingResult(Generic[T]):
    """For code of the broker itself that asks a coordinator and awaits the answer."""

    def __init__(self) -> None:
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def complete(self, result: T) -> None:
        if not self.future.done():
            self.future.set_result(result)

    def fail(self, error: KafkaError) -> None:
        if not self.future.done():
            self.future.set_exception(error)
