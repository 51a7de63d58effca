"""Copies of a log that take its place: what they hold, when they may, and what a crash on the way leaves."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.clock import ManualClock
from ottla.base.errors import CorruptBatchError, KafkaError, LogDirError, StartError
from ottla.base.ids import Ids
from ottla.base.types import FileSlice
from ottla.log.checkpoints import read_offsets
from ottla.log.config import LogConfig
from ottla.log.dir_names import MOVED_MARK, future_directory_name, partition_of_directory
from ottla.log.future_log import FutureLog, SourceFailedError
from ottla.log.log_dir import LogDirs
from ottla.log.partition_log import Origin, PartitionLog
from ottla.records.builder import build_batch
from ottla.records.control import end_transaction_marker
from tests.unit.log.samples import FRESH_LOG, NOW_MS, TOPIC_ID, TP, append, idempotent, read_all

CONFIG = LogConfig(segment_bytes=400, segment_index_bytes=4096, index_interval_bytes=100, file_delete_delay_ms=1000)


class TwoDirs:
    """A broker's two log directories, the first with one partition."""

    def __init__(self, tmp_path: Path) -> None:
        self.paths = [tmp_path / "a", tmp_path / "b"]
        self.clock = ManualClock(NOW_MS)
        self.dirs = self.open()

    def open(self) -> LogDirs:
        self.dirs = LogDirs.open(
            self.paths, broker_id=1, cluster_id=None, clock=self.clock, ids=Ids(), config_for=lambda topic: CONFIG
        )
        return self.dirs

    def create(self) -> PartitionLog:
        return self.dirs.create(TP, TOPIC_ID, CONFIG, in_dir=self.paths[0])

    def crash_and_open(self) -> LogDirs:
        self.dirs.close(clean=False)
        return self.open()

    def names(self, number: int) -> list[str]:
        return sorted(path.name for path in self.paths[number].iterdir() if path.is_dir())


@pytest.fixture
def two(tmp_path: Path) -> Iterator[TwoDirs]:
    two = TwoDirs(tmp_path)
    yield two
    two.dirs.close(clean=False)


def copy_all(future: FutureLog) -> None:
    while (piece := future.next_piece()) is not None:
        future.copy(piece, NOW_MS)


def move(two: TwoDirs, current: PartitionLog, to: int = 1) -> PartitionLog:
    """A whole move, as the broker makes it."""
    future = FutureLog.create(two.dirs, current, two.paths[to])
    copy_all(future)
    future.settle(NOW_MS)
    assert future.is_ready
    came_from = current.directory.parent
    future.take_place(NOW_MS)
    two.dirs.secure_promoted(future.log)
    two.dirs.remove_replaced(TP)
    two.dirs.forget_move(future.log, came_from)
    return future.log


def picture(log: PartitionLog) -> dict[str, Any]:
    """Everything of a log that must not change when it moves."""
    return {
        "records": read_all(log),
        "start": log.log_start_offset,
        "end": log.log_end_offset,
        "high_watermark": log.high_watermark,
        "last_stable": log.last_stable_offset,
        "epochs": log.epochs.entries(),
        "producers": {entry.producer_id: entry for entry in log.producers.entries.values()},
        "aborted": [(t.producer_id, t.first_offset) for t in log.aborted_transactions(0, log.log_end_offset)],
        "topic_id": log.topic_id,
    }


def marker(log: PartitionLog, producer_id: int, *, commit: bool) -> None:
    data = end_transaction_marker(
        producer_id=producer_id, producer_epoch=0, commit=commit, coordinator_epoch=1, now_ms=NOW_MS
    )
    log.append_as_leader(memoryview(bytearray(data)), leader_epoch=3, now_ms=NOW_MS, origin=Origin.COORDINATOR)


def test_a_moved_log_is_the_same_log(two: TwoDirs) -> None:
    log = two.create()
    # All that this producer wrote is deleted, but it is still known.
    log.append_as_leader(idempotent(0, producer_id=6), leader_epoch=0, now_ms=NOW_MS)
    for number in range(40):
        append(log, b"%d" % number)
    for sequence in range(7):
        log.append_as_leader(idempotent(sequence), leader_epoch=2, now_ms=NOW_MS)
    for producer_id, commit in ((8, True), (9, False)):
        log.append_as_leader(idempotent(0, producer_id=producer_id, transactional=True), leader_epoch=3, now_ms=NOW_MS)
        marker(log, producer_id, commit=commit)
    log.append_as_leader(idempotent(0, producer_id=10, transactional=True), leader_epoch=3, now_ms=NOW_MS)
    for _ in range(2):
        log.append_as_leader(_plain(), leader_epoch=3, now_ms=NOW_MS)
    # An epoch that has written nothing is known to the current log only.
    log.begin_leader_epoch(5)
    log.advance_high_watermark(log.log_end_offset - 1)
    log.advance_log_start_offset(17)
    before = picture(log)
    assert before["aborted"] and before["last_stable"] < before["high_watermark"]
    moved = move(two, log)
    assert picture(moved) == before
    assert two.dirs.get(TP) is moved
    assert two.dirs.logs_in(two.paths[0]) == [] and two.dirs.logs_in(two.paths[1]) == [moved]
    assert two.names(1) == [str(TP)]
    assert [name[-7:] for name in two.names(0)] == ["-delete"]
    assert not (moved.directory / MOVED_MARK).exists()
    assert moved.append_as_leader(idempotent(6), leader_epoch=5, now_ms=NOW_MS).is_duplicate
    append(moved, b"more")
    after = picture(moved)
    two.dirs.close()
    again = two.open().get(TP)
    assert again is not None and again.directory == two.paths[1] / str(TP)
    assert read_all(again) == after["records"]
    assert (again.log_start_offset, again.log_end_offset) == (17, after["end"])
    assert again.epochs.entries() == after["epochs"]


def test_and_back_again(two: TwoDirs) -> None:
    log = two.create()
    for number in range(20):
        append(log, b"%d" % number)
    moved = move(two, move(two, log), to=0)
    assert moved.directory == two.paths[0] / str(TP)
    assert [record.value for record in read_all(moved)] == [b"%d" % number for number in range(20)]


def test_what_arrives_while_it_copies_is_copied_too(two: TwoDirs) -> None:
    log = two.create()
    for number in range(10):
        append(log, b"%d" % number)
    future = FutureLog.create(two.dirs, log, two.paths[1])
    for number in range(10, 60):
        piece = future.next_piece()
        append(log, b"%d" % number)
        if piece is not None:
            future.copy(piece, NOW_MS)
    assert future.lag_bytes > 0
    copy_all(future)
    assert future.lag_bytes == 0
    assert read_all(future.log) == read_all(log)


def test_a_log_that_begins_inside_a_batch(two: TwoDirs) -> None:
    log = two.create()
    append(log, *[b"v"] * 10)
    append(log, b"last")
    log.advance_high_watermark(11)
    log.advance_log_start_offset(4)
    moved = move(two, log)
    assert (moved.log_start_offset, moved.log_end_offset) == (4, 11)
    assert [record.offset for record in read_all(moved)] == list(range(4, 11))
    again = two.crash_and_open().get(TP)
    assert again is not None
    assert again.log_start_offset == 4


def test_an_empty_log_that_does_not_begin_at_zero(two: TwoDirs) -> None:
    log = two.create()
    append(log, *[b"v"] * 10)
    log.advance_high_watermark(10)
    log.advance_log_start_offset(10)
    moved = move(two, log)
    assert (moved.log_start_offset, moved.log_end_offset, moved.high_watermark) == (10, 10, 10)
    assert append(moved, b"next") == 10


def test_the_start_overtakes_the_copy(two: TwoDirs) -> None:
    log = two.create()
    for _ in range(30):
        append(log, b"v")
    future = FutureLog.create(two.dirs, log, two.paths[1])
    piece = future.next_piece()
    assert piece is not None
    future.copy(piece, NOW_MS)
    assert future.log.log_end_offset < 20
    log.advance_high_watermark(30)
    log.advance_log_start_offset(25)
    copy_all(future)
    assert [record.offset for record in read_all(future.log)] == list(range(25, 30))


def test_gaps_that_compaction_left(two: TwoDirs) -> None:
    log = two.create()

    def follow(*offsets: int) -> None:
        data = build_batch([(b"k", b"%d" % offset, (), NOW_MS) for offset in offsets], base_offset=offsets[0])
        log.append_as_follower(memoryview(bytearray(data)), now_ms=NOW_MS)

    for first in (3, 10, 40, 200):
        follow(first, first + 1)
    log.skip_to(300, now_ms=NOW_MS)
    log.advance_high_watermark(300)
    moved = move(two, log)
    assert [record.offset for record in read_all(moved)] == [3, 4, 10, 11, 40, 41, 200, 201]
    assert (moved.log_end_offset, moved.high_watermark) == (300, 300)
    assert append(moved, b"next") == 300


def test_a_log_that_was_cut_is_copied_again(two: TwoDirs) -> None:
    log = two.create()
    for _ in range(10):
        append(log, b"old")
    future = FutureLog.create(two.dirs, log, two.paths[1])
    copy_all(future)
    log.truncate_to(4)
    for _ in range(10):
        log.append_as_leader(_plain(), leader_epoch=1, now_ms=NOW_MS)
    copy_all(future)
    assert read_all(future.log) == read_all(log)
    assert future.log.epochs.entries() == log.epochs.entries()


def _plain() -> memoryview:
    return memoryview(bytearray(build_batch([(b"k", b"new", (), NOW_MS)])))


def test_a_history_that_never_agrees_is_given_up(two: TwoDirs) -> None:
    log = two.create()
    for _ in range(10):
        append(log, b"old")
    future = FutureLog.create(two.dirs, log, two.paths[1])
    # Batches of epoch 0 reach to 10, but the leader epochs say that epoch 1 began at 2.
    log.epochs.assign(1, 2)
    with pytest.raises(KafkaError, match="does not agree"):
        copy_all(future)


def test_not_ready_before_what_was_durable_is_durable(two: TwoDirs) -> None:
    log = two.create()
    append(log, b"v")
    future = FutureLog.create(two.dirs, log, two.paths[1])
    copy_all(future)
    assert not future.is_ready
    future.settle(NOW_MS)
    assert future.is_ready
    append(log, b"v")
    log.flush()
    copy_all(future)
    assert not future.is_ready
    future.settle(NOW_MS)
    assert future.is_ready
    assert read_offsets(two.paths[1] / "recovery-point-offset-checkpoint") == {TP: 2}


class TestCrash:
    """At every step of the way a start finds the partition once, with all its records."""

    @pytest.mark.parametrize("step", range(6))
    def test_at_every_step(self, two: TwoDirs, step: int) -> None:
        log = two.create()
        for number in range(20):
            append(log, b"%d" % number)
        expected = read_all(log)
        future = FutureLog.create(two.dirs, log, two.paths[1])
        if step > 0:
            copy_all(future)
            future.settle(NOW_MS)
        if step > 1:
            future.take_place(NOW_MS)
            # From here on only the copy grows.
            append(future.log, b"late")
            expected = read_all(future.log)
        if step > 2:
            two.dirs.secure_promoted(future.log)
        if step > 3:
            two.dirs.remove_replaced(TP)
        if step > 4:
            two.dirs.forget_move(future.log, two.paths[0])
        again = two.crash_and_open().get(TP)
        assert again is not None
        assert read_all(again) == expected
        assert again.directory == two.paths[1 if step > 1 else 0] / str(TP)
        assert two.names(0) + two.names(1) == [str(TP)]
        # A mark that a crash left must not make the next move undecidable.
        moved = move(two, again, to=0 if step > 1 else 1)
        assert read_all(moved) == expected

    def test_after_the_next_move_began(self, two: TwoDirs) -> None:
        log = two.create()
        append(log, b"v")
        future = FutureLog.create(two.dirs, log, two.paths[1])
        copy_all(future)
        future.settle(NOW_MS)
        future.take_place(NOW_MS)
        two.dirs.remove_replaced(TP)
        again = two.crash_and_open().get(TP)
        assert again is not None and not (again.directory / MOVED_MARK).exists()
        # A mark can stay if the start could not look into every directory.
        (again.directory / MOVED_MARK).touch()
        back = FutureLog.create(two.dirs, again, two.paths[0])
        copy_all(back)
        back.settle(NOW_MS)
        back.take_place(NOW_MS)
        append(back.log, b"late")
        last = two.crash_and_open().get(TP)
        assert last is not None
        assert last.directory == two.paths[0] / str(TP)
        assert last.log_end_offset == 2

    def test_two_copies_without_a_mark_are_for_a_person(self, two: TwoDirs) -> None:
        log = two.create()
        append(log, b"v")
        two.dirs.close()
        shutil.copytree(two.paths[0] / str(TP), two.paths[1] / str(TP))
        with pytest.raises(StartError, match="is both in"):
            two.open()
        shutil.rmtree(two.paths[1] / str(TP))
        two.open()

    def test_checkpoints_of_a_copy_that_never_came_about(self, two: TwoDirs) -> None:
        log = two.create()
        for _ in range(20):
            append(log, *[b"v"] * 3)
        log.advance_high_watermark(60)
        log.advance_log_start_offset(10)
        future = FutureLog.create(two.dirs, log, two.paths[1])
        copy_all(future)
        future.settle(NOW_MS)
        assert read_offsets(two.paths[1] / "log-start-offset-checkpoint") == {TP: 10}
        dirs = two.crash_and_open()
        dirs.delete(TP)
        new = dirs.create(TP, TOPIC_ID, CONFIG, in_dir=two.paths[1])
        append(new, b"v")
        again = two.crash_and_open().get(TP)
        assert again is not None
        assert (again.log_start_offset, again.log_end_offset) == (0, 1)


class TestEndings:
    def test_discarded(self, two: TwoDirs) -> None:
        log = two.create()
        append(log, b"v")
        future = FutureLog.create(two.dirs, log, two.paths[1])
        assert two.dirs.future(TP) is future.log
        assert two.dirs.futures_in(two.paths[1]) == [future.log]
        future.discard()
        assert two.dirs.future(TP) is None
        assert two.names(1) == []

    def test_the_target_fails(self, two: TwoDirs) -> None:
        log = two.create()
        FutureLog.create(two.dirs, log, two.paths[1])
        two.dirs.fail(two.paths[1], LogDirError("gone"))
        assert two.dirs.future(TP) is None
        assert two.dirs.get(TP) is log
        with pytest.raises(LogDirError, match="has failed"):
            FutureLog.create(two.dirs, log, two.paths[1])

    def test_the_source_cannot_be_read(self, two: TwoDirs, monkeypatch: pytest.MonkeyPatch) -> None:
        log = two.create()
        append(log, b"v")
        future = FutureLog.create(two.dirs, log, two.paths[1])
        piece = future.next_piece()
        assert piece is not None

        def fails(*_: object) -> bytes:
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patched:
            patched.setattr(os, "pread", fails)
            with pytest.raises(SourceFailedError, match="Input/output error"):
                future.copy(piece, NOW_MS)

    def test_damage_is_not_copied(self, two: TwoDirs) -> None:
        log = two.create()
        append(log, b"value")
        future = FutureLog.create(two.dirs, log, two.paths[1])
        piece = future.next_piece()
        assert piece is not None
        os.pwrite(piece.file.fd, b"\xff", piece.length - 3)
        with pytest.raises(CorruptBatchError):
            future.copy(piece, NOW_MS)
        with pytest.raises(CorruptBatchError, match="no whole batch"):
            future.copy(FileSlice(piece.file, 0, 30), NOW_MS)

    def test_deleted_before_the_replaced_log_is_gone(self, two: TwoDirs) -> None:
        log = two.create()
        append(log, b"v")
        future = FutureLog.create(two.dirs, log, two.paths[1])
        copy_all(future)
        future.settle(NOW_MS)
        future.take_place(NOW_MS)
        two.dirs.delete(TP)
        assert [name[-7:] for name in two.names(0) + two.names(1)] == ["-delete", "-delete"]
        two.dirs.remove_replaced(TP)
        assert two.create().log_end_offset == 0

    def test_a_wish_for_a_partition_that_comes_later(self, two: TwoDirs) -> None:
        two.dirs.prefer(TP, two.paths[1])
        log = two.dirs.create(TP, TOPIC_ID, CONFIG)
        assert log.directory.parent == two.paths[1]

    def test_a_wish_for_a_directory_that_has_failed_since(self, two: TwoDirs) -> None:
        two.dirs.prefer(TP, two.paths[1])
        two.dirs.fail(two.paths[1], LogDirError("gone"))
        assert two.dirs.create(TP, TOPIC_ID, CONFIG).directory.parent == two.paths[0]


def test_leftovers_are_removed_with_one_line(two: TwoDirs, caplog: pytest.LogCaptureFixture) -> None:
    two.dirs.close()
    for number in range(3):
        (two.paths[0] / future_directory_name(TP._replace(partition=number), Ids())).mkdir()
    two.open()
    assert two.names(0) == []
    assert [r.getMessage() for r in caplog.records if "being moved" in r.getMessage()] == [
        f"{two.paths[0]}: 3 partitions were being moved here; they stay where they were"
    ]


def test_names_of_future_directories_are_not_too_long() -> None:
    name = future_directory_name(TP._replace(topic="t" * 249), Ids())
    assert len(name) == 255
    assert partition_of_directory(name) is None


@given(st.lists(st.sampled_from(["append", "copy", "start", "flush", "settle", "roll"]), max_size=40))
@settings(max_examples=25, suppress_health_check=FRESH_LOG)
def test_whatever_happens_on_the_way(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, actions: list[str]
) -> None:
    # The disk is not pulled here, and waiting for it takes most of the time.
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)
    two = TwoDirs(tmp_path_factory.mktemp("move"))
    log = two.create()
    append(log, b"first")
    future = FutureLog.create(two.dirs, log, two.paths[1])
    for number, action in enumerate(actions):
        match action:
            case "append":
                append(log, *[b"%d" % number] * (1 + number % 4))
            case "copy":
                piece = future.next_piece()
                if piece is not None:
                    future.copy(piece, NOW_MS)
            case "start":
                log.advance_high_watermark(log.log_end_offset)
                log.advance_log_start_offset((log.log_start_offset + log.log_end_offset + 1) // 2)
            case "flush":
                log.flush()
            case "settle":
                future.settle(NOW_MS)
            case "roll":
                log.roll(now_ms=NOW_MS)
    copy_all(future)
    future.settle(NOW_MS)
    assert future.is_ready
    before = picture(log)
    future.take_place(NOW_MS)
    assert picture(future.log) == before
    two.dirs.close(clean=False)
