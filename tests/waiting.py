"""Waiting in tests: never without an end, and never so short that a busy machine fails a test."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE_S = 120.0
"""Nothing waits this long when things work."""


async def in_time(coroutine: Coroutine[Any, Any, T]) -> T:
    async with asyncio.timeout(PATIENCE_S):
        return await coroutine


def run_async(coroutine: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` for a scenario that may hang."""
    return asyncio.run(in_time(coroutine))


def join(*threads: threading.Thread) -> None:
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), f"{thread.name} did not end"


def repeat_until(is_so: Callable[[], bool], step: Callable[[], object] = lambda: time.sleep(0.01)) -> None:
    """Takes steps until it is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "it did not come about"
        step()


async def until(is_so: Callable[[], bool]) -> None:
    """Waits on the event loop until it is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "it did not come about"
        await asyncio.sleep(0.002)
