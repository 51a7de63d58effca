"""Which part of a log may be cleaned, when it is due, and what a pass is told of it."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.log.cleaning.candidates import Candidate, choose, find_candidate
from ottla.log.cleaning.pass_plan import LastWritten, plan_pass
from ottla.log.partition_log import Origin, PartitionLog
from ottla.records.control import end_transaction_marker
from tests.unit.log.samples import NOW_MS, MakeLog, append, idempotent

LAG_MS = 1000
COMPACT: dict[str, Any] = {"cleanup_policy": frozenset({"compact"})}


def segments_of(make_log: MakeLog, *timestamps: int, **settings: Any) -> PartitionLog:
    """A closed segment with two records for each of the timestamps, all of them replicated."""
    log = make_log(**{"segment_ms": 1 << 40, **COMPACT, **settings})
    for timestamp in timestamps:
        append(log, b"v", timestamp=timestamp)
        append(log, b"v", timestamp=timestamp)
        log.roll(now_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    return log


def found(log: PartitionLog, now_ms: int = NOW_MS) -> tuple[int, int] | None:
    candidate = find_candidate(log, now_ms)
    return None if candidate is None else (candidate.first_dirty_offset, candidate.end_offset)


def test_all_closed_segments_are_cleaned_at_first(make_log: MakeLog) -> None:
    log = segments_of(make_log, NOW_MS, NOW_MS, NOW_MS)
    size = log.segments.first.size
    assert find_candidate(log, NOW_MS) == Candidate(log, 0, 6, 0, 3 * size, False)
    log.is_deleted = True
    assert find_candidate(log, NOW_MS) is None


def test_only_compacted_logs_are_cleaned(make_log: MakeLog) -> None:
    assert found(segments_of(make_log, NOW_MS, cleanup_policy=frozenset({"delete"}))) is None


@pytest.mark.parametrize(
    ("clean_offset", "expected", "clean", "dirty"),
    [(-1, (0, 6), 0, 3), (2, (2, 6), 1, 2), (3, (3, 6), 2, 2), (4, (4, 6), 2, 1), (5, (5, 6), 3, 1)],
)
def test_a_segment_that_is_partly_clean_counts_as_both(
    make_log: MakeLog, clean_offset: int, expected: tuple[int, int], clean: int, dirty: int
) -> None:
    log = segments_of(make_log, NOW_MS, NOW_MS, NOW_MS)
    log.clean_offset = clean_offset
    size = log.segments.first.size
    candidate = find_candidate(log, NOW_MS)
    assert candidate is not None
    assert (candidate.first_dirty_offset, candidate.end_offset) == expected
    assert (candidate.clean_bytes, candidate.dirty_bytes) == (clean * size, dirty * size)
    assert candidate.dirty_ratio == dirty / (clean + dirty)
    sources = plan_pass(candidate, NOW_MS).dirty_sources()
    assert [source.segment.base_offset for source in sources] == [0, 2, 4][3 - dirty :]


def test_what_is_clean_or_active_is_left_alone(make_log: MakeLog) -> None:
    log = segments_of(make_log, NOW_MS, NOW_MS)
    log.clean_offset = 4
    assert found(log) is None
    append(log)
    log.advance_high_watermark(5)
    assert found(log) is None
    log.clean_offset = 3
    log.advance_log_start_offset(4)
    assert found(log) is None, "the log begins behind it"
    assert found(make_log(**COMPACT)) is None


@pytest.mark.parametrize(
    ("high_watermark", "expected"), [(6, (0, 6)), (5, (0, 4)), (4, (0, 4)), (3, (0, 2)), (1, None)]
)
def test_what_is_not_replicated_as_a_whole_is_left_alone(
    make_log: MakeLog, high_watermark: int, expected: tuple[int, int] | None
) -> None:
    log = segments_of(make_log, NOW_MS, NOW_MS, NOW_MS)
    log.high_watermark = high_watermark
    assert found(log) == expected


def test_an_open_transaction_is_left_alone(make_log: MakeLog) -> None:
    log = segments_of(make_log, NOW_MS, NOW_MS)
    log.append_as_leader(idempotent(0, transactional=True), leader_epoch=0, now_ms=NOW_MS)
    log.roll(now_ms=NOW_MS)
    log.advance_high_watermark(5)
    assert found(log) == (0, 4)


@pytest.mark.parametrize(
    ("newest", "expected"),
    [(NOW_MS - LAG_MS, (0, 4)), (NOW_MS - LAG_MS + 1, (0, 2)), (NOW_MS - 2 * LAG_MS, (0, 4))],
)
def test_records_wait_for_as_long_as_the_setting_says(
    make_log: MakeLog, newest: int, expected: tuple[int, int]
) -> None:
    log = segments_of(make_log, NOW_MS - 5 * LAG_MS, newest, min_compaction_lag_ms=LAG_MS)
    assert found(log) == expected


def test_without_a_setting_records_from_the_future_do_not_wait(make_log: MakeLog) -> None:
    assert found(segments_of(make_log, NOW_MS + 5 * LAG_MS)) == (0, 2)
    assert found(segments_of(make_log, NOW_MS, min_compaction_lag_ms=1)) is None
    assert found(segments_of(make_log, NOW_MS - 1, min_compaction_lag_ms=1)) == (0, 2)


@pytest.mark.parametrize(
    ("timestamps", "lag_ms", "is_overdue"),
    [
        ([NOW_MS - LAG_MS], LAG_MS, False),
        ([NOW_MS - LAG_MS - 1], LAG_MS, True),
        ([NOW_MS, NOW_MS - LAG_MS - 1], LAG_MS, True),
        ([0], LAG_MS, False),
        ([1], LAG_MS, True),
        ([-1], LAG_MS, False),
        ([1], 2**63 - 1, False),
    ],
)
def test_a_record_that_has_waited_too_long_makes_a_cleaning_due(
    make_log: MakeLog, timestamps: list[int], lag_ms: int, is_overdue: bool
) -> None:
    log = segments_of(make_log, *timestamps, max_compaction_lag_ms=lag_ms, min_cleanable_dirty_ratio=1.0)
    candidate = find_candidate(log, NOW_MS)
    assert candidate is not None
    assert (candidate.is_overdue, candidate.is_due) == (is_overdue, is_overdue)


def test_of_the_logs_that_are_due_the_dirtiest_is_next(make_log: MakeLog) -> None:
    log = make_log(min_cleanable_dirty_ratio=0.5, **COMPACT)
    half, more, most = (Candidate(log, 0, 1, 4 - dirty, dirty, False) for dirty in (2, 3, 4))
    overdue = Candidate(log, 0, 1, 3, 1, True)
    assert choose([]) is choose([half]) is None
    assert choose([half, more, most, overdue]) is most
    assert choose([overdue, half]) is overdue
    assert choose([overdue, more]) is more


def test_a_pass_knows_its_segments_and_their_ends(make_log: MakeLog) -> None:
    log = segments_of(make_log, NOW_MS, NOW_MS, NOW_MS)
    log.high_watermark = 5
    candidate = find_candidate(log, NOW_MS)
    assert candidate is not None
    plan = plan_pass(candidate, NOW_MS)
    assert [(source.segment.base_offset, source.end_offset) for source in plan.sources] == [(0, 2), (2, 4)]
    assert (plan.directory, plan.first_dirty_offset, plan.end_offset, plan.now_ms) == (log.directory, 0, 4, NOW_MS)
    assert [[each.segment.base_offset for each in group] for group in plan.groups(4)] == [[0, 2]]
    assert [[each.segment.base_offset for each in group] for group in plan.groups(2)] == [[0]]
    assert plan.groups(0) == []


def test_a_pass_knows_what_producers_that_are_not_forgotten_have_written_last(make_log: MakeLog) -> None:
    log = make_log(producer_id_expiration_ms=LAG_MS, **COMPACT)
    ages_ms = {1: LAG_MS, 2: LAG_MS + 1, 3: LAG_MS + 1, 4: 0}
    for producer_id, age_ms in ages_ms.items():
        records = idempotent(0, producer_id=producer_id, timestamp=NOW_MS - age_ms, transactional=producer_id > 2)
        log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)
    for producer_id, epoch in ((4, 0), (5, 6)):
        marker = end_transaction_marker(producer_id, epoch, True, 0, NOW_MS)
        log.append_as_leader(memoryview(bytearray(marker)), leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)
    plan = plan_pass(Candidate(log, 0, 0, 0, 0, False), NOW_MS)
    assert plan.last_written == {
        1: LastWritten(0, 0),
        3: LastWritten(2, 0),
        4: LastWritten(3, 0),
        5: LastWritten(-1, 6),
    }
    assert plan.sources == ()


def test_a_pass_knows_of_aborted_transactions_that_its_part_touches(make_log: MakeLog) -> None:
    log = make_log(**COMPACT)
    for producer_id in (1, 2):
        records = idempotent(0, producer_id=producer_id, transactional=True)
        log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)
        log.roll(now_ms=NOW_MS)
    for producer_id in (2, 1):
        marker = end_transaction_marker(producer_id, 0, False, 0, NOW_MS)
        log.append_as_leader(memoryview(bytearray(marker)), leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)
    plan = plan_pass(Candidate(log, 0, 1, 0, 0, False), NOW_MS)
    assert [transaction.producer_id for transaction in plan.aborted] == [1]
    plan = plan_pass(Candidate(log, 1, 2, 0, 0, False), NOW_MS)
    assert [transaction.producer_id for transaction in plan.aborted] == [1, 2], "from the beginning of the log on"
