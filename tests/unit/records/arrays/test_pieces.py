"""Many pieces copied at once are what a loop copies one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records.arrays.pieces import copy_pieces

SOURCE = np.random.default_rng(7).integers(0, 256, 8_000, np.uint8)


def copied(starts: list[int], sizes: list[int], gaps: list[int]) -> tuple[bytes, bytes]:
    """Into memory with a gap before each piece, by our code and by a loop."""
    places, end, expected = [], 0, b""
    for start, size, gap in zip(starts, sizes, gaps, strict=True):
        places.append(end + gap)
        end += gap + size
        expected += bytes(gap) + SOURCE[start : start + size].tobytes()
    target = np.zeros(end, np.uint8)
    copy_pieces(SOURCE, *(np.array(column, np.int64) for column in (starts, sizes)), target, np.array(places, np.int64))
    return target.tobytes(), expected


pieces = st.lists(st.tuples(st.integers(0, 3_800), st.integers(1, 200), st.integers(0, 3)), max_size=100)


@given(pieces)
def test_any_pieces(wanted: list[tuple[int, int, int]]) -> None:
    starts, sizes, gaps = ([piece[field] for piece in wanted] for field in range(3))
    found, expected = copied(starts, sizes, gaps)
    assert found == expected


@pytest.mark.parametrize("kinds", [1, 2, 32, 33, 90])
@pytest.mark.parametrize("gap", [0, 1])
def test_neighbours_of_few_sizes_or_many(kinds: int, gap: int) -> None:
    """Those that lie side by side, and those that another lies between."""
    sizes = [1 + number % kinds for number in range(120)]
    starts = np.cumsum(np.array(sizes) + gap) - sizes - gap
    found, expected = copied(starts.tolist(), sizes, [0] * 120)
    assert found == expected


def test_no_pieces() -> None:
    target = np.zeros(3, np.uint8)
    nothing = np.zeros(0, np.int64)
    copy_pieces(SOURCE, nothing, nothing, target, nothing)
    assert not target.any()
