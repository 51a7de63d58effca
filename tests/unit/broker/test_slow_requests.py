"""Which requests are called slow, and that they cannot fill the log."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.slow_requests import SlowRequests
from ottla.wire.api_keys import ApiKey
from tests.waiting import run_async


def request(api_key: ApiKey) -> Any:
    connection = SimpleNamespace(peer_host="10.0.0.9")
    return SimpleNamespace(api_key=api_key, version=3, client_id="shop", connection=connection)


def test_a_slow_request_is_named(caplog: pytest.LogCaptureFixture) -> None:
    SlowRequests(lambda: 100).answered(request(ApiKey.CREATE_TOPICS), 1_234_567_890)
    assert caplog.messages == ["CREATE_TOPICS version 3 of client shop at 10.0.0.9 took 1235 ms"]


@pytest.mark.parametrize(
    ("api_key", "threshold_ms", "elapsed_ms"),
    [
        (ApiKey.CREATE_TOPICS, 100, 99),
        (ApiKey.CREATE_TOPICS, 0, 10_000),
        (ApiKey.JOIN_GROUP, 100, 10_000),
        (ApiKey.SYNC_GROUP, 100, 10_000),
    ],
)
def test_others_are_not(api_key: ApiKey, threshold_ms: int, elapsed_ms: int, caplog: pytest.LogCaptureFixture) -> None:
    SlowRequests(lambda: threshold_ms).answered(request(api_key), elapsed_ms * 1_000_000)
    assert caplog.messages == []


def test_a_broker_that_is_slow_all_the_time_does_not_fill_its_log(caplog: pytest.LogCaptureFixture) -> None:
    slow = SlowRequests(lambda: 1)
    for _ in range(1000):
        slow.answered(request(ApiKey.METADATA), 5_000_000)
    assert 0 < len(caplog.messages) < 100


def test_a_broker_that_stands_still_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        watch = asyncio.create_task(SlowRequests(lambda: 200).watch_event_loop())
        await asyncio.sleep(0)
        time.sleep(1)
        await asyncio.sleep(0.01)
        watch.cancel()

    run_async(scenario())
    (message,) = [entry.getMessage() for entry in caplog.records if entry.name == "ottla.broker.slow_requests"]
    assert message.startswith("the broker stood still for ")
