"""Threads of brokers: each broker has its own, and gives them back."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from ottla.broker.background import BackgroundThreads
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.startup import start_broker
from tests.waiting import repeat_until, run_async, until


def test_one_that_is_busy_keeps_no_other_waiting() -> None:
    async def scenario() -> None:
        busy, free = BackgroundThreads(1), BackgroundThreads(1)
        release = threading.Event()
        waiting = asyncio.get_running_loop().create_task(busy.run(release.wait, 60))
        try:
            assert await free.run(max, 1, 2) == 2
            assert await asyncio.to_thread(max, 1, 2) == 2
            assert not waiting.done()
        finally:
            release.set()
        assert await waiting
        busy.close()
        free.close()

    run_async(scenario())


def test_what_was_begun_is_done_by_the_threads_there_were() -> None:
    async def scenario() -> None:
        threads = BackgroundThreads(1)
        release, begun = threading.Event(), list[int]()

        def work(number: int) -> int:
            begun.append(number)
            release.wait(60)
            return number

        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(threads.run(work, number)) for number in range(2)]
        await until(lambda: begun == [0])
        threads.resize(2)
        tasks += [loop.create_task(threads.run(work, number)) for number in (2, 3)]
        await until(lambda: set(begun) == {0, 2, 3})
        release.set()
        assert await asyncio.gather(*tasks) == [0, 1, 2, 3]
        threads.close()

    run_async(scenario())


def test_a_broker_that_stops_leaves_no_thread_and_the_loop_as_it_was(tmp_path: Path) -> None:
    before = set(threading.enumerate())

    async def scenario() -> None:
        config = BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "data")})
        broker = await start_broker(config)
        name = await broker.replicas.threads.run(lambda: threading.current_thread().name)
        assert name.startswith("ottla-background")
        assert not (await asyncio.to_thread(lambda: threading.current_thread().name)).startswith("ottla-background")
        await broker.stop()

    run_async(scenario())
    repeat_until(lambda: not {thread for thread in threading.enumerate() if thread.is_alive()} - before)
