from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import CorruptBatchError, ErrorCode, InvalidRecordError
from ottla.records.batch import HEADER_SIZE, BatchHeader, pack_batch, read_header
from ottla.records.builder import NewRecord, build_batch, encode_record
from ottla.records.compression import Codec, compress
from ottla.records.reader import Record, RecordsInfo, read_records, validate_records
from ottla.records.scan import read_payload, scan_payload
from ottla.records.varint import encode_varint

NOW = 1_700_000_000_000
PLAIN = read_header(build_batch([(b"k", b"v", (), NOW)]))


def batch_of(payload: bytes, count: int = 1, last_offset_delta: int | None = None, **fields: int) -> bytes:
    """A batch with a good checksum around whatever records a hostile producer wrote."""
    delta = count - 1 if last_offset_delta is None else last_offset_delta
    header: BatchHeader = PLAIN._replace(record_count=count, last_offset_delta=delta, **fields)
    return pack_batch(header, payload)


def keys_of(batch: bytes) -> list[tuple[int, bytes | None]]:
    """The offset and the key of every record, as a scan sees them."""
    header = read_header(batch)
    return [(span.offset, span.key) for span in scan_payload(read_payload(batch, header), header)]


def record_of(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


GOOD = encode_record(0, 0, b"key", b"value", [("h", b"x")])
START = b"\x00\x00\x00"  # attributes, timestamp delta, offset delta
NO_KEY = "Compacted topic cannot accept message without key."
ENDLESS = b"\xff" * 12

HOSTILE = {
    "nothing": (b"", 1),
    "negative count": (b"", -1),
    "more records than counted": (GOOD + encode_record(1, 0, None, None), 1),
    "fewer records than counted": (GOOD, 2),
    "a count that takes all memory": (GOOD, 2**31 - 1),
    "negative record length": (b"\x01" + GOOD[1:], 1),
    "very negative record length": (encode_varint(-(2**31)) + GOOD[1:], 1),
    "record longer than the batch": (b"\x7e" + GOOD[1:], 1),
    "record shorter than its fields": (encode_varint(len(GOOD) - 2) + GOOD[1:], 1),
    "endless record length": (ENDLESS, 1),
    "endless timestamp": (record_of(b"\x00" + ENDLESS), 1),
    "endless offset": (record_of(b"\x00\x00" + ENDLESS), 1),
    "endless key length": (record_of(START + ENDLESS), 1),
    "endless value length": (record_of(START + b"\x01" + ENDLESS), 1),
    "key length -2": (record_of(START + b"\x03\x01\x00"), 1),
    "value length -2": (record_of(START + b"\x01\x03\x00"), 1),
    "key beyond the record": (record_of(START + encode_varint(100) + b"abc"), 1),
    "key of 2 GiB": (record_of(START + encode_varint(2**31 - 1) + b"abc"), 1),
    "value beyond the record": (record_of(START + b"\x01" + encode_varint(3) + b"ab"), 1),
    "value that takes the header count": (record_of(START + b"\x01" + encode_varint(2) + b"ab"), 1),
    "negative offset": (encode_record(-1, 0, b"k", b"v"), 1),
    "offsets that go back": (encode_record(1, 0, b"k", b"v") + encode_record(0, 0, b"k", b"v"), 2),
    "an offset twice": (GOOD + GOOD, 2),
    "an offset beyond the batch": (encode_record(1, 0, b"k", b"v"), 1),
    "timestamp beyond 64 bits": (encode_record(0, 2**63 - 1, b"k", b"v"), 1),
}
HOSTILE_HEADERS = {
    "endless header count": (record_of(START + b"\x01\x01" + ENDLESS), 1),
    "header count -1": (record_of(START + b"\x01\x01\x01"), 1),
    "header count of 2 billion": (record_of(START + b"\x01\x01" + encode_varint(2**31 - 1)), 1),
    "header count of one too many": (record_of(START + b"\x01\x01\x04\x02a\x01"), 1),
    "header without a key": (record_of(START + b"\x01\x01\x02\x01\x01"), 1),
    "header value length -2": (record_of(START + b"\x01\x01\x02\x02a\x03"), 1),
    "header value beyond the record": (record_of(START + b"\x01\x01\x02\x02a\x7eb"), 1),
    "header count that is cut off": (record_of(START + b"\x01\x01\x80"), 1),
}


def test_a_header_key_that_is_not_utf8_is_read_as_java_does() -> None:
    payload = record_of(START + b"\x01\x01\x02\x06a\xff\xe2\x01")
    (record,) = read_records(batch_of(payload, 1))
    assert record.headers == (("a\ufffd\ufffd", None),)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("name", [*HOSTILE, *HOSTILE_HEADERS])
def test_records_that_lie_are_refused(name: str, codec: Codec) -> None:
    payload, count = (HOSTILE | HOSTILE_HEADERS)[name]
    data = batch_of(compress(codec, payload), count, attributes=codec)
    with pytest.raises(CorruptBatchError):
        read_records(data)


@pytest.mark.parametrize("name", HOSTILE)
def test_scanning_refuses_what_reading_refuses(name: str) -> None:
    payload, count = HOSTILE[name]
    data = batch_of(payload, count)
    with pytest.raises(CorruptBatchError):
        keys_of(data)
    with pytest.raises(CorruptBatchError):
        validate_records(data, read_header(data))


def test_a_short_delta_on_an_extreme_base_timestamp_is_refused_too() -> None:
    data = batch_of(encode_record(0, 1, b"k", b"v"), base_timestamp=2**63 - 1)
    with pytest.raises(CorruptBatchError, match="64 bits"):
        read_records(data)
    assert read_records(batch_of(encode_record(0, 0, None, None), base_timestamp=2**63 - 1))[0].timestamp == 2**63 - 1


def test_a_batch_that_is_cut_short() -> None:
    data = build_batch([NewRecord(b"k", b"v", (), NOW)] * 3)
    for cut in range(len(data)):
        with pytest.raises(CorruptBatchError):
            read_records(data[:cut])
    assert len(read_records(memoryview(data + b"the next batch"))) == 3


def test_a_batch_whose_length_is_nonsense() -> None:
    data = build_batch([NewRecord(b"k", b"v", (), NOW)])
    with pytest.raises(CorruptBatchError):
        read_records(data, read_header(data)._replace(batch_length=-5))


def test_the_decompressed_size_is_limited() -> None:
    data = build_batch([(None, bytes(100_000), (), NOW)], codec=Codec.ZSTD)
    assert len(data) < 1000
    with pytest.raises(CorruptBatchError, match="larger"):
        read_records(data, max_uncompressed=99_999)
    with pytest.raises(CorruptBatchError, match="larger"):
        read_payload(data, read_header(data), max_uncompressed=99_999)
    assert len(read_records(data, max_uncompressed=100_100)) == 1


@settings(max_examples=300)
@given(st.data())
def test_damaged_records_are_refused_or_read_the_same_by_both_loops(data: st.DataObject) -> None:
    records = [(b"key", b"v" * 70, (("h", b"x"),), NOW), (None, b"w", (), NOW + 70), (b"k2", None, (), NOW + 10_000)]
    batch = bytearray(build_batch(records))
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(57, len(batch) - 1))] = data.draw(st.integers(0, 255))
    try:
        read: list[Record] | None = read_records(batch)
    except CorruptBatchError:
        read = None
    try:
        keys = keys_of(batch)
    except CorruptBatchError:
        # What the scan refuses is never read: it checks less, because it passes over headers.
        assert read is None
    else:
        assert read is None or keys == [(r.offset, r.key) for r in read]


def test_gaps_that_compaction_left_are_read() -> None:
    payload = encode_record(2, 5, b"a", b"1") + encode_record(7, -3, b"b", None)
    data = batch_of(payload, 2, 9, base_offset=100, base_timestamp=NOW)
    assert read_records(data) == [Record(102, NOW + 5, b"a", b"1", ()), Record(107, NOW - 3, b"b", None, ())]


def test_an_emptied_batch_has_no_records_whatever_its_codec() -> None:
    for codec in Codec:
        data = batch_of(b"", 0, 4, attributes=codec)
        assert read_records(data) == []
        assert keys_of(data) == []


def test_spans_are_the_records_themselves() -> None:
    records = [(b"k%d" % i, b"x" * i * 50, (), NOW + i) for i in range(10)]
    data = build_batch(records, codec=Codec.LZ4, base_offset=40)
    header = read_header(data)
    payload = read_payload(data, header)
    spans = scan_payload(payload, header)
    assert [payload[s.start : s.end] for s in spans] == [
        encode_record(i, i, key, value) for i, (key, value, _, _) in enumerate(records)
    ]


class TestRules:
    records = ((b"a", b"1", (), NOW), (None, b"2", (), NOW + 20), (b"c", b"3", (), NOW + 10))

    def test_what_a_look_at_the_records_shows(self) -> None:
        data = build_batch(self.records, codec=Codec.GZIP)
        header = read_header(data)
        info = validate_records(data, header, min_timestamp=NOW, max_timestamp=NOW + 20)
        assert (info.max_timestamp, info.offset_of_max_timestamp) == (NOW + 20, 1)
        assert info.uncompressed_size == len(read_payload(data, header))

    def test_a_compacted_topic_needs_keys(self) -> None:
        data = build_batch(self.records)
        with pytest.raises(InvalidRecordError) as refused:
            validate_records(data, read_header(data), keys_required=True)
        assert refused.value.code is ErrorCode.INVALID_RECORD
        assert [index for index, _ in refused.value.record_errors] == [1]

    @pytest.mark.parametrize(("low", "high", "index"), [(None, NOW + 19, 1), (NOW + 1, None, 0)])
    def test_timestamps_must_be_in_range(self, low: int | None, high: int | None, index: int) -> None:
        data = build_batch(self.records)
        with pytest.raises(InvalidRecordError) as refused:
            validate_records(data, read_header(data), min_timestamp=low, max_timestamp=high)
        assert refused.value.code is ErrorCode.INVALID_TIMESTAMP
        assert [i for i, _ in refused.value.record_errors] == [index]

    def test_a_record_without_a_timestamp_is_exempt(self) -> None:
        data = build_batch([(b"k", b"v", (), -1)])
        assert validate_records(data, read_header(data), min_timestamp=NOW, max_timestamp=NOW).max_timestamp == -1

    def test_append_time_is_never_out_of_range(self) -> None:
        data = build_batch(self.records, log_append_time_ms=5)
        assert validate_records(data, read_header(data), min_timestamp=NOW).max_timestamp == 5

    def test_a_producer_may_not_leave_out_offsets(self) -> None:
        data = batch_of(encode_record(0, 0, b"a", b"1") + encode_record(2, 0, b"b", b"2"), 2, 2)
        with pytest.raises(InvalidRecordError) as refused:
            validate_records(data, read_header(data))
        assert [index for index, _ in refused.value.record_errors] == [1]

    @pytest.mark.parametrize(
        ("rows", "rules", "code", "errors"),
        [
            ([(b"k", 5), (b"k", 9), (b"k", 9)], {}, None, (9, 1)),
            ([(b"k", 5), (b"k", 4)], {"min_timestamp": 4, "max_timestamp": 5, "keys_required": True}, None, (5, 0)),
            ([(b"k", -1), (b"k", -1)], {"min_timestamp": 4, "max_timestamp": 5}, None, (-1, 0)),
            ([(b"k", -1), (b"k", 4)], {"min_timestamp": 4}, None, (4, 1)),
            ([(None, 5), (b"", 5)], {}, None, (5, 0)),
            (
                [(None, 5), (b"", 5), (None, 5)],
                {"keys_required": True},
                ErrorCode.INVALID_RECORD,
                [(0, NO_KEY), (2, NO_KEY)],
            ),
            (
                [(None, 3), (b"k", 6), (None, 5)],
                {"keys_required": True, "min_timestamp": 4, "max_timestamp": 5},
                ErrorCode.INVALID_TIMESTAMP,
                [
                    (0, NO_KEY),
                    (0, "timestamp 3 is outside the accepted range"),
                    (1, "timestamp 6 is outside the accepted range"),
                    (2, NO_KEY),
                ],
            ),
            (
                [(b"k", 3), (b"k", -2)],
                {"min_timestamp": 0},
                ErrorCode.INVALID_TIMESTAMP,
                [(1, "timestamp -2 is outside the accepted range")],
            ),
        ],
        ids=range(8),
    )
    def test_all_that_is_wrong_with_the_records_of_a_batch(
        self, rows: list[tuple[bytes | None, int]], rules: dict[str, Any], code: ErrorCode | None, errors: Any
    ) -> None:
        data = build_batch([(key, b"v", (), time) for key, time in rows], base_offset=40)
        if code is None:
            newest, index = errors
            size = len(data) - HEADER_SIZE
            assert validate_records(data, read_header(data), **rules) == RecordsInfo(newest, 40 + index, size)
            return
        with pytest.raises(InvalidRecordError) as refused:
            validate_records(data, read_header(data), **rules)
        assert (refused.value.code, refused.value.record_errors) == (code, errors)
        index, told = errors[0]
        assert str(refused.value).endswith(f"record {index}: {told}")

    def test_the_offsets_that_are_missing_are_named(self) -> None:
        records = b"".join(encode_record(delta, 0, b"a", b"1") for delta in (1, 2, 3))
        with pytest.raises(InvalidRecordError) as refused:
            data = batch_of(records, 3, 3, base_offset=7)
            validate_records(data, read_header(data))
        expected = [(index, f"offset {8 + index} where {7 + index} is due") for index in range(3)]
        assert (refused.value.code, refused.value.record_errors) == (ErrorCode.INVALID_RECORD, expected)

    def test_records_of_the_log_have_its_time_and_the_first_of_them_counts(self) -> None:
        data = build_batch(self.records, log_append_time_ms=5)
        assert validate_records(data, read_header(data), max_timestamp=4)[:2] == (5, 0)

    def test_the_uncompressed_size_is_limited(self) -> None:
        data = build_batch(self.records, codec=Codec.GZIP)
        header = read_header(data)
        size = len(read_payload(data, header))
        assert validate_records(data, header, max_uncompressed=size).uncompressed_size == size
        with pytest.raises(CorruptBatchError, match="larger than"):
            validate_records(data, header, max_uncompressed=size - 1)


@pytest.mark.parametrize(
    ("payload", "count", "last_offset_delta", "words"),
    [
        (GOOD, 1, 0, None),
        (GOOD, 1, 5, None),
        (GOOD, 1, -1, "a record has the offset delta 0, the last of the batch is -1"),
        (GOOD + b"\0", 1, 0, "1 bytes are left after the last of 1 records"),
        (encode_record(3, 0, b"k", b"v"), 1, 2, "a record has the offset delta 3, the last of the batch is 2"),
        (GOOD * 2, 2, 1, "the offset delta 0 of a record does not follow 0"),
        (GOOD[:-1], 1, 0, "the records end within a record"),
        (bytes(13), 2, 1, "2 records cannot be in 13 bytes"),
        (b"", -1, 0, "-1 records cannot be in 0 bytes"),
        (record_of(START + b"\x03\x01\x00"), 1, 0, "the key of a record has a negative length"),
        (record_of(START + b"\x01\x03\x00"), 1, 0, "the value of a record has a negative length"),
    ],
)
def test_what_is_wrong_is_said(payload: bytes, count: int, last_offset_delta: int, words: str | None) -> None:
    data = batch_of(payload, count, last_offset_delta)
    if words is None:
        assert len(read_records(data)) == len(keys_of(data)) == count
        return
    with pytest.raises(CorruptBatchError) as refused:
        read_records(data)
    assert str(refused.value).endswith(words)
    if payload != GOOD[:-1]:
        with pytest.raises(CorruptBatchError) as refused:
            keys_of(data)
        assert str(refused.value).endswith(words)


def test_seven_bytes_are_the_least_a_record_takes() -> None:
    smallest = record_of(START + b"\x01\x01\x00")
    assert len(smallest) == 7
    rows = [record_of(b"\x00\x00" + encode_varint(delta) + b"\x01\x01\x00") for delta in range(3)]
    assert len(read_records(batch_of(b"".join(rows), 3))) == 3
    with pytest.raises(CorruptBatchError, match="3 records cannot be in 14 bytes"):
        read_records(batch_of(b"".join(rows[:2]), 3))
