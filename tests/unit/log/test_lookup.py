"""Searching by time finds what reading everything would find."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.config import LOG_APPEND_TIME
from ottla.log.partition_log import PartitionLog
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
