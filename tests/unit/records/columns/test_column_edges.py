"""Columns at the edges of what they may be: names, types and values of a table, and where decoding stops."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from ottla.base.errors import CorruptBatchError, ErrorCode, InvalidRecordError
from ottla.records.batch import HEADER_SIZE, read_header
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.control import end_transaction_marker
from ottla.records.reader import Record, read_records

pa = pytest.importorskip("pyarrow")
np = pytest.importorskip("numpy")

from ottla.records.columns import COLUMN_NAMES, HEADERS_TYPE, columns_schema, decode, decode_columns, encode_columns  # noqa: E402
from ottla.records.columns.input import RecordColumns  # noqa: E402


def encoded(table: Any, **options: Any) -> list[Record]:
    (batch,) = encode_columns(table, **options)
    return read_records(batch.make())


# Tables


def test_the_columns_there_are() -> None:
    assert COLUMN_NAMES == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
    assert [str(kind) for kind in columns_schema(COLUMN_NAMES).types] == [
        "binary",
        "binary",
        "string",
        "int32",
        "int64",
        "timestamp[ms, tz=UTC]",
        "int32",
        "list<element: struct<key: string, value: binary>>",
    ]
    assert columns_schema(iter(["offset", "key", "offset"])).names == ["key", "offset"]
    assert decode_columns(b"").records.schema.names == ["key", "value", "offset", "timestamp", "timestampType"]
    with pytest.raises(ValueError, match=r"records have no column 'a'; known: key, value, topic, partition, offset, "):
        columns_schema(["key", "b", "a"])


@pytest.mark.parametrize("name", ["key", "value", "timestamp", "headers"])
def test_a_column_that_is_sent_is_there_once(name: str) -> None:
    columns = {"key": pa.array([b"k"]), "value": pa.array([b"v"]), "timestamp": pa.array([5])}
    columns["headers"] = pa.array([[]], HEADERS_TYPE)
    twice = pa.Table.from_arrays([*columns.values(), columns[name]], names=[*columns, name])
    for table in (twice, twice.to_batches()[0]):
        with pytest.raises(ValueError, match=f"there are two columns '{name}'"):
            RecordColumns.of(table, 0)


def test_columns_that_are_not_sent_are_of_no_interest() -> None:
    number = pa.array([1])
    table = pa.Table.from_arrays(
        [pa.array([b"v"]), number, number, number], names=["value", "topic", "topic", "offset"]
    )
    assert encoded(table) == [Record(0, -1, None, b"v", ())]
    with pytest.raises(
        ValueError, match="records have no column 'x'; those that are sent: key, value, timestamp, headers"
    ):
        RecordColumns.of(pa.table({"value": [b"v"], "x": [1], "y": [1]}), 0)
    with pytest.raises(ValueError, match="there is no column 'value'"):
        RecordColumns.of(pa.table({"key": [b"v"]}), 0)


NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([-1, 0, 2**63 - 2]), [-1, 0, 2**63 - 2]),
        (pa.array([None, 5, None]), [77, 5, 77]),
        (pa.array([1, 2, 3], pa.int32()), [1, 2, 3]),
        (pa.array([1, 2, 3], pa.uint8()), [1, 2, 3]),
        (pa.array([2, 1, 0], pa.timestamp("s")), [2000, 1000, 0]),
        (pa.array([2, 1, None], pa.timestamp("ms", tz="Europe/Berlin")), [2, 1, 77]),
        (pa.array([2999, 1000, 999], pa.timestamp("us")), [2, 1, 0]),
        (pa.array([2_999_999, 1_000_000, 0], pa.timestamp("ns")), [2, 1, 0]),
        (pa.array([NOON] * 3), [NOON_MS] * 3),
        (pa.array([None] * 3, pa.int64()), [77] * 3),
    ],
    ids=range(10),
)
def test_times_of_rows(column: Any, expected: list[int]) -> None:
    table = pa.table({"value": [b"v"] * 3, "timestamp": column})
    assert RecordColumns.of(table, 77).timestamps.tolist() == expected
    assert [record.timestamp for record in encoded(table, default_timestamp_ms=77)] == expected


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.array([1.0, 2.0]), "the column 'timestamp' is double, neither a timestamp nor milliseconds"),
        (pa.array([0, 2**63], pa.uint64()), "the column 'timestamp' has values that do not fit 64 bits"),
        (pa.array([0, 2**62], pa.timestamp("s")), "the column 'timestamp' has values that do not fit 64 bits"),
    ],
)
def test_what_is_no_time(column: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        RecordColumns.of(pa.table({"value": [b"v"] * 2, "timestamp": column}), 0)


def test_a_time_before_1970_refuses_the_table() -> None:
    with pytest.raises(InvalidRecordError) as refusal:
        RecordColumns.of(pa.table({"value": [b"v"] * 3, "timestamp": [-1, -2, -7]}), 0)
    assert "row 2 has the timestamp -7, before 1970" in str(refusal.value)
    assert refusal.value.record_errors == [(2, "the timestamp is negative")]
    assert refusal.value.code is ErrorCode.INVALID_RECORD
    assert (
        len(RecordColumns.of(pa.table({"value": pa.array([], pa.binary()), "timestamp": pa.array([], pa.int64())}), 0))
        == 0
    )


@pytest.mark.parametrize("name", ["key", "value"])
def test_what_keys_and_values_may_be(name: str) -> None:
    for column in (
        pa.array(["ü", None]),
        pa.array(["ü", None], pa.large_string()),
        pa.array(["ü".encode(), None], pa.large_binary()),
        pa.array(["ü".encode(), None], pa.binary(2)),
        pa.array(["ü", None]).dictionary_encode(),
    ):
        columns = {"value": pa.array([None, None], pa.binary()), name: column}
        found = [getattr(record, name) for record in encoded(pa.table(columns))]
        assert found == ["ü".encode(), None]
    with pytest.raises(ValueError, match=f"the column '{name}' is int64, not bytes or text"):
        RecordColumns.of(pa.table({"value": [b"v"], name: [1]}), 0)
    nulls = {"value": pa.nulls(2), name: pa.nulls(2)}
    assert [getattr(record, name) for record in encoded(pa.table(nulls))] == [None, None]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([None, None], [(), ()]),
        ([[], None], [(), ()]),
        ([[], []], [(), ()]),
        ([[("a", b"1")], None], [(("a", b"1"),), ()]),
        ([None, [("a", None), ("", b"")]], [(), (("a", None), ("", b""))]),
        ([[("ü" * 70, b"x" * 70)], [("b", b"2")] * 70], [(("ü" * 70, b"x" * 70),), (("b", b"2"),) * 70]),
    ],
    ids=range(6),
)
def test_headers_of_rows(rows: list[Any], expected: list[Any]) -> None:
    own = [None if row is None else [{"key": key, "value": value} for key, value in row] for row in rows]
    table = pa.table({"value": [b"v", b"w"], "headers": pa.array(own, HEADERS_TYPE)})
    assert [record.headers for record in encoded(table)] == expected
    assert (RecordColumns.of(table, 0).headers is None) is not any(expected)


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"v"}])
def test_a_header_needs_a_key(header: object) -> None:
    table = pa.table({"value": [b"v"], "headers": pa.array([[{"key": "a", "value": b""}, header]], HEADERS_TYPE)})
    with pytest.raises(InvalidRecordError, match="a header has no key: it needs one, its value alone may be null"):
        RecordColumns.of(table, 0)


@pytest.mark.parametrize(("codec", "level"), [(Codec.NONE, None), (Codec.GZIP, 1), (Codec.ZSTD, 19)])
def test_a_batch_has_all_it_was_told(codec: Codec, level: int | None) -> None:
    rows: list[Any] = [(None, b"a" * 50, (), 9), (None, b"b" * 50, (), 5), (None, b"c" * 50, (), 7)]
    table = pa.table({"value": [row[1] for row in rows], "timestamp": [row[3] for row in rows]})
    options: dict[str, Any] = {"codec": codec, "producer_id": 5, "producer_epoch": 3, "base_sequence": 2**31 - 1}
    (batch,) = encode_columns(table, level=level, transactional=True, **options)
    header = read_header(batch.make())
    assert header == header._replace(
        base_offset=0,
        partition_leader_epoch=-1,
        magic=2,
        attributes=int(codec) | 0x10,
        last_offset_delta=2,
        base_timestamp=9,
        max_timestamp=9,
        producer_id=5,
        producer_epoch=3,
        base_sequence=2**31 - 1,
        record_count=3,
    )
    assert (batch.size, batch.first_row, batch.record_count) == (len(batch.make()), 0, 3)
    if level is not None:
        (other,) = encode_columns(table, transactional=True, **options)
        assert read_records(other.make()) == read_records(batch.make())


# Where decoding stops


def batch(offset: int, count: int = 1, *, size: int = 100, codec: Codec = Codec.NONE) -> bytes:
    return build_batch([(None, bytes(size), (), 0)] * count, base_offset=offset, codec=codec)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize(("less", "kept"), [(0, 3), (1, 2)])
def test_as_much_is_decoded_as_arrow_can_count(
    codec: Codec, less: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uncompressed batches are left where they are, so that what lies between their records counts too."""
    data = b"".join(batch(number, codec=codec) for number in range(3))
    payload = len(batch(0)) - HEADER_SIZE
    whole = len(data) if codec is Codec.NONE else 3 * payload
    monkeypatch.setattr(decode, "MAX_DECODED", whole - less)
    found = decode_columns(data)
    assert found.records["offset"].to_pylist() == list(range(kept))
    assert found.next_offset == kept


def test_one_batch_is_decoded_however_large_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "MAX_DECODED", 10)
    for codec in (Codec.NONE, Codec.GZIP):
        found = decode_columns(batch(0, codec=codec) + batch(1, codec=codec))
        assert (found.records["value"].to_pylist(), found.next_offset) == ([bytes(100)], 1)


@pytest.mark.parametrize("skipped", [0, 1, 2, 5])
def test_positions_count_from_the_first_batch_that_is_wanted(skipped: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"".join(build_batch([(b"%d" % n, b"v%d" % n, (), n)], base_offset=n) for n in range(8))
    monkeypatch.setattr(decode, "MAX_DECODED", 3 * len(data) // 8)
    found = decode_columns(data, start_offset=skipped)
    wanted = range(skipped, skipped + 3)
    assert found.next_offset == skipped + 3
    assert found.records["key"].to_pylist() == [b"%d" % n for n in wanted]
    assert found.records["value"].to_pylist() == [b"v%d" % n for n in wanted]


@pytest.mark.parametrize(
    ("start", "end", "offsets", "next_offset"),
    [
        (0, None, [0, 1, 2, 3, 4, 5], 6),
        (1, None, [1, 2, 3, 4, 5], 6),
        (2, 4, [2, 3], 4),
        (3, 4, [3], 4),
        (0, 2, [0, 1], 2),
        (0, 3, [0, 1, 2], 4),
        (4, 4, [], 4),
        (5, 99, [5], 6),
        (6, None, [], 6),
        (9, None, [], 9),
        (9, 9, [], 9),
        (0, 0, [], 0),
    ],
)
def test_which_offsets_are_decoded(start: int, end: int | None, offsets: list[int], next_offset: int) -> None:
    data = batch(0, 2) + batch(2, 2) + batch(4, 2)
    found = decode_columns(data, start_offset=start, end_offset=end)
    assert (found.records["offset"].to_pylist(), found.next_offset) == (offsets, next_offset)


def test_batches_before_the_start_are_not_checked_and_those_after_the_end_not_looked_at() -> None:
    data = bytearray(batch(0, 2) + batch(2, 2) + batch(4, 2))
    size = len(data) // 3
    for spoiled in (size - 9, 3 * size - 9):
        data[spoiled] ^= 1
    assert decode_columns(data, start_offset=2, end_offset=4).records["offset"].to_pylist() == [2, 3]
    for start, end, told in ((1, 4, 0), (2, 5, 4)):
        with pytest.raises(CorruptBatchError, match=f"the batch at offset {told} does not match its checksum"):
            decode_columns(data, start_offset=start, end_offset=end)
    assert decode_columns(data, check_crc=False).next_offset == 6


@pytest.mark.parametrize(
    ("first", "offsets"),
    [(-1, [2, 6]), (0, [2, 6]), (1, [2, 6]), (2, [0, 1, 2, 6]), (5, [0, 1, 2, 6])],
)
def test_which_batches_of_a_producer_are_aborted(first: int, offsets: list[int]) -> None:
    """From the first offset that the broker names, which lies in a batch, up to the marker."""
    options: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    log = b"".join(
        (
            build_batch([(None, b"v", (), 0)] * 2, base_offset=0, transactional=True, **options),
            build_batch([(None, b"v", (), 0)], base_offset=2, **options),
            end_transaction_marker(7, 0, False, 0, 5, base_offset=5),
            build_batch([(None, b"v", (), 0)], base_offset=6, transactional=True, **options),
        )
    )
    found = decode_columns(log, aborted=[(7, first), (8, 0)])
    assert (found.records["offset"].to_pylist(), found.next_offset) == (offsets, 7)


@pytest.mark.parametrize("count", [0, 1, 16_384, 16_385])
def test_topics_and_partitions_of_however_many_rows(count: int) -> None:
    data = batch(0, count, size=0) if count else b""
    for topic, partition in (("t", 3), ("ü", 2**31 - 1)):
        records = decode_columns(data, columns=["topic", "partition"], topic=topic, partition=partition).records
        assert records.num_rows == count
        assert set(records["topic"].to_pylist()) == ({topic} if count else set())
        assert set(records["partition"].to_pylist()) == ({partition} if count else set())


def test_who_set_the_times_is_told_row_by_row() -> None:
    data = batch(0, 2) + build_batch([(None, b"v", (), 3)] * 2, base_offset=2, log_append_time_ms=9)
    records = decode_columns(data).records
    assert records["timestampType"].to_pylist() == [0, 0, 1, 1]
    assert records["timestamp"].cast(pa.int64()).to_pylist() == [0, 0, 9, 9]
