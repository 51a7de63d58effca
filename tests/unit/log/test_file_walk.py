"""Whether what was read at some place of a file begins with a batch that may be there."""

from __future__ import annotations

import pytest

from ottla.log.file_walk import begins_with_batch
from ottla.records.builder import build_batch

BATCH = bytes(build_batch([(None, b"v", (), 0)], base_offset=7))
_LENGTH_AT, _MAGIC_AT, _WALKED = 8, 16, 27


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [(7, 7, True), (0, 9, True), (7, 9, True), (0, 7, True), (8, 9, False), (0, 6, False)],
)
def test_a_batch_begins_within_a_range_of_offsets(first: int, last: int, expected: bool) -> None:
    assert begins_with_batch(BATCH, first, last) is expected


@pytest.mark.parametrize("size", [0, 1, _WALKED - 1])
def test_less_than_the_beginning_of_a_batch_is_none(size: int) -> None:
    assert begins_with_batch(BATCH[:size], 0, 9) is False
    assert begins_with_batch(BATCH[:_WALKED], 0, 9) is True


def test_another_format_is_no_batch() -> None:
    older = bytearray(BATCH)
    older[_MAGIC_AT] = 1
    assert begins_with_batch(bytes(older), 0, 9) is False


@pytest.mark.parametrize(("length", "expected"), [(49, True), (48, False), (0, False), (-1, False)])
def test_a_batch_is_as_long_as_its_header(length: int, expected: bool) -> None:
    changed = bytearray(BATCH)
    changed[_LENGTH_AT : _LENGTH_AT + 4] = length.to_bytes(4, "big", signed=True)
    assert begins_with_batch(bytes(changed), 0, 9) is expected
