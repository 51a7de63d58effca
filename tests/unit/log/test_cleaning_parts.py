"""What a pass leaves beside a log, counts and asks meanwhile, and what two processes tell each other of it."""

from __future__ import annotations

import errno
import io
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.log.cleaning import process, worker
from ottla.log.cleaning.candidates import find_candidate
from ottla.log.cleaning.cleaner import Cleaner
from ottla.log.cleaning.pass_plan import (
    CleanedGroup,
    CleaningAbortedError,
    CleaningEndedError,
    Counts,
    PassPlan,
    plan_pass,
)
from ottla.log.cleaning.process import CleaningFailedError, CleaningProcess, Done, Failed, Job, Made, pack_message
from ottla.log.partition_log import Origin, PartitionLog
from ottla.records.control import end_transaction_marker
from tests.unit.log.cleaning_passes import LIMITS
from tests.unit.log.samples import NOW_MS, MakeLog, append, batch, idempotent

ONE = len(batch())
SUFFIXES = (".log", ".index", ".timeindex")


@pytest.fixture
def log(make_log: MakeLog) -> PartitionLog:
    """Three closed segments of two batches each, all of one key."""
    log = make_log(cleanup_policy=frozenset({"compact"}), segment_bytes=3 * ONE)
    for number in range(6):
        append(log, timestamp=NOW_MS + number)
        if number % 2:
            log.roll(now_ms=NOW_MS)
    log.advance_high_watermark(6)
    return log


def plan_of(log: PartitionLog) -> PassPlan:
    candidate = find_candidate(log, NOW_MS)
    assert candidate is not None
    return plan_pass(candidate, NOW_MS)


# -- the cleaner -------------------------------------------------------------------------------------------------


def test_what_a_group_leaves_is_complete_and_as_old_as_its_last_segment(log: PartitionLog) -> None:
    for number, segment in enumerate(log.segments.all()):
        os.utime(segment.log.path, ns=(0, (1_000 + number) * 1_000_000 + 999_999))
    cleaner = Cleaner(plan_of(log), LIMITS)
    assert (cleaner.end_offset, cleaner.keyless, cleaner.counts) == (0, 0, Counts())
    made = []
    for group in cleaner.groups():
        segment = group.segment
        made.append([source.base_offset for source in group.sources])
        assert segment.is_synced and segment.created_ms == 1_000 + segment.base_offset // 2
        found = {path.name for path in log.directory.glob("*.cleaned")}
        assert found == {f"{segment.base_offset:020}{suffix}.cleaned" for suffix in SUFFIXES}
        for suffix in SUFFIXES:
            path = log.directory / f"{segment.base_offset:020}{suffix}.cleaned"
            assert path.stat().st_mtime_ns == segment.created_ms * 1_000_000 + 999_999
        segment.remove_files()
    assert made == [[0], [2], [4]]
    assert (cleaner.end_offset, cleaner.keyless) == (6, 0)
    assert cleaner.counts == Counts(12 * ONE, 6, 1, 6 * ONE, ONE)


@pytest.mark.parametrize("which", [0, 2, None])
def test_an_index_of_aborted_transactions_is_there_if_any_source_has_one(make_log: MakeLog, which: int | None) -> None:
    log = make_log(cleanup_policy=frozenset({"compact"}))
    for number in range(3):
        append(log)
        log.roll(now_ms=NOW_MS)
        if number == which:
            log.segments.all()[number].transaction_index.ensure_file()
    log.advance_high_watermark(3)
    (group,) = Cleaner(plan_of(log), LIMITS).groups()
    assert group.segment.transaction_index.path.exists() is (which is not None)


def test_aborted_transactions_of_which_records_are_left_are_told_of(make_log: MakeLog) -> None:
    log = make_log(cleanup_policy=frozenset({"compact"}))
    log.append_as_leader(idempotent(0, transactional=True), leader_epoch=0, now_ms=NOW_MS)
    log.roll(now_ms=NOW_MS)
    marker = memoryview(bytearray(end_transaction_marker(7, 0, False, 0, NOW_MS)))
    log.append_as_leader(marker, leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)
    log.roll(now_ms=NOW_MS)
    log.advance_high_watermark(2)
    (group,) = Cleaner(plan_of(log), LIMITS).groups()
    assert group.segment.transaction_index.entries() == [(7, 0, 1, 2)]
    assert group.segment.transaction_index.path.stat().st_size == 34


def test_whoever_slows_a_pass_down_is_told_of_all_bytes(log: PartitionLog) -> None:
    told: list[int] = []
    for group in Cleaner(plan_of(log), LIMITS, throttle=told.append).groups():
        group.segment.remove_files()
    assert told == [2 * ONE] * 6 + [ONE], "read twice, and what is left of it written"


@pytest.mark.parametrize("looks", range(6))
def test_a_pass_that_is_called_off_stops_at_the_next_piece(log: PartitionLog, looks: int) -> None:
    told: list[int] = []
    left = iter([False] * looks + [True])
    cleaner = Cleaner(plan_of(log), LIMITS, throttle=told.append, is_called_off=lambda: next(left))
    with pytest.raises(CleaningAbortedError, match=r"^the log is not there any more as it was$"):
        for group in cleaner.groups():
            group.segment.remove_files()
    assert told == [2 * ONE] * looks and cleaner.counts.bytes_read == (looks + 1) * 2 * ONE
    assert not list(log.directory.glob("*.cleaned"))


# -- two processes -----------------------------------------------------------------------------------------------


def test_a_job_is_opened_elsewhere_as_it_was_planned(log: PartitionLog) -> None:
    plan = plan_of(log)
    job: Job = pickle.loads(pickle.dumps(Job.of(plan, LIMITS, 5.0)))
    assert (job.limits, job.bytes_per_second, job.plan.sources) == (LIMITS, 5.0, ())
    assert job.sources == [(0, 2 * ONE, 2), (2, 2 * ONE, 4), (4, 2 * ONE, 6)]
    opened = job.open_plan()
    assert opened == job.plan.__class__(
        **{name: getattr(plan, name) for name in plan.__slots__ if name != "sources"}, sources=opened.sources
    )
    for source, original in zip(opened.sources, plan.sources, strict=True):
        segment = source.segment
        assert source.end_offset == original.end_offset
        assert (segment.base_offset, segment.size) == (original.segment.base_offset, original.segment.size)
        assert segment.time_index.last() == original.segment.time_index.last()
        assert segment.offset_index.entry_count == original.segment.offset_index.entry_count
        with pytest.raises(OSError, match="Bad file descriptor"):
            segment.log.write_at(0, b"x")


class Told:
    """The other process, which tells what a test says and then nothing more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, said: bytes, *, piece_bytes: int = 1 << 16) -> None:
        reads, writes = os.pipe()
        os.write(writes, said)
        os.close(writes)
        self.killed = self.waited = 0
        self.stdin = io.BytesIO()
        self.job = b""
        self.stdin.close = self._keep  # type: ignore[method-assign]
        self.stdout = os.fdopen(reads, "rb", buffering=0)
        monkeypatch.setattr(process, "_start", lambda: self)
        read = os.read
        reading = SimpleNamespace(read=lambda fd, size: read(fd, min(size, piece_bytes)))
        monkeypatch.setattr(process, "os", reading)

    def _keep(self) -> None:
        self.job = self.stdin.getvalue()

    def kill(self) -> None:
        self.killed += 1

    def wait(self) -> None:
        self.waited += 1


def run(log: PartitionLog) -> tuple[CleaningProcess, list[CleanedGroup]]:
    cleaning = CleaningProcess(plan_of(log), LIMITS, bytes_per_second=3.0, is_called_off=lambda: False)
    assert (cleaning.end_offset, cleaning.keyless, cleaning.counts) == (0, 0, Counts())
    return cleaning, list(cleaning.groups())


def test_a_message_follows_its_size() -> None:
    for message in (Made([1, 2], 3), Done(4, 5, Counts(6)), Failed(None, "words")):
        packed = pack_message(message)
        assert struct.unpack(">I", packed[:4]) == (len(packed) - 4,)
        assert pickle.loads(packed[4:]) == message
    assert Failed(1, "x") == Failed(1, "x", None)


@pytest.mark.parametrize("piece_bytes", [1, 3, 1 << 16])
def test_what_another_process_has_made_is_opened(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    counts = Counts(1, 2, 3, 4, 5)
    group = next(Cleaner(plan_of(log), LIMITS).groups())
    os.utime(group.segment.log.path, ns=(0, 77_000_000))
    said = pack_message(Made([0, 4], group.segment.size)) + pack_message(Done(6, 9, counts))
    told = Told(monkeypatch, said, piece_bytes=piece_bytes)
    cleaning, (found,) = run(log)
    assert (cleaning.end_offset, cleaning.keyless, cleaning.counts) == (6, 9, counts)
    assert found.sources == [log.segments.all()[0], log.segments.all()[2]]
    segment = found.segment
    assert (segment.base_offset, segment.size, segment.created_ms, segment.is_synced) == (
        0,
        group.segment.size,
        77,
        True,
    )
    assert (told.killed, told.waited, told.stdout.closed) == (1, 1, True)
    job: Job = pickle.loads(told.job)
    assert (job.bytes_per_second, job.limits) == (3.0, LIMITS)
    assert not list(log.directory.glob("*.cleaned")), "whoever wants them takes them at once"


@pytest.mark.parametrize(
    ("failed", "error", "words"),
    [
        (Failed(5, "Input/output error", "/d/f"), OSError, "[Errno 5] Input/output error: '/d/f'"),
        (Failed(28, "No space left on device"), OSError, "[Errno 28] No space left on device"),
        (Failed(None, "a bad batch"), CleaningFailedError, "a bad batch"),
    ],
)
def test_what_another_process_has_failed_at_is_raised_here(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch, failed: Failed, error: type[Exception], words: str
) -> None:
    told = Told(monkeypatch, pack_message(failed))
    (log.directory / f"{2:020}.txnindex.cleaned").touch()
    with pytest.raises(error) as raised:
        run(log)
    assert type(raised.value) is error and str(raised.value) == words
    assert (told.killed, told.waited) == (1, 1) and not list(log.directory.glob("*.cleaned"))


@pytest.mark.parametrize("said", [b"", pack_message(Failed(None, "x"))[:3], pack_message(Failed(None, "x"))[:-1]])
def test_a_process_that_ends_within_a_word_has_ended(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    Told(monkeypatch, said)
    with pytest.raises(CleaningEndedError, match=r"^the process that compacts it has ended$"):
        run(log)


def test_how_the_other_process_is_started(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, dict[str, Any]]] = []
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "7")
    for name in ("OPENBLAS_NUM_THREADS", "MALLOC_MMAP_THRESHOLD_"):
        monkeypatch.delenv(name, raising=False)

    def starts(command: Any, **more: Any) -> None:
        asked.append((command, more))
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(process, "subprocess", SimpleNamespace(Popen=starts, PIPE=subprocess.PIPE))
    with pytest.raises(CleaningEndedError) as raised:
        run(log)
    assert str(raised.value) == "no process can be started to compact it (Resource temporarily unavailable)"
    ((command, more),) = asked
    assert command == [sys.executable, "-m", "ottla.log.cleaning.worker"]
    assert more["start_new_session"] is True and more["stdin"] == more["stdout"] == -1
    wanted = {
        "OPENBLAS_NUM_THREADS": "1",
        "MALLOC_TRIM_THRESHOLD_": "7",
        "MALLOC_MMAP_THRESHOLD_": str(32 * 1024 * 1024),
    }
    assert more["env"] == {**os.environ, **wanted}
    assert process._ENVIRONMENT["MALLOC_TRIM_THRESHOLD_"] == str(128 * 1024 * 1024)


# -- the other one -----------------------------------------------------------------------------------------------


class Worker:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, job: bytes) -> None:
        self.done: list[object] = []
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(job)))
        monkeypatch.setattr(worker, "_end_with_parent", lambda: None)
        monkeypatch.setattr(worker, "_tell", self.done.append)
        monkeypatch.setattr(worker, "os", SimpleNamespace(nice=lambda by: self.done.append(f"nice {by}")))


def test_a_worker_does_its_job_and_tells_of_each_group(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = Cleaner(plan_of(log), LIMITS)
    made: list[object] = []
    for group in expected.groups():
        made.append(Made([source.base_offset for source in group.sources], group.segment.size))
        group.segment.remove_files()
    job = pickle.dumps(Job.of(plan_of(log), LIMITS, 2.0**63))
    found = Worker(monkeypatch, job)
    worker.main()
    assert found.done == ["nice 5", *made, Done(6, 0, expected.counts)]


@pytest.mark.parametrize("job", [b"", b"\x80\x04", b"no pickle"])
def test_without_a_job_a_worker_has_nothing_to_tell(monkeypatch: pytest.MonkeyPatch, job: bytes) -> None:
    found = Worker(monkeypatch, job)
    worker.main()
    assert found.done == []


@pytest.mark.parametrize("is_broken", [True, False])
def test_a_worker_that_nobody_listens_to_ends(monkeypatch: pytest.MonkeyPatch, is_broken: bool) -> None:
    written: list[bytes] = []
    ended: list[int] = []

    def write(data: bytes) -> None:
        if is_broken:
            raise BrokenPipeError
        written.append(data)

    flushed: list[int] = []
    monkeypatch.setattr(
        sys, "stdout", SimpleNamespace(buffer=SimpleNamespace(write=write, flush=lambda: flushed.append(1)))
    )
    monkeypatch.setattr(worker, "os", SimpleNamespace(_exit=ended.append))
    worker._tell(Failed(1, "x"))
    assert (written, flushed, ended) == (([], [], [1]) if is_broken else ([pack_message(Failed(1, "x"))], [1], []))


def test_a_worker_ends_with_the_one_that_has_started_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ended: list[int] = []
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"rest")))
    monkeypatch.setattr(worker, "os", SimpleNamespace(_exit=ended.append))
    worker._end_with_parent()
    assert ended == [1] and sys.stdin.buffer.read() == b""
