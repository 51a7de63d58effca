"""Walks over the batches of a file: where they end up, what they do not believe, and what may be at a place."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from ottla.base.errors import CorruptBatchError
from ottla.log import file_walk
from ottla.log.file import LogFile
from ottla.log.file_walk import begins_with_batch, iter_file, walk_to
from ottla.records.batch import HEADER_SIZE
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


# -- walks -------------------------------------------------------------------------------------------------------


def batch(base_offset: int, count: int = 1, value_bytes: int = 1) -> bytes:
    return build_batch([(None, b"v" * value_bytes, (), 0)] * count, base_offset=base_offset)


# The third one is larger than what is read at once, and offsets have a gap before the fourth.
BATCHES = [batch(10, 3), batch(13), batch(14, 2, value_bytes=500), batch(20, 2), batch(22)]
POSITIONS = [sum(map(len, BATCHES[:number])) for number in range(len(BATCHES) + 1)]
SIZE = POSITIONS[-1]
TAIL = b"x" * 300


@pytest.fixture(params=[HEADER_SIZE, 100, 8192])
def file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LogFile:
    """The batches, with something else behind their end, read in pieces of several sizes."""
    monkeypatch.setattr(file_walk, "_WALK_BYTES", request.param)
    monkeypatch.setattr(file_walk, "_SCAN_BYTES", request.param)
    file = LogFile.create(tmp_path / "f.log")
    file.write_at(0, b"".join(BATCHES) + TAIL)
    return file


def test_a_walk_ends_at_the_first_batch_that_reaches_an_offset(file: LogFile) -> None:
    numbers = {0: 0, 10: 0, 12: 0, 13: 1, 14: 2, 15: 2, 16: 3, 21: 3, 22: 4, 23: 5}
    for offset, number in numbers.items():
        for start in range(number + 1):
            assert walk_to(file, POSITIONS[start], SIZE, offset) == POSITIONS[number]
        assert walk_to(file, SIZE, SIZE, offset) == SIZE


def test_a_walk_goes_no_further_than_the_data(file: LogFile) -> None:
    for position in POSITIONS:
        assert walk_to(file, 0, position, 99) == position


@pytest.mark.parametrize("missing", [1, 10])
def test_data_that_ends_inside_a_batch_is_corrupt(file: LogFile, missing: int) -> None:
    with pytest.raises(CorruptBatchError) as raised:
        walk_to(file, 0, SIZE - missing, 99)
    assert raised.value.message == f"{file.path} ends inside a batch"
    assert walk_to(file, 0, SIZE - missing, 22) == POSITIONS[4], "nobody has to look that far"


@pytest.mark.parametrize("left", [1, 26])
def test_a_file_that_ends_inside_a_header_is_corrupt(file: LogFile, left: int) -> None:
    file.truncate(POSITIONS[4] + left)
    with pytest.raises(CorruptBatchError) as raised:
        walk_to(file, 0, SIZE, 99)
    assert raised.value.message == f"{file.path} ends inside the batch at position {POSITIONS[4]}"


def test_what_lies_at_the_beginning_is_checked_once_before_it_is_believed(file: LogFile) -> None:
    seen: list[bytes] = []
    assert walk_to(file, POSITIONS[1], SIZE, 22, seen.append) == POSITIONS[4]
    (found,) = seen
    assert found.startswith(BATCHES[1][:HEADER_SIZE])
    file.write_at(POSITIONS[1] + _MAGIC_AT, b"\1")

    def objects(_: bytes) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        walk_to(file, POSITIONS[1], SIZE, 22, objects)


@pytest.mark.parametrize(
    ("at", "value"), [(_MAGIC_AT, b"\1"), (_MAGIC_AT, b"\3"), (_LENGTH_AT, b"\0\0\0\x30"), (_LENGTH_AT, b"\xff" * 4)]
)
def test_what_is_no_batch_ends_a_walk(file: LogFile, at: int, value: bytes) -> None:
    file.write_at(POSITIONS[3] + at, value)
    words = f"{file.path} holds no batch at position {POSITIONS[3]}"
    with pytest.raises(CorruptBatchError, match=re.escape(words)):
        walk_to(file, 0, SIZE, 22)
    assert walk_to(file, 0, SIZE, 15) == POSITIONS[2]
    walked = iter_file(file, 0, SIZE)
    assert [next(walked)[0] for _ in range(3)] == POSITIONS[:3]
    with pytest.raises(CorruptBatchError, match=re.escape(words)):
        next(walked)


def test_a_batch_of_a_header_alone_is_one(file: LogFile) -> None:
    alone = bytearray(batch(30)[:HEADER_SIZE])
    alone[_LENGTH_AT : _LENGTH_AT + 4] = (HEADER_SIZE - 12).to_bytes(4, "big")
    file.write_at(SIZE, bytes(alone) + batch(31))
    size = SIZE + HEADER_SIZE + len(batch(31))
    assert [header.base_offset for _, header in iter_file(file, 0, size)] == [10, 13, 14, 20, 22, 30, 31]
    assert walk_to(file, 0, size, 31) == SIZE + HEADER_SIZE


def test_headers_come_with_their_positions(file: LogFile) -> None:
    offsets = [10, 13, 14, 20, 22]
    for first, last in itertools.product(range(6), repeat=2):
        found = iter_file(file, POSITIONS[first], POSITIONS[last])
        assert [(position, header.base_offset, header.size) for position, header in found] == [
            (POSITIONS[number], offsets[number], len(BATCHES[number])) for number in range(first, last)
        ]


@pytest.mark.parametrize(
    "size", [SIZE - 1, POSITIONS[4] + HEADER_SIZE, POSITIONS[4] + HEADER_SIZE - 1, POSITIONS[4] + 1]
)
def test_no_header_is_given_of_a_batch_that_is_cut(file: LogFile, size: int) -> None:
    walked = iter_file(file, POSITIONS[3], size)
    assert next(walked)[0] == POSITIONS[3]
    with pytest.raises(CorruptBatchError) as raised:
        next(walked)
    assert raised.value.message == f"{file.path} ends inside the batch at position {POSITIONS[4]}"
