"""What is written of a chunk: in as few pieces as can be, and with as little for the indexes as gives the same ones."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.cleaning.chunks import Chunk, ChunkReader
from ottla.log.cleaning.pass_plan import Counts
from ottla.log.cleaning.rewriting import emptied
from ottla.log.cleaning.written import Written
from ottla.log.config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.segment import Segment
from ottla.records.batch import HEADER_SIZE
from tests.unit.log.samples import FRESH_LOG, NOW_MS, MakeLog, append


def chunk_of(log: PartitionLog) -> Chunk:
    (chunk,) = ChunkReader(0).read(log.segments.active)
    return chunk


@pytest.fixture
def five(make_log: MakeLog) -> Chunk:
    """Batches of 1 to 5 records."""
    log = make_log()
    for count in range(1, 6):
        append(log, *[b"v"] * count)
    return chunk_of(log)


def bytes_of(chunk: Chunk, *numbers: int) -> bytes:
    return b"".join(bytes(chunk.bytes_of(number)) for number in numbers)


@pytest.mark.parametrize(
    ("dropped", "pieces"),
    [
        ([], [[0, 1, 2, 3, 4]]),
        ([0], [[1, 2, 3, 4]]),
        ([4], [[0, 1, 2, 3]]),
        ([2], [[0, 1], [3, 4]]),
        ([1, 3], [[0], [2], [4]]),
        ([1, 2], [[0], [3, 4]]),
        ([0, 1, 2, 3, 4], []),
    ],
)
def test_neighbours_are_one_piece(five: Chunk, dropped: list[int], pieces: list[list[int]]) -> None:
    written, counts = Written(five), Counts()
    written.drop(np.array(dropped, np.int64))
    written.finish(counts)
    assert [bytes(piece) for piece in written.pieces] == [bytes_of(five, *numbers) for numbers in pieces]
    assert written.size == sum(map(len, written.pieces))
    kept = [number for numbers in pieces for number in numbers]
    assert counts == Counts(
        records_before=15,
        records_after=sum(number + 1 for number in kept),
        bytes_before=len(five.view),
        bytes_after=written.size,
    )


def test_what_was_dropped_may_be_kept_after_all_and_in_another_form(five: Chunk) -> None:
    written, counts = Written(five), Counts(0, 100, 100, 100, 100)
    written.drop(np.array([1, 3]))
    written.keep(3)
    written.replace(np.array([3]), emptied(five.headers.header(3)))
    written.finish(counts)
    header = bytes(emptied(five.headers.header(3)).data)
    assert [bytes(piece) for piece in written.pieces] == [
        bytes_of(five, 0),
        bytes_of(five, 2),
        header,
        bytes_of(five, 4),
    ]
    assert written.size == len(bytes_of(five, 0, 2, 4)) + HEADER_SIZE
    assert counts == Counts(0, 115, 109, 100 + len(five.view), 100 + written.size)


class Wanted(NamedTuple):
    """A batch of a log, and whether it stays."""

    values: int
    timestamp: int
    stays: bool


@settings(max_examples=80, deadline=None, suppress_health_check=FRESH_LOG)
@given(
    st.lists(
        st.lists(
            st.builds(Wanted, st.integers(1, 4), st.integers(-1, 6), st.sampled_from([True, True, False])),
            min_size=1,
            max_size=12,
        ),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from([0, 70, 71, 150, 4096]),
)
def test_the_indexes_are_those_that_appending_would_have_made(
    make_log: MakeLog, tmp_path_factory: pytest.TempPathFactory, chunks: list[list[Wanted]], interval_bytes: int
) -> None:
    directory = tmp_path_factory.mktemp("written")
    config = LogConfig(index_interval_bytes=interval_bytes, segment_index_bytes=4096)
    cleaned, appended = (new_segment(directory / name, config) for name in ("cleaned", "appended"))
    first_offset = 0
    for batches in chunks:
        log = make_log(segment_ms=1 << 40)
        log.skip_to(first_offset, now_ms=NOW_MS)
        for wanted in batches:
            append(log, *[b"v"] * wanted.values, timestamp=wanted.timestamp)
        first_offset = log.log_end_offset
        chunk = chunk_of(log)
        written = Written(chunk)
        stays = np.array([wanted.stays for wanted in batches])
        written.drop(~stays)
        written.finish(Counts())
        if written.pieces:
            noted = written.batches_to_note(cleaned)
            assert noted == sorted(set(noted))
            cleaned.append_all(written.pieces, noted, cleaned.size + written.size)
        for number in np.flatnonzero(stays).tolist():
            header = chunk.headers.header(number)
            appended.append(chunk.bytes_of(number), header.last_offset, header.max_timestamp)
    assert files_of(cleaned) == files_of(appended)
    assert (cleaned.max_timestamp, cleaned.offset_of_max_timestamp) == (
        appended.max_timestamp,
        appended.offset_of_max_timestamp,
    )


def new_segment(directory: Path, config: LogConfig) -> Segment:
    directory.mkdir()
    return Segment.create(directory, 0, config, now_ms=NOW_MS)


def files_of(segment: Segment) -> dict[str, bytes]:
    segment.seal()
    return {path.name: path.read_bytes() for path in segment.directory.iterdir()}


def test_of_many_batches_only_those_are_noted_that_an_index_needs(make_log: MakeLog, tmp_path: Path) -> None:
    log = make_log()
    for number in range(20):
        append(log, b"v", timestamp=NOW_MS - number)
    written = Written(chunk_of(log))
    written.finish(Counts())
    size = written.size // 20
    segment = new_segment(tmp_path / "s", LogConfig(index_interval_bytes=9 * size, segment_index_bytes=4096))
    assert [position // size for position, _, _ in written.batches_to_note(segment)] == [0, 10]
