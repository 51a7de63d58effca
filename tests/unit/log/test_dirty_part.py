"""The first look of a pass: which records are the newest of their keys, of which part, and how far the memory goes."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.log.cleaning.chunks import ChunkReader
from ottla.log.cleaning.dirty_part import DirtyPart, OutOfMemoryError
from ottla.log.cleaning.offset_map import OffsetMap
from ottla.log.cleaning.pass_plan import Source
from ottla.log.partition_log import PartitionLog
from ottla.log.transaction_index import AbortedTransaction
from ottla.records.builder import build_batch
from ottla.records.control import end_transaction_marker
from tests.unit.log.cleaning_passes import rewritten
from tests.unit.log.samples import NOW_MS, MakeLog

Row = tuple[bytes | None, bytes | None]


def put(log: PartitionLog, *rows: Row, **fields: Any) -> None:
    records = [(key, value, (), NOW_MS) for key, value in rows]
    data = build_batch(records, base_offset=log.log_end_offset, partition_leader_epoch=0, **fields)
    log.append_as_follower(memoryview(bytearray(data)), now_ms=NOW_MS)


def put_header_alone(log: PartitionLog) -> None:
    data = build_batch([(b"gone", b"v", (), NOW_MS)], base_offset=log.log_end_offset, partition_leader_epoch=0)
    log.append_as_follower(memoryview(bytearray(rewritten(data, []))), now_ms=NOW_MS)


def put_marker(log: PartitionLog, *, commit: bool) -> None:
    data = end_transaction_marker(7, 0, commit, 0, NOW_MS, base_offset=log.log_end_offset)
    log.append_as_follower(memoryview(bytearray(data)), now_ms=NOW_MS)


def looked_at(
    log: PartitionLog, start_offset: int = 0, *, room: int = 1_000, aborted: tuple[AbortedTransaction, ...] = ()
) -> tuple[DirtyPart, list[int]]:
    """The dirty part from an offset on, and how many bytes were read each time."""
    newest = OffsetMap(1 << 16, 0.5, room)
    newest._keys_max = min(room, newest._keys_max)
    dirty = DirtyPart(newest, start_offset, aborted)
    assert (dirty.start_offset, dirty.end_offset, dirty.keyless) == (start_offset, start_offset, 0)
    segments = log.segments
    sources = [Source(each, segments.end_of(n, log.log_end_offset)) for n, each in enumerate(segments.all())]
    told: list[int] = []
    dirty.read([source for source in sources if source.end_offset > start_offset], ChunkReader(0), told.append)
    return dirty, told


def entries(dirty: DirtyPart) -> list[tuple[int, bool]]:
    """Offsets of the newest records, and whether they are tombstones."""
    return [(entry >> 1, bool(entry & 1)) for entry in dirty.newest.sorted_entries().tolist()]


def test_the_newest_record_of_each_key(make_log: MakeLog) -> None:
    log = make_log()
    put(log, (b"a", b"1"), (b"b", None), (b"c", b"3"))
    put(log, (b"a", None), (None, b"5"), (b"d", b"6"))
    log.roll(now_ms=NOW_MS)
    put(log, (b"c", b"7"), (None, None), (b"", b"9"))
    dirty, told = looked_at(log)
    assert entries(dirty) == [(1, True), (3, True), (5, False), (6, False), (8, False)]
    assert (dirty.keyless, dirty.end_offset, dirty.newest.key_count) == (2, 9, 5)
    assert told == [segment.size for segment in log.segments.all()]


@pytest.mark.parametrize(
    ("start_offset", "expected", "keyless"),
    [
        (0, [(5, False), (6, False), (8, False), (9, False)], 2),
        (1, [(5, False), (6, False), (8, False), (9, False)], 2),
        (4, [(5, False), (6, False), (8, False), (9, False)], 2),
        (5, [(5, False), (6, False), (8, False), (9, False)], 1),
        (6, [(6, False), (8, False), (9, False)], 1),
        (8, [(8, False), (9, False)], 0),
        (9, [(9, False)], 0),
    ],
)
def test_what_lies_before_the_dirty_part_is_not_looked_at(
    make_log: MakeLog, start_offset: int, expected: list[tuple[int, bool]], keyless: int
) -> None:
    """A batch that reaches into it is, but of its records only those that lie there."""
    log = make_log()
    put(log, (b"a", b"0"), (b"b", b"1"))
    put_header_alone(log)
    put(log, (b"b", b"3"), (None, b"4"))
    put(log, (b"b", b"5"), (b"a", b"6"), (None, b"7"))
    put(log, (b"c", b"8"))
    put(log, (b"d", b"9"))
    dirty, _ = looked_at(log, start_offset)
    assert (entries(dirty), dirty.keyless, dirty.end_offset) == (expected, keyless, 10)


def test_headers_alone_and_markers_have_no_keys(make_log: MakeLog) -> None:
    log = make_log()
    put_header_alone(log)
    put(log, (b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    put_marker(log, commit=True)
    put_header_alone(log)
    dirty, _ = looked_at(log)
    assert (entries(dirty), dirty.keyless, dirty.end_offset) == ([(1, False)], 0, 4)


def test_records_that_were_aborted_are_no_newer_ones(make_log: MakeLog) -> None:
    log = make_log()
    put(log, (b"a", b"0"), (b"b", b"1"))
    put(log, (b"a", b"2"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    put_marker(log, commit=False)
    put(log, (b"b", b"4"), producer_id=7, producer_epoch=0, base_sequence=1, transactional=True)
    put_marker(log, commit=True)
    aborted = (AbortedTransaction(7, 2, 3, 4),)
    assert entries(looked_at(log, aborted=aborted)[0]) == [(0, False), (4, False)]
    assert entries(looked_at(log)[0]) == [(2, False), (4, False)]
    assert entries(looked_at(log, 2, aborted=aborted)[0]) == [(4, False)]


@pytest.mark.parametrize(
    ("room", "end_offset", "expected"),
    [
        (2, 2, [0, 1]),
        (3, 4, [1, 2, 3]),
        (4, 9, [3, 4, 5, 8]),
        (5, 12, [3, 4, 5, 8, 11]),
        (6, 14, [3, 4, 5, 8, 12, 13]),
        (99, 14, [3, 4, 5, 8, 12, 13]),
    ],
)
def test_a_batch_is_taken_as_a_whole_or_not_at_all(
    make_log: MakeLog, room: int, end_offset: int, expected: list[int]
) -> None:
    log = make_log()
    put(log, (b"a", b"0"), (b"b", b"1"))
    put(log, (b"a", b"2"), (b"c", b"3"))
    put(log, (b"b", b"4"), (b"a", b"5"), (b"d", b"6"), (b"d", b"7"), (b"d", b"8"))
    put(log, (b"e", b"9"), (b"e", b"10"), (b"e", b"11"))
    log.roll(now_ms=NOW_MS)
    put(log, (b"e", b"12"), (b"f", b"13"))
    dirty, _ = looked_at(log, room=room)
    assert (dirty.end_offset, [offset for offset, _ in entries(dirty)]) == (end_offset, expected)


def test_one_batch_that_does_not_fit_cannot_be_cleaned(make_log: MakeLog) -> None:
    log = make_log()
    put(log, *[(b"%d" % number, b"v") for number in range(4)], (b"0", b"w"))
    with pytest.raises(OutOfMemoryError) as raised:
        looked_at(log, room=3)
    assert str(raised.value) == "the 4 keys of one batch do not go into log.cleaner.dedupe.buffer.size"
    assert entries(looked_at(log, room=4)[0]) == [(1, False), (2, False), (3, False), (4, False)]


def test_whoever_is_told_of_bytes_may_end_it(make_log: MakeLog) -> None:
    log = make_log()
    put(log, (b"a", b"0"))

    def ends(_: int) -> None:
        raise ZeroDivisionError

    dirty = DirtyPart(OffsetMap(1 << 16, 0.5, 9), 0, ())
    with pytest.raises(ZeroDivisionError):
        dirty.read([Source(log.segments.active, 1)], ChunkReader(0), ends)
    assert (dirty.newest.key_count, dirty.end_offset) == (0, 0)


def test_a_gap_before_the_next_segment_is_clean_too(make_log: MakeLog) -> None:
    log = make_log()
    put(log, (b"a", b"0"))
    log.skip_to(9, now_ms=NOW_MS)
    put(log, (b"b", b"9"), (b"c", b"10"))
    assert looked_at(log, room=1)[0].end_offset == 9
    assert looked_at(log, room=3)[0].end_offset == 11
