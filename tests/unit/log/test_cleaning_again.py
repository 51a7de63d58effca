"""What a pass makes of batches that an earlier one has left: gaps, horizons, headers alone, markers."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from ottla.log.partition_log import Origin, PartitionLog
from ottla.records.batch import BatchHeader, iter_headers
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.control import end_transaction_marker
from ottla.records.reader import read_records
from tests.unit.log.cleaning_passes import clean
from tests.unit.log.samples import NOW_MS, MakeLog

HOUR_MS = 3_600_000
COMPACT: dict[str, Any] = {"cleanup_policy": frozenset({"compact"}), "delete_retention_ms": HOUR_MS}


class Left(NamedTuple):
    """A batch of a log: its offsets, records and horizon."""

    base_offset: int
    last_offset: int
    records: list[tuple[int, bytes, bytes | None]]
    horizon_ms: int | None = None


def write(log: PartitionLog, *records: tuple[bytes, bytes | None], codec: Codec = Codec.NONE, **fields: Any) -> None:
    rows = [(key, value, (), NOW_MS + number) for number, (key, value) in enumerate(records)]
    data = memoryview(bytearray(build_batch(rows, codec=codec, **fields)))
    log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)


def end(log: PartitionLog, producer_id: int, *, commit: bool) -> None:
    data = memoryview(bytearray(end_transaction_marker(producer_id, 0, commit, 0, NOW_MS)))
    log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)


def headers(log: PartitionLog) -> list[tuple[bytes, BatchHeader]]:
    """Of the closed segments."""
    found = []
    for segment in log.segments.all()[:-1]:
        data = segment.log.read_at(0, segment.size)
        found += [(data[position : position + header.size], header) for position, header in iter_headers(data)]
    return found


def left(log: PartitionLog) -> list[Left]:
    return [
        Left(
            header.base_offset,
            header.last_offset,
            [] if header.is_control else [(r.offset, r.key or b"", r.value) for r in read_records(data)],
            header.delete_horizon_ms,
        )
        for data, header in headers(log)
    ]


def compacted(log: PartitionLog, now_ms: int = NOW_MS, *, afresh: bool = False) -> list[Left]:
    """What is left once all that was written is closed and cleaned; `afresh` as after the loss of the checkpoint."""
    log.roll(now_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    if afresh:
        log.clean_offset = -1
    assert clean(log, now_ms) is not None
    return left(log)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_batches_with_gaps_are_looked_into_afresh(make_log: MakeLog, codec: Codec) -> None:
    log = make_log(**COMPACT)
    write(log, (b"skipped", b"0"))
    write(log, (b"a", b"1"), (b"b", b"2"), (b"c", None), (b"d", b"4"), (b"e", b"5"), codec=codec)
    write(log, (b"b", b"6"), (b"f", b"7"), (b"g", None), (b"h", b"8"), codec=codec)
    write(log, (b"skipped", b"9"), (b"f", b"10"))
    horizon_ms = NOW_MS + HOUR_MS
    assert compacted(log) == [
        Left(1, 5, [(1, b"a", b"1"), (3, b"c", None), (4, b"d", b"4"), (5, b"e", b"5")], horizon_ms),
        Left(6, 9, [(6, b"b", b"6"), (8, b"g", None), (9, b"h", b"8")], horizon_ms),
        Left(10, 11, [(10, b"skipped", b"9"), (11, b"f", b"10")]),
    ]
    write(log, (b"d", b"12"), (b"h", None))
    later_ms = NOW_MS + 600_000
    assert compacted(log, later_ms, afresh=True) == [
        Left(1, 5, [(1, b"a", b"1"), (3, b"c", None), (5, b"e", b"5")], horizon_ms),
        Left(6, 9, [(6, b"b", b"6"), (8, b"g", None)], horizon_ms),
        Left(10, 11, [(10, b"skipped", b"9"), (11, b"f", b"10")]),
        Left(12, 13, [(12, b"d", b"12"), (13, b"h", None)], later_ms + HOUR_MS),
    ]


@pytest.mark.parametrize(("after_ms", "is_left"), [(-1, True), (0, False)])
def test_tombstones_go_at_their_horizon_and_no_sooner(make_log: MakeLog, after_ms: int, is_left: bool) -> None:
    log = make_log(**COMPACT)
    write(log, (b"a", b"1"), (b"b", None))
    write(log, (b"c", None))
    write(log, (b"d", b"4"))
    horizon_ms = NOW_MS + HOUR_MS
    compacted(log)
    write(log, (b"z", b"5"))
    tombstones = [Left(0, 1, [(0, b"a", b"1"), (1, b"b", None)], horizon_ms), Left(2, 2, [(2, b"c", None)], horizon_ms)]
    rest = [Left(3, 3, [(3, b"d", b"4")]), Left(4, 4, [(4, b"z", b"5")])]
    expected = [*tombstones, *rest] if is_left else [Left(0, 1, [(0, b"a", b"1")], horizon_ms), *rest]
    assert compacted(log, horizon_ms + after_ms) == expected


def test_what_is_older_than_a_record_of_the_clean_part_is_not_newer(make_log: MakeLog) -> None:
    """Of the clean part that record of a key stays that the dirty part does not have."""
    log = make_log(**COMPACT)
    write(log, (b"a", b"1"), (b"b", b"2"), (b"c", b"3"))
    write(log, (b"d", b"4"))
    assert compacted(log) == [
        Left(0, 2, [(0, b"a", b"1"), (1, b"b", b"2"), (2, b"c", b"3")]),
        Left(3, 3, [(3, b"d", b"4")]),
    ]
    write(log, (b"b", b"5"), (b"d", b"6"))
    assert compacted(log) == [
        Left(0, 2, [(0, b"a", b"1"), (2, b"c", b"3")]),
        Left(4, 5, [(4, b"b", b"5"), (5, b"d", b"6")]),
    ]


def test_the_last_batch_of_a_producer_is_left_as_a_header_and_stays_so(make_log: MakeLog) -> None:
    log = make_log(producer_id_expiration_ms=10 * HOUR_MS, **COMPACT)
    for sequence in range(2):
        write(log, (b"a", b"1"), (b"a", b"2"), producer_id=5, producer_epoch=3, base_sequence=2 * sequence)
    write(log, (b"a", b"3"))
    assert compacted(log) == [Left(2, 3, []), Left(4, 4, [(4, b"a", b"3")])]
    ((_, header), _) = headers(log)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (5, 3, 2, 3)
    write(log, (b"b", b"4"))
    rest = [Left(4, 4, [(4, b"a", b"3")]), Left(5, 5, [(5, b"b", b"4")])]
    for afresh in (False, True):
        again = compacted(log, NOW_MS + 10 * HOUR_MS, afresh=afresh)
        assert again[:3] == [Left(2, 3, []), *rest]
        write(log, (b"c", b"5"))
    assert compacted(log, NOW_MS + 10 * HOUR_MS + 2)[:2] == rest, "nobody knows the producer any more"


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_of_which_nothing_is_left_goes_at_its_horizon(make_log: MakeLog, commit: bool) -> None:
    log = make_log(producer_id_expiration_ms=1, **COMPACT)
    write(log, (b"a", b"1"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    end(log, 5, commit=commit)
    write(log, (b"a", b"2"))
    horizon_ms = NOW_MS + 10 + HOUR_MS
    # When a pass begins there is still a record that the marker ends: it is the next pass that finds it of no use.
    assert compacted(log, NOW_MS + 10) == [Left(1, 1, []), Left(2, 2, [(2, b"a", b"2")])]
    write(log, (b"b", b"3"))
    assert compacted(log, NOW_MS + 10) == [
        Left(1, 1, [], horizon_ms),
        Left(2, 2, [(2, b"a", b"2")]),
        Left(3, 3, [(3, b"b", b"3")]),
    ]
    write(log, (b"c", b"4"))
    assert compacted(log, horizon_ms - 1)[0] == Left(1, 1, [], horizon_ms)
    write(log, (b"d", b"5"))
    assert compacted(log, horizon_ms)[0] == Left(2, 2, [(2, b"a", b"2")])
