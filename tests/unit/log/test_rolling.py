"""When a new segment begins, and what happens to the old one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ottla.base.errors import LogDirError, OffsetOutOfRangeError
from ottla.log.file import LogFile
from ottla.log.partition_log import PartitionLog
from ottla.log.segment import Segment
from ottla.log.transaction_index import TransactionIndex
from tests.unit.log.samples import NOW_MS, MakeLog, append, batch, idempotent, read_all, reopen


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments.all()]


def files(log: PartitionLog) -> list[str]:
    return sorted(path.name for path in log.directory.iterdir())


def test_by_size(make_log: MakeLog) -> None:
    size = len(batch(b"x" * 50))
    log = make_log(segment_bytes=3 * size)
    for _ in range(7):
        append(log, b"x" * 50)
    assert bases(log) == [0, 3, 6]


def test_by_time_of_the_records(make_log: MakeLog) -> None:
    log = make_log(segment_ms=1000)
    append(log, timestamp=NOW_MS)
    append(log, timestamp=NOW_MS + 1000)
    assert bases(log) == [0]
    append(log, timestamp=NOW_MS + 1001)
    assert bases(log) == [0, 2]


def test_time_is_counted_from_the_first_batch_after_a_restart_too(make_log: MakeLog) -> None:
    log = make_log(segment_ms=1000)
    append(log, timestamp=NOW_MS)
    append(log, timestamp=NOW_MS + 900)
    log.close()
    log = reopen(log, is_clean=True)
    append(log, timestamp=NOW_MS + 1001)
    assert bases(log) == [0, 2]


def test_by_the_clock_without_timestamps(make_log: MakeLog) -> None:
    log = make_log(segment_ms=1000)
    for later_ms in (0, 1000, 1001):
        log.append_as_leader(batch(timestamp=-1), leader_epoch=0, now_ms=NOW_MS + later_ms)
    assert bases(log) == [0, 2]


def test_jitter_only_shortens_and_is_the_same_each_time(make_log: MakeLog) -> None:
    log = make_log(segment_ms=1000, segment_jitter_ms=500)
    jitter = log.segments.active.roll_jitter_ms
    assert 0 <= jitter <= 500
    again = Segment.open(log.directory, 0, log.config)
    assert again.roll_jitter_ms == jitter
    append(log, timestamp=NOW_MS)
    append(log, timestamp=NOW_MS + 1000 - jitter)
    assert bases(log) == [0]
    append(log, timestamp=NOW_MS + 1001 - jitter)
    assert bases(log) == [0, 2]


def test_time_is_counted_anew_after_a_truncation(make_log: MakeLog) -> None:
    log = make_log(segment_ms=1000)
    append(log, timestamp=NOW_MS)
    append(log, timestamp=NOW_MS)
    log.truncate_to(0)
    append(log, timestamp=NOW_MS - 5000)
    append(log, timestamp=NOW_MS)
    assert bases(log) == [0, 1]


def test_by_a_full_index(make_log: MakeLog) -> None:
    log = make_log(index_interval_bytes=0, segment_index_bytes=80)
    for number in range(12):
        append(log, timestamp=NOW_MS)
        assert len(log.segments.active.offset_index.entries()) <= 80, number
    # The first batch of a segment has no entry, and ten entries fit.
    assert bases(log) == [0, 11]


def test_by_a_full_time_index(make_log: MakeLog) -> None:
    log = make_log(index_interval_bytes=0, segment_index_bytes=60)
    for number in range(8):
        append(log, timestamp=NOW_MS + number)
    # Five entries fit, one of them is kept for the end.
    assert bases(log) == [0, 5]


def test_how_far_indexes_reach_is_known_beforehand(make_log: MakeLog) -> None:
    """Up to there nobody has to ask again whether one of them is full: the time index, with the fewer entries."""
    log = make_log(segment_index_bytes=48, index_interval_bytes=100)
    segment = log.segments.active
    assert (segment.offset_index.max_entries, segment.time_index.max_entries) == (6, 4)
    assert segment.indexed_up_to == 300
    while not segment.time_index.entry_count:
        append(log)
    indexed = segment.offset_index.last()
    assert indexed is not None
    assert segment.indexed_up_to == indexed.position + 200


def test_by_the_distance_of_offsets(make_log: MakeLog) -> None:
    log = make_log()
    log.append_as_follower(batch(base_offset=0))
    log.append_as_follower(batch(base_offset=2**31 - 1))
    assert bases(log) == [0]
    log.append_as_follower(batch(base_offset=2**31))
    assert bases(log) == [0, 2**31]
    assert [r.offset for r in read_all(log)] == [0, 2**31 - 1, 2**31]


def test_an_empty_segment_is_replaced(make_log: MakeLog) -> None:
    log = make_log()
    log.append_as_follower(batch(base_offset=2**31))
    assert bases(log) == [2**31]
    log.remove_deleted(0, at_once=True)
    assert files(log) == sorted(
        [f"{2**31:020d}{suffix}" for suffix in (".index", ".log", ".timeindex")]
        + [f"{0:020d}.snapshot", "leader-epoch-checkpoint", "partition.metadata"]
    )


def test_snapshots_go_with_their_segments(make_log: MakeLog) -> None:
    log = make_log()
    for number in range(4):
        log.append_as_leader(idempotent(number, timestamp=NOW_MS), leader_epoch=0, now_ms=NOW_MS)
        log.roll(now_ms=NOW_MS)

    def snapshots() -> list[int]:
        return sorted(int(path.stem) for path in log.directory.glob("*.snapshot"))

    assert (bases(log), snapshots()) == ([0, 1, 2, 3, 4], [1, 2, 3, 4])
    log.advance_high_watermark(4)
    log.advance_log_start_offset(2)
    assert (bases(log), snapshots()) == ([2, 3, 4], [2, 3, 4])
    assert log.truncate_to(3)
    assert (bases(log), snapshots()) == ([2], [2, 3])


def test_the_old_segment_is_completed(make_log: MakeLog) -> None:
    log = make_log()
    log.append_as_leader(idempotent(0, timestamp=NOW_MS), leader_epoch=0, now_ms=NOW_MS)
    log.append_as_leader(idempotent(1, timestamp=NOW_MS + 7), leader_epoch=0, now_ms=NOW_MS)
    log.roll(now_ms=NOW_MS)
    log.roll(now_ms=NOW_MS)
    assert bases(log) == [0, 2]
    old = log.segments.first
    assert old.time_index.last() == (NOW_MS + 7, 1)
    assert old.time_index.path.stat().st_size == 12
    assert old.offset_index.path.stat().st_size == 0
    assert (log.directory / f"{2:020d}.snapshot").exists()
    assert log.flush_due


def test_a_sealed_segment_is_synced_with_its_indexes(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its records may be durable already when it is sealed; the recovery point then says that nothing is checked."""
    append(log)
    old = log.segments.active
    assert log.flush() == 1
    assert not old.is_synced
    log.roll(now_ms=NOW_MS)
    synced: list[Path] = []
    monkeypatch.setattr(TransactionIndex, "sync", lambda index: synced.append(index.path))
    assert log.flush() == 1
    assert old.is_synced
    assert synced == [old.transaction_index.path]
    append(log)
    assert log.flush() == 2
    assert synced == [old.transaction_index.path], "once is enough, and the active one needs none"


def test_a_segment_that_holds_nothing_yet_is_not_synced(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    append(log)
    log.roll(now_ms=NOW_MS)
    sealed, active = log.segments.all()
    synced: list[Path] = []
    monkeypatch.setattr(LogFile, "sync", lambda file: synced.append(file.path))
    log.flush()
    assert synced == [sealed.log.path]
    append(log)
    log.flush()
    assert synced == [sealed.log.path, active.log.path]


def test_a_clean_close_removes_what_was_dropped(make_log: MakeLog) -> None:
    log = make_log(file_delete_delay_ms=1 << 40)
    append(log)
    log.roll(now_ms=NOW_MS)
    append(log)
    log.advance_high_watermark(2)
    log.advance_log_start_offset(1)
    log.remove_deleted(NOW_MS)
    dropped = [name for name in files(log) if name.endswith(".deleted")]
    assert f"{0:020d}.log.deleted" in dropped
    log.close()
    assert not [name for name in files(log) if name.endswith(".deleted")]


def test_preallocation(make_log: MakeLog) -> None:
    log = make_log(preallocate=True, segment_bytes=10_000)
    append(log)
    path = log.segments.active.log.path
    assert path.stat().st_size == 10_000
    log.roll(now_ms=NOW_MS)
    assert path.stat().st_size == len(batch())
    log.close()
    assert log.segments.active.log.path.stat().st_size == 0


def test_a_failed_roll_leaves_the_old_segment_in_use(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    append(log, b"a")

    def fails(*args: object, **kwargs: object) -> Segment:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Segment, "create", fails)
        with pytest.raises(LogDirError):
            log.roll(now_ms=NOW_MS)
    append(log, b"b")
    assert bases(log) == [0]
    assert [r.value for r in read_all(log)] == [b"a", b"b"]


class TestLogStart:
    @pytest.fixture
    def rolled(self, make_log: MakeLog) -> PartitionLog:
        log = make_log(file_delete_delay_ms=1000)
        for epoch in range(4):
            for _ in range(5):
                log.append_as_leader(batch(), leader_epoch=epoch, now_ms=NOW_MS)
            log.roll(now_ms=NOW_MS)
        log.advance_high_watermark(18)
        return log

    def test_drops_whole_segments(self, rolled: PartitionLog) -> None:
        rolled.advance_log_start_offset(12)
        assert rolled.log_start_offset == 12
        assert bases(rolled) == [10, 15, 20]
        assert [r.offset for r in read_all(rolled)] == list(range(12, 20))
        assert rolled.epochs.entries() == [(2, 12), (3, 15)]

    def test_never_goes_back_nor_past_the_high_watermark(self, rolled: PartitionLog) -> None:
        rolled.advance_log_start_offset(12)
        rolled.advance_log_start_offset(3)
        assert rolled.log_start_offset == 12
        with pytest.raises(OffsetOutOfRangeError):
            rolled.advance_log_start_offset(19)

    def test_files_wait_under_another_name(self, rolled: PartitionLog) -> None:
        rolled.advance_log_start_offset(5)
        assert f"{0:020d}.log.deleted" in files(rolled)
        assert f"{0:020d}.log" not in files(rolled)
        rolled.remove_deleted(NOW_MS)
        rolled.remove_deleted(NOW_MS + 999)
        assert f"{0:020d}.log.deleted" in files(rolled)
        rolled.remove_deleted(NOW_MS + 1000)
        assert not [name for name in files(rolled) if name.endswith(".deleted")]


class TestTruncation:
    @pytest.fixture
    def rolled(self, make_log: MakeLog) -> PartitionLog:
        log = make_log(index_interval_bytes=50, segment_bytes=len(batch(b"a", b"b")) * 4)
        sequence = 0
        for number in range(15):
            log.append_as_leader(
                idempotent(sequence, 2, timestamp=NOW_MS + number), leader_epoch=number // 5, now_ms=NOW_MS
            )
            sequence += 2
        log.advance_high_watermark(25)
        return log

    @pytest.mark.parametrize("offset", range(31))
    def test_to_any_offset(self, rolled: PartitionLog, offset: int) -> None:
        assert rolled.truncate_to(offset) is (offset < 30)
        end = offset - offset % 2
        assert rolled.log_end_offset == end
        assert rolled.high_watermark == min(25, end)
        assert rolled.recovery_point <= end
        assert [r.offset for r in read_all(rolled)] == list(range(end))
        assert rolled.epochs.entries() == [(e, e * 10) for e in range(3) if e * 10 < end]
        entry = rolled.producers.entries.get(7)
        assert (entry.last_sequence if entry else -1) == end - 1
        active = rolled.segments.active
        assert active.log.size() == active.size
        assert active.max_timestamp == (NOW_MS + end // 2 - 1 if active.size else -1)
        # The producer goes on from there.
        info = rolled.append_as_leader(idempotent(end, 2), leader_epoch=3, now_ms=NOW_MS)
        assert (info.first_offset, info.is_duplicate) == (end, False)
        assert [r.offset for r in read_all(rolled)] == list(range(end + 2))

    def test_everything(self, rolled: PartitionLog) -> None:
        rolled.truncate_fully_and_start_at(1000)
        assert (rolled.log_start_offset, rolled.log_end_offset, rolled.high_watermark) == (1000, 1000, 1000)
        assert bases(rolled) == [1000]
        assert not rolled.epochs.entries()
        assert not rolled.producers.entries
        assert append(rolled) == 1000

    def test_everything_and_start_at_the_same_offset(self, rolled: PartitionLog) -> None:
        rolled.truncate_fully_and_start_at(0)
        append(rolled, b"new")
        assert [r.value for r in read_all(rolled)] == [b"new"]

    def test_the_checkpoint_follows_before_the_next_roll(self, rolled: PartitionLog) -> None:
        written: list[int] = []
        rolled.write_checkpoints = lambda: written.append(rolled.recovery_point)
        rolled.flush()
        rolled.truncate_to(10)
        assert not written
        rolled.append_as_leader(batch(b"x"), leader_epoch=3, now_ms=NOW_MS)
        rolled.roll(now_ms=NOW_MS)
        assert written[0] == 10


def test_settings_reach_open_segments(log: PartitionLog) -> None:
    log.update_config(replace(log.config, index_interval_bytes=1))
    append(log)
    append(log)
    assert log.segments.active.offset_index.entry_count == 1


def test_space_is_reserved_in_proportion_and_given_back(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int, bool]] = []
    reserve_behind = LogFile.reserve_behind

    def reserves(file: LogFile, position: int, length: int) -> bool:
        is_reserved = reserve_behind(file, position, length)
        asked.append((position, length, is_reserved))
        return is_reserved

    monkeypatch.setattr(LogFile, "reserve_behind", reserves)
    monkeypatch.setattr("ottla.log.segment._RESERVE_FROM_BYTES", 400_000)
    log = make_log()
    file = log.segments.active.log
    while file.size() < 400_000:
        assert not asked
        append(log, b"x" * 50_000)
        assert file.allocated_bytes() - file.size() < 50_000
    reserved_at = file.size()
    append(log, b"x" * 1000)
    size = file.size()
    [(position, length, is_reserved)] = asked
    assert (position, length) == (reserved_at, reserved_at // 4)
    # Not every file system keeps space behind the end of a file; one that does must have it now.
    if is_reserved:
        assert 50_000 < file.allocated_bytes() - size <= size // 4 + 8192
    killed = reopen(log, is_clean=False)
    assert killed.segments.active.log.size() == size
    assert len(read_all(killed)) == len(read_all(log))
    killed.close()
    assert killed.segments.active.log.allocated_bytes() - size < 8192


def test_appending_goes_on_where_no_space_can_be_reserved(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def refuses(_: LogFile, position: int, length: int) -> bool:
        asked.append(length)
        return False

    monkeypatch.setattr("ottla.log.segment._RESERVE_FROM_BYTES", 10_000)
    monkeypatch.setattr(LogFile, "reserve_behind", refuses)
    log = make_log()
    values = [b"x" * 5000] * 10
    for value in values:
        append(log, value)
    assert [record.value for record in read_all(log)] == values
    assert len(asked) == 1
