"""Compaction by its laws: what stays, what never changes, and what a kill at any step leaves behind."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import CorruptBatchError
from ottla.log.cleaning.candidates import Candidate, choose, find_candidate
from ottla.log.cleaning.cleaner import Cleaner
from ottla.log.cleaning.dirty_part import OutOfMemoryError
from ottla.log.cleaning.pass_plan import CleanerLimits, CleaningAbortedError, Source, group_sources, plan_pass
from ottla.log.config import LogConfig
from ottla.log.partition_log import Origin, PartitionLog
from ottla.records.batch import iter_headers
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.control import end_transaction_marker
from ottla.records.reader import Record, read_records
from tests.unit.log.cleaning_passes import LIMITS, clean
from tests.unit.log.samples import FRESH_LOG, NOW_MS, MakeLog, read_all, reopen, slice_bytes

HOUR_MS = 3_600_000
COMPACT: dict[str, Any] = {"cleanup_policy": frozenset({"compact"}), "delete_retention_ms": HOUR_MS}
SMALL_MAP = CleanerLimits(map_bytes=1, map_load_factor=0.4, buffer_bytes=1)

KEYS = st.integers(0, 11).map(lambda number: b"key-%d" % number * (number + 1))
VALUES = st.one_of(st.none(), st.binary(max_size=40))
RECORDS = st.lists(st.tuples(KEYS, VALUES, st.integers(-50, 50)), min_size=1, max_size=6)


class Writer:
    """Writes to a log as clients and coordinators do, and keeps count of sequence numbers and transactions."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.sequences: dict[int, int] = {}
        self.open: set[int] = set()

    def write(self, records: list[tuple[bytes, bytes | None, int]], codec: Codec, producer: int | None) -> None:
        """Producers 0 and 1 are idempotent, 2 and 3 transactional."""
        fields: dict[str, Any] = {}
        if producer is not None:
            fields = {
                "producer_id": producer,
                "producer_epoch": 0,
                "base_sequence": self.sequences.get(producer, 0),
                "transactional": producer >= 2,
            }
            self.sequences[producer] = self.sequences.get(producer, 0) + len(records)
            if producer >= 2:
                self.open.add(producer)
        rows = [(key, value, (("h", b"x"),) if len(key) > 10 else (), NOW_MS + delta) for key, value, delta in records]
        batch = memoryview(bytearray(build_batch(rows, codec=codec, **fields)))
        self.log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)

    def end(self, producer: int, *, commit: bool) -> None:
        if producer in self.open:
            self.open.discard(producer)
            marker = memoryview(bytearray(end_transaction_marker(producer, 0, commit, 0, NOW_MS)))
            self.log.append_as_leader(marker, leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)


WRITES = st.one_of(
    st.tuples(st.just("write"), RECORDS, st.sampled_from(Codec), st.one_of(st.none(), st.integers(0, 3))),
    st.tuples(st.just("end"), st.integers(2, 3), st.booleans()),
    st.tuples(st.just("roll")),
    st.tuples(st.just("clean"), st.integers(0, 2)),
)


def apply(writer: Writer, steps: list[Any], now_ms: list[int]) -> None:
    log = writer.log
    for kind, *arguments in steps:
        if kind == "write":
            writer.write(*arguments)
        elif kind == "end":
            writer.end(arguments[0], commit=arguments[1])
        elif kind == "roll":
            log.roll(now_ms=NOW_MS)
        else:
            now_ms[0] += arguments[0] * HOUR_MS
            log.advance_high_watermark(log.log_end_offset)
            clean(log, now_ms[0])


def committed(log: PartitionLog) -> list[Record]:
    """What a read_committed consumer sees, by the list of aborted transactions that it is given with each fetch."""
    seen: list[Record] = []
    offset, end_offset = log.log_start_offset, log.last_stable_offset
    while offset < end_offset:
        read = log.read(offset, 1 << 20, end_offset=end_offset)
        data = slice_bytes(read.data)
        if not data:
            break
        aborted = log.aborted_in(read, end_offset)
        for position, header in iter_headers(data):
            is_aborted = header.is_transactional and any(
                transaction.producer_id == header.producer_id
                and transaction.first_offset <= header.base_offset < transaction.last_offset
                for transaction in aborted
            )
            if not header.is_control and not is_aborted:
                seen += [record for record in read_records(data[position:], header) if record.offset >= offset]
            offset = header.next_offset
    return seen


def table(log: PartitionLog) -> dict[bytes | None, bytes]:
    """What is stored under each key, for somebody who reads from the start to the end."""
    newest = {record.key: record.value for record in committed(log)}
    return {key: value for key, value in newest.items() if value is not None}


def without_snapshots(log: PartitionLog) -> PartitionLog:
    """The log as a start finds it that has nothing but segments to learn from."""
    for path in log.directory.glob("*.snapshot"):
        path.unlink()
    return reopen(log, is_clean=False, high_watermark=log.log_end_offset)


@settings(max_examples=120, deadline=None, suppress_health_check=FRESH_LOG)
@given(st.lists(WRITES, max_size=30), st.sampled_from([LIMITS, SMALL_MAP]))
def test_compaction_keeps_what_matters(make_log: MakeLog, steps: list[Any], limits: CleanerLimits) -> None:
    log = make_log(segment_bytes=600, index_interval_bytes=64, producer_id_expiration_ms=10**15, **COMPACT)
    writer, now_ms = Writer(log), [NOW_MS]
    apply(writer, steps, now_ms)
    log.roll(now_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    before = {record.offset: record for record in read_all(log)}
    newest_before = {record.key: record for record in committed(log)}
    table_before, unstable, end_offset = table(log), log.producers.first_unstable_offset, log.log_end_offset
    while (cleaner := clean(log, now_ms[0], limits)) is not None:
        assert cleaner.end_offset > cleaner._plan.first_dirty_offset, "every pass gets on"
    after = {record.offset: record for record in read_all(log)}

    assert list(after) == sorted(after)
    assert all(before[offset] == record for offset, record in after.items()), "no record changes, none is new"
    assert [offset for offset in before if offset >= log.clean_offset] == [o for o in after if o >= log.clean_offset]
    assert table(log) == table_before
    for key, record in newest_before.items():
        left = [other.offset for other in committed(log) if other.key == key and other.offset < log.clean_offset]
        assert len(left) <= 1, "one record of each key"
        if record.value is not None:
            assert record.offset in after
    again = without_snapshots(log)
    assert (again.log_end_offset, again.producers.first_unstable_offset) == (end_offset, unstable)
    assert table(again) == table_before
    sequences = {producer: entry.last_sequence + 1 for producer, entry in again.producers.entries.items()}
    assert sequences == writer.sequences, "whoever goes on writing is not taken for somebody else"


def test_more_keys_than_memory_takes_more_passes(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=400, **COMPACT)
    writer = Writer(log)
    for version in range(3):
        for number in range(0, 40, 2):
            writer.write([(b"key-%d" % key, b"%d" % version, 0) for key in (number, number + 1)], Codec.NONE, None)
    log.roll(now_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    expected = table(log)
    ends = []
    while (cleaner := clean(log, NOW_MS, SMALL_MAP)) is not None:
        ends.append(cleaner.end_offset)
        assert table(log) == expected
    # Six keys at a time, and a batch as a whole or not at all.
    assert ends == [*range(6, 120, 6), 120]
    assert [record.value for record in read_all(log)] == [b"2"] * 40


def test_a_batch_with_more_keys_than_memory_cannot_be_compacted(make_log: MakeLog) -> None:
    log = make_log(**COMPACT)
    Writer(log).write([(b"key-%d" % key, b"v", 0) for key in range(7)], Codec.NONE, None)
    log.roll(now_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    with pytest.raises(OutOfMemoryError, match=r"the 7 keys of one batch .* log\.cleaner\.dedupe\.buffer\.size"):
        clean(log, NOW_MS, SMALL_MAP)


class KilledError(Exception):
    pass


def kill_at(monkeypatch: pytest.MonkeyPatch, call: int) -> Callable[[], int]:
    """Ends whoever renames or removes a file for the `call`th time; returns how often that was."""
    calls = 0
    rename, unlink = Path.rename, Path.unlink

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == call:
                raise KilledError
            return function(*arguments, **options)

        return run

    monkeypatch.setattr(Path, "rename", counted(rename))
    monkeypatch.setattr(Path, "unlink", counted(unlink))
    return lambda: calls


def filled(make_log: MakeLog) -> PartitionLog:
    """Five closed segments: an aborted transaction, tombstones, and segments that empty when they are cleaned."""
    log = make_log(segment_bytes=1 << 20, index_interval_bytes=64, producer_id_expiration_ms=10**15, **COMPACT)
    writer = Writer(log)
    for number in range(5):
        writer.write([(b"a", b"%d" % number, 0), (b"only-%d" % number, b"v", 0)], Codec.NONE, None)
        writer.write([(b"b", b"%d" % number, 0), (b"a", None, 0)], Codec.LZ4, 0)
        writer.write([(b"c", b"%d" % number, 0)], Codec.NONE, 2)
        writer.end(2, commit=number % 2 == 0)
        log.roll(now_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    return log


def test_a_kill_at_any_step_leaves_the_old_segments_or_the_new_one(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 0
    while True:
        log = filled(make_log)
        expected, records = table(log), {record.offset: record for record in read_all(log)}
        with monkeypatch.context() as patched:
            count = kill_at(patched, steps + 1)
            try:
                clean(log, NOW_MS)
                was_killed = False
            except KilledError:
                was_killed = True
            steps += 1
            made = count()
        again = reopen(log, is_clean=False, high_watermark=log.log_end_offset)
        assert table(again) == expected
        assert all(records[record.offset] == record for record in read_all(again))
        assert again.log_end_offset == log.log_end_offset
        assert again.producers.entries[0].last_sequence == 9
        assert not [path for path in log.directory.iterdir() if path.suffix in (".cleaned", ".swap", ".deleted")]
        clean(again, NOW_MS)
        assert table(again) == expected
        if not was_killed:
            break
    assert made == steps - 1 > 20, "there were many steps"


def test_a_full_disk_loses_nothing(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(make_log)
    expected, segments = read_all(log), log.segments

    def fails(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    for name in ("pwrite", "pwritev", "fdatasync"):
        with monkeypatch.context() as patched:
            patched.setattr(os, name, fails)
            with pytest.raises(OSError, match="No space left"):
                clean(log, NOW_MS)
        assert log.segments is segments and read_all(log) == expected
        assert not list(log.directory.glob("*.cleaned"))
    assert clean(log, NOW_MS) is not None


def test_a_log_that_is_cut_is_not_what_was_cleaned(make_log: MakeLog) -> None:
    log = filled(make_log)
    candidate = find_candidate(log, NOW_MS)
    assert candidate is not None
    history = log.history
    groups = Cleaner(plan_pass(candidate, NOW_MS), LIMITS, is_called_off=lambda: log.history != history).groups()
    log.truncate_to(log.segments.all()[1].base_offset)
    with pytest.raises(CleaningAbortedError):
        next(groups)
    assert not list(log.directory.glob("*.cleaned"))


def test_truncation_makes_the_rest_dirty_again(make_log: MakeLog) -> None:
    log = filled(make_log)
    clean(log, NOW_MS)
    assert log.clean_offset == log.segments.active.base_offset
    target = log.segments.active.base_offset - 1
    log.truncate_to(target)
    assert log.clean_offset == log.log_end_offset <= target


def test_damage_is_named_and_changes_nothing(make_log: MakeLog) -> None:
    log = filled(make_log)
    segment = log.segments.all()[2]
    os.pwrite(segment.log.fd, b"\xff", segment.size - 80)
    segments = log.segments
    with pytest.raises(CorruptBatchError, match=f"{segment.log.path}.*(checksum|offsets)"):
        clean(log, NOW_MS)
    assert log.segments is segments
    assert not list(log.directory.glob("*.cleaned"))


def test_what_is_read_meanwhile_can_be_read_to_its_end(make_log: MakeLog) -> None:
    log = filled(make_log)
    read = log.read(0, 1 << 20, end_offset=log.log_end_offset)
    before = slice_bytes(read.data)
    clean(log, NOW_MS)
    log.remove_deleted(NOW_MS, at_once=True)
    assert slice_bytes(read.data) == before != b""
    assert slice_bytes(log.read(0, 1 << 20, end_offset=log.log_end_offset).data) != before


# -- which log, and how much of it --------------------------------------------------------------------------------


def next_of(now_ms: int, *logs: PartitionLog) -> Candidate | None:
    return choose(candidate for log in logs if (candidate := find_candidate(log, now_ms)) is not None)


def test_the_dirtiest_log_comes_first(make_log: MakeLog) -> None:
    little, much = filled(make_log), filled(make_log)
    clean(little, NOW_MS)
    Writer(little).write([(b"a", b"again" * 200, 0)], Codec.NONE, None)
    little.roll(now_ms=NOW_MS)
    little.advance_high_watermark(little.log_end_offset)
    found = next_of(NOW_MS, little, much)
    assert found is not None and found.log is much and found.dirty_ratio == 1.0
    clean(much, NOW_MS)
    found = next_of(NOW_MS, little, much)
    assert found is not None and found.log is little and 0.5 < found.dirty_ratio < 1.0
    clean(little, NOW_MS)
    assert next_of(NOW_MS, little, much) is None


def test_a_ratio_must_be_exceeded_and_age_makes_it_unnecessary(make_log: MakeLog) -> None:
    log = make_log(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=HOUR_MS, **COMPACT)
    Writer(log).write([(b"a", b"1", 0)], Codec.NONE, None)
    log.advance_high_watermark(1)
    assert find_candidate(log, NOW_MS + 9 * HOUR_MS) is None, "the active segment is never cleaned"
    log.roll(now_ms=NOW_MS)
    assert next_of(NOW_MS + HOUR_MS, log) is None
    assert next_of(NOW_MS + HOUR_MS + 1, log) is not None


def test_the_age_at_which_records_must_be_compacted_rolls_their_segment(make_log: MakeLog) -> None:
    for policy, segments in (("compact", 2), ("delete", 1)):
        log = make_log(max_compaction_lag_ms=1000, cleanup_policy=frozenset({policy}))
        for delta in (0, 1000, 1001):
            Writer(log).write([(b"a", b"1", delta)], Codec.NONE, None)
        assert len(log.segments) == segments


def test_young_records_are_left_alone(make_log: MakeLog) -> None:
    log = make_log(min_compaction_lag_ms=HOUR_MS, **COMPACT)
    for age_ms in (3 * HOUR_MS, 0, 3 * HOUR_MS):
        Writer(log).write([(b"a", b"1", -age_ms)], Codec.NONE, None)
        log.roll(now_ms=NOW_MS)
    log.advance_high_watermark(3)
    found = find_candidate(log, NOW_MS)
    assert found is not None and (found.first_dirty_offset, found.end_offset) == (0, 1)


def test_what_is_not_replicated_is_not_touched(make_log: MakeLog) -> None:
    log = filled(make_log)
    log = reopen(log, is_clean=False, high_watermark=8)
    found = find_candidate(log, NOW_MS)
    assert found is not None and found.end_offset == log.segments.all()[1].base_offset == 6


def source(base_offset: int, size: int, offset_index: int, time_index: int) -> Any:
    segment = SimpleNamespace(
        base_offset=base_offset,
        size=size,
        offset_index=SimpleNamespace(size_bytes=offset_index),
        time_index=SimpleNamespace(size_bytes=time_index),
    )
    return Source(segment, base_offset + 10)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([(50, 8, 12), (50, 8, 12)], [2]),
        ([(50, 8, 12), (51, 8, 12)], [1, 1]),
        ([(50, 8, 12), (50, 8, 12), (50, 8, 12), (50, 8, 12)], [2, 2]),
        ([(20, 60, 12), (20, 60, 12), (20, 60, 12)], [2, 1]),
        ([(20, 8, 60), (20, 8, 60), (20, 8, 60), (20, 8, 60)], [2, 2]),
        ([(20, 8, 61), (20, 8, 60)], [1, 1]),
    ],
)
def test_segments_become_one_while_they_and_their_indexes_fit(
    sizes: list[tuple[int, int, int]], expected: list[int]
) -> None:
    config = LogConfig(segment_bytes=100, segment_index_bytes=120)
    groups = group_sources([source(10 * number, *each) for number, each in enumerate(sizes)], config)
    assert [len(group) for group in groups] == expected
    assert [each.segment.base_offset for group in groups for each in group] == [10 * n for n in range(len(sizes))]


@pytest.mark.parametrize(("base_offset", "expected"), [(2**31 - 10, [2]), (2**31 - 9, [1, 1])])
def test_offsets_of_segments_that_become_one_are_not_too_far_apart(base_offset: int, expected: list[int]) -> None:
    config = LogConfig(segment_bytes=100, segment_index_bytes=120)
    groups = group_sources([source(0, 1, 0, 0), source(base_offset, 1, 0, 0)], config)
    assert [len(group) for group in groups] == expected
