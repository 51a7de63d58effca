"""Clients in a process that is forked, ends or is told to end, and in an event loop that is over."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from ottla.client.core.producer.batch import Batch
from ottla.client.errors import ClientError
from ottla.client.interrupts import forks, leftovers
from ottla.client.interrupts.exits import KeptExit, keep_exit
from ottla.client.interrupts.held_signals import HeldSignals
from ottla.client.interrupts.loop_end import LAST_S, LoopEnd, warn_of_lost
from ottla.client.sync.loop_thread import LoopThread
from ottla.client.sync.shared_loop import SharedLoop
from tests.waiting import join, run_async

HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2)


class Client:
    def __init__(self) -> None:
        self.told = 0
        self.given_s: list[float] = []

    def forked(self) -> None:
        self.told += 1

    def _send_rest(self, timeout_s: float) -> None:
        self.given_s.append(timeout_s)


def test_every_client_that_is_there_hears_of_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "_watched", weakref.WeakSet())
    clients = [Client() for _ in range(3)]
    for client in clients:
        forks.watch_forks(client)
    forks.forget_forks(clients[1])
    forks.forget_forks(clients[1])
    forks._tell_children()
    assert [client.told for client in clients] == [1, 0, 1]
    clients.pop()
    forks._tell_children()
    assert [client.told for client in clients] == [2, 0]


@pytest.mark.parametrize("kind", [LoopThread, SharedLoop])
def test_loops_tell_their_owners_of_a_fork_until_they_are_stopped(
    kind: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forks, "_watched", weakref.WeakSet())
    told: list[int] = []
    loop = kind("forking", lambda: told.append(1))
    forks._tell_children()
    assert told == [1]
    loop.stop()
    forks._tell_children()
    assert told == [1]


def test_the_end_of_the_process_waits_for_all_producers_as_long_as_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "_open", weakref.WeakSet())
    clients = [Client() for _ in range(4)]
    for client in clients:
        leftovers.watch_exit(client)
    leftovers.forget_exit(clients[3])
    now_s = [100.0]

    class Clock:
        @staticmethod
        def monotonic() -> float:
            now_s[0] += 3.0
            return now_s[0]

    monkeypatch.setattr(leftovers, "time", Clock)
    leftovers._at_exit()
    given_s = sorted(time_s for client in clients for time_s in client.given_s)
    assert given_s == [0.1, 0.1, LAST_S - 3.0] and not clients[3].given_s


# Exits


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_an_exit_leaves_a_task_as_an_ordinary_exception(kind: type[BaseException]) -> None:
    async def leave() -> None:
        raise kind(3)

    async def run() -> None:
        with pytest.raises(KeptExit) as kept:
            await asyncio.create_task(keep_exit(leave()))
        assert isinstance(kept.value.exit, kind) and kept.value.exit.args == (3,)
        with pytest.raises(ZeroDivisionError):
            await keep_exit(fail())
        assert await keep_exit(asyncio.sleep(0, "all is well")) == "all is well"

    async def fail() -> None:
        raise ZeroDivisionError

    run_async(run())


# Signals


@pytest.fixture
def handled() -> Iterator[list[tuple[int, bool]]]:
    """What the handlers of the program have been called for, and whether with a frame."""
    calls: list[tuple[int, bool]] = []

    def handle(number: int, frame: FrameType | None) -> None:
        calls.append((number, frame is not None))

    before = {number: signal.signal(number, handle) for number in HELD}
    yield calls
    for number, handler in before.items():
        signal.signal(number, handler)


def test_signals_are_held_within_the_block_and_delivered_in_their_order(handled: list[tuple[int, bool]]) -> None:
    seen: list[int] = []
    held = HeldSignals(lambda: seen.append(len(handled)))
    with held:
        for number in reversed(HELD):
            os.kill(os.getpid(), number)
        assert handled == []
    assert seen == [0] * len(HELD), "somebody may have to hurry now"
    os.kill(os.getpid(), signal.SIGUSR1)
    assert handled == [(signal.SIGUSR1, True)], "outside of the block they are not held"
    handled.clear()
    held.deliver()
    assert handled == [(number, True) for number in reversed(HELD)]
    held.deliver()
    assert len(handled) == len(HELD), "each once"


def test_a_handler_that_raises_leaves_the_rest_for_the_next_time(handled: list[tuple[int, bool]]) -> None:
    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, stop)
    held = HeldSignals()
    with held:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGUSR1)
    with pytest.raises(KeyboardInterrupt):
        held.deliver()
    held.deliver()
    assert handled == [(signal.SIGUSR1, True)]


def test_what_has_no_handler_of_python_is_left_as_it_is(handled: list[tuple[int, bool]]) -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    with HeldSignals():
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
        os.kill(os.getpid(), signal.SIGUSR1)
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    assert handled == []


def test_other_threads_have_no_signals_to_hold(handled: list[tuple[int, bool]]) -> None:
    failed: list[BaseException] = []

    def hold() -> None:
        try:
            with HeldSignals() as held:
                assert held is not None
            held.deliver()
        except BaseException as e:
            failed.append(e)

    thread = threading.Thread(target=hold)
    thread.start()
    join(thread)
    assert failed == []


# The end of an event loop


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_what_is_watched_is_closed_at_the_end_of_the_loop_unless_that_was_forgotten(is_forgotten: bool) -> None:
    closed: list[bool] = []
    ends: list[LoopEnd] = []

    async def close() -> None:
        await asyncio.sleep(0)
        closed.append(True)
        await ends[0].forget()

    async def run() -> None:
        end = LoopEnd(close)
        ends.append(end)
        await end.forget()
        await end.watch()
        if is_forgotten:
            await end.forget()
            await end.forget()

    run_async(run())
    assert closed == ([] if is_forgotten else [True])


def test_records_that_are_lost_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    def batch(count: int) -> Batch:
        made = Batch("t", 0, (0,), opened_ms=0, deadline_ms=1)
        for number in range(count):
            made.add((None, b"%d" % number, (), 0), 20)
        return made

    waiting, failed, stored = batch(2), batch(3), batch(5)
    failed.fail(ClientError("no"))
    stored.succeed(0)
    warn_of_lost([stored], "the program")
    assert not caplog.records
    warn_of_lost([waiting, failed, stored], "the program")
    (line,) = caplog.records
    assert line.getMessage() == "records not sent, because the program ended before the producer was closed: 5"
