from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records.batch import HEADER_SIZE, TimestampType, crc_is_valid, read_header
from ottla.records.builder import (
    NewRecord,
    RecordBatchBuilder,
    build_batch,
    encode_record,
)
from ottla.records.compression import Codec
from ottla.records.reader import Record, read_records
from ottla.records.walk import Header

NOW = 1_700_000_000_000

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
fields = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(names, st.none() | st.binary(max_size=20)), max_size=3)
timestamps = st.integers(NOW - 10_000_000, NOW + 10_000_000) | st.integers(-1, 2**62)
records = st.lists(st.builds(NewRecord, fields, fields, headers, timestamps), min_size=1, max_size=30)


def as_read(written: list[NewRecord], base_offset: int = 0) -> list[Record]:
    return [Record(base_offset + i, r.timestamp_ms, r.key, r.value, tuple(r.headers)) for i, r in enumerate(written)]


@settings(max_examples=150)
@given(records, st.sampled_from(Codec), st.integers(0, 2**62))
def test_round_trip(written: list[NewRecord], codec: Codec, base_offset: int) -> None:
    data = build_batch(written, base_offset=base_offset, codec=codec, partition_leader_epoch=4)
    header = read_header(data)
    assert header.size == len(data)
    assert crc_is_valid(data, header)
    assert (header.base_timestamp, header.max_timestamp) == (
        written[0].timestamp_ms,
        max(r.timestamp_ms for r in written),
    )
    assert (header.record_count, header.last_offset) == (len(written), base_offset + len(written) - 1)
    assert (header.codec, header.partition_leader_epoch) == (codec, 4)
    assert read_records(data, header) == as_read(written, base_offset)


@given(records)
def test_the_fast_loop_writes_what_single_records_are(written: list[NewRecord]) -> None:
    one_by_one = b"".join(
        encode_record(i, r.timestamp_ms - written[0].timestamp_ms, r.key, r.value, r.headers)
        for i, r in enumerate(written)
    )
    assert build_batch(written)[HEADER_SIZE:] == one_by_one


@given(records, st.sampled_from(Codec))
def test_the_builder_writes_what_build_batch_writes(written: list[NewRecord], codec: Codec) -> None:
    builder = RecordBatchBuilder(max_size=1 << 30, codec=codec)
    for r in written:
        assert builder.append(r.key, r.value, r.headers, r.timestamp_ms)
    assert builder.build() == build_batch(written, codec=codec)
    assert builder.record_count == len(written)
    assert builder.max_timestamp == max(r.timestamp_ms for r in written)


def test_fields_beyond_the_table_of_short_varints() -> None:
    big = [NewRecord(b"k" * 9000, b"v" * 100_000, (), NOW + 9000 * i) for i in range(3)]
    assert read_records(build_batch(big)) == as_read(big)
    many = [NewRecord(None, b"", (), NOW + i) for i in range(9000)]
    assert read_records(build_batch(many)) == as_read(many)


@given(records, st.integers(HEADER_SIZE, 2000))
def test_a_builder_stops_at_its_size_and_loses_nothing(written: list[NewRecord], max_size: int) -> None:
    builder = RecordBatchBuilder(max_size=max_size)
    taken = 0
    for r in written:
        before = builder.estimated_size
        if not builder.append(r.key, r.value, r.headers, r.timestamp_ms):
            assert builder.estimated_size == before
            break
        taken += 1
    data = builder.build()
    assert taken >= 1
    assert len(data) == builder.estimated_size == builder.uncompressed_size
    assert taken == 1 or len(data) <= max_size
    if taken < len(written):
        assert len(build_batch(written[: taken + 1])) > max_size
    assert read_records(data) == as_read(written[:taken])


def test_an_expected_ratio_lets_more_records_in() -> None:
    def fill(ratio: float, codec: Codec) -> RecordBatchBuilder:
        builder = RecordBatchBuilder(max_size=10_000, codec=codec, compression_ratio=ratio)
        while builder.append(None, b"a text that repeats", (), NOW):
            pass
        return builder

    exact = fill(1.0, Codec.NONE)
    assert fill(0.5, Codec.NONE).record_count == exact.record_count, "without compression nothing shrinks"
    squeezed = fill(0.1, Codec.ZSTD)
    assert squeezed.record_count > 9 * exact.record_count
    assert len(squeezed.build()) < 10_000 < squeezed.uncompressed_size


def test_everything_a_header_can_say() -> None:
    data = build_batch(
        [NewRecord(b"k", b"v", (), NOW)],
        producer_id=5,
        producer_epoch=6,
        base_sequence=7,
        transactional=True,
        log_append_time_ms=NOW + 9,
    )
    header = read_header(data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 6, 7)
    assert header.is_transactional
    assert not header.is_control
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (header.base_timestamp, header.max_timestamp) == (NOW, NOW + 9)
    assert header.attributes == 0x18
    builder = RecordBatchBuilder(max_size=1000)
    builder.append(b"k", b"v", (), NOW)
    sent = read_header(builder.build(producer_id=5, producer_epoch=6, base_sequence=7, transactional=True))
    assert (sent.producer_id, sent.producer_epoch, sent.base_sequence, sent.attributes) == (5, 6, 7, 0x10)


def test_what_a_batch_is_if_nothing_is_said_about_it() -> None:
    builder = RecordBatchBuilder(max_size=1000)
    assert (builder.max_timestamp, builder.record_count, builder.uncompressed_size) == (-1, 0, HEADER_SIZE)
    builder.append(b"k", b"v")
    for data in (build_batch([NewRecord(b"k", b"v")]), builder.build()):
        header = read_header(data)
        assert (header.base_offset, header.partition_leader_epoch, header.attributes) == (0, -1, 0)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
        assert (header.base_timestamp, header.max_timestamp) == (-1, -1)
        assert read_records(data) == [Record(0, -1, b"k", b"v", ())]


def test_the_time_of_the_log_and_the_bits_of_a_batch() -> None:
    rows = [NewRecord(b"k", b"v", (), NOW)]
    stamped = read_header(build_batch(rows, timestamp_type=TimestampType.LOG_APPEND_TIME))
    assert (stamped.attributes, stamped.max_timestamp) == (0x08, NOW)
    assert read_header(build_batch(rows, log_append_time_ms=0)).max_timestamp == 0
    assert read_header(build_batch(rows, control=True)).attributes == 0x20
    assert read_header(build_batch(rows, codec=Codec.ZSTD, transactional=True)).attributes == 0x14


@pytest.mark.parametrize("times", [[5, 7, 6], [7, 5, 6], [-5, -7], [0, -1], [-3]])
def test_the_first_time_and_the_largest(times: list[int]) -> None:
    builder = RecordBatchBuilder(max_size=1000)
    for time in times:
        builder.append(None, b"v", (), time)
    for data in (build_batch([(None, b"v", (), time) for time in times]), builder.build()):
        header = read_header(data)
        assert (header.base_timestamp, header.max_timestamp) == (times[0], max(times))
        assert [record.timestamp for record in read_records(data)] == times
    assert builder.max_timestamp == max(times)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 8_177, 8_178, 8_190, 8_191, 8_192, 8_193])
def test_all_ways_to_write_a_record_write_the_same(size: int) -> None:
    data = b"x" * size
    for key, value in ((data, None), (None, data), (data, data)):
        for delta in (0, size, -size):
            rows = [NewRecord(b"first", None, (), NOW), NewRecord(key, value, (), NOW + delta)]
            written = encode_record(1, delta, key, value)
            assert build_batch(rows).endswith(written)
            assert read_records(build_batch(rows)) == as_read(rows)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_builder_takes_what_fits_to_the_last_byte(codec: Codec) -> None:
    size = len(encode_record(0, 0, None, b"v" * 10))
    for max_size, taken in ((HEADER_SIZE + 3 * size, 3), (HEADER_SIZE + 3 * size - 1, 2), (1, 1)):
        builder = RecordBatchBuilder(max_size=max_size, codec=codec)
        assert [builder.append(None, b"v" * 10, (), NOW) for _ in range(4)] == [True] * taken + [False] * (4 - taken)
        assert builder.estimated_size == builder.uncompressed_size == HEADER_SIZE + taken * size


def test_the_level_of_a_builder_is_that_of_its_batch() -> None:
    rows = [NewRecord(None, b"a text that %d times repeats " % number * 9, (), NOW) for number in range(200)]
    made = []
    for level in (1, 9):
        builder = RecordBatchBuilder(max_size=1 << 20, codec=Codec.GZIP, level=level)
        for row in rows:
            builder.append(row.key, row.value, row.headers, row.timestamp_ms)
        made.append(len(builder.build()))
        assert made[-1] == len(build_batch(rows, codec=Codec.GZIP, level=level))
    assert made[0] != made[1]


def test_an_empty_batch_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="at least one"):
        build_batch([])
    with pytest.raises(ValueError, match="at least one"):
        RecordBatchBuilder(max_size=100).build()


def test_header_names_are_utf8() -> None:
    named: list[Header] = [("ключ", "значение".encode()), ("", b"")]
    assert read_records(build_batch([(None, None, named, NOW)]))[0].headers == tuple(named)
