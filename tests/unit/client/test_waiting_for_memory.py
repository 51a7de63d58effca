"""Whoever waits for memory: when threads are told that there is some, and what is left behind by tasks that got it."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

import ottla
from ottla.base.errors import ErrorCode
from ottla.client.aio.producer.send_lines import SendLines, buffer_exhausted
from ottla.client.core.producer.options import ProducerSettings
from ottla.client.errors import BufferExhaustedError
from tests.unit.client.loop_time import run


def now_ms() -> int:
    return round(asyncio.get_running_loop().time() * 1000)


# Threads


class Told(threading.Condition):
    """Notes when those who wait are told."""

    def __init__(self, lock: Any) -> None:
        super().__init__(lock)
        self.at_ms: list[int] = []

    def notify_all(self) -> None:
        self.at_ms.append(now_ms())
        super().notify_all()


def producer_of_threads() -> Any:
    """As much of one as memory is about."""
    made: Any = ottla.Producer.__new__(ottla.Producer)
    made._lock = threading.Lock()
    made._memory = Told(made._lock)
    made._memory_timer = None
    return made


def accumulator(free: int, *, incomplete: int = 1) -> Any:
    return SimpleNamespace(free_bytes=free, buffer_memory=400, incomplete=[object()] * incomplete)


@pytest.mark.parametrize(
    ("free", "incomplete", "told_ms"), [(100, 1, 0), (101, 1, 0), (400, 1, 0), (0, 0, 0), (99, 1, 5), (0, 1, 5)]
)
def test_threads_are_told_at_once_of_a_quarter_and_soon_of_less(free: int, incomplete: int, told_ms: int) -> None:
    async def scenario() -> None:
        producer = producer_of_threads()
        with producer._lock:
            producer._memory_is_free(accumulator(free, incomplete=incomplete))
        await asyncio.sleep(1)
        assert producer._memory.at_ms == [told_ms]

    run(scenario)


def test_threads_are_told_once_for_all_batches_that_end_together() -> None:
    async def scenario() -> None:
        producer = producer_of_threads()

        async def free_some() -> None:
            with producer._lock:
                producer._memory_is_free(accumulator(1))

        await free_some()
        await asyncio.sleep(0.003)
        await free_some()
        await asyncio.sleep(1)
        assert producer._memory.at_ms == [5]
        await free_some()
        await asyncio.sleep(1)
        assert producer._memory.at_ms == [5, 1003 + 5], "and again the next time"

    run(scenario)


# Tasks


class Lines(SendLines):
    """Of an engine whose clock is that of the loop."""

    def __init__(self) -> None:
        settings = {"bootstrap.servers": "x:1", "buffer.memory": 400, "max.block.ms": 50}
        super().__init__(ProducerSettings.parse(settings), lambda: None)
        self.late_ms: list[int] = []
        self.woken = 0
        self.closed_lanes = 0
        self.accumulator = SimpleNamespace(waiting=0, close_lanes=self._close_lanes)
        self.engine = SimpleNamespace(  # type: ignore[assignment]
            clock=SimpleNamespace(monotonic_ms=now_ms),
            accumulator=self.accumulator,
            wake=self._wake,
            why_waiting=lambda: "cannot reach x:1: refused",
        )

    def _wake(self) -> None:
        self.woken += 1

    def _close_lanes(self) -> None:
        self.closed_lanes += 1

    def _too_late(self, waiter: asyncio.Future[Any]) -> None:
        self.late_ms.append(now_ms())
        super()._too_late(waiter)


def test_a_task_that_got_memory_leaves_no_timer_behind() -> None:
    async def scenario() -> None:
        lines = Lines()
        waiting = asyncio.ensure_future(lines.wait_for_memory(lambda _: "place", 50))
        await asyncio.sleep(0.01)
        assert (lines.accumulator.waiting, lines.woken, lines.closed_lanes) == (1, 1, 1)
        lines.serve()
        assert await waiting == "place"
        assert lines.accumulator.waiting == 0
        given_up: asyncio.Future[None] = asyncio.ensure_future(lines.wait_for_memory(lambda _: None, 50))
        await asyncio.sleep(0.01)
        given_up.cancel()
        await asyncio.sleep(60)
        assert given_up.cancelled() and lines.late_ms == [] and lines.accumulator.waiting == 0

    run(scenario)


@pytest.mark.parametrize(("deadline_ms", "late_ms"), [(150, 150), (101, 101), (100, 100), (-5, 100)])
def test_a_task_waits_until_its_time_is_up(deadline_ms: int, late_ms: int) -> None:
    async def scenario() -> None:
        lines = Lines()
        await asyncio.sleep(0.1)
        with pytest.raises(BufferExhaustedError) as late:
            await lines.wait_for_memory(lambda _: None, deadline_ms)
        assert late.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert late.value.message == (
            "the buffer of 400 bytes (buffer.memory) stayed full for 50 ms (max.block.ms): cannot reach x:1: refused"
        )
        assert lines.late_ms == [late_ms] and lines.accumulator.waiting == 0

    run(scenario)


def test_without_another_reason_there_are_too_many_records() -> None:
    settings = ProducerSettings.parse({"bootstrap.servers": "x:1"})
    assert buffer_exhausted(settings, "").message == (
        "the buffer of 33554432 bytes (buffer.memory) stayed full for 60000 ms (max.block.ms):"
        " records come faster than the brokers take them"
    )


def test_the_time_at_which_a_task_is_served_is_that_of_its_records() -> None:
    async def scenario() -> None:
        lines = Lines()
        waiting = asyncio.ensure_future(lines.wait_for_memory(lambda now: f"place at {now}", 1000))
        await asyncio.sleep(0.25)
        lines.serve()
        assert await waiting == "place at 250"

    run(scenario)
