"""Syncing and checkpointing in other threads while the loop's thread appends, rolls and truncates."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from ottla.log.partition_log import PartitionLog
from tests.unit.log.samples import NOW_MS, MakeLog, batch, read_all, reopen


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
        for thread in self._threads:
            thread.join()
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
