"""What a broker does beside answering: syncs logs that are due, writes checkpoints, drops and removes what is old.

All that may take long runs in a thread; the loop only says when. What changes a log is done on the loop, as appends
are. Compaction is the business of `cleaner`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from pathlib import Path
from weakref import WeakKeyDictionary

from ottla.base.clock import Clock
from ottla.base.errors import KafkaError, LogDirError, OttlaError
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.replicas import Replicas
from ottla.log.dir_checkpoint import EVERYTHING, Part
from ottla.log.retention import drop_expired, find_expired
from ottla.log.segmented_log import SegmentedLog

log = logging.getLogger(__name__)

FLUSH_CHECK_MS = 1_000
DELETE_CHECK_MS = 1_000
PRODUCER_EXPIRY_CHECK_MS = 600_000
CHECKPOINT_INTERVALS = {
    Part.HIGH_WATERMARKS: "replica.high.watermark.checkpoint.interval.ms",
    Part.RECOVERY_POINTS: "log.flush.offset.checkpoint.interval.ms",
    Part.LOG_START_OFFSETS: "log.flush.start.offset.checkpoint.interval.ms",
}
LOGS_PER_TURN = 256
"""So many logs are looked at before others have a turn."""


class Housekeeping:
    def __init__(self, replicas: Replicas, clock: Clock, config: BrokerConfig) -> None:
        self._replicas = replicas
        self._clock = clock
        self._config = config
        self._tasks: list[asyncio.Task[None]] = []
        self._told: WeakKeyDictionary[SegmentedLog, str] = WeakKeyDictionary()
        """Why retention left logs as they are."""

    def start(self) -> None:
        jobs: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            *(
                (self._config.integer(name), partial(self.checkpoint, {part}))
                for part, name in CHECKPOINT_INTERVALS.items()
            ),
            (FLUSH_CHECK_MS, self.flush_due),
            (DELETE_CHECK_MS, self.remove_deleted),
            (self._config.integer("log.retention.check.interval.ms"), self.drop_expired),
            (PRODUCER_EXPIRY_CHECK_MS, self.expire_producers),
            (max(self._replicas.lag_ms_max() // 2, 1), self.check_lag),
        ]
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._every(interval_ms, job)) for interval_ms, job in jobs if interval_ms > 0]

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
                log.error("%s", e)
            except Exception:
                # The next time may be better, and without retention or checkpoints a broker does not last.
                log.exception("an error that was not foreseen")

    async def checkpoint(self, parts: Collection[Part] = EVERYTHING, paths: Iterable[Path] | None = None) -> None:
        log_dirs = self._replicas.log_dirs
        for path in log_dirs.usable_paths if paths is None else paths:
            try:
                await self._replicas.threads.run(log_dirs.checkpoint_dir, path, parts)
            except LogDirError as e:
                self._replicas.directory_failed(path, e)

    async def flush_due(self) -> None:
        now_ms = self._clock.wall_ms()
        with_closed_segments: dict[Path, None] = {}
        for partition_log in self._replicas.log_dirs.take_due_flushes(now_ms):
            partition_log.note_flush_time(now_ms)
            before = partition_log.recovery_point
            try:
                await self._replicas.threads.run(partition_log.flush)
            except LogDirError as e:
                self._replicas.directory_failed(partition_log.directory.parent, e)
                continue
            if before < partition_log.segments.active.base_offset <= partition_log.recovery_point:
                with_closed_segments[partition_log.directory.parent] = None
        # So that no crash has to look at whole segments again, however seldom recovery points are written.
        await self.checkpoint({Part.RECOVERY_POINTS}, with_closed_segments)

    async def drop_expired(self) -> None:
        """Retention: by age, by size, and never what a follower may still need."""
        now_ms = self._clock.wall_ms()
        for number, partition in enumerate(list(self._replicas), start=1):
            if number % LOGS_PER_TURN == 0:
                await asyncio.sleep(0)
            partition_log = partition.log
            if partition.is_offline or partition_log.is_deleted or partition_log.stage.has_batches:
                continue
            try:
                expired = find_expired(partition_log, now_ms)
                if expired is None:
                    continue
                drop_expired(partition_log, expired, now_ms)
            except LogDirError as e:
                self._replicas.directory_failed(partition_log.directory.parent, e)
                continue
            except (OttlaError, OSError) as e:
                self._set_aside(partition_log, e)
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

    def _set_aside(self, partition_log: SegmentedLog, error: OttlaError | OSError) -> None:
        """What is wrong with one log is told once, and keeps no other from being seen to."""
        reason = error.message if isinstance(error, KafkaError) else str(error)
        if self._told.get(partition_log) != reason:
            log.error(
                "%s in %s keeps records that retention would delete: %s",
                partition_log.topic_partition,
                partition_log.directory,
                reason,
            )
        self._told[partition_log] = reason

    async def check_lag(self) -> None:
        self._replicas.check_lag()

    async def remove_deleted(self) -> None:
        await self._replicas.threads.run(self._replicas.log_dirs.remove_deleted, self._clock.wall_ms())

    async def expire_producers(self) -> None:
        now_ms = self._clock.wall_ms()
        for partition in self._replicas:
            partition.log.producers.expire(now_ms, partition.log.config.producer_id_expiration_ms)
