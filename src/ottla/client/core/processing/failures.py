"""How a record that failed is told of: in one line, and with the traceback of the handler the first time only.

A handler that fails fails often, and in the same place. What is wrong with a payload is all in the reason.
"""

from __future__ import annotations

from types import TracebackType
from typing import TypeAlias

from ottla.client.core.processing.parallel import RawRecord
from ottla.client.errors import DeserializationError

KINDS_MAX = 100
"""So many kinds of failures are told apart; others are told without a traceback."""

ExcInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None]


class FailureKinds:
    """Failures of the same type from the same line of code are one kind."""

    def __init__(self) -> None:
        self._seen: set[tuple[type[BaseException], str, int]] = set()

    def traceback_if_new(self, error: BaseException) -> ExcInfo | None:
        """For a log, once for each kind, from the handler on; None if there is nothing new to see."""
        kind = _kind_of(error)
        if kind is None or kind in self._seen or len(self._seen) >= KINDS_MAX:
            return None
        self._seen.add(kind)
        return type(error), error, _outside(error.__traceback__)


def _kind_of(error: BaseException) -> tuple[type[BaseException], str, int] | None:
    if isinstance(error, DeserializationError) or error.__traceback__ is None:
        return None
    last = error.__traceback__
    while last.tb_next is not None:
        last = last.tb_next
    return type(error), last.tb_frame.f_code.co_filename, last.tb_lineno


def _outside(traceback: TracebackType | None) -> TracebackType | None:
    """Without the steps that lead from us to the handler."""
    step = traceback
    while step is not None and f"{step.tb_frame.f_globals.get('__name__')}.".startswith("ottla."):
        step = step.tb_next
    return step or traceback


def place_of(record: RawRecord) -> str:
    return f"{record.topic_partition}@{record.offset}"


def reason_of(error: BaseException) -> str:
    """What a line says of it, without the place."""
    if isinstance(error, DeserializationError):
        return error.message.removeprefix(f"{error.topic_partition}: ")
    return f"{type(error).__name__}: {message_of(error)}"


def message_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as e:
        # An error whose own text fails is a failure like any other.
        return f"(no text, for that raises {type(e).__qualname__})"


def put_aside_line(record: RawRecord, error: BaseException, *, attempts: int, topic: str) -> str:
    where = place_of(record)
    if isinstance(error, DeserializationError):
        return f"{where} cannot be read, and went to the dead-letter topic {topic}: {reason_of(error)}"
    tries = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    return f"{where} failed, and went to the dead-letter topic {topic} after {tries}: {reason_of(error)}"
