"""What every error of the client has in common."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.client import errors
from ottla.client.core.producer.batch import copy_of
from ottla.client.errors import ClientError, ErrorCode

KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, ClientError)]
ARGUMENTS: dict[str, Any] = {
    "failures": ["a: refused", "b: unknown host"],
    "reason": "bad checksum",
    "topic_partition": TopicPartition("t", 3),
    "offset": 7,
    "next_offset": 8,
    "message": "what happened",
    "code": ErrorCode.NETWORK_EXCEPTION,
}


def an_error_of(kind: type[ClientError]) -> ClientError:
    wanted = inspect.signature(kind).parameters
    error = kind(**{name: value for name, value in ARGUMENTS.items() if name in wanted})
    error.requires_abort = True
    error.__cause__ = OSError("the reason")
    return error


def facts_of(error: ClientError) -> tuple[object, ...]:
    return type(error), str(error), error.args, error.code, error.retriable, error.__dict__


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_is_copied_with_all_it_says(kind: type[ClientError]) -> None:
    error = an_error_of(kind)
    copied = copy_of(error)
    assert copied is not error
    assert facts_of(copied) == facts_of(error)
    assert copied.__cause__ is error.__cause__
    copied.fatal = not error.fatal
    assert error.fatal is not copied.fatal
    assert facts_of(copy.copy(error)) == facts_of(pickle.loads(pickle.dumps(error))) == facts_of(error)


def test_what_cannot_succeed_again_is_not_retriable() -> None:
    code = ErrorCode.NETWORK_EXCEPTION
    assert ClientError(code=code).retriable
    assert not ClientError(code=code, requires_abort=True).retriable
    assert not ClientError(code=code, fatal=True).retriable
