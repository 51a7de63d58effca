"""The simulated event loop: time, parties that die and are held, work for threads."""

from __future__ import annotations

import asyncio
import weakref

import pytest

from ottla.testing.sim.loop import NothingLeftError, Party, SimLoop


@pytest.fixture
def loop() -> SimLoop:
    return SimLoop()  # type: ignore[abstract]


def test_an_hour_is_over_at_once(loop: SimLoop) -> None:
    loop.run_until_complete(asyncio.sleep(3600))
    assert loop.time() == 3600


def test_timers_go_off_in_their_order_and_equal_ones_in_that_of_their_making(loop: SimLoop) -> None:
    seen: list[str] = []
    for name, delay_s in (("late", 2), ("early", 1), ("also late", 2)):
        loop.call_later(delay_s, seen.append, name)
    loop.run_while(lambda: len(seen) < 3)
    assert seen == ["early", "late", "also late"]


def test_what_a_dead_party_left_never_runs(loop: SimLoop) -> None:
    seen: list[str] = []
    broker = Party("broker")

    async def work() -> None:
        try:
            await asyncio.sleep(1)
        finally:
            seen.append("cleaned up, which no killed process does")

    broker.run(loop.create_task, work())
    loop.run_until_complete(asyncio.sleep(0.5))
    broker.is_dead = True
    loop.run_until_complete(asyncio.sleep(10))
    assert not seen


def test_a_held_party_goes_on_with_what_waited(loop: SimLoop) -> None:
    seen: list[float] = []

    async def work() -> None:
        while True:
            await asyncio.sleep(1)
            seen.append(loop.time())

    broker = Party("broker")
    broker.run(loop.create_task, work())
    loop.run_until_complete(asyncio.sleep(1.5))
    broker.is_held = True
    loop.run_until_complete(asyncio.sleep(10))
    assert seen == [1]
    loop.resume(broker)
    loop.run_until_complete(asyncio.sleep(1.5))
    assert seen == [1, 11.5, 12.5]


def test_work_for_threads_is_done_on_the_spot(loop: SimLoop) -> None:
    def fail() -> None:
        raise OSError("disk")

    async def work() -> int:
        with pytest.raises(OSError, match="disk"):
            await asyncio.to_thread(fail)
        return await asyncio.to_thread(lambda: 7)

    assert loop.run_until_complete(work()) == 7


def test_whoever_waits_for_nothing_is_told(loop: SimLoop) -> None:
    with pytest.raises(NothingLeftError):
        loop.run_until_complete(loop.create_future())


def test_a_closed_loop_holds_on_to_nothing(loop: SimLoop) -> None:
    class Held:
        def work(self) -> None:
            raise AssertionError("nobody runs the loop")

    soon, later = Held(), Held()
    held = weakref.ref(soon), weakref.ref(later)
    loop.call_soon(soon.work)
    loop.call_later(1, later.work)
    del soon, later
    assert None not in [ref() for ref in held]
    loop.close()
    assert loop.is_closed()
    assert [ref() for ref in held] == [None, None]


def test_an_error_that_nobody_takes_is_kept(loop: SimLoop) -> None:
    def fail() -> None:
        raise ValueError("nobody sees this")

    loop.call_soon(fail)
    loop.run_until_complete(asyncio.sleep(0))
    assert "nobody sees this" in loop.failures[0]
