"""The threads of handlers: how many there are, and what comes out of them."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator
from contextlib import suppress

import pytest

from ottla.client.aio.processing.handler_threads import HandlerThreads
from tests.waiting import run_async

PATIENCE_S = 30.0


@pytest.fixture
def threads() -> Iterator[HandlerThreads]:
    made = HandlerThreads(2)
    yield made
    made.close()


def test_a_thread_that_is_free_is_used_again(threads: HandlerThreads) -> None:
    async def test() -> set[threading.Thread]:
        return {await threads.run(threading.current_thread) for _ in range(20)}

    used = run_async(test())
    # The first may have told its result and not yet be free.
    assert 1 <= len(used) <= 2
    assert all(thread.daemon for thread in used)


def test_there_are_as_many_threads_as_calls_but_not_more_than_allowed(threads: HandlerThreads) -> None:
    meeting, most = threading.Barrier(2), threading.Semaphore(2)

    def meet() -> threading.Thread:
        assert most.acquire(blocking=False)
        meeting.wait(PATIENCE_S)
        most.release()
        meeting.wait(PATIENCE_S)
        return threading.current_thread()

    async def test() -> list[threading.Thread]:
        return await asyncio.gather(*(threads.run(meet) for _ in range(6)))

    assert len(set(run_async(test()))) == 2


def test_a_call_that_is_cancelled_while_it_waits_is_not_made(threads: HandlerThreads) -> None:
    release, made = threading.Event(), []

    async def test() -> None:
        busy = [threads.run(release.wait) for _ in range(2)]
        waiting = threads.run(lambda: made.append("cancelled"))
        waiting.cancel()
        await asyncio.sleep(0)
        release.set()
        await asyncio.gather(*busy)
        await threads.run(lambda: made.append("next"))

    run_async(test())
    assert made == ["next"]


class Odd(BaseException): ...


@pytest.mark.parametrize("error", [LookupError, StopAsyncIteration, GeneratorExit, SystemExit, KeyboardInterrupt, Odd])
def test_any_error_comes_out_as_it_was_raised(threads: HandlerThreads, error: type[BaseException]) -> None:
    raised = error("no")

    def fail() -> None:
        raise raised

    async def test() -> BaseException:
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(error) as found:
                await threads.run(fail)
        return found.value

    assert asyncio.run(test()) is raised  # a GeneratorExit would end a coroutine around it


def test_stop_iteration_comes_out_as_another_error(threads: HandlerThreads) -> None:
    async def test() -> None:
        with pytest.raises(RuntimeError, match="raised StopIteration") as found:
            await threads.run(lambda: next(iter([])))
        assert isinstance(found.value.__cause__, StopIteration)

    run_async(test())


def test_what_failed_is_freed_at_once(threads: HandlerThreads) -> None:
    class Given:
        def fail(self) -> None:
            raise LookupError

    async def test() -> weakref.ref[Given]:
        given = Given()
        with suppress(LookupError):
            await threads.run(given.fail)
        return weakref.ref(given)

    gc.collect()
    gc.disable()
    try:
        found = run_async(test())
        threads.close()
        for thread in threads._threads:
            thread.join(PATIENCE_S)
        assert found() is None
    finally:
        gc.enable()


def test_threads_end_when_they_are_closed() -> None:
    threads = HandlerThreads(3)
    release = threading.Event()

    async def test() -> None:
        calls = [threads.run(release.wait) for _ in range(3)]
        threads.close()
        release.set()
        await asyncio.gather(*calls)

    run_async(test())
    for thread in threads._threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
