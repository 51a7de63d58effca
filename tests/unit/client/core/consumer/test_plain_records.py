from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.core.consumer.plain_records import MAX_VALUE_BYTES, build_values_batch, encode_values
from ottla.client.core.producer.batch import Batch
from ottla.records.builder import build_batch, encode_record
from ottla.records.compression import Codec

sizes = st.one_of(st.integers(0, 200), st.integers(MAX_VALUE_BYTES - 3, MAX_VALUE_BYTES - 1))


@given(
    st.lists(st.tuples(sizes, st.integers(0, 20_000)), min_size=1, max_size=200), st.booleans(), st.sampled_from(Codec)
)
def test_the_same_bytes_as_record_by_record(records: list[tuple[int, int]], transactional: bool, codec: Codec) -> None:
    batch = Batch("t", 0, (0,), opened_ms=0, deadline_ms=0)
    rows = []
    timestamp_ms = 1_700_000_000_000
    for size, step_ms in records:
        timestamp_ms += step_ms - 10_000 if step_ms % 3 == 0 else 0
        rows.append((None, b"x" * size, (), timestamp_ms))
        batch.add(rows[-1], size)
    fields = {"producer_id": 5, "producer_epoch": 2, "base_sequence": 7, "transactional": transactional}
    expected = build_batch(rows, codec=codec, **fields)  # type: ignore[arg-type]
    lengths = list(map(len, batch.values))
    assert build_values_batch(batch.values, lengths, batch.marks, codec=codec, level=None, **fields) == expected  # type: ignore[arg-type]
    assert batch.records() == rows
    assert [batch.timestamp_of(index) for index in range(len(rows))] == [row[3] for row in rows]


def test_more_records_than_the_table_has_offsets() -> None:
    values = [b"%d" % number for number in range(20_000)]
    rows = [(None, value, (), 5) for value in values]
    fields = {"codec": Codec.NONE, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "transactional": False}
    lengths = list(map(len, values))
    assert build_values_batch(values, lengths, [(0, 5)], level=None, **fields) == build_batch(rows, **fields)  # type: ignore[arg-type]


@given(
    st.integers(0, 300),
    st.lists(st.tuples(st.integers(1, 5000), st.integers(-3, 12)), min_size=1, max_size=4),
)
def test_values_of_one_length(length: int, runs: list[tuple[int, int]]) -> None:
    """Numbers of records beyond those whose beginnings are kept, and timestamps that go back as well as forth."""
    values: list[bytes] = []
    marks: list[tuple[int, int]] = []
    for count, step_ms in runs:
        marks.append((len(values), 1_700_000_000_000 + step_ms))
        values += [bytes([number % 251]) * length for number in range(count)]
    times = [time_ms for (_, time_ms), (count, _) in zip(marks, runs, strict=True) for _ in range(count)]
    rows = [(None, value, (), time_ms) for value, time_ms in zip(values, times, strict=True)]
    fields = {"codec": Codec.NONE, "producer_id": 1, "producer_epoch": 0, "base_sequence": 9, "transactional": False}
    batch = build_values_batch(values, [length] * len(values), marks, level=None, **fields)  # type: ignore[arg-type]
    assert batch == build_batch(rows, **fields)  # type: ignore[arg-type]


def test_a_batch_turns_to_rows_when_a_record_is_more_than_a_value() -> None:
    batch = Batch("t", 0, (0,), opened_ms=0, deadline_ms=0)
    assert batch.add((None, b"a", (), 1), 1) == 0
    assert batch.add((b"k", b"b", (), 2), 1) == 1
    assert batch.add((None, b"c", (), 3), 1) == 2
    assert batch.records() == [(None, b"a", (), 1), (b"k", b"b", (), 2), (None, b"c", (), 3)]
    assert batch.record_count == 3


def test_long_values_are_left_to_the_builder() -> None:
    long = b"x" * MAX_VALUE_BYTES
    assert encode_values([b"a", long], [1, len(long)], [(0, 1)]) is None
    batch = Batch("t", 0, (0,), opened_ms=0, deadline_ms=0)
    batch.add((None, long, (), 1), len(long))
    assert batch.encode(Codec.NONE, None, transactional=False) == build_batch([(None, long, (), 1)])


def test_a_value_alone_is_a_record_from_its_length_to_its_headers() -> None:
    assert encode_values([b"ab"], [2], [(0, 7)]) == encode_record(0, 0, None, b"ab")
    assert encode_values([b"ab"], [2], [(0, 7)], room=3) == bytes(3) + encode_record(0, 0, None, b"ab")


@pytest.mark.parametrize("count", [1, 63, 64, 65, 8191, 8192, 8193])
@pytest.mark.parametrize("is_even", [True, False])
def test_batches_end_before_at_and_after_the_numbers_that_take_one_byte_more(count: int, is_even: bool) -> None:
    lengths = [4 if is_even else number % 3 for number in range(count)]
    values = [bytes(length) for length in lengths]
    marks = [(0, 5)] if count < 3 else [(0, 5), (count - 2, 9)]
    expected = bytearray()
    for number, value in enumerate(values):
        expected += encode_record(number, 4 if len(marks) > 1 and number >= count - 2 else 0, None, value)
    assert encode_values(values, lengths, marks) == expected


@pytest.mark.parametrize(("length", "is_left"), [(4095, False), (4096, True)])
def test_values_of_four_kibibytes_are_left_to_the_builder(length: int, is_left: bool) -> None:
    for values in ([bytes(length)] * 2, [b"", bytes(length)], [bytes(length), b""]):
        assert (encode_values(values, list(map(len, values)), [(0, 1)]) is None) is is_left
