"""Into which batches rows are cut: as many rows in each as surely fit, whichever way they are encoded."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.records.batch import HEADER_SIZE, read_header
from ottla.records.builder import build_batch

pa = pytest.importorskip("pyarrow")
np = pytest.importorskip("numpy")

from ottla.records.columns import encode_columns  # noqa: E402
from ottla.records.columns.even import encode_evenly  # noqa: E402
from ottla.records.columns.hashing import partitions_for_keys  # noqa: E402
from ottla.records.columns.input import RecordColumns  # noqa: E402
from ottla.records.columns.schema import HEADERS_TYPE  # noqa: E402
from ottla.records.hashing import partition_for_key  # noqa: E402

NOW_MS = 1_700_000_000_000
Rows = list[tuple[bytes | None, bytes | None, int]]


def table_of(rows: Rows) -> Any:
    keys, values, times = zip(*rows, strict=True)
    return pa.table(
        {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary()), "timestamp": pa.array(times)}
    )


def counts(rows: Rows, max_size: int) -> list[int]:
    """How many rows each batch has, after a look at what is in them."""
    found, done = [], 0
    for batch in encode_columns(table_of(rows), max_batch_size=max_size):
        own = [(key, value, (), time) for key, value, time in rows[done : done + batch.record_count]]
        assert bytes(batch.make()) == build_batch(own)
        assert (batch.first_row, batch.size) == (done, len(batch.make()))
        found.append(batch.record_count)
        done += batch.record_count
    assert done == len(rows)
    return found


def uneven(sizes: list[int], time_of: int = 0) -> Rows:
    return [(None, b"v" * size, NOW_MS + index * time_of) for index, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("rows", "bounds"),
    [
        # A record may take 21 bytes besides its key, its value and its time, and one for its headers.
        (uneven([1, 2]), [24, 25]),
        (uneven([1, 2, 70, 5]), [24, 25, 93, 28]),
        (uneven([1, 2, 3], 50), [25, 26, 27]),
        ([(b"key", b"v", NOW_MS), (None, b"v", NOW_MS)], [27, 24]),
        ([(b"key", None, NOW_MS), (b"k", b"", NOW_MS)], [26, 24]),
    ],
)
def test_uneven_rows_are_in_one_batch_if_they_surely_fit(rows: Rows, bounds: list[int]) -> None:
    for end in range(2, len(rows) + 1):
        if end == len(rows) or rows[1][2] == rows[0][2]:
            whole = HEADER_SIZE + sum(bounds[:end])
            assert counts(rows[:end], whole) == [end]
            assert counts(rows[:end], whole - 1) == [end - 1, 1]
    assert counts(rows, 1) == [1] * len(rows)
    assert counts(rows, HEADER_SIZE + bounds[0])[0] == 1


@pytest.mark.parametrize(
    ("key", "value", "count", "record_size"),
    [
        (None, b"v" * 100, 60, 109),
        (b"key", b"v" * 100, 60, 112),
        (None, None, 20, 7),
        (b"", b"", 20, 7),
        (b"k", None, 20, 8),
        (b"k" * 70, b"v", 60, 80),
        (None, b"v" * 57, 60, 64),
        (None, b"v" * 58, 60, 66),
        (None, b"v" * 100, 200, 110),
    ],
)
def test_even_rows_are_in_one_batch_if_they_surely_fit(
    key: bytes | None, value: bytes | None, count: int, record_size: int
) -> None:
    rows: Rows = [(key, value, NOW_MS)] * count
    whole = HEADER_SIZE + count * record_size
    assert counts(rows, whole) == [count]
    assert counts(rows, whole - 1) == [count // 2, count - count // 2]
    assert counts(rows, HEADER_SIZE + record_size) == [1] * count
    assert counts(rows, 1) == [1] * count


@pytest.mark.parametrize("count", [63, 64, 65, 8_191, 8_192, 8_193])
@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize(("key", "value"), [(None, b"v"), (b"key", None), (b"k", b"v" * 60), (None, None)])
def test_even_rows_of_any_number(count: int, step: int, key: bytes | None, value: bytes | None) -> None:
    rows = [(key, value, NOW_MS + number * step) for number in range(count)]
    assert counts(rows, 2**30) == [count]
    assert counts(rows[: count // 60], 200) == counts(rows[: count // 60][::-1], 200)


@pytest.mark.parametrize(
    ("times", "are_even"),
    [
        ([0] * 10, True),
        ([0] * 64 + [100] * 64, True),
        ([0] * 63 + [100] * 1, True),
        ([0] * 62 + [100] * 1, False),
        ([0] * 126 + [100] + [0], True),
        ([0] * 125 + [100] + [0], False),
        ([0, 100] * 40, False),
        ([0, 1, 2, 3] * 10, True),
    ],
)
def test_rows_are_even_if_their_times_seldom_become_wider(times: list[int], are_even: bool) -> None:
    rows: Rows = [(None, b"v", NOW_MS + time) for time in times]
    assert (encode_evenly(RecordColumns.of(table_of(rows), 0), 2**30) is not None) == are_even
    assert counts(rows, 2**30) == [len(times)]


def test_rows_that_differ_are_not_even() -> None:
    for rows in (
        [(b"k", b"v", 1), (None, b"v", 1)],
        [(b"k", b"v", 1), (b"k", b"vv", 1)],
        [(b"", b"", 1), (None, b"", 1)],
    ):
        assert encode_evenly(RecordColumns.of(table_of(rows), 0), 2**30) is None
    with_headers = pa.table({"value": [b"v"], "headers": pa.array([[{"key": "h", "value": b"x"}]], HEADERS_TYPE)})
    assert encode_evenly(RecordColumns.of(with_headers, 0), 2**30) is None
    assert encode_evenly(RecordColumns.of(with_headers.slice(0, 0), 0), 2**30) is None
    assert encode_evenly(RecordColumns.of(pa.table({"value": [b"v"]}), 0), 2**30) is not None


@pytest.mark.parametrize("sizes", [[5] * 30, [5, 6] * 15], ids=["even", "uneven"])
@pytest.mark.parametrize(
    ("sequence", "expected"), [(None, [-1, -1, -1]), (0, [0, 10, 20]), (2**31 - 10, [2**31 - 10, 0, 10])]
)
def test_sequences_of_batches_follow_each_other(sizes: list[int], sequence: int | None, expected: list[int]) -> None:
    options = {} if sequence is None else {"base_sequence": sequence, "producer_id": 5, "producer_epoch": 2}
    each = 13 if len(set(sizes)) == 1 else 29
    made = list(encode_columns(table_of(uneven(sizes)), max_batch_size=HEADER_SIZE + 10 * each, **options))
    headers = [read_header(batch.make()) for batch in made]
    assert [batch.record_count for batch in made] == [10, 10, 10]
    assert [header.base_sequence for header in headers] == expected
    producer = (-1, -1) if sequence is None else (5, 2)
    assert {(header.producer_id, header.producer_epoch) for header in headers} == {producer}
    assert {header.partition_leader_epoch for header in headers} == {-1}
    assert {(header.base_offset, header.attributes, header.last_offset_delta) for header in headers} == {(0, 0, 9)}


def test_rows_without_a_time_have_the_one_that_is_given_or_none() -> None:
    table = pa.table({"value": [b"v"]})
    (batch,) = encode_columns(table)
    assert (read_header(batch.make()).base_timestamp, read_header(batch.make()).max_timestamp) == (-1, -1)
    (batch,) = encode_columns(table, default_timestamp_ms=7)
    assert (read_header(batch.make()).base_timestamp, read_header(batch.make()).max_timestamp) == (7, 7)


@pytest.mark.parametrize("count", [1, 2, 7, 10_000, 2**31 - 1])
def test_keys_of_every_length_go_where_each_key_goes(count: int) -> None:
    longest = bytes(range(1, 200)) * 3
    lengths = [*range(20), *range(509, 520)]
    for keys in (
        [longest[:length] for length in lengths],
        [longest[length : 2 * length] for length in lengths],
        [b"\xff" * length for length in lengths],
        [None, b"", None, b"abc", b"abcd", b"abcde"],
        [b""] * 3,
        [b"abc", b"abd", b"\xff\xff\xff"],
        [longest[:513], None],
        [longest[:513], longest[:514]],
        [None, None],
        [],
    ):
        for dropped in (0, 1):
            column = pa.array(keys, pa.binary()).slice(dropped)
            expected = [-1 if key is None else partition_for_key(key, count) for key in keys[dropped:]]
            assert partitions_for_keys(column, count).tolist() == expected
