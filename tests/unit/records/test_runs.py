"""Runs of records of one shape are decoded to what the loop over single records gives, and fail where it fails."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import CorruptBatchError
from ottla.records import reader
from ottla.records.batch import BatchHeader, read_header
from ottla.records.builder import build_batch
from ottla.records.reader import Record, read_records, read_records_as
from ottla.records.runs import MIN_RUN, decode_run
from ottla.records.scan import read_payload
from ottla.records.walk import walk_records

Fields = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]

_sizes = st.sampled_from([None, 0, 1, 63, 64, 100])
_steps = st.sampled_from([0, 0, 0, 1, 3, 70, 9000, -5])


@st.composite
def batches(draw: st.DrawFn) -> list[Fields]:
    """Stretches of equal records, with and without something odd between them."""
    rows: list[Fields] = []
    timestamp = 1_000
    for _ in range(draw(st.integers(1, 5))):
        key_size, value_size, step = draw(_sizes), draw(_sizes), draw(_steps)
        headers: list[tuple[str, bytes | None]] = draw(st.sampled_from([[], [], [("h", b"x")]]))
        for _ in range(draw(st.sampled_from([1, 7, 8, 9, 70, 130]))):
            timestamp += step
            number = bytes([len(rows) % 251])
            key = None if key_size is None else number * key_size
            value = None if value_size is None else number * value_size
            rows.append((key, value, headers, timestamp))
    return rows


def one_by_one(batch: bytes) -> list[Record]:
    header = read_header(batch)
    records: list[Record] = []
    walk_records(read_payload(batch, header), 0, header.record_count, -1, header, Record, records)
    return records


@given(batches(), st.sampled_from([0, 5_000_000_000]))
def test_runs_are_what_single_records_are(rows: list[Fields], base_offset: int) -> None:
    batch = build_batch(rows, base_offset=base_offset)
    records = read_records(batch)
    assert records == one_by_one(batch)
    assert [(record.key, record.value, list(record.headers), record.timestamp) for record in records] == rows


def run_of(rows: list[Fields], count: int | None = None, delta: int = 0) -> tuple[list[Record], int, BatchHeader]:
    batch = build_batch(rows)
    header = read_header(batch)
    records: list[Record] = []
    end = decode_run(
        read_payload(batch, header),
        0,
        len(rows) if count is None else count,
        delta,
        base_offset=0,
        base_timestamp=header.base_timestamp,
        append_time=None,
        record_type=Record,
        records=records,
    )
    return records, end, header


def plain(count: int) -> list[Fields]:
    return [(None, b"v" * 100, [], 1000) for _ in range(count)]


def test_a_run_ends_where_a_number_takes_more_bytes() -> None:
    records, end, _ = run_of(plain(9000))
    assert len(records) == 64
    assert end > 0


def test_a_run_stops_at_the_count_and_below_the_minimum_there_is_none() -> None:
    assert len(run_of(plain(60), count=20)[0]) == 20
    assert len(run_of(plain(MIN_RUN))[0]) == MIN_RUN
    assert run_of(plain(MIN_RUN - 1))[1] == 0


def test_a_run_needs_the_offsets_it_was_promised() -> None:
    assert run_of(plain(60), delta=5) == ([], 0, run_of(plain(60))[2])


def test_large_batches_are_read_through_every_width() -> None:
    rows = [(b"k%07d" % number, b"v" * 10, [], 1000 + number // 3) for number in range(70_000)]
    batch = build_batch(rows)  # type: ignore[arg-type]
    records = read_records(batch)
    assert [record.offset for record in records] == list(range(70_000))
    assert [(record.key, record.value, list(record.headers), record.timestamp) for record in records] == rows


def test_no_record_is_read_by_itself_where_offsets_become_wider(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[int] = []

    def walk(buf: bytes, pos: int, count: int, *rest: Any) -> tuple[int, int]:
        walked.append(count)
        return walk_records(buf, pos, count, *rest)

    monkeypatch.setattr(reader, "walk_records", walk)
    for count in (64, 65 + MIN_RUN, 1000, 10_000):
        rows: list[Fields] = [(None, b"value", [], 1000)] * count
        assert len(read_records(build_batch(rows))) == count
    assert not any(walked)


def test_records_of_the_log_have_its_time() -> None:
    batch = build_batch(plain(200))
    header = read_header(batch)
    stamped = header._replace(attributes=header.attributes | 8, max_timestamp=77)
    assert {record.timestamp for record in read_records_as(Record, batch, stamped)} == {77}


@given(st.integers(0, 100 * 109 - 1), st.integers(1, 255))
def test_a_damaged_byte_is_taken_as_the_loop_takes_it(position: int, change: int) -> None:
    batch = bytearray(build_batch(plain(100)))
    at = 61 + position % (len(batch) - 61)
    batch[at] ^= change
    damaged = bytes(batch)
    header = read_header(damaged)

    def outcome(read: object) -> object:
        try:
            return read(damaged)  # type: ignore[operator]
        except (CorruptBatchError, IndexError):
            return "corrupt"

    def loop(data: bytes) -> list[Record]:
        records: list[Record] = []
        payload = read_payload(data, header)
        pos, last = walk_records(payload, 0, header.record_count, -1, header, Record, records)
        if pos != len(payload) or last > header.last_offset_delta:
            raise CorruptBatchError("the end")
        return records

    assert outcome(read_records) == outcome(loop)


@pytest.mark.parametrize("cut", [1, 50, 109, 110, 500])
def test_a_payload_that_ends_early_is_an_error(cut: int) -> None:
    batch = build_batch(plain(100))
    header = read_header(batch)
    payload = read_payload(batch, header)
    short = header._replace(batch_length=header.batch_length - cut)
    with pytest.raises(CorruptBatchError):
        read_records(batch[: 61 + len(payload) - cut], short)


@pytest.mark.parametrize(("what", "place"), [("length", 0), ("key", 5), ("value", 8)])
def test_negative_sizes_make_no_run(what: str, place: int) -> None:
    batch = build_batch([(b"kk", b"v" * 100, [], 1000)] * 10)
    header = read_header(batch)
    payload = bytearray(read_payload(batch, header))
    size = len(payload) // 10
    assert payload[:5] == bytes([2 * (size - 2) & 127 | 128, 1, 0, 0, 0]), "length, attributes, time and offset"
    for number in range(10):
        payload[number * size + place] |= 1
    records: list[Record] = []
    end = decode_run(
        memoryview(payload),
        0,
        10,
        0,
        base_offset=0,
        base_timestamp=header.base_timestamp,
        append_time=None,
        record_type=Record,
        records=records,
    )
    assert (end, records) == (0, [])
