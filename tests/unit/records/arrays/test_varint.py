"""Varints by the column are written and read as single ones are, and refused where those are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ottla.base.errors import CorruptBatchError
from ottla.records.arrays.varint import VarintColumn, read_varints, varint_sizes, zigzag
from ottla.records.varint import encode_varint, read_varint, read_varlong

EDGES = sorted(
    {
        sign * (1 << bits) + step
        for bits in (0, 6, 13, 20, 27, 34, 41, 48, 55, 62)
        for sign in (1, -1)
        for step in (-1, 0, 1)
    }
    | {2**31 - 1, -(2**31), 2**63 - 1, -(2**63)}
)
EDGES_32 = [number for number in EDGES if -(2**31) <= number < 2**31]


def octets(data: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(data, np.uint8)


@pytest.mark.parametrize("number", EDGES)
def test_a_number_takes_as_many_bytes_as_it_needs(number: int) -> None:
    written = encode_varint(number)
    for numbers in ([number], [number, 0], [0, number, 5], [number, 300, -70_000]):
        column = VarintColumn(np.array(numbers, np.int64))
        assert column.sizes.tolist() == [len(encode_varint(each)) for each in numbers]
        out = np.full(len(numbers) * 12, 0xEE, np.uint8)
        column.write(out, np.arange(len(numbers)) * 12 + 1)
        for row, each in enumerate(numbers):
            written = encode_varint(each)
            assert out[row * 12 : row * 12 + 12].tobytes() == b"\xee" + written + b"\xee" * (11 - len(written))
    assert varint_sizes(zigzag(np.array([number], np.int64))).tolist() == [len(written := encode_varint(number))]
    assert len(written) <= 10


def test_rows_are_taken_out_of_a_column() -> None:
    taken = VarintColumn(np.array([1, 100, -5, 10_000], np.int64)).take(np.array([3, 0]))
    assert (taken.raw.tolist(), taken.sizes.tolist()) == ([20_000, 2], [3, 1])


def test_nothing_is_written_of_no_numbers() -> None:
    column = VarintColumn(np.zeros(0, np.int64))
    out = np.zeros(3, np.uint8)
    column.write(out, np.zeros(0, np.int64))
    assert (column.sizes.tolist(), out.tolist()) == ([], [0, 0, 0])


@pytest.mark.parametrize(("bits", "edges"), [(32, EDGES_32), (64, EDGES)])
def test_numbers_of_all_widths_are_read_side_by_side_and_alone(bits: int, edges: list[int]) -> None:
    for numbers in (edges, *([number] for number in edges), *([number] * 3 for number in edges), [0, *edges[::-1]]):
        written = [encode_varint(number) for number in numbers]
        ends = np.cumsum([len(each) for each in written])
        starts = ends - [len(each) for each in written]
        for padding in range(5):
            found, after = read_varints(octets(b"".join(written) + b"\xff" * padding), starts, bits)
            assert found.tolist() == numbers
            assert after.tolist() == ends.tolist()


Read = Callable[[bytes, int], tuple[int, int]]


@pytest.mark.parametrize(("bits", "read"), [(32, read_varint), (64, read_varlong)])
@pytest.mark.parametrize("first", [b"", b"\x80", b"\xff"])
def test_what_is_too_large_is_refused_where_a_single_one_is(bits: int, read: Read, first: bytes) -> None:
    for last in range(256):
        data = first * (bits // 7) + bytes([last]) + b"\x01" + bytes(8)
        try:
            expected = read(data, 0)
        except CorruptBatchError:
            for positions in ([0], [0, len(data) - 1]):
                with pytest.raises(CorruptBatchError, match=f"{bits} bits"):
                    read_varints(octets(data), np.array(positions), bits)
        else:
            for positions in ([0], [0, len(data) - 1]):
                found, after = read_varints(octets(data), np.array(positions), bits)
                assert (int(found[0]), int(after[0])) == expected


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_a_number_that_is_cut_off_is_an_index_error(size: int) -> None:
    written = encode_varint([0, 64, 8192, 2**20, 2**27][size - 1])
    assert len(written) == size
    for cut in range(size):
        with pytest.raises(IndexError):
            read_varints(octets(written[:cut]), np.zeros(1, np.int64), 32)


def test_no_numbers_are_read() -> None:
    found, after = read_varints(octets(bytes(8)), np.zeros(0, np.int64), 32)
    assert (len(found), len(after)) == (0, 0)
