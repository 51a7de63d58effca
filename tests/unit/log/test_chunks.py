"""Segments in pieces of whole batches, also where a batch is larger than a piece or the segment ends within one."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from ottla.base.errors import CorruptBatchError
from ottla.log.cleaning import chunks
from ottla.log.cleaning.chunks import ChunkReader
from ottla.log.file import LogFile
from ottla.log.offset_index import OffsetIndex
from ottla.records.batch import HEADER_SIZE
from tests.unit.log.samples import MakeLog, append


class Part(NamedTuple):
    """A segment as far as its first `size` bytes."""

    log: LogFile
    size: int
    offset_index: OffsetIndex


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "_MIN_BYTES", 200)


def sizes_read(part: Part) -> list[int]:
    return [int(size) for chunk in ChunkReader(0).read(part) for size in chunk.headers.sizes]  # type: ignore[arg-type]


def part_of(make_log: MakeLog, *value_bytes: int) -> Part:
    log = make_log()
    for size in value_bytes:
        append(log, b"x" * size)
    active = log.segments.active
    return Part(active.log, active.size, active.offset_index)


def test_a_batch_that_is_larger_than_a_piece_gets_a_larger_one(make_log: MakeLog) -> None:
    part = part_of(make_log, 10, 500, 10, 3_000, 10)
    sizes = sizes_read(part)
    assert len(sizes) == 5
    assert sum(sizes) == part.size


@pytest.mark.parametrize(("large", "missing"), [(500, 1), (500, 100), (500, 300), (90, 1), (90, 100)])
def test_a_segment_that_ends_within_a_batch_is_corrupt(make_log: MakeLog, large: int, missing: int) -> None:
    part = part_of(make_log, 10, large)
    first, _ = sizes_read(part)
    cut = part._replace(size=part.size - missing)
    with pytest.raises(CorruptBatchError, match=f"ends inside the batch at position {first}|from position {first} on"):
        sizes_read(cut)


@pytest.mark.parametrize("left", [1, HEADER_SIZE - 1, HEADER_SIZE])
def test_a_segment_whose_file_ends_within_a_header_is_corrupt(make_log: MakeLog, left: int) -> None:
    part = part_of(make_log, 10, 500)
    first, _ = sizes_read(part)
    part.log.truncate(first + left)
    with pytest.raises(CorruptBatchError):
        sizes_read(part._replace(size=first + left))
