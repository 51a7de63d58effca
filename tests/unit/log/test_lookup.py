"""Searching by time finds what reading everything would find."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log import lookup
from ottla.log.config import LOG_APPEND_TIME
from ottla.log.partition_log import PartitionLog
from ottla.log.segment import Segment
from ottla.log.transaction_index import AbortedTransaction
from ottla.records.batch import BatchHeader
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from tests.unit.log.samples import FRESH_LOG, NOW_MS, MakeLog, append, batch, read_all, reopen

Timestamps = list[list[int]]


def fill(log: PartitionLog, batches: Timestamps, codec: Codec = Codec.NONE) -> None:
    for timestamps in batches:
        records = build_batch([(None, b"v" * 20, (), timestamp) for timestamp in timestamps], codec=codec)
        log.append_as_leader(memoryview(bytearray(records)), leader_epoch=3, now_ms=NOW_MS)


def by_scan(log: PartitionLog, timestamp: int) -> tuple[int, int] | None:
    return next(((r.timestamp, r.offset) for r in read_all(log) if r.timestamp >= timestamp), None)


def max_by_scan(log: PartitionLog) -> tuple[int, int]:
    newest = max(read_all(log), key=lambda r: (r.timestamp, -r.offset))
    return newest.timestamp, newest.offset


@settings(max_examples=40, suppress_health_check=FRESH_LOG)
@given(
    batches=st.lists(st.lists(st.integers(100, 200), min_size=1, max_size=4), min_size=1, max_size=30),
    start=st.integers(0, 20),
    codec=st.sampled_from([Codec.NONE, Codec.GZIP]),
    restart=st.sampled_from(["no", "clean", "crash"]),
)
def test_like_a_linear_scan(make_log: MakeLog, batches: Timestamps, start: int, codec: Codec, restart: str) -> None:
    log = make_log(index_interval_bytes=150, segment_bytes=700, segment_ms=10**9)
    fill(log, batches, codec)
    log.advance_high_watermark(log.log_end_offset)
    log.advance_log_start_offset(min(start, log.log_end_offset - 1))
    if restart == "clean":
        log.close()
    if restart != "no":
        log = reopen(log, is_clean=restart == "clean", log_start_offset=log.log_start_offset)
    for timestamp in range(98, 203, 3):
        found = log.find_by_timestamp(timestamp)
        assert (found[:2] if found else None) == by_scan(log, timestamp)
    newest = log.find_max_timestamp()
    assert newest is not None
    assert newest[:2] == max_by_scan(log)
    assert newest.leader_epoch == 3


@settings(max_examples=40, deadline=None, suppress_health_check=FRESH_LOG)
@given(
    batches=st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=4), min_size=1, max_size=10),
    data=st.data(),
)
def test_any_part_of_a_log_like_a_linear_scan(make_log: MakeLog, batches: Timestamps, data: st.DataObject) -> None:
    log = make_log(index_interval_bytes=100, segment_bytes=400, segment_ms=10**9)
    fill(log, batches)
    records = read_all(log)
    for _ in range(8):
        start = data.draw(st.integers(0, len(records)))
        end = data.draw(st.integers(start, len(records)))
        timestamp = data.draw(st.integers(-1, 13))
        within = records[start:end]
        expected = next(((r.timestamp, r.offset, 3) for r in within if r.timestamp >= timestamp), None)
        assert lookup.find_by_timestamp(log.segments, timestamp, start, end) == expected
        newest = max(within, key=lambda r: (r.timestamp, -r.offset), default=None)
        assert lookup.find_max_timestamp(log.segments, start, end) == (
            None if newest is None else (newest.timestamp, newest.offset, 3)
        )


def looked_into(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The positions of the batches whose records are looked at from now on."""
    positions: list[int] = []
    batch_at = Segment.batch_at

    def counted(segment: Segment, position: int, header: BatchHeader) -> bytes:
        positions.append(position)
        return batch_at(segment, position, header)

    monkeypatch.setattr(Segment, "batch_at", counted)
    return positions


def test_batches_that_cannot_hold_it_are_not_looked_into(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(log, [[100, 101], [90, 91], [110, 111], [120, 121]])
    size = log.size_bytes // 4
    positions = looked_into(monkeypatch)
    assert lookup.find_by_timestamp(log.segments, 91, 2, 8) == (91, 3, 3)
    assert lookup.find_by_timestamp(log.segments, 111, 0, 8) == (111, 5, 3)
    assert lookup.find_by_timestamp(log.segments, 120, 0, 6) is None
    assert lookup.find_by_timestamp(log.segments, 122, 0, 8) is None
    assert [position // size for position in positions] == [1, 2]
    positions.clear()
    assert lookup.find_max_timestamp(log.segments, 0, 8) == (121, 7, 3)
    assert [position // size for position in positions] == [3], "the index tells which one it is"
    positions.clear()
    assert lookup.find_max_timestamp(log.segments, 0, 4) == (101, 1, 3)
    assert [position // size for position in positions] == [3, 0]


def test_segments_that_hold_nothing_younger_are_not_looked_into(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make_log()
    for timestamps in ([100], [102], [101], [102]):
        fill(log, [timestamps])
        log.roll(now_ms=NOW_MS)
    assert log.find_max_timestamp() == (102, 1, 3)
    assert lookup.find_max_timestamp(log.segments, 2, 4) == (102, 3, 3)
    headers: list[int] = []
    header_at = Segment.header_at

    def counted(segment: Segment, position: int) -> BatchHeader:
        headers.append(segment.base_offset)
        return header_at(segment, position)

    monkeypatch.setattr(Segment, "header_at", counted)
    assert log.find_max_timestamp() == (102, 1, 3)
    assert set(headers) == {1, 3}


@pytest.mark.parametrize(("count", "is_asked"), [(16, False), (17, True)])
def test_the_end_of_what_was_read_is_asked_for_only_where_many_were_aborted(
    log: PartitionLog, count: int, is_asked: bool
) -> None:
    index = log.segments.active.transaction_index
    for number in range(count):
        index.append(AbortedTransaction(count - number, 10 * number, 10 * number + 5, 10 * number + 6))
    asked: list[int] = []

    def narrower_end(end_offset: int) -> int:
        asked.append(end_offset)
        return end_offset

    def producers(start_offset: int, end_offset: int, narrower: int) -> list[int]:
        found = lookup.aborted_transactions(log.segments, start_offset, end_offset, lambda: narrower_end(narrower))
        return [count - transaction.producer_id for transaction in found]

    assert producers(0, 40, 20) == ([0, 1] if is_asked else [0, 1, 2, 3])
    assert producers(0, 20, 40) == [0, 1]
    assert bool(asked) is is_asked
    assert len(lookup.aborted_transactions(log.segments, 0, 40)) == 4


def test_aborted_transactions_come_by_their_first_offsets(log: PartitionLog) -> None:
    index = log.segments.active.transaction_index
    index.append(AbortedTransaction(1, 5, 8, 2))
    index.append(AbortedTransaction(2, 2, 9, 10))
    found = lookup.aborted_transactions(log.segments, 0, 10)
    assert [transaction.first_offset for transaction in found] == [2, 5]


def test_where_what_was_read_ends_is_told_by_the_index(make_log: MakeLog) -> None:
    log = make_log(index_interval_bytes=0)
    fill(log, [[100], [101, 102], [103]])
    segment = log.segments.active
    first, second, third = (position for position, _ in segment.headers())
    ends = [lookup.end_of_bytes(segment, end, 99) for end in (first, second, second + 1, third, third + 1)]
    assert ends == [1, 1, 3, 3, 99]
    segment.offset_index.truncate_to(0)
    segment.offset_index.append(0, second)
    assert lookup.end_of_bytes(segment, second, 99) == 99, "the index is damaged"


def test_empty_log(log: PartitionLog) -> None:
    assert log.find_by_timestamp(0) is None
    assert log.find_max_timestamp() is None


def test_log_append_time_names_the_first_record(make_log: MakeLog) -> None:
    log = make_log(message_timestamp_type=LOG_APPEND_TIME)
    for step in range(3):
        log.append_as_leader(batch(b"a", b"b"), leader_epoch=0, now_ms=NOW_MS + step)
    assert log.find_max_timestamp() == (NOW_MS + 2, 4, 0)
    assert log.find_by_timestamp(NOW_MS + 1) == (NOW_MS + 1, 2, 0)


def test_records_without_timestamps(log: PartitionLog) -> None:
    append(log, timestamp=-1)
    assert log.find_by_timestamp(0) is None
    assert log.find_max_timestamp() is None


def garble(path: Path, position: int, value: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[position : position + len(value)] = value
    path.write_bytes(data)


@pytest.mark.parametrize("field", [slice(0, 8), slice(8, 12)], ids=["timestamp", "offset"])
def test_a_garbled_entry_in_the_middle_is_noticed(make_log: MakeLog, field: slice) -> None:
    log = make_log(index_interval_bytes=0)
    fill(log, [[100 + number] for number in range(50)])
    expected = [log.find_by_timestamp(timestamp) for timestamp in range(100, 150)]
    log.close()
    for number in (10, 30):
        path = log.segments.active.time_index.path
        garble(path, number * 12 + field.start, bytes(field.stop - field.start - 1) + b"\x7f")
    log = reopen(log, is_clean=True)
    assert [log.find_by_timestamp(timestamp) for timestamp in range(100, 150)] == expected


@pytest.mark.parametrize("position", [0, 4], ids=["offset", "position"])
@pytest.mark.parametrize("value", [b"\x00\x00\x00\x01", b"\x00\x00\x03\xe7", b"\xff\xff\xff\xff"])
def test_a_garbled_offset_entry_is_noticed(make_log: MakeLog, position: int, value: bytes) -> None:
    log = make_log(index_interval_bytes=0)
    fill(log, [[100 + number] for number in range(50)])
    expected = [log.read(offset, 1, end_offset=50).data for offset in range(50)]
    log.close()
    for number in (10, 30):
        garble(log.segments.active.offset_index.path, number * 8 + position, value)
    log = reopen(log, is_clean=True)
    found = [log.read(offset, 1, end_offset=50).data for offset in range(50)]
    assert [(data.position, data.length) for data in found if data] == [
        (data.position, data.length) for data in expected if data
    ]
