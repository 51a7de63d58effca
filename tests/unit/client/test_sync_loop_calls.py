"""The consumer for threads without its loop: how it begins, ends and is polled, and what it gives back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

import ottla
from ottla.client.aio.group.runner import RebalanceStep
from ottla.client.core.group.rebalance import Change
from ottla.client.errors import ClientClosedError, ClientError, ConcurrentUseError, ForkedError
from ottla.client.sync.consumer import loop_calls, polling
from tests.waiting import run_async

NOW_S = 1000.0


class Loop:
    """Runs on the spot what it is given."""

    def __init__(self) -> None:
        self.stopped = 0
        self.is_at_rest = True
        self.until_s = NOW_S + 9
        self.checked = 0
        self.loop = SimpleNamespace(call_soon_threadsafe=lambda step: step())

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return run_async(work)

    def try_without_running(self, work: Any) -> Any:
        return work(self.until_s) if self.is_at_rest else None

    def check_outside(self) -> None:
        self.checked += 1

    def stop(self) -> None:
        self.stopped += 1


class Scene:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in (loop_calls, polling):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: NOW_S))
        self.calls: list[tuple[object, ...]] = []
        self.decoded: list[str] = []
        self.received: list[str] = []
        self.in_loop: list[Any] = []
        self.step: RebalanceStep | None = None
        self.failure: BaseException | None = None
        self.is_left_over = False
        self.loop = Loop()
        self.polls = SimpleNamespace(
            take_if_quiet=lambda records_max: self.decoded,
            receive_records=self._receive,
            next_records=self._next,
            begin=lambda: self.is_left_over,
            give_back=lambda: self.calls.append(("give back",)),
            give_back_unread=lambda: self.calls.append(("give back unread",)),
            call_listener=self._listen,
        )
        self.consumer: Any = _blank()
        self.consumer._loop = self.loop
        self.consumer._polling = threading.Lock()
        self.consumer._is_closing = False
        self.consumer._inner = SimpleNamespace(
            _polls=self.polls,
            _records_max=lambda wanted: 500 if wanted is None else wanted,
            _engine=SimpleNamespace(subscription=SimpleNamespace(check_made=lambda: None)),
            _begin_closing=self._begin_closing,
            _finish_closing=self._finish_closing,
            _begin_unsubscribing=self._begin_unsubscribing,
            _unsubscribe=lambda: self.calls.append(("unsubscribe",)),
        )

    def _receive(self, records_max: int, deadline_s: float) -> list[str]:
        self.calls.append(("receive", records_max, deadline_s - NOW_S))
        if self.failure is not None:
            raise self.failure
        return self.received

    async def _next(self, timeout_s: float, records_max: int) -> Any:
        self.calls.append(("next", timeout_s, records_max))
        return self.in_loop.pop(0) if self.in_loop else []

    def _listen(self, step: RebalanceStep) -> object:
        self.calls.append(("told", step.change))
        return None

    async def _begin_closing(self, deadline_s: float) -> RebalanceStep | None:
        self.calls.append(("begin closing", deadline_s - NOW_S))
        if self.failure is not None:
            raise self.failure
        return self.step

    async def _finish_closing(self, deadline_s: float) -> None:
        self.calls.append(("finish closing", deadline_s - NOW_S if deadline_s else 0.0))

    async def _begin_unsubscribing(self) -> RebalanceStep | None:
        return self.step


def _blank() -> Any:
    return ottla.Consumer.__new__(ottla.Consumer)


def a_step(change: Change = Change.ASSIGNED) -> RebalanceStep:
    return RebalanceStep(change, [])


# Polls


def test_what_is_decoded_is_taken_before_anything_is_received(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Scene(monkeypatch)
    here.decoded = ["a"]
    assert here.consumer.poll(5.0) == ["a"] and here.calls == []
    assert not here.consumer._polling.locked()


@pytest.mark.parametrize(("timeout", "received_s"), [(5.0, 5.0), (20.0, 9.0), (5, 5.0), (0.0, 0.0)])
def test_what_comes_is_received_as_long_as_the_loop_may_rest(
    monkeypatch: pytest.MonkeyPatch, timeout: float, received_s: float
) -> None:
    here = Scene(monkeypatch)
    here.received = ["a"]
    assert here.consumer.poll(timeout, 7) == ["a"] and here.calls == [("receive", 7, received_s)]
    here.calls.clear()
    here.received = []
    here.in_loop = [["b"]]
    assert here.consumer.poll(timeout) == ["b"]
    assert here.calls == [("receive", 500, received_s), ("next", float(timeout), 500)]


def test_steps_are_told_between_two_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Scene(monkeypatch)
    here.loop.is_at_rest = False
    steps = [a_step(), a_step(Change.LOST)]
    here.in_loop = [*steps, ["a"]]
    assert here.consumer.poll(1.0) == ["a"]
    told = [("told", Change.ASSIGNED), ("told", Change.LOST)]
    assert here.calls == [("next", 1.0, 500), told[0], ("next", 1.0, 500), told[1], ("next", 1.0, 500)]
    assert all(step._finished.is_set() for step in steps)


@pytest.mark.parametrize(
    ("failure", "is_given_back"), [(KeyboardInterrupt(), True), (ZeroDivisionError(), True), (ClientError("no"), False)]
)
def test_what_an_interrupted_poll_had_is_given_back(
    monkeypatch: pytest.MonkeyPatch, failure: BaseException, is_given_back: bool
) -> None:
    here = Scene(monkeypatch)
    here.failure = failure
    with pytest.raises(type(failure)):
        here.consumer.poll(1.0)
    assert here.calls[1:] == ([("give back",)] if is_given_back else [])
    assert not here.consumer._polling.locked()


def test_what_was_left_when_somebody_stopped_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Scene(monkeypatch)
    here.is_left_over = True
    here.received = ["a"]
    assert here.consumer.poll(0.0) == ["a"]
    assert here.calls == [("give back unread",), ("receive", 500, 0.0)]

    def fail() -> None:
        raise ZeroDivisionError

    here.polls.give_back_unread = fail
    with pytest.raises(ZeroDivisionError):
        here.consumer.poll(0.0)
    assert not here.consumer._polling.locked(), "the next poll may try again"


def test_one_thread_polls_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Scene(monkeypatch)
    here.received = ["a"]
    with here.consumer._polling:
        with pytest.raises(ConcurrentUseError, match="another thread is polling this consumer"):
            here.consumer.poll()
        assert here.calls == []
    assert here.consumer.poll() == ["a"]


# The end


def test_closing_tells_the_listener_and_then_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Scene(monkeypatch)
    here.step = a_step(Change.REVOKED)
    here.consumer.close(7.0)
    here.consumer.close(7.0)
    assert here.calls == [("begin closing", 7.0), ("told", Change.REVOKED), ("finish closing", 7.0)]
    assert here.step._finished.is_set() and here.loop.stopped == 1 and here.loop.checked == 1
    with pytest.raises(ClientClosedError, match="this consumer is closed; make another one"):
        here.consumer.poll()


def test_closing_takes_half_a_minute_at_the_most_if_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Scene(monkeypatch)
    here.consumer.close()
    assert here.calls == [("begin closing", 30.0), ("finish closing", 30.0)]


def test_who_interrupts_closing_has_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Scene(monkeypatch)
    here.failure = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        here.consumer.close(7.0)
    assert here.calls == [("begin closing", 7.0), ("finish closing", 0.0)] and here.loop.stopped == 1
    with pytest.raises(ClientClosedError):
        here.consumer.poll()


def test_a_listener_that_fails_does_not_keep_the_consumer_open(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Scene(monkeypatch)
    here.step = a_step(Change.REVOKED)

    def fail(step: RebalanceStep) -> object:
        raise ZeroDivisionError

    here.polls.call_listener = fail
    with pytest.raises(ZeroDivisionError):
        here.consumer.close(7.0)
    assert here.calls[-1] == ("finish closing", 7.0) and here.loop.stopped == 1
    assert here.step._finished.is_set() and here.consumer._is_closed


def test_in_a_child_process_there_is_nothing_to_close(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Scene(monkeypatch)
    here.consumer._forked()
    here.consumer.close()
    assert here.calls == [] and here.loop.stopped == 0
    with pytest.raises(ForkedError, match="this consumer was made before the process forked"):
        here.consumer.poll()


@pytest.mark.parametrize("has_step", [True, False])
def test_unsubscribing_tells_the_listener_first(monkeypatch: pytest.MonkeyPatch, has_step: bool) -> None:
    here = Scene(monkeypatch)
    here.step = a_step(Change.REVOKED) if has_step else None
    here.consumer.unsubscribe()
    assert here.calls == [*([("told", Change.REVOKED)] if has_step else []), ("unsubscribe",)]


def test_a_listener_for_asyncio_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Scene(monkeypatch)
    here.step = a_step(Change.REVOKED)
    called: Any = asyncio.sleep(0)
    here.polls.call_listener = lambda step: called
    with pytest.raises(TypeError, match="a listener of the sync consumer must not have coroutines"):
        here.consumer.unsubscribe()
    assert called.cr_frame is None and here.step._finished.is_set()
    assert here.calls == [("unsubscribe",)], "all the same"
