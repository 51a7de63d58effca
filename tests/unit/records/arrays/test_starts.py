"""Where the records of many batches start: found together where they look alike, refused where they do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ottla.base.errors import CorruptBatchError
from ottla.records.arrays import hop
from ottla.records.arrays import starts as starts_module
from ottla.records.arrays.starts import find_all_starts
from ottla.records.varint import encode_varint

Shapes = list[list[int]]


class Batches:
    """Payloads side by side, each of records of the given lengths; `apart` is what lies before each of them."""

    def __init__(self, shapes: Shapes, *, filler: int = 0, padding: int = 8, apart: int = 0) -> None:
        data = bytearray()
        self.expected: list[int] = []
        starts, ends = [], []
        for sizes in shapes:
            data += b"\xff" * apart
            starts.append(len(data))
            for size in sizes:
                self.expected.append(len(data))
                data += encode_varint(size) + bytes([filler]) * size
            ends.append(len(data))
        self.data = bytes(data)
        self.starts, self.ends = np.array(starts, np.int64), np.array(ends, np.int64)
        self.counts = np.array([len(sizes) for sizes in shapes], np.int64)
        self.padding = padding

    def find(self) -> list[int]:
        octets = np.frombuffer(self.data + bytes(self.padding), np.uint8)
        return find_all_starts(self.data, octets, self.starts, self.ends, self.counts).tolist()


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each of the batches has that are gone through one by one."""
    found: list[int] = []
    find = hop.find_starts

    def noted(buf: Any, octets: Any, start: int, end: int, starts: Any) -> None:
        found.append(len(starts))
        find(buf, octets, start, end, starts)

    monkeypatch.setattr(starts_module, "find_starts", noted)
    return found


LONG = [5] * 20


@pytest.mark.parametrize(
    ("shapes", "alone"),
    [
        ([], []),
        ([[5]], []),
        ([[], [5], []], []),
        ([[5]] * 40, []),
        ([[5, 6]] * 31, [2] * 31),
        ([[5, 6]] * 32, []),
        ([[5, 6]] * 40 + [[7, 8, 9]] * 31, [1] * 31),
        ([[5, 6]] * 40 + [[7, 8, 9]] * 32, []),
        ([LONG], [20]),
        ([LONG] * 2, [20]),
        ([LONG] * 40, [20]),
        ([[5] * 15] * 2, [15, 15]),
        ([[5] * 16] * 2, [16]),
        ([[64] * 20] * 3, [20]),
        ([[127] * 20] * 3, [20]),
        ([[128] * 20] * 3, [20]),
        ([[8_191] * 17] * 3, [17]),
        ([[8_192] * 17] * 3, [17]),
        ([[16_384] * 17] * 3, [17]),
        ([[1_048_575] + [5] * 16] * 2, [17]),
        ([[1_048_576] + [5] * 16] * 2, [17, 17]),
        ([LONG, [5] * 16, LONG, [5] * 17, LONG], [20]),
        ([LONG, [5] * 21, LONG], [21]),
        ([LONG, [6] * 20, LONG, [6] * 20], [20, 20]),
        ([LONG, [6] * 20, [7] * 20], [20, 20, 20]),
        ([[size] * 20 for size in (5, 6, 7, 8) for _ in range(2)], [20, 20, 20, 20, 20]),
        ([LONG, [1] * 3, LONG, [9], LONG], [20, 3]),
        ([[*range(1, 30)]] * 3, [29]),
        ([[5] * 10 + [4, 6] + [5] * 8, LONG, LONG], [20, 20]),
    ],
)
def test_batches_that_look_alike_are_found_together(shapes: Shapes, alone: list[int], walked: list[int]) -> None:
    for apart in (0, 61):
        for filler in (0, 1, 0x7F, 0x80, 0xFF):
            walked.clear()
            batches = Batches(shapes, filler=filler, apart=apart)
            assert batches.find() == batches.expected
            assert sorted(walked, reverse=True) == sorted(alone, reverse=True)


@pytest.mark.parametrize("padding", range(5))
@pytest.mark.parametrize("last", [0, 1, 2, 3, 4])
def test_the_last_record_may_end_with_the_buffer(last: int, padding: int) -> None:
    """Whether or not there is room for a look at four bytes where it starts."""
    for shapes in (
        [[5] * 16 + [last]] * 3,
        [[5] * 17 + [last], *[[5] * 16 + [last]] * 2],
        [[5] * 16 + [last], LONG, [5] * 16 + [last]],
    ):
        batches = Batches(shapes, padding=padding)
        assert batches.find() == batches.expected


SOME = [[5, 6, 7]] * 40
ALIKE = [LONG] * 4
OTHERS = [LONG, [5] * 10, [7] * 3]


@pytest.mark.parametrize("shapes", [SOME, ALIKE, OTHERS], ids=["in step", "alike", "one by one"])
@pytest.mark.parametrize("batch", [0, 1, -1])
@pytest.mark.parametrize("record", [0, 1, -1])
@pytest.mark.parametrize("length", [0, 4, 8, 100, 10_000])
def test_a_length_that_does_not_lead_to_the_end_is_refused(
    shapes: Shapes, batch: int, record: int, length: int
) -> None:
    batches = Batches(shapes)
    count = len(shapes[batch])
    at = batches.expected[sum(map(len, shapes[: batch % len(shapes)])) + record % count]
    data = bytearray(batches.data)
    wrong = encode_varint(length)
    data[at : at + len(wrong)] = wrong
    batches.data = bytes(data)
    with pytest.raises((CorruptBatchError, IndexError)):
        batches.find()


@pytest.mark.parametrize("batch", [0, 20, 39])
@pytest.mark.parametrize("more", [-1, 1])
def test_each_of_many_short_batches_has_to_end_where_it_should(batch: int, more: int) -> None:
    """Though the next one begins where this one ends, and has a record that leads back to its own end."""
    batches = Batches(SOME)
    batches.ends[batch] += more
    with pytest.raises(CorruptBatchError, match="do not end where"):
        batches.find()


@pytest.mark.parametrize("count", [-1, 0, 2, 4])
def test_a_batch_has_as_many_records_as_it_claims(count: int) -> None:
    for shapes in ([[5, 6, 7]], SOME):
        batches = Batches(shapes)
        batches.counts[-1] = count
        with pytest.raises((CorruptBatchError, IndexError)):
            batches.find()


def test_a_batch_without_records_may_lie_anywhere_but_must_be_empty() -> None:
    for place in (0, 1, 3):
        shapes: Shapes = [[5], [6, 7], LONG]
        shapes.insert(place, [])
        batches = Batches(shapes)
        assert batches.find() == batches.expected
        batches.ends[place] += 1
        with pytest.raises(CorruptBatchError, match="do not end where"):
            batches.find()
        batches.ends[place] -= 1
        batches.counts[place] = -1
        with pytest.raises(CorruptBatchError, match="do not end where"):
            batches.find()


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_negative_length_in_many_short_batches_is_refused(place: int) -> None:
    batches = Batches(SOME)
    data = bytearray(batches.data)
    data[batches.expected[30 + place]] = 1
    batches.data = bytes(data)
    with pytest.raises(CorruptBatchError, match="where its length says"):
        batches.find()


def test_lengths_that_are_not_negative_are_good() -> None:
    hop.check_lengths(np.array([], np.int64))
    hop.check_lengths(np.array([0, 5], np.int64))
    with pytest.raises(CorruptBatchError, match="byte -1"):
        hop.check_lengths(np.array([0, -1, 5], np.int64))
