"""Retention: which segments may go by age, size and start offset, and which never do."""

from __future__ import annotations

import os
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import OffsetOutOfRangeError
from ottla.log.partition_log import PartitionLog
from ottla.log.retention import Expired, drop_expired, find_expired
from tests.unit.log.samples import FRESH_LOG, NOW_MS, MakeLog, append, batch, read_all, reopen, slice_bytes

ONE = len(batch())
HOUR_MS = 3_600_000


def offsets(log: PartitionLog) -> list[int]:
    return [record.offset for record in read_all(log)]


def fill(log: PartitionLog, *ages_ms: int, committed: int | None = None) -> None:
    """A segment for each age."""
    for age_ms in ages_ms:
        append(log, timestamp=NOW_MS - age_ms)
    log.advance_high_watermark(log.log_end_offset if committed is None else committed)


def expire(log: PartitionLog) -> Expired | None:
    expired = find_expired(log, NOW_MS)
    if expired is not None:
        drop_expired(log, expired, NOW_MS)
    return expired


def one_by_one(make_log: MakeLog, **settings: object) -> PartitionLog:
    return make_log(segment_bytes=ONE, **settings)


def test_segments_older_than_the_limit_go_and_the_first_younger_one_keeps_the_rest(make_log: MakeLog) -> None:
    log = one_by_one(make_log, retention_ms=HOUR_MS)
    fill(log, 3 * HOUR_MS, HOUR_MS + 1, HOUR_MS, 5 * HOUR_MS, 0)
    expired = expire(log)
    assert expired is not None
    assert (len(expired.segments), expired.start_offset, expired.size_bytes) == (2, 2, 2 * ONE)
    assert expired.reason == "their newest record is older than retention.ms=3600000"
    assert offsets(log) == [2, 3, 4]
    assert find_expired(log, NOW_MS) is None


def test_a_segment_is_as_old_as_its_youngest_record(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=2 * ONE, retention_ms=HOUR_MS)
    fill(log, 9 * HOUR_MS, 1, 9 * HOUR_MS, 9 * HOUR_MS, 0)
    assert expire(log) is None


def test_without_timestamps_the_time_of_the_file_counts(make_log: MakeLog) -> None:
    log = one_by_one(make_log, retention_ms=HOUR_MS)
    for _ in range(3):
        append(log, timestamp=-1)
    log.advance_high_watermark(3)
    for segment, age_ms in zip(log.segments.all(), (HOUR_MS + 1000, 0, 2 * HOUR_MS), strict=True):
        os.utime(segment.log.path, ns=(0, (NOW_MS - age_ms) * 1_000_000))
    expire(log)
    assert offsets(log) == [1, 2]


def test_the_log_may_be_larger_than_the_limit_by_less_than_a_segment(make_log: MakeLog) -> None:
    log = one_by_one(make_log, retention_bytes=3 * ONE - 1, retention_ms=-1)
    fill(log, 0, 0, 0, 0, 0)
    expired = expire(log)
    assert expired is not None and expired.reason == f"the log is larger than retention.bytes={3 * ONE - 1}"
    assert offsets(log) == [2, 3, 4]
    log.update_config(log.config.__class__(segment_bytes=ONE, retention_bytes=2 * ONE, retention_ms=-1))
    expire(log)
    assert offsets(log) == [3, 4]


def test_an_active_segment_that_is_due_is_closed_first(make_log: MakeLog) -> None:
    log = one_by_one(make_log, retention_ms=HOUR_MS)
    fill(log, 2 * HOUR_MS, 2 * HOUR_MS)
    expire(log)
    assert (log.log_start_offset, log.log_end_offset, len(log.segments), log.size_bytes) == (2, 2, 1, 0)
    assert find_expired(log, NOW_MS) is None, "an empty segment is nothing to be deleted"
    assert append(log) == 2
    log.advance_high_watermark(3)
    log.close()
    again = reopen(log, is_clean=True, high_watermark=3)
    assert (again.log_start_offset, offsets(again)) == (2, [2])


def test_nothing_goes_that_is_not_committed(make_log: MakeLog) -> None:
    log = one_by_one(make_log, retention_ms=HOUR_MS, retention_bytes=0)
    fill(log, *[2 * HOUR_MS] * 4, committed=2)
    expire(log)
    assert offsets(log) == [2, 3]
    assert find_expired(log, NOW_MS) is None


@pytest.mark.parametrize("policy", [{"compact"}, {"compact", "delete"}, {"delete"}])
def test_only_where_the_policy_says_delete(make_log: MakeLog, policy: set[str]) -> None:
    log = one_by_one(make_log, retention_ms=1, cleanup_policy=frozenset(policy))
    fill(log, HOUR_MS, HOUR_MS)
    assert (find_expired(log, NOW_MS) is None) == ("delete" not in policy)


def test_what_is_being_read_can_be_read_to_its_end(make_log: MakeLog) -> None:
    log = one_by_one(make_log, retention_ms=HOUR_MS, file_delete_delay_ms=10_000)
    fill(log, 2 * HOUR_MS, 2 * HOUR_MS, 0)
    found = log.read(0, 1 << 20, end_offset=3)
    before = slice_bytes(found.data)
    expire(log)
    names = {path.name for path in log.directory.iterdir() if path.suffix == ".deleted"}
    assert f"{0:020}.log.deleted" in names and f"{1:020}.timeindex.deleted" in names
    assert slice_bytes(found.data) == before != b""
    log.remove_deleted(NOW_MS)
    log.remove_deleted(NOW_MS + 9_999)
    assert any(path.suffix == ".deleted" for path in log.directory.iterdir())
    log.remove_deleted(NOW_MS + 10_000)
    assert not any(path.suffix == ".deleted" for path in log.directory.iterdir())
    assert slice_bytes(found.data) == before, "whoever holds the file can go on"
    with pytest.raises(OffsetOutOfRangeError, match=r"outside \[2, 3\]"):
        log.read(1, 1 << 20, end_offset=3)


@settings(max_examples=60, deadline=None, suppress_health_check=FRESH_LOG)
@given(
    st.lists(st.tuples(st.integers(0, 10), st.booleans()), min_size=1, max_size=12),
    st.integers(-1, 10),
    st.integers(-1, 6),
    st.integers(0, 12),
)
def test_what_a_rule_keeps_is_never_removed(
    make_log: MakeLog, written: list[tuple[int, bool]], retention_ms: int, segments_kept: int, committed: int
) -> None:
    retention_bytes = segments_kept * ONE if segments_kept >= 0 else -1
    log = make_log(retention_ms=retention_ms, retention_bytes=retention_bytes)
    for age_ms, rolls in written:
        append(log, timestamp=NOW_MS - age_ms)
        if rolls:
            log.roll(now_ms=NOW_MS)
    log.advance_high_watermark(committed)
    before, size = log.segments.all(), log.size_bytes
    ends = [following.base_offset for _, following in pairwise(before)] + [log.log_end_offset]
    expire(log)
    gone = sum(end <= log.log_start_offset for segment, end in zip(before, ends, strict=True) if segment.size)
    left = size
    for segment, end in zip(before[:gone], ends, strict=False):
        left -= segment.size
        is_too_old = retention_ms >= 0 and NOW_MS - segment.max_timestamp > retention_ms
        assert is_too_old or (retention_bytes >= 0 and left >= retention_bytes)
        assert end <= log.high_watermark
    assert offsets(log) == list(range(log.log_start_offset, len(written)))
