"""Requests under way on the calling side of a connection: what they are, and who is told of their replies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ottla.base.errors import KafkaError, OttlaError

Frame: TypeAlias = bytes | Sequence[bytes | memoryview]
"""A whole request, or its parts."""


class ToldReply:
    """Takes the place of a future that nobody waits for: a function is told what became of it, and at once."""

    __slots__ = ("_is_done", "_tell", "api_key", "due_s", "timeout_ms")

    def __init__(
        self, tell: Callable[[memoryview | OttlaError], None], api_key: int, due_s: float, timeout_ms: int
    ) -> None:
        self._tell = tell
        self._is_done = False
        self.api_key = api_key
        self.due_s = due_s
        self.timeout_ms = timeout_ms

    def done(self) -> bool:
        return self._is_done

    def set_result(self, frame: memoryview) -> None:
        self._end(frame)

    def set_exception(self, error: KafkaError) -> None:
        self._end(error)

    def _end(self, outcome: memoryview | KafkaError) -> None:
        self._is_done = True
        self._tell(outcome)


def forget(_: memoryview | OttlaError) -> None: ...


def api_key_of(frame: Frame) -> int:
    """What a request asks for, which follows its size."""
    start = frame if isinstance(frame, bytes) else frame[0]
    return int.from_bytes(start[4:6], "big")


def copy_of(error: KafkaError) -> KafkaError:
    """Each waiter gets an exception of its own: a shared one would collect the tracebacks of all of them."""
    return KafkaError(error.message, code=error.code)
