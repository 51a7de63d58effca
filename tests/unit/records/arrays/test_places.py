"""The ways to find batches and records by the column lead where the loops lead."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.base.errors import CorruptBatchError
from ottla.records.arrays import headers as headers_module
from ottla.records.arrays import hop
from ottla.records.arrays.headers import HeaderColumns, find_batches, raw_headers
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


@pytest.mark.parametrize("every", [1, 3])
def test_right_hints_lead_to_every_whole_batch_wherever_the_bytes_end(
    every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headers_module, "_walk", lambda *_: pytest.fail("the batches were gone through one by one"))
    data = many_batches([[1], [40], [5, 5]] * 20)
    positions = [position for position, _ in iter_headers(data)]
    ends = [*positions[1:], len(data)]
    for cut in range(2 * (ends[-1] - positions[-1]) + HEADER_SIZE):
        part = data[: len(data) - cut]
        hints = [position for position in positions[1::every] if position < len(part)]
        expected = [position for position, end in zip(positions, ends, strict=True) if end <= len(part)]
        assert find_batches(part, octets_of(part), np.array(hints, np.int64)).tolist() == expected


@pytest.mark.parametrize("wrong", [1, -1, 3])
@pytest.mark.parametrize("number", [0, 10, -1])
def test_one_wrong_hint_makes_the_way_long_and_no_other(wrong: int, number: int) -> None:
    data = many_batches([[1]] * 40)
    positions = [position for position, _ in iter_headers(data)]
    hints = positions[1:]
    hints[number] += wrong
    assert find_batches(data, octets_of(data), np.array(hints, np.int64)).tolist() == positions
    near_the_end = [*positions[1:], len(data) - 3]
    assert find_batches(data, octets_of(data), np.array(near_the_end, np.int64)).tolist() == positions


@pytest.mark.parametrize("size", [0, HEADER_SIZE - 1, HEADER_SIZE, HEADER_SIZE + 1, HEADER_SIZE + 5])
def test_there_may_be_a_header_wherever_one_has_room(size: int) -> None:
    assert len(raw_headers(np.zeros(size, np.uint8))) == max(size - HEADER_SIZE + 1, 0)


def records_of(sizes: list[int]) -> tuple[bytes, list[int]]:
    """Lengths and what they announce, whatever it is; and where each begins."""
    records = [encode_varint(size) + bytes(size) for size in sizes]
    return b"".join(records), np.cumsum([0, *map(len, records)])[:-1].tolist()


@pytest.mark.parametrize(
    ("sizes", "looks"),
    [
        ([5] * 32, 1),
        ([5] * 33, 1),
        ([5] * 1_000, 1),
        ([300] * 1_000, 1),
        ([9_000] * 100, 1),
        ([5] * 40 + [6] * 1_000, 2),
        ([5] * 28 + [6] * 500, 1),
        ([5] * 29 + [6] * 500, 2),
        ([5] * 159 + [6] + [5] * 31, 2),
        ([5] * 160 + [6] + [5] * 31, 2),
        ([5] * 1_184 + [6] * 32, 2),
        ([300] * 40 + [301] * 32, 2),
        ([64] * 40 + [128] * 32, 2),
        ([8_192] * 40 + [16_384] * 32, 2),
        ([8_192] * 40 + [8_256] * 32, 2),
        ([5] * 28 + [4, 6, 5, 5] + [5] * 100, 1),
        ([5] * 28 + [4, 5, 6, 5] + [5] * 100, 2),
        ([5, 6] * 100, 7),
    ],
)
def test_records_of_one_size_are_found_without_looking_at_each(
    sizes: list[int], looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look is at 32 records; what follows and has the size of the last four is found by the column."""
    calls: list[int] = []
    look = hop._single_steps

    def counted(buf: bytes, pos: int, count: int) -> list[int]:
        calls.append(count)
        return look(buf, pos, count)

    monkeypatch.setattr(hop, "_single_steps", counted)
    data, expected = records_of(sizes)
    starts = np.zeros(len(sizes), np.int64)
    hop.find_starts(data, octets_of(data), 0, len(data), starts)
    assert starts.tolist() == expected
    assert len(calls) == looks


@pytest.mark.parametrize("claimed", [-1, 1])
def test_as_many_records_as_are_claimed_fill_the_batch(claimed: int) -> None:
    data, _ = records_of([5] * 50)
    starts = np.zeros(50 + claimed, np.int64)
    with pytest.raises(CorruptBatchError, match="do not end where their batch does"):
        hop.find_starts(data + PADDING, octets_of(data), 0, len(data), starts)


@pytest.mark.parametrize("differing", [0, 1, 20, 38])
@pytest.mark.parametrize("size", [5, 300, 9_000])
def test_of_many_batches_one_that_differs_is_found_by_itself(differing: int, size: int) -> None:
    """In one record's length, and in the next one's the other way: the batches are of one size."""
    shapes = [[size] * 20 for _ in range(40)]
    shapes[differing][7:9] = [size - 1, size + 1]
    parts = [records_of(sizes) for sizes in shapes]
    starts = np.cumsum([0, *(len(data) for data, _ in parts)])
    data = b"".join(data for data, _ in parts)
    found = find_all_starts(data, octets_of(data), starts[:-1], starts[1:], np.full(40, 20, np.int64))
    expected = [start + at for start, (_, own) in zip(starts.tolist(), parts, strict=False) for at in own]
    assert found.tolist() == expected


def test_batches_that_look_alike_may_lie_between_others() -> None:
    """And where the buffer ends with the last of them there is no room to look at four bytes."""
    shapes = [[5] * 20, [7] * 3, [5] * 20, [5] * 16, [9], [5] * 20, [1] * 17]
    parts = [records_of(sizes) for sizes in shapes]
    starts = np.cumsum([0, *(len(data) for data, _ in parts)])
    data = b"".join(data for data, _ in parts)
    counts = np.array([len(sizes) for sizes in shapes], np.int64)
    expected = [start + at for start, (_, own) in zip(starts.tolist(), parts, strict=False) for at in own]
    for octets in (octets_of(data), np.frombuffer(data, np.uint8)):
        assert find_all_starts(data, octets, starts[:-1], starts[1:], counts).tolist() == expected
