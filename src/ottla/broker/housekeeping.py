"""What a broker does beside answering: syncs logs that are due, writes checkpoints, removes what was deleted.

All of it touches the disk and so runs in a thread; the loop only says when.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ottla.base.clock import Clock
from ottla.base.errors import LogDirError
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.replicas import Replicas

log = logging.getLogger(__name__)

FLUSH_CHECK_MS = 1_000
DELETE_CHECK_MS = 1_000
PRODUCER_EXPIRY_CHECK_MS = 600_000


class Housekeeping:
    def __init__(self, replicas: Replicas, clock: Clock, config: BrokerConfig) -> None:
        self._replicas = replicas
        self._clock = clock
        self._config = config
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        checkpoint_ms = self._config.integer("replica.high.watermark.checkpoint.interval.ms")
        jobs: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (checkpoint_ms, self.checkpoint),
            (FLUSH_CHECK_MS, self.flush_due),
            (DELETE_CHECK_MS, self.remove_deleted),
            (PRODUCER_EXPIRY_CHECK_MS, self.expire_producers),
            (max(self._replicas.lag_ms_max() // 2, 1), self.check_lag),
        ]
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._every(interval_ms, job)) for interval_ms, job in jobs]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _every(self, interval_ms: int, job: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                await job()
            except (LogDirError, OSError) as e:
                log.error("%s: %s", job.__name__, e)

    async def checkpoint(self) -> None:
        log_dirs = self._replicas.log_dirs
        for path in log_dirs.usable_paths:
            try:
                await asyncio.to_thread(log_dirs.checkpoint_dir, path)
            except LogDirError as e:
                self._replicas.directory_failed(path, e)

    async def flush_due(self) -> None:
        now_ms = self._clock.wall_ms()
        due = [
            partition.log
            for partition in self._replicas
            if partition.log.is_flush_due(now_ms) and not partition.is_offline
        ]
        for partition_log in due:
            partition_log.note_flush_time(now_ms)
            try:
                await asyncio.to_thread(partition_log.flush)
            except LogDirError as e:
                self._replicas.directory_failed(partition_log.directory.parent, e)

    async def check_lag(self) -> None:
        self._replicas.check_lag()

    async def remove_deleted(self) -> None:
        await asyncio.to_thread(self._replicas.log_dirs.remove_deleted, self._clock.wall_ms())

    async def expire_producers(self) -> None:
        now_ms = self._clock.wall_ms()
        for partition in self._replicas:
            partition.log.producers.expire(now_ms, partition.log.config.producer_id_expiration_ms)
