"""The loop of the consumer for threads: run by whoever calls, and by a thread of its own in between."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

import pytest

from ottla.client.errors import ClientClosedError, ConcurrentUseError
from ottla.client.sync.shared_loop import SharedLoop
from tests.waiting import run_async

PATIENCE_S = 30.0


@pytest.fixture
def shared() -> Iterator[SharedLoop]:
    loop = SharedLoop("the-keeper", lambda: None)
    yield loop
    loop.stop()


@pytest.fixture
def usr1() -> Iterator[list[object]]:
    """What the handler of SIGUSR1 has seen: the loop that ran in its thread when it was called."""
    seen: list[object] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(asyncio._get_running_loop()))
    yield seen
    signal.signal(signal.SIGUSR1, before)


async def thread_name() -> str:
    return threading.current_thread().name


def test_a_call_runs_in_the_thread_that_makes_it(shared: SharedLoop) -> None:
    assert shared.call(thread_name()) == threading.current_thread().name


def test_between_calls_the_loop_goes_on_in_its_own_thread(shared: SharedLoop) -> None:
    names: list[str] = []
    done = threading.Event()

    async def later() -> None:
        async with asyncio.timeout(PATIENCE_S):
            while threading.current_thread().name != "the-keeper":
                await asyncio.sleep(0.001)
        names.append(await thread_name())
        done.set()

    async def begin() -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(later())

    for _ in range(3):
        done.clear()
        task = shared.call(begin())
        assert done.wait(PATIENCE_S)
        # Its own thread runs the loop now, and gives it back.
        assert shared.call(thread_name()) == threading.current_thread().name
        assert task.done()
    assert names == ["the-keeper"] * 3


def test_a_call_in_a_coroutine_of_another_loop(shared: SharedLoop) -> None:
    async def run() -> str:
        return shared.call(thread_name())

    assert run_async(run()) == "the-keeper"


def test_a_long_call_holds_up_nobody(shared: SharedLoop) -> None:
    entered, finish, found = threading.Event(), asyncio.Event(), []

    async def long() -> str:
        entered.set()
        await finish.wait()
        return threading.current_thread().name

    waiting = threading.Thread(target=lambda: found.append(shared.call(long())), name="the-waiter")
    waiting.start()
    assert entered.wait(PATIENCE_S)

    async def end() -> str:
        finish.set()
        return threading.current_thread().name

    assert shared.call(end()) == "the-waiter"
    waiting.join(PATIENCE_S)
    assert found == ["the-waiter"]


def test_whoever_cannot_run_the_loop_is_not_left_alone(shared: SharedLoop) -> None:
    """The call that runs the loop ends before the one that was handed to it."""
    entered, handed_over, found = threading.Event(), asyncio.Event(), []

    async def first() -> None:
        entered.set()
        await handed_over.wait()

    async def second() -> str:
        handed_over.set()
        await asyncio.sleep(0.05)
        return threading.current_thread().name

    waiting = threading.Thread(target=lambda: shared.call(first()))
    waiting.start()
    assert entered.wait(PATIENCE_S)
    other = threading.Thread(target=lambda: found.append(shared.call(second())))
    other.start()
    other.join(PATIENCE_S)
    waiting.join(PATIENCE_S)
    assert found == ["the-keeper"]


def test_a_callback_must_not_wait_for_its_own_loop(shared: SharedLoop) -> None:
    async def outer() -> str:
        return shared.call(thread_name())

    with pytest.raises(ConcurrentUseError, match="callback"):
        shared.call(outer())


def test_who_has_the_loop_without_running_it_must_not_wait_for_it_either(shared: SharedLoop) -> None:
    refusals: list[ConcurrentUseError] = []

    def work(_: float) -> str:
        try:
            shared.call(thread_name())
        except ConcurrentUseError as e:
            refusals.append(e)
        return "done"

    outcome = None
    deadline_s = time.monotonic() + PATIENCE_S
    while outcome is None:
        assert time.monotonic() < deadline_s
        # Right after a call the loop rests.
        shared.call(thread_name())
        outcome = shared.try_without_running(work)
    assert len(refusals) == 1
    assert shared.call(thread_name()) == threading.current_thread().name


def test_what_a_call_raises(shared: SharedLoop) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        shared.call(fail())
    assert shared.call(thread_name()) == threading.current_thread().name


def test_a_handler_of_a_signal_runs_outside_of_the_loop(shared: SharedLoop, usr1: list[object]) -> None:
    async def interrupted() -> str:
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.sleep(0.01)
        return "all of it"

    assert shared.call(interrupted()) == "all of it"
    assert usr1 == [None]


def test_a_handler_that_raises_ends_the_call_and_nothing_else(shared: SharedLoop) -> None:
    class Enough(BaseException):
        pass

    def raise_it(number: int, frame: FrameType | None) -> None:
        raise Enough

    ended = threading.Event()
    steps: list[int] = []

    async def background() -> None:
        for number in range(50):
            os.kill(os.getpid(), signal.SIGUSR1)
            steps.append(number)
            await asyncio.sleep(0)

    async def wait_for_it() -> None:
        task = asyncio.get_running_loop().create_task(background())
        tasks.append(task)
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    tasks: list[asyncio.Task[None]] = []
    before = signal.signal(signal.SIGUSR1, raise_it)
    try:
        with pytest.raises(Enough):
            shared.call(wait_for_it())
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        assert ended.wait(PATIENCE_S)

        async def rest() -> None:
            await tasks[0]

        shared.call(rest())
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert steps == list(range(50))


def test_a_handler_may_use_the_loop(shared: SharedLoop) -> None:
    found: list[str] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: found.append(shared.call(thread_name())))

    async def interrupted() -> str:
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.sleep(0.01)
        return "all of it"

    try:
        assert shared.call(interrupted()) == "all of it"
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert found == [threading.current_thread().name]


def test_work_that_does_not_need_the_loop_to_run(shared: SharedLoop, usr1: list[object]) -> None:
    def work(_: float) -> str:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert not usr1
        return threading.current_thread().name

    # Nobody knows yet what the loop has to do.
    assert shared.try_without_running(work) is None
    shared.call(thread_name())
    assert shared.try_without_running(work) == threading.current_thread().name
    assert usr1 == [None]


def test_the_loop_gets_its_turn_in_spite_of_work_without_it(shared: SharedLoop) -> None:
    rounds: list[int] = []

    async def begin() -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(background())

    async def background() -> None:
        while True:
            rounds.append(len(rounds))
            await asyncio.sleep(0)

    task = shared.call(begin())
    before = len(rounds)
    deadline_s = time.monotonic() + PATIENCE_S
    while len(rounds) < before + 10 and time.monotonic() < deadline_s:
        if shared.try_without_running(lambda _: "done") is None:
            shared.call(thread_name())
    assert len(rounds) >= before + 10
    shared.loop.call_soon_threadsafe(task.cancel)


def test_work_without_the_loop_while_another_thread_runs_it(shared: SharedLoop) -> None:
    entered, finish = threading.Event(), asyncio.Event()

    async def long() -> None:
        entered.set()
        await finish.wait()

    waiting = threading.Thread(target=lambda: shared.call(long()))
    waiting.start()
    assert entered.wait(PATIENCE_S)
    assert shared.try_without_running(lambda _: "done") is None

    async def end() -> None:
        finish.set()

    shared.call(end())
    waiting.join(PATIENCE_S)


def test_who_waits_when_it_ends_is_told() -> None:
    shared = SharedLoop("the-keeper", lambda: None)
    entered = threading.Barrier(3)
    errors: list[Exception] = []

    async def forever() -> None:
        await asyncio.Event().wait()

    def wait() -> None:
        entered.wait(PATIENCE_S)
        try:
            shared.call(forever())
        except ClientClosedError as e:
            errors.append(e)

    threads = [threading.Thread(target=wait) for _ in range(2)]
    for thread in threads:
        thread.start()
    entered.wait(PATIENCE_S)
    shared.stop()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(errors) == 2
    with pytest.raises(ClientClosedError):
        shared.call(thread_name())
