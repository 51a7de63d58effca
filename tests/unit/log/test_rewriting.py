"""Batches that compaction writes anew: what identifies them stays, and so do the records that are left."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records.batch import HEADER_SIZE, NO_TIMESTAMP, crc_is_valid, read_header
from ottla.records.builder import NewRecord, build_batch
from ottla.records.checksum import crc32c
from ottla.records.compression import Codec
from ottla.records.reader import Record, read_records
from tests.unit.log.cleaning_passes import rewritten

NOW = 1_700_000_000_000

fields = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.sampled_from(["", "h", "name"]), st.none() | st.binary(max_size=20)), max_size=3)
timestamps = st.integers(NOW - 100, NOW + 10_000) | st.integers(-1, 2**61)
records = st.lists(st.builds(NewRecord, fields, fields, headers, timestamps), min_size=1, max_size=30)


@settings(max_examples=150)
@given(records, st.sampled_from(Codec), st.data())
def test_the_records_left_and_the_identity_of_the_batch_stay(
    written: list[NewRecord], codec: Codec, data: st.DataObject
) -> None:
    batch = build_batch(
        written, base_offset=50, codec=codec, producer_id=7, producer_epoch=2, base_sequence=2**31 - 2,
        transactional=True, partition_leader_epoch=4,
    )  # fmt: skip
    before = read_header(batch)
    rows = sorted(data.draw(st.sets(st.integers(0, len(written) - 1), min_size=1)))
    horizon = data.draw(st.none() | st.integers(NOW, NOW + 10**10))
    result = rewritten(batch, rows, horizon)
    after = read_header(result)
    assert crc_is_valid(result, after)
    kept = [
        Record(50 + i, written[i].timestamp_ms, written[i].key, written[i].value, tuple(written[i].headers))
        for i in rows
    ]
    assert read_records(result) == kept
    assert after.max_timestamp == max(record.timestamp for record in kept)
    assert after.base_timestamp == (kept[0].timestamp if horizon is None else horizon)
    assert (after.delete_horizon_ms, after.record_count, after.codec) == (horizon, len(rows), codec)
    for name in ("base_offset", "last_offset", "partition_leader_epoch", "producer_id", "producer_epoch"):
        assert getattr(after, name) == getattr(before, name)
    assert (after.base_sequence, after.last_sequence) == (before.base_sequence, before.last_sequence)


def test_a_horizon_once_set_stays() -> None:
    batch = build_batch([NewRecord(b"a", None, (), NOW), NewRecord(b"b", b"2", (), NOW + 1)])
    again = rewritten(rewritten(batch, [0, 1], NOW + 10**9), [1])
    assert read_header(again).delete_horizon_ms == read_header(again).base_timestamp == NOW + 10**9
    assert read_records(again) == [Record(1, NOW + 1, b"b", b"2", ())]


@pytest.mark.parametrize("horizon", [None, NOW + 10**9])
def test_append_time_survives(horizon: int | None) -> None:
    batch = build_batch([NewRecord(b"a", b"1", (), 5), NewRecord(b"b", b"2", (), 6)], log_append_time_ms=NOW)
    result = rewritten(batch, [1], horizon)
    assert [record.timestamp for record in read_records(result)] == [NOW]
    header = read_header(result)
    assert (header.max_timestamp, header.base_timestamp) == (NOW, horizon or NOW)


def test_no_record_left_is_a_header_alone() -> None:
    batch = build_batch([NewRecord(b"a", b"1", (), NOW)] * 5, codec=Codec.ZSTD, producer_id=1, base_sequence=4)
    empty = rewritten(batch, [])
    after = read_header(empty)
    assert len(empty) == HEADER_SIZE
    assert crc_is_valid(empty, after)
    assert (after.last_offset, after.last_sequence, after.record_count) == (4, 8, 0)
    assert (after.base_timestamp, after.max_timestamp, after.codec) == (NO_TIMESTAMP, NOW, Codec.NONE)
    assert read_records(empty) == []


@pytest.mark.parametrize("horizon", [None, NOW + 10**9])
def test_the_attributes_of_a_record_stay(horizon: int | None) -> None:
    """Nobody has given them a meaning yet; a client may set them all the same."""
    batch = bytearray(build_batch([NewRecord(b"a", b"1", (), NOW), NewRecord(b"b", b"2", (), NOW + 1)]))
    size = (len(batch) - HEADER_SIZE) // 2
    for start in (HEADER_SIZE, HEADER_SIZE + size):
        batch[start + 1] = 7
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    result = rewritten(bytes(batch), [0, 1], horizon)
    assert crc_is_valid(result, read_header(result))
    first, second = HEADER_SIZE, HEADER_SIZE + (len(result) - HEADER_SIZE) // 2
    assert (result[first + 1], result[second + 1]) == (7, 7)
