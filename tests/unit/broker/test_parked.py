"""Requests that wait: tried again once per turn of the loop, answered exactly once, and never forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ottla.broker.parked import Parked, Waitable
from tests.waiting import run_async

LONG_MS = 60_000


class Waiting:
    """A waiter that is satisfied when told so, and counts what happens to it."""

    def __init__(self) -> None:
        self.is_satisfied = False
        self.tries = 0
        self.completed = 0
        self.expired = 0

    def try_complete(self) -> bool:
        self.tries += 1
        self.completed += self.is_satisfied
        return self.is_satisfied

    def expire(self) -> None:
        self.expired += 1


def run(scenario: Callable[[Parked], Awaitable[None]]) -> None:
    async def start() -> None:
        await scenario(Parked(asyncio.get_running_loop()))

    run_async(start())


async def next_turn() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_all_that_moves_in_a_turn_costs_one_try() -> None:
    async def scenario(parked: Parked) -> None:
        first, second, waiter = Waitable(), Waitable(), Waiting()
        parked.park(waiter, [first, second], LONG_MS)
        for _ in range(5):
            parked.moved(first)
        assert waiter.tries == 0
        await next_turn()
        assert waiter.tries == 1
        parked.moved(first)
        parked.moved(second)
        await next_turn()
        assert waiter.tries == 3, "once for each place of waiting"
        waiter.is_satisfied = True
        parked.moved(first)
        parked.moved(second)
        await next_turn()
        assert (waiter.completed, waiter.expired) == (1, 0)
        assert not first.waiters and not second.waiters

    run(scenario)


def test_nobody_else_is_disturbed() -> None:
    async def scenario(parked: Parked) -> None:
        here, there, waiter, other = Waitable(), Waitable(), Waiting(), Waiting()
        parked.park(waiter, [here], LONG_MS)
        parked.park(other, [there], LONG_MS)
        waiter.is_satisfied = True
        parked.moved(here)
        await next_turn()
        assert (waiter.completed, other.tries) == (1, 0)
        assert list(there.waiters)

    run(scenario)


def test_time_is_up() -> None:
    async def scenario(parked: Parked) -> None:
        waitable, waiter = Waitable(), Waiting()
        parked.park(waiter, [waitable], 0)
        while not waiter.expired:
            await asyncio.sleep(0)
        assert not waitable.waiters
        parked.moved(waitable)
        await next_turn()
        assert (waiter.tries, waiter.expired) == (0, 1)

    run(scenario)


def test_moved_and_expired_in_the_same_turn_is_answered_once() -> None:
    async def scenario(parked: Parked) -> None:
        waitable, waiter = Waitable(), Waiting()
        request = parked.park(waiter, [waitable], LONG_MS)
        waiter.is_satisfied = True
        parked.moved(waitable)
        request.time_is_up()
        await next_turn()
        assert (waiter.completed, waiter.expired) == (0, 1)
        request.time_is_up()
        assert waiter.expired == 1

    run(scenario)


def test_one_whose_peer_has_gone_is_forgotten() -> None:
    async def scenario(parked: Parked) -> None:
        waitable, waiter = Waitable(), Waiting()
        request = parked.park(waiter, [waitable], LONG_MS)
        parked.moved(waitable)
        request.forget()
        await next_turn()
        request.time_is_up()
        assert (waiter.tries, waiter.completed, waiter.expired) == (0, 0, 0)
        assert not waitable.waiters

    run(scenario)


def test_a_waiter_that_makes_others_go() -> None:
    """A reply can end the wait of another request of the same partition before its own turn has come."""

    async def scenario(parked: Parked) -> None:
        waitable, second = Waitable(), Waiting()

        class First(Waiting):
            def try_complete(self) -> bool:
                self.is_satisfied = True
                for request in list(waitable.waiters):
                    if request is not own:
                        request.forget()
                return super().try_complete()

        first = First()
        own = parked.park(first, [waitable], LONG_MS)
        parked.park(second, [waitable], LONG_MS)
        parked.moved(waitable)
        await next_turn()
        assert (first.completed, second.tries) == (1, 0)

    run(scenario)


def test_something_moves_while_waiters_are_tried() -> None:
    async def scenario(parked: Parked) -> None:
        waitable = Waitable()

        class Moving(Waiting):
            def try_complete(self) -> bool:
                if self.tries == 0:
                    parked.moved(waitable)
                return super().try_complete()

        waiter = Moving()
        parked.park(waiter, [waitable], LONG_MS)
        parked.moved(waitable)
        await next_turn()
        await next_turn()
        assert waiter.tries == 2

    run(scenario)


def test_everybody_is_answered_at_the_end() -> None:
    async def scenario(parked: Parked) -> None:
        waitables = [Waitable() for _ in range(3)]
        waiters = [Waiting() for _ in range(4)]
        parked.park(waiters[0], waitables, LONG_MS)
        for waitable, waiter in zip(waitables, waiters[1:], strict=True):
            parked.park(waiter, [waitable], LONG_MS)
        parked.moved(waitables[0])
        parked.expire_all(waitables)
        await next_turn()
        assert [waiter.expired for waiter in waiters] == [1, 1, 1, 1]
        assert [waiter.tries for waiter in waiters] == [0, 0, 0, 0]
        assert not any(waitable.waiters for waitable in waitables)

    run(scenario)


def test_whoever_is_to_be_tried_soon_is_tried_once_at_the_end_of_the_turn() -> None:
    async def scenario(parked: Parked) -> None:
        place, first, second = Waitable(), Waiting(), Waiting()
        requests = [parked.park_unplaced(first, LONG_MS), parked.park(second, [place], LONG_MS)]
        for request in (*requests, *requests):
            parked.soon(request)
        assert (first.tries, second.tries) == (0, 0)
        await next_turn()
        assert (first.tries, second.tries) == (1, 1)
        first.is_satisfied = True
        parked.moved(place)
        parked.soon(requests[0])
        await next_turn()
        assert (first.completed, second.tries) == (1, 2)

    run(scenario)
