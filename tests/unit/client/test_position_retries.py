"""What becomes of a position that could not be found out: it is tried again later, or the application is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.client.aio.consumer.position_finder import PositionFinder
from ottla.client.core.consumer.options import ConsumerSettings
from ottla.client.errors import ClientError, client_error


@pytest.mark.parametrize(
    ("code", "is_told"),
    [
        (ErrorCode.LEADER_NOT_AVAILABLE, False),
        (ErrorCode.NETWORK_EXCEPTION, False),
        (ErrorCode.NOT_COORDINATOR, False),
        (ErrorCode.UNKNOWN_MEMBER_ID, False),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, True),
        (ErrorCode.INVALID_REQUEST, True),
    ],
)
@pytest.mark.parametrize("is_open", [True, False])
def test_an_error_is_waited_out_or_told(code: ErrorCode, is_told: bool, is_open: bool) -> None:
    updates: list[None] = []
    told: list[ClientError] = []
    finder: Any = object.__new__(PositionFinder)
    finder._engine = SimpleNamespace(
        now_ms=lambda: 1000, metadata=SimpleNamespace(request_update=lambda: updates.append(None))
    )
    finder._settings = ConsumerSettings.parse({"bootstrap.servers": "x:1", "retry.backoff.ms": 70})
    cursor = SimpleNamespace(not_before_ms=0, complain=told.append)
    error = client_error(code)
    finder._settle(SimpleNamespace(is_open=is_open, cursor=cursor), error)
    if is_open:
        assert cursor.not_before_ms == 1070
        assert told == [error] * is_told and len(updates) == (not is_told)
    else:
        assert (cursor.not_before_ms, told, updates) == (0, [], []), "nobody wants to know any more"
