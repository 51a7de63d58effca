"""What a broker does beside answering: syncs logs that are due, writes checkpoints, drops and removes what is old.

All that may take long runs in a thread; the loop only says when. What changes a log is done on the loop, as appends
are. Compaction is the business of `cleaner`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ottla.base.clock import Clock
from ottla.base.errors import LogDirError
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.replicas import Replicas
from ottla.log.retention import drop_expired, find_expired

log = logging.getLogger(__name__)

FLUSH_CHECK_MS = 1_000
DELETE_CHECK_MS = 1_000
PRODUCER_EXPIRY_CHECK_MS = 600_000
LOGS_PER_TURN = 256
"""So many logs are looked at before others have a turn."""


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
            (self._config.integer("log.retention.check.interval.ms"), self.drop_expired),
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
        for partition_log in self._replicas.log_dirs.take_due_flushes(now_ms):
            partition_log.note_flush_time(now_ms)
            try:
                await asyncio.to_thread(partition_log.flush)
            except LogDirError as e:
                self._replicas.directory_failed(partition_log.directory.parent, e)

    async def drop_expired(self) -> None:
        """Retention: by age, by size, and never what a follower may still need."""
        now_ms = self._clock.wall_ms()
        for number, partition in enumerate(list(self._replicas), start=1):
            if number % LOGS_PER_TURN == 0:
                await asyncio.sleep(0)
            partition_log = partition.log
            if partition.is_offline or partition_log.is_deleted or partition_log.stage.has_batches:
                continue
            expired = find_expired(partition_log, now_ms)
            if expired is None:
                continue
            try:
                drop_expired(partition_log, expired, now_ms)
            except LogDirError as e:
                self._replicas.directory_failed(partition_log.directory.parent, e)
                continue
            log.info(
                "%s begins at offset %d now: %d segments with %d bytes go, because %s",
                partition.tp,
                partition_log.log_start_offset,
                len(expired.segments),
                expired.size_bytes,
                expired.reason,
            )
            self._replicas.moved(partition)
            await asyncio.sleep(0)

    async def check_lag(self) -> None:
        self._replicas.check_lag()

    async def remove_deleted(self) -> None:
        await asyncio.to_thread(self._replicas.log_dirs.remove_deleted, self._clock.wall_ms())

    async def expire_producers(self) -> None:
        now_ms = self._clock.wall_ms()
        for partition in self._replicas:
            partition.log.producers.expire(now_ms, partition.log.config.producer_id_expiration_ms)
