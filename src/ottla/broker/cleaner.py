"""Compacts the logs of a broker, one after the other or a few at a time, beside all that it answers.

Decides which log is next and what becomes of failures. The reading and writing is the business of `log.cleaning` and
runs in other processes, or in threads where it is little; each group of segments takes its place on the event loop,
between two turns of the server.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Generator, Iterator
from typing import Protocol

from ottla.base.clock import Clock
from ottla.base.errors import KafkaError, LogDirError, OttlaError
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.replicas import Replicas
from ottla.log.cleaning.candidates import Candidate, choose, find_candidate
from ottla.log.cleaning.pass_plan import (
    CleanedGroup,
    CleanerLimits,
    CleaningAbortedError,
    CleaningEndedError,
    Counts,
    PassPlan,
    plan_pass,
)
from ottla.log.cleaning.throttle import Throttle
from ottla.log.segmented_log import SegmentedLog

log = logging.getLogger(__name__)

_SHORTAGES = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Nothing is wrong with the disk: there is no room on it, or the machine lacks file descriptors or memory."""
SHORTAGE_PAUSE_MS = 300_000
"""A log that could not be copied for one of these is tried again after so long."""
_LOST_PROCESS_PAUSES = 4
"""One whose process was ended, after so many times the usual back-off."""
_FOR_EVER = 2**63
_PROCESS_FROM_BYTES = 4 << 20


class Cleaning(Protocol):
    """A pass, in this process or another."""

    end_offset: int
    keyless: int
    counts: Counts

    def groups(self) -> Generator[CleanedGroup, None, None]: ...


def _load_numpy() -> None:
    """In a thread: it takes a tenth of a second, and many brokers have nothing to compact for long."""
    import ottla.log.cleaning.cleaner  # noqa: F401


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, KafkaError) else str(error)


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
        self.process_from_bytes = _PROCESS_FROM_BYTES
        """A pass over so many bytes gets a process of its own."""

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
            if e.errno in _SHORTAGES:
                self._set_aside(partition_log, f"{e.strerror}; trying again later", SHORTAGE_PAUSE_MS)
            elif e.errno == errno.ENOENT:
                # Somebody has removed a file of this log; the disk is not to blame.
                self._set_aside(partition_log, f"{e.filename} is missing", _FOR_EVER)
            else:
                self._replicas.directory_failed(partition_log.directory.parent, partition_log.failed_to("compact", e))
        except CleaningEndedError as e:
            pause_ms = _LOST_PROCESS_PAUSES * self._config().integer("log.cleaner.backoff.ms")
            self._set_aside(partition_log, f"{e}; trying again later", pause_ms)
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
        began_ms = self._clock.monotonic_ms()
        candidate = find_candidate(partition_log, self._clock.wall_ms())
        is_small = candidate is not None and candidate.clean_bytes + candidate.dirty_bytes < self.process_from_bytes
        if is_small:
            await self._replicas.threads.run(_load_numpy)
        now_ms = self._clock.wall_ms()
        candidate = find_candidate(partition_log, now_ms)
        if candidate is None:
            return
        history = partition_log.history

        def is_void() -> bool:
            return partition_log.is_deleted or partition_log.history != history

        cleaning = self._begin(plan_pass(candidate, now_ms), lambda: self._is_stopping or is_void(), is_small=is_small)
        groups = cleaning.groups()
        try:
            while (group := await self._replicas.threads.run(next, groups, None)) is not None:
                if self._is_stopping or is_void() or not await self._take_over(partition_log, group):
                    await self._replicas.threads.run(group.segment.remove_files)
                    return
        except CleaningAbortedError:
            return
        except (OttlaError, OSError):
            if is_void():
                return
            raise
        finally:
            await self._replicas.threads.run(groups.close)
        if is_void():
            return
        partition_log.clean_offset = cleaning.end_offset
        await self._replicas.threads.run(self._replicas.log_dirs.checkpoint_dir, partition_log.directory.parent)
        counts = cleaning.counts
        log.info(
            "%s was compacted from offset %d to %d in %d ms: %d of %d records are left, %d of %d bytes%s",
            partition_log.topic_partition,
            candidate.first_dirty_offset,
            cleaning.end_offset,
            self._clock.monotonic_ms() - began_ms,
            counts.records_after,
            counts.records_before,
            counts.bytes_after,
            counts.bytes_before,
            f"; {cleaning.keyless} records without a key are gone" if cleaning.keyless else "",
        )

    def _begin(self, plan: PassPlan, is_called_off: Callable[[], bool], *, is_small: bool) -> Cleaning:
        config = self._config()
        threads = max(config.integer("log.cleaner.threads"), 1)
        limits = CleanerLimits(
            map_bytes=config.integer("log.cleaner.dedupe.buffer.size") // threads,
            map_load_factor=config.number("log.cleaner.io.buffer.load.factor"),
            buffer_bytes=config.integer("log.cleaner.io.buffer.size") // threads,
        )
        if not is_small:
            from ottla.log.cleaning.process import CleaningProcess

            rate = config.number("log.cleaner.io.max.bytes.per.second") / threads
            return CleaningProcess(plan, limits, bytes_per_second=rate, is_called_off=is_called_off)
        from ottla.log.cleaning.cleaner import Cleaner

        return Cleaner(plan, limits, throttle=self._throttle, is_called_off=is_called_off)

    async def _take_over(self, partition_log: SegmentedLog, group: CleanedGroup) -> bool:
        """Lets a group take its place. False if that cannot be any more, and the rest is of no use, either."""
        left = set(partition_log.segments.all()).intersection(group.sources)
        if len(left) == len(group.sources):
            partition_log.exchange(group.sources, group.segment)
            await self._replicas.threads.run(partition_log.secure_exchange)
        elif left:
            # Retention was faster with a part of the group; the rest is still as dirty as it was.
            return False
        else:
            await self._replicas.threads.run(group.segment.remove_files)
        return True
