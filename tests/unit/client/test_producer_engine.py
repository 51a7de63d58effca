"""What a producer's engine makes of its settings."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError, OttlaError
from ottla.client.aio.producer.engine import ProducerEngine
from ottla.client.core.producer.options import ProducerSettings
from tests.waiting import run_async


@pytest.mark.parametrize(("linger_ms", "after_ms", "is_timed"), [(10, 9, False), (10, 10, True), (11, 0, True)])
def test_timestamps_are_early_by_ten_milliseconds_at_most(linger_ms: int, after_ms: int, is_timed: bool) -> None:
    """Within a batch that is sent soon the time is not asked for every value; in any other, it is."""

    async def lane_length() -> int:
        settings = ProducerSettings.parse({"bootstrap.servers": "x:1", "linger.ms": linger_ms})
        box = ProducerEngine(settings, lock=nullcontext(), on_memory=lambda: None).accumulator
        box.lanes = {}
        assert box.append_sticky("t", (0,), 1, (None, b"v", (), 0), 15, 0) is not None
        box.open_lane("t", 0, after_ms)
        return box.lanes["t"].length

    assert (run_async(lane_length()) < 0) == is_timed


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (OttlaError("nobody there"), ErrorCode.NETWORK_EXCEPTION, "nobody there"),
        (KafkaError("too large", code=ErrorCode.MESSAGE_TOO_LARGE), ErrorCode.MESSAGE_TOO_LARGE, "too large"),
        (ZeroDivisionError("by zero"), ErrorCode.UNKNOWN_SERVER_ERROR, "ZeroDivisionError: by zero"),
    ],
)
def test_why_a_request_failed(error: Exception, code: ErrorCode, words: str) -> None:
    """What came of the network may be tried again; a mistake of ours fails the records."""
    failures: list[KafkaError] = []

    async def fail() -> None:
        settings = ProducerSettings.parse({"bootstrap.servers": "x:1"})
        engine = ProducerEngine(settings, lock=nullcontext(), on_memory=lambda: None)

        def failed(call: object, error: KafkaError, now_ms: int) -> list[Any]:
            failures.append(error)
            return []

        engine.sender.failed = failed  # type: ignore[method-assign, assignment]
        engine._pump = lambda: None  # type: ignore[method-assign]
        engine._failed(None, error)  # type: ignore[arg-type]

    run_async(fail())
    assert [(one.code, words in str(one)) for one in failures] == [(code, True)]


def test_a_lane_that_is_closed_is_part_of_its_batch() -> None:
    async def lanes() -> None:
        settings = ProducerSettings.parse({"bootstrap.servers": "x:1", "linger.ms": 0})
        box = ProducerEngine(settings, lock=nullcontext(), on_memory=lambda: None).accumulator
        box.lanes = {}
        for topic in ("t", "u"):
            batch = box.append_sticky(topic, (0,), 1, (None, b"v", (), 0), 15, 0)
            assert batch is not None
            box.open_lane(topic, 0, 0)
            assert batch.lane is not None
        box.close_lanes()
        assert [batch.lane for batch in box.sticky.values()] == [None, None]

    run_async(lanes())
