"""Compacts the logs of a broker, one after the other or a few at a time, beside all that it answers.

Decides which log is next and what becomes of failures. The reading and writing is the business of `log.cleaning` and
runs in threads; each group of segments takes its place on the event loop, between two turns of the server.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import Callable, Iterator

from ottla.base.clock import Clock
from ottla.base.errors import KafkaError, LogDirError, OttlaError
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.replicas import Replicas
from ottla.log.cleaning.candidates import Candidate, choose, find_candidate
from ottla.log.cleaning.pass_plan import plan_pass
from ottla.log.segmented_log import SegmentedLog

log = logging.getLogger(__name__)

_FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
FULL_DISK_PAUSE_MS = 300_000
"""A log for whose copy there is no space is tried again after so long."""
_SLEEP_S_MAX = 0.5
_FOR_EVER = 2**63


def _load_numpy() -> None:
    """In a thread: it takes a tenth of a second, and many brokers have nothing to compact for long."""
    import ottla.log.cleaning.cleaner  # noqa: F401


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, KafkaError) else str(error)


class Throttle:
    """Slows down the threads that call it, to so many bytes per second together."""

    def __init__(self, bytes_per_second: Callable[[], float], is_stopping: Callable[[], bool]) -> None:
        self._bytes_per_second = bytes_per_second
        self._is_stopping = is_stopping
        self._used_until_s = 0.0

    def __call__(self, byte_count: int) -> None:
        rate = self._bytes_per_second()
        if rate >= _FOR_EVER:
            return
        self._used_until_s = max(self._used_until_s, time.monotonic()) + byte_count / max(rate, 1.0)
        while (wait_s := self._used_until_s - time.monotonic()) > 0 and not self._is_stopping():
            time.sleep(min(wait_s, _SLEEP_S_MAX))


class LogCleaner:
    def __init__(self, replicas: Replicas, clock: Clock, config: Callable[[], BrokerConfig]) -> None:
        self._replicas = replicas
        self._clock = clock
        self._config = config
        self._running: dict[asyncio.Task[None], SegmentedLog] = {}
        self._not_before_ms: dict[SegmentedLog, int] = {}
        """Logs that could not be cleaned, and when they are to be tried again."""
        self._scheduler: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._throttle = Throttle(
            lambda: self._config().number("log.cleaner.io.max.bytes.per.second"), lambda: self._is_stopping
        )

    def start(self) -> None:
        if self._config().flag("log.cleaner.enable"):
            self._scheduler = asyncio.get_running_loop().create_task(self._schedule())

    async def stop(self) -> None:
        """Ends what is under way at its next step. The logs are as they were before, or as far as they got."""
        self._is_stopping = True
        if self._scheduler is not None:
            self._scheduler.cancel()
            await asyncio.gather(self._scheduler, *self._running, return_exceptions=True)

    async def _schedule(self) -> None:
        while True:
            self._begin_due()
            backoff_s = max(self._config().integer("log.cleaner.backoff.ms"), 1) / 1000
            if self._running:
                await asyncio.wait(self._running, timeout=backoff_s, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(backoff_s)

    def _begin_due(self) -> None:
        while len(self._running) < self._config().integer("log.cleaner.threads"):
            candidate = self.choose()
            if candidate is None:
                return
            task = asyncio.get_running_loop().create_task(self.clean(candidate.log))
            self._running[task] = candidate.log
            task.add_done_callback(self._running.pop)

    def choose(self) -> Candidate | None:
        """The log that is to be cleaned next, if one is due."""
        return choose(self._candidates(self._clock.wall_ms()))

    def _candidates(self, now_ms: int) -> Iterator[Candidate]:
        busy = set(self._running.values())
        for partition in self._replicas:
            partition_log = partition.log
            if partition_log.config.is_compacted and not partition.is_offline and partition_log not in busy:
                not_before_ms = self._not_before_ms.get(partition_log)
                if not_before_ms is not None and now_ms < not_before_ms:
                    continue
                try:
                    candidate = find_candidate(partition_log, now_ms)
                except (OttlaError, OSError) as e:
                    self._set_aside(partition_log, _reason(e), _FOR_EVER)
                    continue
                if candidate is not None:
                    yield candidate

    async def clean(self, partition_log: SegmentedLog) -> None:
        """One pass over a log. What goes wrong is the matter of this log alone."""
        try:
            await self._clean(partition_log)
            self._not_before_ms.pop(partition_log, None)
        except LogDirError as e:
            self._replicas.directory_failed(partition_log.directory.parent, e)
        except OSError as e:
            if partition_log.is_deleted:
                return
            if e.errno in _FULL_DISK:
                self._set_aside(partition_log, f"{e.strerror}; trying again later", FULL_DISK_PAUSE_MS)
            else:
                self._replicas.directory_failed(partition_log.directory.parent, partition_log.failed_to("compact", e))
        except OttlaError as e:
            self._set_aside(partition_log, _reason(e), _FOR_EVER)
        except Exception as e:
            log.exception("%s: an error that was not foreseen", partition_log.topic_partition)
            self._set_aside(partition_log, repr(e), _FOR_EVER)

    def _set_aside(self, partition_log: SegmentedLog, reason: str, pause_ms: int) -> None:
        now_ms = self._clock.wall_ms()
        if partition_log not in self._not_before_ms:
            log.error(
                "%s in %s cannot be compacted and is left as it is: %s",
                partition_log.topic_partition,
                partition_log.directory,
                reason,
            )
        self._not_before_ms = {other: until for other, until in self._not_before_ms.items() if not other.is_deleted}
        self._not_before_ms[partition_log] = now_ms + pause_ms

    async def _clean(self, partition_log: SegmentedLog) -> None:
        await asyncio.to_thread(_load_numpy)
        from ottla.log.cleaning.cleaner import Cleaner, CleanerLimits, CleaningAbortedError

        now_ms = self._clock.wall_ms()
        candidate = find_candidate(partition_log, now_ms)
        if candidate is None:
            return
        config = self._config()
        threads = max(config.integer("log.cleaner.threads"), 1)
        limits = CleanerLimits(
            map_bytes=config.integer("log.cleaner.dedupe.buffer.size") // threads,
            map_load_factor=config.number("log.cleaner.io.buffer.load.factor"),
            buffer_bytes=config.integer("log.cleaner.io.buffer.size") // threads,
        )
        began_ms = self._clock.monotonic_ms()
        plan = plan_pass(candidate, now_ms)
        cleaner = Cleaner(plan, limits, throttle=self._throttle, is_stopping=lambda: self._is_stopping)
        groups = cleaner.groups()
        try:
            while (group := await asyncio.to_thread(next, groups, None)) is not None:
                if plan.is_void or self._is_stopping:
                    await asyncio.to_thread(group.segment.remove_files)
                    return
                left = set(partition_log.segments.all()).intersection(group.sources)
                if len(left) == len(group.sources):
                    partition_log.exchange(group.sources, group.segment)
                    await asyncio.to_thread(partition_log.secure_exchange)
                    continue
                await asyncio.to_thread(group.segment.remove_files)
                if left:
                    # Retention was faster with a part of the group; the rest is still as dirty as it was.
                    return
        except CleaningAbortedError:
            return
        except (OttlaError, OSError):
            if plan.is_void:
                return
            raise
        if plan.is_void:
            return
        partition_log.clean_offset = cleaner.end_offset
        await asyncio.to_thread(self._replicas.log_dirs.checkpoint_dir, partition_log.directory.parent)
        counts = cleaner.counts
        log.info(
            "%s was compacted from offset %d to %d in %d ms: %d of %d records are left, %d of %d bytes%s",
            partition_log.topic_partition,
            candidate.first_dirty_offset,
            cleaner.end_offset,
            self._clock.monotonic_ms() - began_ms,
            counts.records_after,
            counts.records_before,
            counts.bytes_after,
            counts.bytes_before,
            f"; {cleaner.keyless} records without a key are gone" if cleaner.keyless else "",
        )
