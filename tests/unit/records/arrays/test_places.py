"""The ways to find batches and records by the column lead where the loops lead."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.base.errors import CorruptBatchError
from ottla.records.arrays.headers import HeaderColumns, find_batches
from ottla.records.arrays.starts import find_all_starts
from ottla.records.arrays.varint import read_varints
from ottla.records.batch import HEADER_SIZE, iter_headers
from ottla.records.builder import build_batch
from ottla.records.varint import encode_varint, read_unsigned

PADDING = bytes(8)


def octets_of(data: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(data + PADDING, np.uint8)


def batch_of(sizes: list[int], base_offset: int = 0) -> bytes:
    return build_batch([(b"k", bytes(size), (), 7) for size in sizes], base_offset=base_offset)


def many_batches(shapes: list[list[int]]) -> bytes:
    return b"".join(batch_of(sizes, 1000 * number) for number, sizes in enumerate(shapes))


# A few shapes, repeated: batches of a topic look alike, and some do not.
SHAPES = st.lists(
    st.sampled_from(
        [[1], [300], [5] * 3, [5, 70, 5], [90] * 40, [90] * 70, [90] * 69 + [91], [9_000] * 16, list(range(50, 90))]
    ),
    min_size=1,
    max_size=40,
)


def starts_by_walking(data: bytes) -> list[int]:
    found = []
    for position, header in iter_headers(data):
        at = position + HEADER_SIZE
        for _ in range(header.record_count):
            found.append(at)
            length, size = read_unsigned(data[at : at + 6], 0, 32)
            at += size + (length >> 1)
    return found


@given(SHAPES)
@example([[90] * 40] * 40)
@example([[5] * 3] * 80)
def test_records_are_found_where_a_walk_finds_them(shapes: list[list[int]]) -> None:
    data = many_batches(shapes)
    octets = octets_of(data)
    headers = HeaderColumns.read(octets, find_batches(data, octets, np.zeros(0, np.int64)))
    ends = headers.positions + headers.sizes
    found = find_all_starts(data, octets, headers.positions + HEADER_SIZE, ends, headers.record_counts)
    assert found.tolist() == starts_by_walking(data)


@pytest.mark.parametrize("shapes", [[[90] * 40] * 3, [[5] * 3] * 80])
def test_a_record_that_does_not_end_with_its_batch_is_noticed(shapes: list[list[int]]) -> None:
    data = bytearray(many_batches(shapes))
    (last, _), *_ = list(iter_headers(data))[::-1]
    data[last + HEADER_SIZE] += 2
    octets = octets_of(bytes(data))
    headers = HeaderColumns.read(octets, find_batches(data, octets, np.zeros(0, np.int64)))
    ends = headers.positions + headers.sizes
    with pytest.raises((CorruptBatchError, IndexError)):
        find_all_starts(data, octets, headers.positions + HEADER_SIZE, ends, headers.record_counts)


@given(SHAPES, st.integers(0, 200))
def test_batches_are_found_whatever_the_hints_say(shapes: list[list[int]], cut: int) -> None:
    data = many_batches(shapes)
    data = data[: max(len(data) - cut, 0)]
    octets = octets_of(data)
    expected = [position for position, _ in iter_headers(data)]
    right = np.array(expected[1:], np.int64)
    assert find_batches(data, octets, right).tolist() == expected
    wrong = np.arange(7, max(len(data), 8), 311)
    assert find_batches(data, octets, wrong).tolist() == expected


def test_few_of_many_batches_are_hinted_at() -> None:
    data = many_batches([[1]] * 1000)
    octets = octets_of(data)
    expected = [position for position, _ in iter_headers(data)]
    assert find_batches(data, octets, np.array(expected[5::7], np.int64)).tolist() == expected


def test_what_is_no_batch_is_noticed() -> None:
    data = bytearray(many_batches([[1]] * 60))
    positions = [position for position, _ in iter_headers(data)]
    data[positions[40] + 16] = 1
    with pytest.raises(CorruptBatchError, match="magic 1"):
        find_batches(data, octets_of(bytes(data)), np.array(positions[1:], np.int64))


def test_headers_by_the_column_are_those_of_the_loop() -> None:
    data = many_batches([[1], [2, 3], [4]])
    found = list(iter_headers(data))
    columns = HeaderColumns.read(octets_of(data), np.array([position for position, _ in found]))
    assert [columns.header(number) for number in range(3)] == [header for _, header in found]
    assert columns.last_offsets.tolist() == [header.last_offset for _, header in found]
    assert columns.sizes.tolist() == [header.size for _, header in found]


@given(st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(-9000, 9000), min_size=1, max_size=30))
@example([0, -1, 63, -64])
@example([64, -65, 8191, -8192])
@example([8192, 1_048_575, -1_048_576])
@example([1_048_576])
def test_varints_of_all_widths(numbers: list[int]) -> None:
    encoded = [encode_varint(number) for number in numbers]
    positions = np.cumsum([0, *(len(part) for part in encoded)])
    for end in (PADDING, b""):
        found, after = read_varints(np.frombuffer(b"".join(encoded) + end, np.uint8), positions[:-1], 32)
        assert found.tolist() == numbers
        assert after.tolist() == positions[1:].tolist()
