"""Scenarios in a loop where time passes at once: pauses are exact to the millisecond, and nobody waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ottla.testing.sim.loop import SimLoop


def run(scenario: Callable[[], Awaitable[None]], *, failures: int = 0) -> None:
    """`failures` is how many tasks nobody looked after are to have failed."""
    loop = SimLoop()  # type: ignore[abstract]
    # There is but one thread.
    loop.call_soon_threadsafe = loop.call_soon  # type: ignore[method-assign]

    async def wrapped() -> None:
        await scenario()

    try:
        loop.run_until_complete(loop.create_task(wrapped()))
    finally:
        loop.close()
    assert len(loop.failures) == failures, loop.failures


def now_s() -> float:
    return round(asyncio.get_running_loop().time(), 3)
