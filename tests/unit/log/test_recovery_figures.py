"""What opening a log tells of itself, and what it keeps where a rule is at its edge."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from ottla.base.errors import LogDirError
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery import Recovery, load_partition, log_loaded
from ottla.log.segment import Segment
from ottla.records.batch import HEADER_SIZE, read_header
from tests.unit.log.cleaning_passes import rewritten
from tests.unit.log.samples import NOW_MS, TOPIC_ID, MakeLog, append, batch, idempotent, read_all, reopen


def load(log: PartitionLog, *, is_clean: bool, **more: int) -> tuple[PartitionLog, list[Recovery]]:
    recoveries: list[Recovery] = []
    offsets = {"recovery_point": 0, "log_start_offset": 0, "high_watermark": 0} | more
    loaded = load_partition(
        log.directory, log.topic_partition, TOPIC_ID, log.config, is_clean=is_clean, now_ms=NOW_MS,
        on_recovered=recoveries.append, **offsets,
    )  # fmt: skip
    return loaded, recoveries


@pytest.fixture
def three(make_log: MakeLog) -> PartitionLog:
    """Segments of two batches each; the last one is written to."""
    log = make_log()
    for number in range(6):
        log.append_as_leader(idempotent(number, timestamp=NOW_MS + number), leader_epoch=0, now_ms=NOW_MS)
        if number in (1, 3):
            log.roll(now_ms=NOW_MS)
    return log


ONE = len(idempotent(0))


@pytest.mark.parametrize(
    ("recovery_point", "segments"), [(0, 3), (1, 3), (2, 2), (3, 2), (4, 1), (5, 1), (6, 1), (99, 1)]
)
def test_what_is_checked_begins_with_the_segment_of_the_recovery_point(
    three: PartitionLog, recovery_point: int, segments: int
) -> None:
    loaded, recoveries = load(three, is_clean=False, recovery_point=recovery_point)
    assert recoveries == [Recovery(segments, segments * 2 * ONE, 0)]
    assert loaded.recovery_point == min(recovery_point, 6)


def test_what_was_closed_is_not_checked(three: PartitionLog) -> None:
    three.close()
    loaded, recoveries = load(three, is_clean=True, high_watermark=99, clean_offset=5)
    assert recoveries == []
    assert (loaded.recovery_point, loaded.high_watermark, loaded.clean_offset) == (6, 6, 5)
    assert load(three, is_clean=True, clean_offset=99)[0].clean_offset == 6
    assert load(three, is_clean=True)[0].clean_offset == -1


def test_all_that_is_dropped_behind_damage_is_counted(three: PartitionLog) -> None:
    damaged = three.segments.all()[1]
    damaged.log.write_at(2 * ONE - 1, b"\xee")
    loaded, recoveries = load(three, is_clean=False)
    assert recoveries == [Recovery(2, 4 * ONE, 3 * ONE)]
    assert loaded.log_end_offset == 3


def test_what_lies_behind_a_gap_is_counted(three: PartitionLog) -> None:
    os.truncate(three.segments.all()[1].log.path, ONE)
    loaded, recoveries = load(three, is_clean=False)
    assert recoveries == [Recovery(2, 3 * ONE, 2 * ONE)]
    assert loaded.log_end_offset == 3
    assert not (three.directory / f"{4:020}.log").exists()


def test_a_torn_end_after_a_clean_stop_is_the_only_thing_that_is_checked(three: PartitionLog) -> None:
    three.close()
    os.truncate(three.segments.active.log.path, 2 * ONE - 1)
    loaded, recoveries = load(three, is_clean=True)
    assert recoveries == [Recovery(1, 2 * ONE - 1, ONE - 1)]
    assert (loaded.log_end_offset, loaded.segments.active.max_timestamp) == (5, NOW_MS + 4)
    assert loaded.find_max_timestamp() == (NOW_MS + 4, 4, 0)


def test_a_directory_that_cannot_be_read_is_named(three: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Segment, "open", fails)
    with pytest.raises(LogDirError, match=r"cannot load events-0 from .*: Input/output error"):
        load(three, is_clean=False)


def test_the_line_about_a_directory(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log_loaded(Path("/d"), 7, [], 30)
    log_loaded(Path("/d"), 7, [Recovery(1, 20, 0), Recovery(2, 30, 0)], 40)
    log_loaded(Path("/d"), 7, [Recovery(1, 20, 5), Recovery(2, 30, 4)], 40)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "/d: 7 partitions were opened in 30 ms"),
        ("INFO", "/d: 2 of 7 partitions were recovered in 40 ms: 3 segments with 50 bytes checked, 0 bytes dropped"),
        ("WARNING", "/d: 2 of 7 partitions were recovered in 40 ms: 3 segments with 50 bytes checked, 9 bytes dropped"),
    ]  # fmt: skip


# -- edges ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_log_may_begin_at_its_very_end(three: PartitionLog, is_clean: bool) -> None:
    if is_clean:
        three.close()
    loaded, _ = load(three, is_clean=is_clean, log_start_offset=6)
    assert (loaded.log_start_offset, loaded.log_end_offset, loaded.size_bytes) == (6, 6, 6 * ONE)


def test_offsets_as_far_apart_as_an_index_can_say_are_kept(log: PartitionLog) -> None:
    log.append_as_follower(batch(base_offset=0))
    log.append_as_follower(batch(base_offset=2**31 - 1))
    assert [record.offset for record in read_all(reopen(log, is_clean=False))] == [0, 2**31 - 1]


def test_a_last_batch_that_is_a_header_alone_is_kept(log: PartitionLog) -> None:
    append(log, b"a")
    empty = rewritten(bytes(batch(b"b", base_offset=1, partition_leader_epoch=0)), [])
    assert len(empty) == HEADER_SIZE
    log.append_as_follower(memoryview(bytearray(empty)))
    assert reopen(log, is_clean=False).log_end_offset == 2


@pytest.mark.parametrize(
    ("position", "value"),
    [(0, b"\0" * 8), (8, b"\0\0\0\x30"), (8, b"\xff\xff\xff\xff"), (16, b"\3"), (23, b"\xff\xff\xff\xff")],
    ids=["offset", "shorter than a header", "negative length", "format", "negative count"],
)
def test_a_header_that_contradicts_itself_ends_the_log(log: PartitionLog, position: int, value: bytes) -> None:
    append(log, b"a")
    size = log.size_bytes
    append(log, b"b")
    log.segments.active.log.write_at(size + position, value)
    again = reopen(log, is_clean=False)
    assert (again.log_end_offset, again.size_bytes) == (1, size)


def test_the_snapshot_at_the_end_of_a_closed_log_stays(three: PartitionLog) -> None:
    three.close()
    for offset in (1, 7):
        (three.directory / f"{offset:020}.snapshot").write_bytes((three.directory / f"{6:020}.snapshot").read_bytes())
    load(three, is_clean=True)
    assert sorted(int(path.stem) for path in three.directory.glob("*.snapshot")) == [2, 4, 6]


@pytest.mark.parametrize("is_clean", [True, False])
def test_batches_without_a_leader_epoch_tell_of_none(log: PartitionLog, is_clean: bool) -> None:
    log.append_as_follower(batch(base_offset=0, partition_leader_epoch=-1))
    log.append_as_follower(batch(base_offset=1, partition_leader_epoch=0))
    log.append_as_follower(batch(base_offset=2, partition_leader_epoch=0))
    if is_clean:
        log.close()
    log.epochs.path.unlink()
    assert reopen(log, is_clean=is_clean).epochs.entries() == [(0, 1)]


def test_each_segment_that_is_checked_begins_with_a_snapshot(three: PartitionLog) -> None:
    for path in three.directory.glob("*.snapshot"):
        path.unlink()
    loaded, _ = load(three, is_clean=False)
    assert sorted(int(path.stem) for path in three.directory.glob("*.snapshot")) == [2, 4]
    assert loaded.producers.entries[7].last_sequence == 5
    assert [segment.offset_index.is_writable for segment in loaded.segments.all()] == [False, False, True]


def test_a_gap_that_compaction_has_left_before_a_segment_is_not_seen_by_producers(make_log: MakeLog) -> None:
    log = make_log(cleanup_policy=frozenset({"compact"}))
    log.append_as_leader(idempotent(0), leader_epoch=0, now_ms=NOW_MS)
    log.skip_to(5, now_ms=NOW_MS)
    log.append_as_leader(idempotent(1), leader_epoch=0, now_ms=NOW_MS)
    for path in log.directory.glob("*.snapshot"):
        path.unlink()
    loaded, recoveries = load(log, is_clean=False)
    assert (loaded.log_end_offset, recoveries[0].segments) == (6, 2)
    assert [path.name for path in log.directory.glob("*.snapshot")] == [f"{5:020}.snapshot"]


def test_a_batch_whose_header_ends_a_piece_that_is_read(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in range(1, 40):
        append(log, b"x" * size)
    for piece in range(HEADER_SIZE, HEADER_SIZE + 140, 7):
        monkeypatch.setattr("ottla.log.recovery._READ_BYTES", piece)
        again = reopen(log, is_clean=False)
        assert again.log_end_offset == 39
    header = read_header(again.segments.active.batch_at(0, again.segments.active.header_at(0)))
    assert header.base_offset == 0
