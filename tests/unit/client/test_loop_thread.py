"""An event loop in its own thread: what callers of other threads get back, and what becomes of work given up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from ottla.client.errors import ClientClosedError, ConcurrentUseError
from ottla.client.sync.loop_thread import LoopThread
from tests.waiting import PATIENCE_S, join


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    made = LoopThread("test-loop", lambda: None)
    yield made
    made.stop()


def test_a_result_and_an_error_are_the_callers(loop: LoopThread) -> None:
    async def work() -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name

    async def fail() -> None:
        raise KeyError("mine")

    assert loop.call(work()) == "test-loop"
    with pytest.raises(KeyError, match="mine"):
        loop.call(fail())
    assert not loop.is_current


def test_an_exit_is_the_callers_and_the_loop_goes_on(loop: LoopThread) -> None:
    async def leave() -> None:
        raise SystemExit(3)

    async def nothing() -> int:
        return 1

    with pytest.raises(SystemExit) as left:
        loop.call(leave())
    assert left.value.code == 3
    assert loop.call(nothing()) == 1


def test_work_that_is_not_waited_for_any_longer_is_over_when_the_call_returns(loop: LoopThread) -> None:
    ended: list[str] = []

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    with pytest.raises(TimeoutError):
        loop.call(hang(), timeout_s=0.05)
    assert ended == ["cancelled"]


def test_work_that_is_cancelled_means_that_the_client_was_closed(loop: LoopThread) -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(ClientClosedError):
        loop.call(cancelled())


def test_who_waits_while_the_loop_is_stopped_is_told_so(loop: LoopThread) -> None:
    began = threading.Event()
    raised: list[BaseException] = []

    async def hang() -> None:
        began.set()
        await asyncio.Event().wait()

    def wait() -> None:
        try:
            loop.call(hang())
        except ClientClosedError as e:
            raised.append(e)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert began.wait(PATIENCE_S)
    loop.stop()
    join(waiting)
    assert len(raised) == 1
    assert loop.loop.is_closed()


def test_a_loop_that_was_stopped_takes_no_work(loop: LoopThread) -> None:
    began: list[str] = []

    async def work() -> None:
        began.append("never")

    loop.stop()
    loop.stop()
    with pytest.raises(ClientClosedError):
        loop.call(work())
    assert began == []


def test_a_callback_cannot_wait_for_its_own_loop(loop: LoopThread) -> None:
    async def inner() -> None: ...

    async def outer() -> None:
        assert loop.is_current
        loop.call(inner())

    with pytest.raises(ConcurrentUseError, match="use another thread"):
        loop.call(outer())
