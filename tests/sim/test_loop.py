"""The simulated event loop: time, parties that die and are held, work for threads."""

from __future__ import annotations

import asyncio
import weakref
from contextvars import copy_context
from typing import Any

import pytest

from ottla.testing.sim.loop import NothingLeftError, Party, SimLoop, current_party


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


# -- callbacks, and whose they are -------------------------------------------------------------------------------


def name_of(party: Party | None) -> str | None:
    return None if party is None else party.name


def test_after_each_callback_its_party_is_told_of(loop: SimLoop) -> None:
    told: list[str | None] = []
    loop.after_event = lambda party: told.append(name_of(party))
    broker, dead = Party("broker"), Party("dead")
    dead.is_dead = True
    seen: list[tuple[str, str | None]] = []

    def note(what: str) -> None:
        seen.append((what, name_of(current_party())))

    loop.call_soon(note, "nobody's")
    assert broker.run(loop.call_soon, note, "a party's") is not None
    dead.run(loop.call_soon, note, "a dead party's")
    loop.call_soon(note, "cancelled").cancel()
    loop.call_as(broker, 2, note, "from outside")
    loop.call_as(None, 3, note, "from nowhere")
    broker.run(loop.call_later, 4, note, "later")
    loop.run_while(lambda: len(seen) < 5)
    assert seen == [
        ("nobody's", None),
        ("a party's", "broker"),
        ("from outside", "broker"),
        ("from nowhere", None),
        ("later", "broker"),
    ]
    assert told == [name for _, name in seen] and loop.events == 5
    assert current_party() is None and loop.time() == 4


def test_a_party_is_one_that_lives_and_goes_on(loop: SimLoop) -> None:
    party = Party("p")
    assert (party.name, party.is_dead, party.is_held) == ("p", False, False)
    assert party.run(lambda a, b: (a, b, current_party()), 1, 2) == (1, 2, party)


def test_timers_that_nobody_waits_for_any_more_move_no_time(loop: SimLoop) -> None:
    dead = Party("dead")
    seen: list[str] = []
    loop.call_later(1, seen.append, "cancelled").cancel()
    loop.call_as(dead, 2, seen.append, "dead")
    loop.call_later(3, seen.append, "alive")
    dead.is_dead = True
    times: list[float] = []
    loop.after_event = lambda party: times.append(loop.time())
    loop.run_while(lambda: not seen)
    assert (seen, times) == (["alive"], [3])
    loop.call_later(4, seen.append, "never").cancel()
    with pytest.raises(NothingLeftError):
        loop.run_while(lambda: True)
    assert loop.time() == 3


def test_timers_of_the_past_go_off_now_and_those_of_one_moment_together(loop: SimLoop) -> None:
    seen: list[tuple[float, str]] = []

    def note(what: str) -> None:
        seen.append((loop.time(), what))

    loop.run_until_complete(asyncio.sleep(10))
    handles = [loop.call_at(when, note, what) for when, what in ((12, "b"), (4, "past"), (12, "c"), (11, "a"))]
    assert [handle.when() for handle in handles] == [12, 4, 12, 11]
    loop.call_later(1, lambda: loop.call_soon(note, "after a"))
    loop.run_while(lambda: len(seen) < 5)
    assert seen == [(10, "past"), (11, "a"), (11, "after a"), (12, "b"), (12, "c")]


def test_who_is_held_loses_nothing_and_keeps_its_order(loop: SimLoop) -> None:
    broker = Party("broker")
    seen: list[int] = []
    broker.is_held = True
    for number in range(3):
        broker.run(loop.call_soon, seen.append, number)
    loop.call_as(broker, 1, seen.append, 3)
    loop.run_until_complete(asyncio.sleep(2))
    events = loop.events
    assert seen == []
    loop.resume(broker)
    loop.resume(broker)
    assert not broker.is_held
    loop.run_until_complete(asyncio.sleep(0))
    assert seen == [0, 1, 2, 3] and loop.events - events >= 4


def test_who_dies_while_it_is_held_does_not_go_on(loop: SimLoop) -> None:
    broker = Party("broker")
    seen: list[int] = []
    broker.is_held = True
    broker.run(loop.call_soon, seen.append, 1)
    loop.run_until_complete(asyncio.sleep(1))
    broker.is_dead = True
    loop.resume(broker)
    loop.run_until_complete(asyncio.sleep(1))
    assert seen == []


# -- what asyncio asks of a loop ---------------------------------------------------------------------------------


def test_it_is_the_running_loop_while_it_runs_and_not_afterwards(loop: SimLoop) -> None:
    seen: list[object] = []
    assert not loop.is_running() and not loop.is_closed() and loop.get_debug() is False

    def look() -> None:
        seen.append((asyncio.get_running_loop(), loop.is_running()))
        raise AssertionError("from a callback")

    loop.call_soon(look)
    loop.run_until_complete(asyncio.sleep(0))
    assert seen == [(loop, True)] and not loop.is_running()

    def fails() -> bool:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop.run_while(fails)
    assert not loop.is_running()
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()


def test_tasks_are_kept_with_their_names_and_parties(loop: SimLoop) -> None:
    async def work() -> str | None:
        return name_of(current_party())

    context = copy_context()
    one = Party("one").run(loop.create_task, work())
    other = context.run(Party("other").run, lambda: loop.create_task(work(), name="its name"))
    third = loop.create_task(work(), context=context)
    assert loop.tasks == [one, other, third] and other.get_name() == "its name"
    assert loop.run_until_complete(third) is None
    assert (one.result(), other.result()) == ("one", "other")
    assert isinstance(loop.create_future(), asyncio.Future) and loop.create_future().get_loop() is loop


def test_whoever_waits_for_work_of_a_thread_goes_on_in_the_next_round(loop: SimLoop) -> None:
    order: list[str] = []

    def note(*words: str) -> int:
        order.append("-".join(words))
        return len(words)

    def fail() -> None:
        raise OSError("disk")

    async def scenario() -> None:
        future = loop.run_in_executor(None, note, "on", "the", "spot")
        failing = loop.run_in_executor(None, fail)
        given_up = [loop.run_in_executor(None, work) for work in (fail, lambda: None)]
        for each in given_up:
            each.cancel()
        assert order == ["on-the-spot"] and not future.done() and not failing.done()
        assert await future == 3
        with pytest.raises(OSError, match="disk"):
            await failing
        assert all(each.cancelled() for each in given_up)

    loop.run_until_complete(scenario())
    assert loop.failures == []


def test_failures_are_told_with_their_tracebacks(loop: SimLoop) -> None:
    loop.call_exception_handler({"message": "odd", "exception": None})
    loop.call_exception_handler({"message": "worse", "exception": ValueError("it")})
    first, second = loop.failures
    assert first == "odd\n"
    assert second.startswith("worse\n") and second.endswith("ValueError: it\n")


def test_connections_are_made_by_the_network(loop: SimLoop) -> None:
    class Network:
        async def connect(self, factory: Any, host: str, port: int) -> Any:
            return factory, host, port

    loop.network = Network()
    made: Any = loop.run_until_complete(loop.create_connection(asyncio.Protocol, "h", 9, family=3))
    assert made == (asyncio.Protocol, "h", 9)
