"""The structure under a log: what it writes down when it rolls, is cut, moved or flushed, and what it leaves alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.base.errors import LogDirError, OffsetOutOfRangeError
from ottla.base.types import NIL_UUID, Uuid
from ottla.log.chores import LogChores
from ottla.log.config import LogConfig
from ottla.log.partition_log import Origin, PartitionLog
from ottla.log.segment import Segment
from ottla.records.control import end_transaction_marker
from tests.own_thread import patch_own_thread
from tests.unit.log.samples import NOW_MS, TOPIC_ID, TP, MakeLog, append, batch, idempotent, read_all, reopen


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments.all()]


def fails(*_: object, **__: object) -> None:
    raise OSError(5, "Input/output error")


def begin_transaction(log: PartitionLog, sequence: int = 0) -> None:
    log.append_as_leader(idempotent(sequence, transactional=True), leader_epoch=0, now_ms=NOW_MS)


def end_transaction(log: PartitionLog, *, commit: bool = True) -> None:
    marker = memoryview(bytearray(end_transaction_marker(7, 0, commit, 0, NOW_MS)))
    log.append_as_leader(marker, leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)


def test_a_new_log_may_begin_anywhere_and_without_an_id(tmp_path: Path) -> None:
    log = PartitionLog.create(tmp_path / "x", TP, NIL_UUID, LogConfig(), now_ms=NOW_MS, start_offset=50)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark, log.recovery_point) == (50, 50, 50, 50)
    assert (log.clean_offset, log.producers.end_offset, bases(log), log.is_deleted) == (-1, 50, [50], False)
    assert not (log.directory / "partition.metadata").exists()
    log.assign_topic_id(TOPIC_ID)
    assert log.topic_id == TOPIC_ID and (log.directory / "partition.metadata").exists()
    assert append(log) == 50


def test_an_id_that_cannot_be_written_is_not_taken(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.log.segmented_log.write_partition_metadata", fails)
    with pytest.raises(LogDirError, match="give its topic id to"):
        log.assign_topic_id(Uuid(bytes(15) + b"\1"))
    assert log.topic_id == TOPIC_ID


def test_what_is_stable_does_not_begin_before_the_log(log: PartitionLog) -> None:
    begin_transaction(log)
    append(log)
    log.roll(now_ms=NOW_MS)
    append(log)
    log.advance_high_watermark(3)
    assert log.last_stable_offset == 0
    log.advance_log_start_offset(2)
    assert log.last_stable_offset == 2


@pytest.mark.parametrize(("offset", "expected"), [(1, [0]), (2, [0]), (3, [0, 3])])
def test_only_what_lies_ahead_can_be_skipped_to(log: PartitionLog, offset: int, expected: list[int]) -> None:
    append(log, b"a", b"b")
    log.skip_to(offset, now_ms=NOW_MS)
    assert bases(log) == expected
    assert log.log_end_offset == log.producers.end_offset == max(offset, 2)
    assert append(log) == max(offset, 2)


def test_what_is_known_of_the_room_in_a_segment_is_forgotten_with_it(make_log: MakeLog) -> None:
    log = make_log(segment_ms=1000)
    append(log, timestamp=NOW_MS)
    append(log, timestamp=NOW_MS)
    log.roll(now_ms=NOW_MS)
    append(log, timestamp=NOW_MS - 5000)
    append(log, timestamp=NOW_MS)
    assert bases(log) == [0, 2, 3]
    log.update_config(replace(log.config, segment_ms=10))
    append(log, timestamp=NOW_MS + 11)
    assert bases(log) == [0, 2, 3, 4]


def test_a_log_says_what_is_to_be_done_for_it_when_it_joins_others(make_log: MakeLog) -> None:
    idle, unflushed, due, retired = (make_log() for _ in range(4))
    append(unflushed)
    append(retired)
    retired.flush()
    retired.truncate_fully_and_start_at(5)
    due.ask_for_flush()
    chores = LogChores()
    for log in (idle, unflushed, due, retired):
        log.join(chores)
    assert list(chores.flush) == [unflushed, due]
    assert list(chores.removal) == [retired]
    retired.remove_deleted(0, at_once=True)
    assert list(chores.removal) == []
    idle.truncate_fully_and_start_at(5)
    assert list(chores.removal) == [idle]


def test_checkpoints_are_written_before_a_roll_only_if_they_trust_too_much(log: PartitionLog) -> None:
    written: list[int] = []
    log.write_checkpoints = lambda: written.append(log.recovery_point)
    for _ in range(3):
        append(log)
    log.flush()
    log.roll(now_ms=NOW_MS)
    append(log)
    log.truncate_to(3)
    assert not log.checkpoint_is_behind, "nothing went that had been flushed"
    append(log)
    log.roll(now_ms=NOW_MS)
    assert written == []
    log.truncate_to(2)
    assert log.checkpoint_is_behind
    append(log)
    log.roll(now_ms=NOW_MS)
    assert written == [2]
    log.write_checkpoints = None
    append(log)
    log.roll(now_ms=NOW_MS)


def test_a_segment_that_cannot_be_sealed_goes_on(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    append(log, b"a")
    before = {path.name for path in log.directory.glob("*.*")}
    with monkeypatch.context() as patched:
        patched.setattr(Segment, "seal", fails)
        with pytest.raises(LogDirError, match="start a segment of"):
            log.roll(now_ms=NOW_MS)
    assert {path.name for path in log.directory.glob("*.*")} - before == {f"{1:020}.snapshot"}
    append(log, b"b")
    assert bases(log) == [0]
    log.roll(now_ms=NOW_MS)
    assert bases(log) == [0, 2]


def test_a_sealed_segment_has_an_index_of_aborted_transactions_only_if_any_has_ended(log: PartitionLog) -> None:
    append(log)
    log.roll(now_ms=NOW_MS)
    begin_transaction(log)
    log.roll(now_ms=NOW_MS)
    end_transaction(log)
    log.roll(now_ms=NOW_MS)
    assert [path.name for path in log.directory.glob("*.txnindex")] == [f"{2:020}.txnindex"]


def synced_directories(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    synced: list[Path] = []
    monkeypatch.setattr("ottla.log.durable_log.sync_directory", synced.append)
    return synced


def test_a_directory_is_synced_once_after_files_came_or_went(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = synced_directories(monkeypatch)

    def is_synced_by_a_flush() -> bool:
        synced.clear()
        append(log)
        log.flush()
        return synced == [log.directory]

    assert is_synced_by_a_flush(), "it is new"
    assert not is_synced_by_a_flush()
    changes: list[Callable[[], object]] = [
        lambda: log.roll(now_ms=NOW_MS),
        lambda: log.truncate_to(1),
        lambda: log.truncate_fully_and_start_at(7),
    ]
    for change in changes:
        change()
        assert is_synced_by_a_flush()
        assert not is_synced_by_a_flush()


def test_a_flush_of_what_is_durable_syncs_nothing(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    patch_own_thread(monkeypatch, os, "fdatasync", synced.append)
    patch_own_thread(monkeypatch, os, "fsync", synced.append)
    append(log, b"a", b"b", b"c")
    assert log.flush(2) == 2
    assert synced
    synced.clear()
    assert log.flush(2) == log.flush(1) == 2
    assert synced == []
    assert log.flush(99) == 3, "not beyond the end"
    assert synced
    synced.clear()
    log.ask_for_flush()
    assert log.flush() == 3
    assert synced, "somebody has asked for it"


def test_segments_are_exchanged_with_their_snapshots(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = synced_directories(monkeypatch)
    for number in range(5):
        log.append_as_leader(idempotent(number), leader_epoch=0, now_ms=NOW_MS)
        log.roll(now_ms=NOW_MS)
    log.flush()
    old = log.segments.all()[1:4]
    new = Segment.create(log.directory, 1, log.config, now_ms=NOW_MS, ending=".cleaned")
    new.append(batch(b"left", base_offset=3), 3, NOW_MS)
    new.seal()
    log.exchange(old, new)
    assert bases(log) == [0, 1, 4, 5]
    assert sorted(int(path.stem) for path in log.directory.glob("*.snapshot")) == [1, 4, 5]
    assert [record.offset for record in read_all(log)] == [0, 3, 4]
    assert [(log.directory / f"{offset:020}.log").exists() for offset in range(5)] == [True, True, False, False, True]
    assert len(list(log.directory.glob("*.log.deleted"))) == 3
    synced.clear()
    log.secure_exchange()
    assert synced == [log.directory]
    log.ask_for_flush()
    log.flush()
    assert synced == [log.directory] * 2, "a flush does not know of it"


def test_a_failed_exchange_is_told_of(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    append(log)
    log.roll(now_ms=NOW_MS)
    new = Segment.create(log.directory, 0, log.config, now_ms=NOW_MS, ending=".cleaned")
    with monkeypatch.context() as patched:
        patched.setattr(Segment, "rename_files", fails)
        with pytest.raises(LogDirError, match="cannot compact"):
            log.exchange(log.segments.all()[:1], new)
    monkeypatch.setattr("ottla.log.durable_log.sync_directory", fails)
    with pytest.raises(LogDirError, match="cannot compact"):
        log.secure_exchange()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda log: log.begin_leader_epoch(9), "begin a leader epoch of"),
        (lambda log: log.truncate_to(1), "cannot truncate"),
        (lambda log: log.advance_log_start_offset(2), "drop old segments of"),
        (lambda log: log.append_as_leader(batch(), leader_epoch=9, now_ms=NOW_MS), "append to"),
        (lambda log: log.append_as_follower(batch(base_offset=3, partition_leader_epoch=9)), "append to"),
        (lambda log: log.append_fetched(batch(base_offset=3, partition_leader_epoch=9)), "append to"),
    ],
)
def test_a_disk_that_takes_no_epochs_is_named(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch, change: Callable[[PartitionLog], object], words: str
) -> None:
    for epoch in range(3):
        log.append_as_leader(batch(), leader_epoch=epoch, now_ms=NOW_MS)
    log.advance_high_watermark(3)
    monkeypatch.setattr("ottla.log.leader_epochs.write_rows", fails)
    with pytest.raises(LogDirError, match=words):
        change(log)


def test_a_log_that_begins_there_already_is_left_alone(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    append(log, b"a", b"b")
    log.advance_high_watermark(2)
    log.advance_log_start_offset(1)
    monkeypatch.setattr("ottla.log.segmented_log.find_snapshots", fails)
    log.advance_log_start_offset(1)
    log.advance_log_start_offset(0)
    with pytest.raises(OffsetOutOfRangeError) as refused:
        log.advance_log_start_offset(3)
    assert refused.value.message == "the log of events-0 cannot begin at 3: the high watermark is 2"
    assert log.log_start_offset == 1


def test_every_cut_is_another_history(log: PartitionLog) -> None:
    append(log, b"a")
    append(log, b"b")
    before = log.history
    assert not log.truncate_to(2)
    assert log.history == before
    log.truncate_to(1)
    assert log.history > before
    before = log.history
    log.truncate_fully_and_start_at(1)
    assert log.history > before


def test_a_cut_takes_back_what_lay_above_it(log: PartitionLog) -> None:
    for number in range(6):
        append(log, b"%d" % number)
        if number == 2:
            log.roll(now_ms=NOW_MS)
    log.flush()
    log.advance_high_watermark(6)
    log.advance_log_start_offset(1)
    log.clean_offset = 3
    log.truncate_to(4)
    assert (log.log_start_offset, log.clean_offset, log.recovery_point, log.high_watermark) == (1, 3, 4, 4)
    log.truncate_to(2)
    assert (log.log_start_offset, log.clean_offset, log.recovery_point, log.high_watermark) == (1, 2, 2, 2)
    log.truncate_fully_and_start_at(0)
    assert (log.log_start_offset, log.clean_offset, log.recovery_point, log.high_watermark) == (0, 0, 0, 0)
    assert log.segments.active.created_ms == NOW_MS


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (lambda log: log.advance_log_start_offset(2), [2, 3, 4]),
        (lambda log: log.advance_log_start_offset(3), [3, 4]),
        (lambda log: log.truncate_to(3), [0, 1, 2, 3]),
        (lambda log: log.truncate_to(2), [0, 1, 2]),
        (lambda log: log.truncate_fully_and_start_at(9), []),
        (lambda log: log.truncate_fully_and_start_at(2), []),
        (lambda log: log.truncate_to(0), []),
    ],
)
def test_which_snapshots_are_left(log: PartitionLog, change: Callable[[PartitionLog], object], left: list[int]) -> None:
    log.take_snapshot()
    for number in range(4):
        log.append_as_leader(idempotent(number), leader_epoch=0, now_ms=NOW_MS)
        log.roll(now_ms=NOW_MS)
    log.advance_high_watermark(4)
    change(log)
    assert sorted(int(path.stem) for path in log.directory.glob("*.snapshot")) == left


def test_a_segment_that_is_written_to_again_is_synced_again(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    append(log, b"a")
    append(log, b"b")
    log.roll(now_ms=NOW_MS)
    log.flush()
    assert log.segments.first.is_synced
    log.truncate_to(1)
    append(log, b"c")
    log.roll(now_ms=NOW_MS)
    synced: list[int] = []
    monkeypatch.setattr(Segment, "sync", lambda segment: synced.append(segment.base_offset))
    assert log.flush() == 2
    assert synced == [0]


def test_a_log_goes_on_in_another_directory(log: PartitionLog) -> None:
    append(log, b"a")
    target = log.directory.with_name("moved")
    log.move_to(target)
    log.append_as_leader(idempotent(0), leader_epoch=4, now_ms=NOW_MS)
    log.roll(now_ms=NOW_MS)
    append(log, b"b")
    assert not target.with_name(str(TP)).exists() and not log.is_deleted
    log.close()
    again = reopen(log, is_clean=True)
    assert again.directory == target
    assert [record.value for record in read_all(again)] == [b"a", b"v", b"b"]
    assert again.epochs.entries() == [(0, 0), (4, 1)]
    assert again.producers.entries[7].last_sequence == 0
    log.move_to_deleted(target.with_name("gone"))
    assert log.is_deleted and not target.exists()


def test_a_close_that_is_not_clean_leaves_files_as_they_are(log: PartitionLog) -> None:
    append(log)
    before = {path: path.stat() for path in log.directory.iterdir()}
    log.close(clean=False)
    assert {path: path.stat() for path in log.directory.iterdir()} == before
    log.close()
    assert log.recovery_point == 1
    assert (log.directory / f"{1:020}.snapshot").exists()


def test_a_log_that_cannot_be_closed_says_so(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    append(log)
    monkeypatch.setattr(Segment, "seal", fails)
    with pytest.raises(LogDirError, match="cannot close"):
        log.close()


def test_aborted_transactions_are_durable_after_a_clean_close(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_transaction(log)
    end_transaction(log, commit=False)
    log.flush()
    synced: list[str] = []
    patch_own_thread(
        monkeypatch, os, "fdatasync", lambda fd: synced.append(Path(os.readlink(f"/proc/self/fd/{fd}")).suffix)
    )
    log.close()
    assert ".txnindex" in synced
