"""A pass in a process of its own: what it leaves, and how it ends before its time."""

from __future__ import annotations

import errno
import io
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace

import psutil
import pytest

from ottla.base.errors import CorruptBatchError
from ottla.log.cleaning import process, worker
from ottla.log.cleaning.candidates import find_candidate
from ottla.log.cleaning.pass_plan import CleaningAbortedError, CleaningEndedError, plan_pass
from ottla.log.cleaning.process import CleaningProcess, Failed
from ottla.log.partition_log import PartitionLog
from ottla.records.builder import build_batch
from tests.unit.log.cleaning_passes import LIMITS, clean
from tests.unit.log.samples import NOW_MS, MakeLog, read_all
from tests.unit.log.test_cleaning import COMPACT
from tests.waiting import repeat_until

UNLIMITED, HARDLY_ANY = 2.0**63, 1.0


def dirty_log(make_log: MakeLog) -> PartitionLog:
    log = make_log(**COMPACT)
    log.begin_leader_epoch(0)
    for number in range(30):
        batch = build_batch([(b"key-%d" % (number % 3), b"%d" % number, (), NOW_MS)])
        log.append_as_leader(memoryview(bytearray(batch)), leader_epoch=0, now_ms=NOW_MS)
        if number % 5 == 4:
            log.roll(now_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    return log


def begin(log: PartitionLog, bytes_per_second: float, is_called_off: Callable[[], bool]) -> CleaningProcess:
    candidate = find_candidate(log, NOW_MS)
    assert candidate is not None
    plan = plan_pass(candidate, NOW_MS)
    return CleaningProcess(plan, LIMITS, bytes_per_second=bytes_per_second, is_called_off=is_called_off)


def test_it_leaves_what_a_pass_in_a_thread_leaves(make_log: MakeLog) -> None:
    one, other = dirty_log(make_log), dirty_log(make_log)
    in_thread = clean(one, NOW_MS)
    in_process = begin(other, UNLIMITED, lambda: False)
    for group in in_process.groups():
        other.exchange(group.sources, group.segment)
    assert in_thread is not None
    assert (in_process.end_offset, in_process.keyless, in_process.counts) == (
        in_thread.end_offset,
        in_thread.keyless,
        in_thread.counts,
    )
    assert [segment.log.path.read_bytes() for segment in one.segments.all()] == [
        segment.log.path.read_bytes() for segment in other.segments.all()
    ]
    assert read_all(one) == read_all(other)


def test_one_that_is_called_off_while_it_works_is_not_waited_for(make_log: MakeLog) -> None:
    log = dirty_log(make_log)
    looks = iter([False, True])
    with pytest.raises(CleaningAbortedError):
        list(begin(log, HARDLY_ANY, lambda: next(looks)).groups())
    assert not list(log.directory.glob("*.cleaned"))
    assert not _children()


def test_one_that_somebody_ends_is_told_from_one_that_fails(make_log: MakeLog) -> None:
    log = dirty_log(make_log)

    def kill_it() -> bool:
        repeat_until(lambda: bool(_children()))
        for child in _children():
            os.kill(child.pid, signal.SIGKILL)
        return False

    with pytest.raises(CleaningEndedError, match="has ended"):
        list(begin(log, HARDLY_ANY, kill_it).groups())
    assert not list(log.directory.glob("*.cleaned"))


def test_one_that_ends_before_it_has_its_job(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = dirty_log(make_log)

    def start_and_end() -> subprocess.Popen[bytes]:
        started = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.wait()
        return started

    monkeypatch.setattr(process, "_start", start_and_end)
    with pytest.raises(CleaningEndedError, match="has ended"):
        list(begin(log, UNLIMITED, lambda: False).groups())


def test_one_that_cannot_be_started_says_nothing_of_the_disk(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = dirty_log(make_log)

    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(process.subprocess, "Popen", fails)
    with pytest.raises(CleaningEndedError, match=r"no process can be started .*\(Cannot allocate memory\)"):
        list(begin(log, UNLIMITED, lambda: False).groups())


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(5, "Input/output error", "/d/0.log"), Failed(5, "Input/output error", "/d/0.log")),
        (OSError("no number"), Failed(None, "no number")),
        (CorruptBatchError("a bad batch"), Failed(None, "a bad batch")),
        (ZeroDivisionError("division by zero"), Failed(None, "ZeroDivisionError('division by zero')")),
    ],
)
def test_what_a_pass_that_fails_tells(
    error: Exception, told: Failed, make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(job: object) -> None:
        raise error

    messages: list[object] = []
    monkeypatch.setattr(worker, "_run", fails)
    monkeypatch.setattr(worker, "_tell", messages.append)
    monkeypatch.setattr(worker, "_end_with_parent", lambda: None)
    monkeypatch.setattr(worker, "os", SimpleNamespace(nice=lambda by: None))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(pickle.dumps("a job"))))
    worker.main()
    assert messages == [told]


def _children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "ottla.log.cleaning.worker" in child.cmdline()]
