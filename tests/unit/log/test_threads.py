"""Syncing and checkpointing in other threads while the loop's thread appends, rolls and truncates."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from ottla.log.file import LogFile
from ottla.log.partition_log import PartitionLog
from tests.unit.log.cleaning_passes import clean
from tests.unit.log.interleaving import every_step
from tests.unit.log.samples import NOW_MS, MakeLog, append, batch, read_all, reopen
from tests.waiting import join


class Busy:
    """Threads that repeat a job until the block ends; an exception in one fails the test."""

    def __init__(self, *jobs: Callable[[], object]) -> None:
        self._stop = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(job,)) for job in jobs]

    def _run(self, job: Callable[[], object]) -> None:
        try:
            while not self._stop.is_set():
                job()
        except BaseException as e:
            self._errors.append(e)

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        join(*self._threads)
        assert not self._errors


@pytest.fixture
def log(make_log: MakeLog) -> PartitionLog:
    return make_log(segment_bytes=4000, index_interval_bytes=100, file_delete_delay_ms=0)


def test_flushing_beside_appends(log: PartitionLog) -> None:
    with Busy(log.flush, log.write_indexes):
        for number in range(2000):
            log.append_as_leader(batch(b"%d" % number), leader_epoch=0, now_ms=NOW_MS)
    assert log.flush() == 2000
    expected = read_all(log)
    assert [r.value for r in expected] == [b"%d" % number for number in range(2000)]
    for segment in log.segments.all()[:-1]:
        assert segment.offset_index.path.read_bytes() == bytes(segment.offset_index.entries())
    log.close()
    assert read_all(reopen(log, is_clean=True)) == expected


def test_flushing_beside_truncation(log: PartitionLog) -> None:
    with Busy(log.flush, log.write_indexes, lambda: log.remove_deleted(NOW_MS)):
        for _ in range(40):
            for _ in range(60):
                log.append_as_leader(batch(b"v"), leader_epoch=0, now_ms=NOW_MS)
            log.truncate_to(log.log_end_offset - 45)
            assert log.recovery_point <= log.log_end_offset
    assert log.log_end_offset == 600
    assert log.flush() == 600
    assert [r.offset for r in read_all(reopen(log, is_clean=False))] == list(range(600))


def _roll(log: PartitionLog) -> None:
    log.roll(now_ms=NOW_MS)
    append(log)


def _drop_the_first_segment(log: PartitionLog) -> None:
    log.advance_log_start_offset(2)


def _truncate(log: PartitionLog) -> None:
    log.truncate_to(5)
    append(log)


def _begin_anew(log: PartitionLog) -> None:
    log.truncate_fully_and_start_at(100)
    append(log)


def _compact(log: PartitionLog) -> None:
    log.update_config(replace(log.config, cleanup_policy=frozenset({"compact"})))
    assert clean(log, NOW_MS) is not None


class TestEveryMomentOfAFlush:
    """Whenever a flush and a change of the segments meet: what lies below the recovery point was synced."""

    @pytest.fixture
    def synced(self, monkeypatch: pytest.MonkeyPatch) -> dict[LogFile, int]:
        """How far each log file was synced. Nothing really is: a few hundred flushes would take long."""
        synced: dict[LogFile, int] = {}
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, lambda fd: None)
        monkeypatch.setattr(LogFile, "sync", lambda file: synced.update({file: os.fstat(file.fd).st_size}))
        return synced

    @pytest.fixture
    def make_segments(self, make_log: MakeLog) -> Callable[[], PartitionLog]:
        """Four segments of two batches; the recovery point is in the middle of the second."""

        def make() -> PartitionLog:
            log = make_log(segment_index_bytes=400)
            for number in range(4):
                if number:
                    log.roll(now_ms=NOW_MS)
                append(log)
                if number == 1:
                    assert log.flush() == 3
                append(log)
            log.advance_high_watermark(log.log_end_offset)
            return log

        return make

    @staticmethod
    def check(log: PartitionLog, synced: dict[LogFile, int]) -> None:
        assert log.recovery_point <= log.log_end_offset
        for segment in log.segments.all():
            if segment.base_offset < log.recovery_point:
                assert segment.position_of(log.recovery_point) <= synced.get(segment.log, 0)

    @pytest.mark.parametrize("change", [_roll, _drop_the_first_segment, _truncate, _begin_anew, _compact])
    @pytest.mark.parametrize("flush_is_inside", [True, False])
    def test_nothing_is_left_out(
        self,
        make_segments: Callable[[], PartitionLog],
        synced: dict[LogFile, int],
        change: Callable[[PartitionLog], None],
        flush_is_inside: bool,
    ) -> None:
        first: Callable[[PartitionLog], object] = change
        second: Callable[[PartitionLog], object] = PartitionLog.flush
        if not flush_is_inside:
            first, second = second, first
        steps = 0
        for run in every_step(first, second, may_interrupt=lambda log: not log._state_lock.locked()):
            log = make_segments()
            run(log)
            self.check(log, synced)
            append(log)
            assert log.flush() == log.log_end_offset
            self.check(log, synced)
            synced.clear()
            steps += 1
        assert steps > 30
