"""Opening a log that was not closed, was damaged, or lost some of its files."""

from __future__ import annotations

import gzip
import os
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import StartError
from ottla.log.partition_log import Origin, PartitionLog
from ottla.log.segment import Segment
from ottla.log.swap import finish_swaps
from ottla.records.batch import iter_headers
from ottla.records.control import end_transaction_marker
from tests.unit.log.samples import FRESH_LOG, NOW_MS, MakeLog, append, batch, idempotent, read_all, reopen, slice_bytes

INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")


def fill(log: PartitionLog, count: int = 12) -> None:
    """Batches of several sizes from two producers, one of whom aborts a transaction every few batches."""
    plain = transactional = 0
    for number in range(count):
        if number % 4 == 3:
            marker = end_transaction_marker(8, 0, number % 8 == 3, 0, NOW_MS + number)
            records, origin = memoryview(bytearray(marker)), Origin.COORDINATOR
        elif number % 4 == 1:
            records = idempotent(transactional, producer_id=8, transactional=True, timestamp=NOW_MS + number * 3 % 7)
            transactional, origin = transactional + 1, Origin.CLIENT
        else:
            records = idempotent(plain, number % 3 + 1, timestamp=NOW_MS + number * 5 % 11)
            plain, origin = plain + number % 3 + 1, Origin.CLIENT
        log.append_as_leader(records, leader_epoch=number // 5, now_ms=NOW_MS, origin=origin)


def log_bytes(log: PartitionLog) -> bytes:
    return b"".join(segment.log.read_at(0, segment.size) for segment in log.segments.all())


def index_bytes(log: PartitionLog) -> list[object]:
    return [
        (
            segment.base_offset,
            bytes(segment.offset_index.entries()),
            bytes(segment.time_index.entries()),
            segment.transaction_index.entries(),
        )
        for segment in log.segments.all()
    ]


def answers(log: PartitionLog) -> list[object]:
    """Everything a client can learn from the log."""
    return [
        log.log_start_offset,
        log.log_end_offset,
        read_all(log),
        [log.find_by_timestamp(NOW_MS + step) for step in range(-1, 15)],
        log.find_max_timestamp(),
        log.aborted_transactions(0, log.log_end_offset),
        log.epochs.entries(),
        {
            pid: (e.producer_epoch, e.last_sequence, e.transaction_first_offset)
            for pid, e in log.producers.entries.items()
        },
    ]


def test_after_a_crash_everything_written_is_there(make_log: MakeLog) -> None:
    log = make_log(index_interval_bytes=100)
    fill(log)
    expected = answers(log), index_bytes(log)
    again = reopen(log, is_clean=False)
    # The end of a recovered segment is in its time index, as if it had been closed.
    log.segments.active.time_index.maybe_append(
        log.segments.active.max_timestamp, log.segments.active.offset_of_max_timestamp
    )
    assert (answers(again), index_bytes(again)) == (expected[0], index_bytes(log))


def test_a_cut_at_any_byte(make_log: MakeLog, tmp_path: Path) -> None:
    log = make_log(index_interval_bytes=100)
    fill(log, 4)
    data = log_bytes(log)
    ends = [0] + [position + header.size for position, header in iter_headers(data)]
    for length in range(len(data)):
        victim = reopen_with(log, tmp_path / "cut" / str(length), lambda d: d[:length])  # noqa: B023
        assert log_bytes(victim) == data[: max(end for end in ends if end <= length)]
        assert victim.segments.active.log.size() == victim.size_bytes


def reopen_with(log: PartitionLog, directory: Path, spoil: Callable[[bytes], bytes]) -> PartitionLog:
    """A crash whose disk holds what `spoil` makes of the last segment."""
    shutil.copytree(log.directory, directory)
    path = directory / log.segments.active.log.path.name
    path.write_bytes(spoil(path.read_bytes()))
    original, log.directory = log.directory, directory
    try:
        return reopen(log, is_clean=False)
    finally:
        log.directory = original


@settings(max_examples=60, suppress_health_check=FRESH_LOG)
@given(data=st.data())
def test_a_flipped_bit(make_log: MakeLog, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    log = make_log(index_interval_bytes=100)
    fill(log, 8)
    whole = log_bytes(log)
    bit = data.draw(st.integers(0, len(whole) * 8 - 1))

    def spoil(content: bytes) -> bytes:
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        return bytes(damaged)

    victim = reopen_with(log, tmp_path_factory.mktemp("flip") / "events-0", spoil)
    kept = log_bytes(victim)
    starts = [position for position, _ in iter_headers(whole)]
    hit = max(start for start in starts if start <= bit // 8)
    # A flip in the leader epoch is outside the checksum; one in the base offset is seen only if it goes back.
    if 12 <= bit // 8 - hit < 16 or bit // 8 - hit < 8:
        assert len(kept) >= hit
    else:
        assert kept == whole[:hit]
    check_indexes_are_as_appended(victim)
    append(victim, b"goes on")
    assert read_all(victim)[-1].value == b"goes on"


def check_indexes_are_as_appended(log: PartitionLog) -> None:
    """Recovery's indexes equal those a reader of the batches would make."""
    segment = log.segments.active
    found = bytes(segment.offset_index.entries()), bytes(segment.time_index.entries())
    segment.rebuild_indexes()
    assert (bytes(segment.offset_index.entries()), bytes(segment.time_index.entries())) == found


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_segment_that_lost_its_end_is_the_last_one(make_log: MakeLog, policy: str) -> None:
    """A power cut takes what was not synced, at the end of a batch as well as anywhere; later files may survive it.
    Compaction leaves such gaps, too, so a compacted log keeps what is there."""
    log = make_log(segment_bytes=300, cleanup_policy=policy)
    for number in range(20):
        append(log, b"v", timestamp=NOW_MS + number)
    segments = log.segments.all()
    assert len(segments) >= 4
    damaged, after = segments[1], segments[2]
    sizes = [position for position, _ in damaged.headers()]
    assert len(sizes) >= 2
    os.truncate(damaged.log.path, sizes[-1])
    lost_from = after.base_offset - 1
    again = reopen(log, is_clean=False)
    if policy == "delete":
        assert again.log_end_offset == lost_from
        assert [segment.base_offset for segment in again.segments.all()] == [0, damaged.base_offset]
    else:
        assert again.log_end_offset == 20


@pytest.mark.parametrize("tail", [b"\0" * 5000, b"\xff" * 70, b"garbage", bytes(batch(b"x"))[:-1]])
def test_garbage_behind_the_end(make_log: MakeLog, tmp_path: Path, tail: bytes) -> None:
    log = make_log()
    fill(log)
    expected = answers(log)
    assert answers(reopen_with(log, tmp_path / "events-0", lambda content: content + tail)) == expected


def test_a_reused_tail_with_older_offsets_is_no_continuation(make_log: MakeLog, tmp_path: Path) -> None:
    log = make_log()
    fill(log)
    expected = answers(log)
    old_batch = slice_bytes(log.read(0, 1, end_offset=log.log_end_offset).data)
    assert answers(reopen_with(log, tmp_path / "events-0", lambda content: content + old_batch)) == expected


class TestSeveralSegments:
    @pytest.fixture
    def rolled(self, make_log: MakeLog) -> PartitionLog:
        log = make_log(index_interval_bytes=100, segment_bytes=500)
        fill(log, 30)
        assert len(log.segments) >= 4
        return log

    def test_damage_in_the_middle_drops_what_follows(self, rolled: PartitionLog) -> None:
        second = rolled.segments.all()[1]
        second.log.write_at(second.size - 1, b"\xee")
        kept_end = [header.base_offset for _, header in second.headers()][-1]
        again = reopen(rolled, is_clean=False)
        assert again.log_end_offset == kept_end
        assert [s.base_offset for s in again.segments.all()] == [0, second.base_offset]
        assert sorted(again.directory.glob("*.log")) == [s.log.path for s in again.segments.all()]
        again.append_as_leader(batch(), leader_epoch=9, now_ms=NOW_MS)
        assert [r.offset for r in read_all(again)] == list(range(kept_end + 1))

    @pytest.mark.parametrize("survived_removals", [0, 1, 2])
    def test_a_kill_while_damage_is_dropped_leaves_no_gap(
        self, rolled: PartitionLog, monkeypatch: pytest.MonkeyPatch, survived_removals: int
    ) -> None:
        second = rolled.segments.all()[1]
        second.log.write_at(second.size - 1, b"\xee")
        kept_end = [header.base_offset for _, header in second.headers()][-1]
        removals = 0
        remove_files = Segment.remove_files

        def killed(segment: Segment) -> None:
            nonlocal removals
            if removals == survived_removals:
                raise KeyboardInterrupt
            removals += 1
            remove_files(segment)

        monkeypatch.setattr(Segment, "remove_files", killed)
        with pytest.raises(KeyboardInterrupt):
            reopen(rolled, is_clean=False)
        monkeypatch.undo()
        again = reopen(rolled, is_clean=False)
        assert again.log_end_offset == kept_end
        assert [r.offset for r in read_all(again)] == list(range(kept_end))

    def test_below_the_recovery_point_nothing_is_checked(self, rolled: PartitionLog) -> None:
        expected_end = rolled.log_end_offset
        second = rolled.segments.all()[1]
        second.log.write_at(second.size - 1, b"\xee")
        third = rolled.segments.all()[2].base_offset
        again = reopen(rolled, is_clean=False, recovery_point=third)
        assert again.log_end_offset == expected_end
        assert len(again.segments) == len(rolled.segments)

    @pytest.mark.parametrize("recovery_point", [0, 7, 1000])
    def test_any_recovery_point_gives_the_same_log(self, rolled: PartitionLog, recovery_point: int) -> None:
        expected = answers(rolled)
        assert answers(reopen(rolled, is_clean=False, recovery_point=recovery_point)) == expected

    @pytest.mark.parametrize("suffix", INDEX_SUFFIXES)
    @pytest.mark.parametrize("damage", ["gone", "empty", "zeros", "ones", "odd size"])
    @pytest.mark.parametrize("is_clean", [True, False])
    def test_indexes_are_made_anew(self, rolled: PartitionLog, suffix: str, damage: str, is_clean: bool) -> None:
        expected = answers(rolled)
        if is_clean:
            rolled.close()
        for path in rolled.directory.glob(f"*{suffix}"):
            size = path.stat().st_size
            if suffix == ".txnindex" and damage == "empty":
                continue  # that is the file of a segment in which no transaction was aborted
            match damage:
                case "gone":
                    path.unlink()
                case "empty":
                    path.write_bytes(b"")
                case "zeros":
                    path.write_bytes(bytes(size))
                case "ones":
                    path.write_bytes(b"\xff" * size)
                case "odd size":
                    path.write_bytes(path.read_bytes() + b"\x01")
        again = reopen(rolled, is_clean=is_clean)
        assert answers(again) == expected
        check_indexes_are_as_appended(again)

    @pytest.mark.parametrize("is_clean", [True, False])
    def test_without_any_snapshot(self, rolled: PartitionLog, is_clean: bool) -> None:
        expected = answers(rolled)
        if is_clean:
            rolled.close()
        for path in rolled.directory.glob("*.snapshot"):
            path.unlink()
        assert answers(reopen(rolled, is_clean=is_clean)) == expected

    def test_snapshots_of_no_segment_are_removed(self, rolled: PartitionLog) -> None:
        rolled.close()
        rolled.producers.end_offset = 1
        rolled.producers.take_snapshot()
        again = reopen(rolled, is_clean=True)
        found = {int(path.stem) for path in again.directory.glob("*.snapshot")}
        assert found == {s.base_offset for s in again.segments.all()} - {0} | {again.log_end_offset}

    def test_a_start_beyond_the_end_begins_anew(self, rolled: PartitionLog) -> None:
        again = reopen(rolled, is_clean=False, log_start_offset=5000)
        assert (again.log_start_offset, again.log_end_offset) == (5000, 5000)
        assert append(again) == 5000

    def test_index_files_without_a_log_are_removed(self, rolled: PartitionLog) -> None:
        orphan = rolled.directory / f"{999:020d}.index"
        orphan.write_bytes(b"")
        reopen(rolled, is_clean=False)
        assert not orphan.exists()


def test_clean_restart_is_trusted(make_log: MakeLog) -> None:
    log = make_log(index_interval_bytes=100, segment_bytes=900)
    fill(log, 20)
    log.close()
    expected = answers(log)
    again = reopen(log, is_clean=True, high_watermark=7)
    assert answers(again) == expected
    assert (again.high_watermark, again.recovery_point) == (7, again.log_end_offset)
    fill_end = again.log_end_offset
    assert append(again) == fill_end


def test_a_torn_tail_after_a_clean_stop_is_noticed(log: PartitionLog) -> None:
    append(log, b"a")
    append(log, b"b")
    log.close()
    path = log.segments.active.log.path
    path.write_bytes(path.read_bytes()[:-3])
    again = reopen(log, is_clean=True)
    assert [r.value for r in read_all(again)] == [b"a"]


def test_an_empty_directory(tmp_path: Path, log: PartitionLog) -> None:
    for path in log.directory.iterdir():
        path.unlink()
    again = reopen(log, is_clean=False, log_start_offset=3)
    assert (again.log_start_offset, again.log_end_offset) == (3, 3)


@pytest.mark.parametrize(("checkpoint", "expected"), [(0, 0), (2, 2), (99, 3)])
def test_high_watermark_stays_within_the_log(log: PartitionLog, checkpoint: int, expected: int) -> None:
    append(log, b"a", b"b", b"c")
    assert reopen(log, is_clean=False, high_watermark=checkpoint).high_watermark == expected


def test_preallocated_space_is_given_back(make_log: MakeLog) -> None:
    log = make_log(preallocate=True, segment_bytes=50_000)
    append(log, b"a")
    again = reopen(log, is_clean=False)
    assert again.segments.active.log.size() == len(batch(b"a"))


def test_large_batches_cross_the_read_buffer(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.log.recovery._READ_BYTES", 512)
    log = make_log()
    for size in (10, 400, 600, 3000, 5, 451, 1):
        append(log, b"x" * size)
    assert read_all(reopen(log, is_clean=False)) == read_all(log)


class TestSwaps:
    @pytest.fixture
    def log(self, make_log: MakeLog) -> PartitionLog:
        log = make_log()
        for number in range(6):
            append(log, b"%d" % number)
            if number % 2:
                log.roll(now_ms=NOW_MS)
        log.close()
        return log

    def compacted(self, log: PartitionLog, suffix: str) -> None:
        """What compaction of the first two segments into one has written."""
        first, second = log.segments.all()[:2]
        kept = first.log.read_at(0, first.size)[: first.size // 2] + second.log.read_at(0, second.size)
        (log.directory / f"{0:020d}.log{suffix}").write_bytes(kept)

    def values(self, log: PartitionLog) -> list[bytes | None]:
        return [r.value for r in read_all(reopen(log, is_clean=False))]

    def test_unfinished_work_is_thrown_away(self, log: PartitionLog) -> None:
        self.compacted(log, ".cleaned")
        (log.directory / f"{2:020d}.log.deleted").write_bytes(b"junk")
        assert self.values(log) == [b"0", b"1", b"2", b"3", b"4", b"5"]
        assert not [p for p in log.directory.iterdir() if p.suffix in (".cleaned", ".deleted", ".swap")]

    def test_finished_work_is_used(self, log: PartitionLog) -> None:
        self.compacted(log, ".swap")
        assert self.values(log) == [b"0", b"2", b"3", b"4", b"5"]

    def test_a_swap_beside_unfinished_work_is_not_used(self, log: PartitionLog) -> None:
        self.compacted(log, ".swap")
        (log.directory / f"{0:020d}.index.cleaned").write_bytes(b"")
        finish_swaps(log.directory)
        assert self.values(log) == [b"0", b"1", b"2", b"3", b"4", b"5"]


def old_entry(magic: int, offset: int, value: bytes, codec: int = 0) -> bytes:
    """A message as brokers before 0.11 stored it: format 1 has a timestamp, format 0 has none."""
    timestamp = struct.pack(">q", NOW_MS) if magic else b""
    body = struct.pack(">bb", magic, codec) + timestamp + struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("leading_batches", [0, 3])
@pytest.mark.parametrize("magic", [0, 1])
def test_records_of_an_old_format_are_refused_by_name_and_left_alone(
    make_log: MakeLog, magic: int, leading_batches: int, is_clean: bool
) -> None:
    log = make_log()
    for _ in range(leading_batches):
        append(log)
    log.close()
    path = log.segments.active.log.path
    data = path.read_bytes() + b"".join(old_entry(magic, leading_batches + number, b"old" * 9) for number in range(4))
    path.write_bytes(data)
    with pytest.raises(StartError, match=f"records of message format {magic}.*KIP-724"):
        reopen(log, is_clean=is_clean)
    assert path.read_bytes() == data


def test_a_wrapper_of_compressed_records_of_an_old_format_is_refused(make_log: MakeLog) -> None:
    log = make_log()
    log.close()
    path = log.segments.active.log.path
    inner = b"".join(old_entry(1, number, b"v") for number in range(3))
    path.write_bytes(old_entry(1, 2, gzip.compress(inner), codec=1))
    with pytest.raises(StartError, match="message format 1"):
        reopen(log, is_clean=True)


def test_damage_is_not_taken_for_an_old_format(make_log: MakeLog) -> None:
    log = make_log()
    append(log, b"kept")
    end = log.segments.active.size
    append(log, b"damaged")
    log.close()
    path = log.segments.active.log.path
    data = bytearray(path.read_bytes())
    data[end + 16] = 1
    path.write_bytes(data)
    assert [record.value for record in read_all(reopen(log, is_clean=False))] == [b"kept"]
