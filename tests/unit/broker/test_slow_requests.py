"""Which requests are called slow, and that they cannot fill the log."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker import slow_requests as module
from ottla.broker.slow_requests import SlowRequests
from ottla.wire.api_keys import ApiKey
from tests.log_lines import messages_of
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
        (ApiKey.FETCH, 100, 10_000),
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


@pytest.mark.parametrize(
    ("threshold_ms", "elapsed_ns", "is_slow"),
    [(1, 1_000_000, True), (1, 999_999, False), (100, 100_000_000, True), (0, 100_000_000, False), (-1, 5, False)],
)
def test_a_request_is_slow_from_the_threshold_on(
    caplog: pytest.LogCaptureFixture, threshold_ms: int, elapsed_ns: int, is_slow: bool
) -> None:
    SlowRequests(lambda: threshold_ms).answered(request(ApiKey.METADATA), elapsed_ns)
    assert len(messages_of(caplog, "ottla.broker.slow_requests")) == is_slow


def test_what_was_not_shown_is_counted(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [5.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    slow = SlowRequests(lambda: 1)
    line = "METADATA version 3 of client shop at 10.0.0.9 took 5 ms"
    for now[0], count in ((5.0, 13), (15.0, 1), (16.0, 1)):
        for _ in range(count):
            slow.answered(request(ApiKey.METADATA), 5_000_000)
    assert messages_of(caplog, "ottla.broker.slow_requests") == [*[line] * 10, f"{line} (3 like it not shown)", line]


@pytest.mark.parametrize(("late_s", "said"), [(0.199, None), (0.2001, 200), (3.0, 3000)])
def test_the_loop_is_looked_at_twice_in_a_second(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, late_s: float, said: int | None
) -> None:
    now = [100.0]
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        if slept:
            raise asyncio.CancelledError
        slept.append(seconds)
        now[0] += seconds + late_s

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(module, "asyncio", SimpleNamespace(sleep=sleep))
    watch = SlowRequests(lambda: 200).watch_event_loop()
    with pytest.raises(asyncio.CancelledError):
        watch.send(None)
    assert slept == [0.5]
    words = f"the broker stood still for {said} ms and answered nobody"
    assert messages_of(caplog, "ottla.broker.slow_requests") == ([] if said is None else [words])
