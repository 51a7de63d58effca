"""Segments in pieces of whole batches, also where a batch is larger than a piece or the segment ends within one."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from ottla.base.errors import CorruptBatchError
from ottla.log.cleaning import chunks
from ottla.log.cleaning.chunks import ChunkReader, open_batches
from ottla.log.file import LogFile
from ottla.log.offset_index import OffsetIndex
from ottla.records.batch import HEADER_SIZE, read_header
from ottla.records.builder import encode_record
from ottla.records.compression import Codec
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


# -- pieces, and what is damaged in them -------------------------------------------------------------------------


@pytest.mark.parametrize("interval_bytes", [0, 1 << 20])
def test_pieces_are_of_whole_batches_in_their_order(make_log: MakeLog, interval_bytes: int) -> None:
    log = make_log(index_interval_bytes=interval_bytes)
    for number in range(30):
        append(log, *[b"%d" % number] * (number % 3 + 1))
    active = log.segments.active
    active.write_indexes()
    whole, position, offset = active.log.read_at(0, active.size), 0, 0
    for chunk in ChunkReader(300).read(active):
        assert chunk.path == str(active.log.path)
        assert 200 < len(chunk.view) <= 300 or position + len(chunk.view) == active.size
        taken = 0
        for number in range(len(chunk.headers)):
            data = bytes(chunk.bytes_of(number))
            header = chunk.headers.header(number)
            assert header == read_header(data) and header.base_offset == offset
            assert data == whole[position + taken : position + taken + header.size]
            taken += header.size
            offset = header.next_offset
        position += taken
    assert (position, offset) == (active.size, log.log_end_offset)


def test_what_is_appended_meanwhile_is_left_out(make_log: MakeLog) -> None:
    log = make_log()
    for _ in range(3):
        append(log)
    active = log.segments.active
    part = Part(active.log, active.size, active.offset_index)
    append(log)
    assert len(sizes_read(part)) == 3


@pytest.mark.parametrize("damage", [b"", b"\0" * 7, b"\0" * 16, b"\xff" * 16, b"\0\0\0\1\0\0\0\7" * 2])
def test_an_index_that_is_of_no_use_is_done_without(make_log: MakeLog, damage: bytes) -> None:
    log = make_log(index_interval_bytes=0)
    for _ in range(5):
        append(log)
    active = log.segments.active
    active.offset_index.path.write_bytes(damage)
    assert len(sizes_read(Part(active.log, active.size, active.offset_index))) == 5
    active.offset_index.path.unlink()
    assert len(sizes_read(Part(active.log, active.size, active.offset_index))) == 5


@pytest.mark.parametrize("records", [1, 2])
def test_batches_that_go_back_are_damage(make_log: MakeLog, records: int) -> None:
    log = make_log()
    for number in range(4):
        append(log, *[b"v"] * (records if number == 1 else 1))
    active = log.segments.active
    position = [position for position, _ in active.headers()][2]
    active.log.write_at(position, records.to_bytes(8, "big"))
    part = Part(active.log, active.size, active.offset_index)
    with pytest.raises(CorruptBatchError) as raised:
        sizes_read(part)
    assert raised.value.message == f"{active.log.path}: the batch of offset {records} follows offset {records}"


def opened(make_log: MakeLog, codec: Codec, *, spoil: tuple[int, bytes] | None = None, checked: bool = False) -> Any:
    """The second and the third of four batches, of which the third may be spoilt at a place."""
    log = make_log()
    for number in range(4):
        append(log, b"%d" % number * 30, b"x", codec=codec)
    active = log.segments.active
    if spoil is not None:
        position = [position for position, _ in active.headers()][2]
        active.log.write_at(position + spoil[0], spoil[1])
    (chunk,) = ChunkReader(10_000).read(active)
    found = open_batches(chunk, np.array([1, 2]), is_checked=checked)
    starts, ends = found.bounds(chunk.path)
    return active.log.path, found, [bytes(found.buf[a:b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_records_of_batches_that_are_opened_together(make_log: MakeLog, codec: Codec) -> None:
    path, found, records = opened(make_log, codec)
    assert [found.headers.header(row).base_offset for row in range(2)] == [2, 4]
    expected = [
        encode_record(delta, 0, b"k", value) for n in (1, 2) for delta, value in enumerate((b"%d" % n * 30, b"x"))
    ]
    assert records == expected
    layout = found.layout(str(path))
    assert layout.offsets.tolist() == [2, 3, 4, 5]
    (third,) = (found.take(np.array([1])),)
    starts, ends = third.bounds(str(path))
    assert [bytes(third.buf[a:b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)] == expected[2:]


def test_a_checksum_that_is_wrong_is_named_unless_it_was_compared_before(make_log: MakeLog) -> None:
    spoil = (HEADER_SIZE + 8, b"\x07")
    with pytest.raises(CorruptBatchError, match=r"\.log: the batch of offset 4 has a wrong checksum$"):
        opened(make_log, Codec.NONE, spoil=spoil)
    _, _, records = opened(make_log, Codec.NONE, spoil=spoil, checked=True)
    assert len(records) == 4


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_records_that_cannot_be_told_from_each_other_are_named_by_their_offsets(
    make_log: MakeLog, codec: Codec
) -> None:
    spoil = (HEADER_SIZE, b"\xff\xff\xff\xff")
    with pytest.raises(CorruptBatchError, match=r"\.log, offsets 2 to 5: .+"):
        opened(make_log, codec, spoil=spoil, checked=True)
