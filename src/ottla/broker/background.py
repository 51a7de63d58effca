"""The threads of a broker's jobs beside its requests. Several brokers may share an event loop; each has its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple, Unpack

from ottla.broker.config.broker_config import BrokerConfig

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class BackgroundThreads:
    def __init__(self, count: int) -> None:
        self._count = count
        self._executor = _executor(count)

    async def run(self, work: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, *args)

    def resize(self, count: int) -> None:
        """From now on; jobs that were begun, or wait already, are done by the threads there were."""
        if count == self._count:
            return
        replaced = self._executor
        self._count = count
        self._executor = _executor(count)
        replaced.shutdown(wait=False)

    def close(self) -> None:
        """Nothing can be begun any more; threads end when what they do is done."""
        self._executor.shutdown(wait=False)


def _executor(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="ottla-background")


def thread_count(config: BrokerConfig) -> int:
    """Compaction and moves have threads of their own in Kafka; here they are in one pool, and take none from others."""
    moves = config.optional_integer("num.replica.alter.log.dirs.threads") or len(config.log_dirs)
    return config.integer("background.threads") + config.integer("log.cleaner.threads") + moves
