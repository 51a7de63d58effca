"""Reading: the right bytes from the right segment, never more than the bound, never a copy."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import OffsetOutOfRangeError
from ottla.base.types import FileSlice
from ottla.log.partition_log import PartitionLog
from ottla.records.batch import iter_headers, read_header
from tests.unit.log.samples import FRESH_LOG, NOW_MS, MakeLog, append, batch, read_all, reopen, slice_bytes


def first_offset_of(data: FileSlice | None) -> int:
    return read_header(slice_bytes(data)).base_offset


def test_starts_with_the_batch_that_contains_the_offset(log: PartitionLog) -> None:
    append(log, b"0", b"1", b"2")
    append(log, b"3", b"4")
    append(log, b"5")
    for offset, base in enumerate([0, 0, 0, 3, 3, 5]):
        assert first_offset_of(log.read(offset, 1 << 20, end_offset=6).data) == base


def test_offsets_outside_the_log(log: PartitionLog) -> None:
    append(log)
    append(log)
    assert log.read(2, 100, end_offset=2).data is None
    for offset in (-1, 3):
        with pytest.raises(OffsetOutOfRangeError):
            log.read(offset, 100, end_offset=2)
    log.advance_high_watermark(2)
    log.advance_log_start_offset(1)
    with pytest.raises(OffsetOutOfRangeError):
        log.read(0, 100, end_offset=2)


def test_bound_is_exclusive(log: PartitionLog) -> None:
    for value in (b"a", b"b", b"c"):
        append(log, value)
    data = slice_bytes(log.read(0, 1 << 20, end_offset=2).data)
    assert [header.base_offset for _, header in iter_headers(data)] == [0, 1]
    assert log.read(2, 1 << 20, end_offset=2).data is None
    assert log.read(1, 1 << 20, end_offset=0).data is None


def test_a_batch_across_the_bound_is_not_shown(log: PartitionLog) -> None:
    append(log, b"a", b"b", b"c")
    assert log.read(0, 1 << 20, end_offset=2).data is None


def test_limit_may_cut_a_batch_but_not_the_first(log: PartitionLog) -> None:
    append(log, b"x" * 100)
    append(log, b"y" * 100)
    size = log.size_bytes // 2
    assert log.read(0, size + 10, end_offset=2).data == (log.segments.active.log, 0, size + 10)
    assert log.read(0, 10, end_offset=2).data == (log.segments.active.log, 0, size)
    assert log.read(0, size + 10, end_offset=2, min_one_batch=False).data == (log.segments.active.log, 0, size + 10)
    assert log.read(0, size - 1, end_offset=2, min_one_batch=False).data is None
    assert log.read(0, 0, end_offset=2, min_one_batch=False).data is None


def test_reads_one_segment_and_goes_on_in_the_next(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=400)
    for number in range(20):
        append(log, b"%03d" % number * 20)
    assert len(log.segments) > 3
    assert [r.value[:3] for r in read_all(log) if r.value] == [b"%03d" % n for n in range(20)]
    first = log.read(0, 1 << 20, end_offset=20)
    assert first.data is not None
    assert (first.segment_base_offset, first.is_last_segment) == (0, False)
    assert first.data.length == log.segments.first.size
    assert log.read(19, 1 << 20, end_offset=20).is_last_segment


def test_a_gap_at_the_end_of_a_segment(make_log: MakeLog) -> None:
    # As compaction leaves it: the segment ends before the next one begins.
    log = make_log()
    log.append_as_follower(batch(b"a", base_offset=0))
    log.roll(now_ms=NOW_MS)
    log.append_as_follower(batch(b"b", base_offset=10))
    log.roll(now_ms=NOW_MS)
    log.append_as_follower(batch(b"c", base_offset=20))
    for offset, base in ((0, 0), (1, 10), (9, 10), (11, 20), (20, 20)):
        assert first_offset_of(log.read(offset, 1 << 20, end_offset=21).data) == base
    assert log.available_bytes(11, 21) == len(batch(b"c"))


def test_a_reader_keeps_its_file(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=200)
    for _ in range(5):
        append(log, b"x" * 60)
    held = log.read(0, 1 << 20, end_offset=5).data
    expected = slice_bytes(held)
    log.advance_high_watermark(5)
    log.advance_log_start_offset(4)
    log.remove_deleted(0, at_once=True)
    assert held is not None
    assert slice_bytes(held) == expected


@settings(max_examples=30, suppress_health_check=FRESH_LOG)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 300)), min_size=1, max_size=40),
    interval=st.sampled_from([0, 100, 4096]),
    segment_bytes=st.sampled_from([2000, 1 << 20]),
    reopens=st.booleans(),
)
def test_any_offset_and_bound(
    make_log: MakeLog, sizes: list[tuple[int, int]], interval: int, segment_bytes: int, reopens: bool
) -> None:
    log = make_log(index_interval_bytes=interval, segment_bytes=segment_bytes)
    bounds = [0]
    for count, size in sizes:
        append(log, *[b"x" * size] * count)
        bounds.append(log.log_end_offset)
    if reopens:
        log.close()
        log = reopen(log, is_clean=True)
    for offset in range(log.log_end_offset):
        base = max(b for b in bounds if b <= offset)
        for end in [*[b for b in bounds if b > offset][:3], log.log_end_offset]:
            data = slice_bytes(log.read(offset, 1 << 20, end_offset=end).data)
            headers = [header for _, header in iter_headers(data)]
            assert headers[0].base_offset == base
            assert headers[-1].next_offset <= end
            whole = sum(header.size for header in headers)
            assert whole == len(data)
            if len(log.segments) == 1:
                assert headers[-1].next_offset == end
                assert log.available_bytes(offset, end) == whole


def test_reading_far_behind_the_newest_batches(make_log: MakeLog) -> None:
    log = make_log(segment_index_bytes=1 << 16)
    for _ in range(3000):
        append(log)
    for offset in (0, 1, 500, 1500, 1999, 2400, 2999):
        assert first_offset_of(log.read(offset, 1 << 20, end_offset=3000).data) == offset
        assert log.available_bytes(offset, 3000) == len(batch()) * (3000 - offset)


def test_available_bytes_across_segments(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=400)
    for _ in range(10):
        append(log, b"x" * 60)
    size = len(batch(b"x" * 60))
    for offset in range(10):
        for end in range(offset, 11):
            assert log.available_bytes(offset, end) == (end - offset) * size


def test_sizes_of_batches_are_what_their_headers_say(make_log: MakeLog) -> None:
    """Of old batches, and of new ones whose places are remembered."""
    log = make_log()
    for number in range(1_300):
        append(log, b"x" * (number % 90))
    for segment in (log.segments.active, reopen(log, is_clean=True).segments.active):
        sizes = {position: header.size for position, header in segment.headers()}
        assert len(sizes) == 1_300
        assert {position: segment.size_of_batch(position) for position in sizes} == sizes
