"""Records with numbers of every width, read one by one, located or in runs: always what was written."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import CorruptBatchError
from ottla.records import reader
from ottla.records.batch import BatchHeader, pack_batch, read_header
from ottla.records.builder import build_batch, encode_record
from ottla.records.reader import Record, read_records
from ottla.records.runs import MIN_RUN, shape_at
from ottla.records.scan import RecordSpan, read_payload, scan_payload
from ottla.records.varint import encode_varint
from ottla.records.walk import walk_records

PLAIN = read_header(build_batch([(b"k", b"v", (), 0)]))
EDGES = [0, 1, 63, 64, 65, 127, 128, 8191, 8192, 8193, 16_383, 16_384, 1_048_575, 1_048_576, 1_048_577]
NUMBERS = [*EDGES, 2**27 - 1, 2**27, 2**31 - 1]


def batch_of(records: list[bytes], **fields: int) -> bytes:
    header: BatchHeader = PLAIN._replace(
        **{"record_count": len(records), "last_offset_delta": 2**31 - 1, "base_timestamp": 0} | fields
    )
    return pack_batch(header, b"".join(records))


def spans_of(batch: bytes) -> list[RecordSpan]:
    header = read_header(batch)
    return scan_payload(read_payload(batch, header), header)


def read_both_ways(records: list[bytes], **fields: int) -> list[Record]:
    """What is read, after a look at whether a scan finds the same."""
    batch = batch_of(records, **fields)
    found = read_records(batch)
    ends = [sum(map(len, records[: number + 1])) for number in range(len(records))]
    assert spans_of(batch) == [
        RecordSpan(record.offset, record.timestamp, record.key, record.value is None, end - len(written), end)
        for record, written, end in zip(found, records, ends, strict=True)
    ]
    return found


@pytest.mark.parametrize("size", [*EDGES, *range(50, 60), *range(8_180, 8_190)])
def test_keys_and_values_of_every_length(size: int) -> None:
    data = b"x" * size
    for key, value in ((data, b"v"), (b"k", data), (data, data), (None, data), (data, None)):
        records = [encode_record(0, 0, key, value), encode_record(1, 0, b"last", None)]
        assert read_both_ways(records) == [Record(0, 0, key, value, ()), Record(1, 0, b"last", None, ())]


@pytest.mark.parametrize("delta", NUMBERS)
def test_offsets_of_every_width(delta: int) -> None:
    assert read_both_ways([encode_record(delta, 0, b"k", b"v")], base_offset=5) == [
        Record(5 + delta, 0, b"k", b"v", ())
    ]


@pytest.mark.parametrize("delta", [*NUMBERS, 2**34, 2**62, 2**63 - 1])
def test_times_of_every_width(delta: int) -> None:
    deltas = [delta, -delta, -delta - 1]
    records = [encode_record(number, each, b"k", b"v") for number, each in enumerate(deltas)]
    assert read_both_ways(records) == [Record(number, each, b"k", b"v", ()) for number, each in enumerate(deltas)]


def test_a_time_of_more_than_64_bits_is_refused_even_where_the_sum_has_fewer() -> None:
    body = b"\x00" + b"\x80" * 9 + b"\x02" + b"\x00\x01\x01\x00"
    with pytest.raises(CorruptBatchError, match="64 bits"):
        read_records(batch_of([encode_varint(len(body)) + body], base_timestamp=-1))


@pytest.mark.parametrize("count", [0, 1, 63, 64, 200])
def test_however_many_headers(count: int) -> None:
    headers = [("" if number % 3 else f"h{number}", None if number % 2 else b"x" * number) for number in range(count)]
    written = [encode_record(0, 0, b"k", b"v", headers), encode_record(1, 0, b"k", b"v")]
    assert read_both_ways(written) == [Record(0, 0, b"k", b"v", tuple(headers)), Record(1, 0, b"k", b"v", ())]


def test_a_count_of_no_headers_may_take_more_bytes_than_it_needs() -> None:
    body = b"\x00\x00\x00\x01\x01\x80\x00"
    assert read_records(batch_of([encode_varint(len(body)) + body])) == [Record(0, 0, None, None, ())]


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records are read one by one, each time some are."""
    found: list[int] = []

    def walk(buf: bytes, pos: int, count: int, *rest: Any) -> tuple[int, int]:
        found.append(count)
        return walk_records(buf, pos, count, *rest)

    monkeypatch.setattr(reader, "walk_records", walk)
    return found


def odd(count: int) -> list[int]:
    """Sizes of records that are no run."""
    return [number % 2 for number in range(count)]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        (odd(7), [7]),
        (odd(16), [16]),
        (odd(17), [16, 1]),
        (odd(5_000), [16, 32, 64, 128, 256, 512, 1024, 1024, 1024, 920]),
        ([*odd(16), *[5] * 17, *odd(40)], [16, 8, 16, 16]),
        ([*odd(16), *[5] * 16, *odd(40)], [16, 32, 8]),
        ([*odd(16), *[5] * 7, *odd(40)], [16, 32, 15]),
        ([*odd(16), *[5] * 8, *odd(40)], [16, 32, 8]),
        ([5] * 9, [0]),
        ([5] * 9 + [6], [1]),
        ([5] * 8 + [6], [1]),
        ([5] * 7 + [6], [8]),
    ],
    ids=range(12),
)
def test_where_runs_are_rare_they_are_looked_for_rarely(
    sizes: list[int], expected: list[int], walked: list[int]
) -> None:
    records = [encode_record(number, 0, None, b"v" * size) for number, size in enumerate(sizes)]
    assert [len(record.value or b"") for record in read_records(batch_of(records))] == sizes
    assert walked == expected


RUN = 3 * MIN_RUN
TIMES = [
    [sign * (first + number % 3 * step) for number in range(RUN)]
    for first in (0, 1, 60, 63, 64, 65, 8188, 8192, 8193, 2**20 - 4, 2**20, 2**20 + 1, 2**27 - 4, 2**27 - 1)
    for step in (0, 1)
    for sign in (1, -1)
]
TIMES_OF_ONE_WIDTH = [deltas for deltas in TIMES if len({len(encode_varint(delta)) for delta in deltas}) == 1]


@pytest.mark.parametrize("deltas", TIMES_OF_ONE_WIDTH, ids=lambda deltas: f"{deltas[0]}, {deltas[1]}")
@pytest.mark.parametrize(("key", "value"), [(b"key", b"value"), (None, b"v"), (b"k", None), (None, None), (b"", b"")])
def test_times_of_a_run(deltas: list[int], key: bytes | None, value: bytes | None, walked: list[int]) -> None:
    records = [encode_record(number, each, key, value) for number, each in enumerate(deltas)]
    found = read_records(batch_of(records, base_offset=7, base_timestamp=1_000_000_000))
    assert found == [Record(7 + n, 1_000_000_000 + each, key, value, ()) for n, each in enumerate(deltas)]
    assert sum(walked) == 0, "they were read together"


@pytest.mark.parametrize("base", [2**63 - 1, -(2**63), 2**62, -(2**62), 2**62 - 1, 1 - 2**62])
@pytest.mark.parametrize("delta", [0, 1, -1, 2**27 - 1])
def test_times_near_the_end_of_64_bits_are_refused_only_beyond_it(base: int, delta: int) -> None:
    batch = batch_of([encode_record(number, delta, None, b"v") for number in range(RUN)], base_timestamp=base)
    if -(2**63) <= base + delta < 2**63:
        assert {record.timestamp for record in read_records(batch)} == {base + delta}
    else:
        with pytest.raises(CorruptBatchError, match="64 bits"):
            read_records(batch)


@pytest.mark.parametrize("at", [0, 1, MIN_RUN - 1, MIN_RUN, MIN_RUN + 1, RUN - 1])
@pytest.mark.parametrize(
    "stranger",
    [
        (b"kex", b"value", (), 5),
        (b"key", b"valuf", (), 5),
        (b"ke", b"values", (), 5),
        (None, b"value", (), 5),
        (b"key", None, (), 5),
        (b"key", b"val", (("", None),), 5),
        (b"key", b"value", (), 4),
        (b"key", b"value", (), 64),
        (b"key", b"valu", (), 64),
        (b"key", b"value", (), -100),
    ],
)
def test_a_stranger_in_a_run_is_read_as_it_is(at: int, stranger: tuple[Any, ...]) -> None:
    rows: list[tuple[Any, ...]] = [(b"key", b"value", (), 5)] * RUN
    rows[at] = stranger
    records = [encode_record(n, time, key, value, headers) for n, (key, value, headers, time) in enumerate(rows)]
    assert read_records(batch_of(records)) == [Record(n, row[3], *row[:3]) for n, row in enumerate(rows)]


@pytest.mark.parametrize("at", [1, MIN_RUN - 1, MIN_RUN, MIN_RUN + 1, RUN - 1])
def test_a_gap_in_a_run_is_read_as_it_is(at: int) -> None:
    offsets = [number + (number >= at) for number in range(RUN)]
    records = [encode_record(offset, 0, b"key", b"value") for offset in offsets]
    assert [record.offset for record in read_records(batch_of(records))] == offsets
    with pytest.raises(CorruptBatchError, match="does not follow"):
        read_records(batch_of([encode_record(n - (n >= at), 0, b"key", b"value") for n in range(RUN)]))


@pytest.mark.parametrize("last", [RUN - 2, RUN - 1])
def test_a_run_ends_with_its_batch(last: int) -> None:
    batch = batch_of([encode_record(n, 0, b"key", b"value") for n in range(RUN)], last_offset_delta=last)
    if last == RUN - 1:
        assert len(read_records(batch)) == RUN
    else:
        with pytest.raises(CorruptBatchError, match=f"the offset delta {RUN - 1}, the last of the batch is {last}"):
            read_records(batch)


@pytest.mark.parametrize(
    ("key", "value", "time", "offset"),
    [(b"key", b"v" * 70, 64, 3), (None, b"v", 0, 64), (b"k" * 64, None, -8192, 8192), (b"", b"", 2**27 - 1, 0)],
)
def test_the_shape_of_a_record_is_where_its_parts_are(
    key: bytes | None, value: bytes | None, time: int, offset: int
) -> None:
    record = encode_record(offset, time, key, value)
    shape = shape_at(b"before" + record, 6)
    assert shape is not None
    assert shape.size == len(record)
    assert record[: shape.length_width] == encode_varint(len(record) - shape.length_width)
    assert record[shape.timestamp_at :][: shape.timestamp_width] == encode_varint(time)
    assert record[shape.delta_at :][: shape.delta_width] == encode_varint(offset)
    for part, at, size in ((key, shape.key_at, shape.key_size), (value, shape.value_at, shape.value_size)):
        assert size == (-1 if part is None else len(part))
        assert record[at : at + max(size, 0)] == (part or b"")
    varying = {*range(shape.timestamp_at, shape.key_at), shape.timestamp_at - 1}
    varying |= {*range(shape.key_at, shape.key_at + len(key or b"")), *range(shape.value_at, len(record) - 1)}
    varying -= set(range(shape.delta_at + shape.delta_width, shape.key_at))
    assert dict(shape.fixed) == {at: byte for at, byte in enumerate(record) if at not in varying}


@pytest.mark.parametrize(
    "record",
    [
        encode_record(0, 2**27, b"k", b"v"),
        encode_record(0, 0, b"k", b"v", (("h", b""),)),
        b"\x0d\x00\x00\x00\x01\x01\x00",
        b"\x0c\x00\x00\x00\x03\x01\x00",
        b"\x0c\x00\x00\x00\x01\x03\x00",
        b"\x0e\x00\x00\x00\x01\x01\x00",
        b"\x0a\x00\x00\x00\x01\x01\x00",
        b"\x0c\x00\x00\x00\x01\x01\x02",
    ],
    ids=["a time of five bytes", "headers", "length", "key", "value", "too long", "too short", "a count of headers"],
)
def test_a_record_for_the_loop_has_no_shape(record: bytes) -> None:
    assert shape_at(record + bytes(8), 0) is None
