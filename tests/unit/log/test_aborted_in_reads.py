"""The aborted transactions a reader is told of with what it reads: none too few, and not those of the whole log."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.partition_log import Origin, PartitionLog
from ottla.records.batch import iter_headers
from ottla.records.control import end_transaction_marker
from tests.unit.log.samples import FRESH_LOG, NOW_MS, MakeLog, idempotent, slice_bytes

INTERVAL_BYTES = 200
STEPS = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from(["write", "write", "abort", "abort", "commit", "roll"])),
    min_size=40,
    max_size=120,
)


def write(log: PartitionLog, producer_id: int, sequence: int) -> None:
    records = idempotent(sequence, producer_id=producer_id, transactional=True)
    log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)


def end(log: PartitionLog, producer_id: int, *, commit: bool) -> None:
    marker = memoryview(bytearray(end_transaction_marker(producer_id, 0, commit, 0, NOW_MS)))
    log.append_as_leader(marker, leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)


def aborted_alternately(log: PartitionLog, count: int) -> None:
    for number in range(count):
        write(log, 7, number)
        end(log, 7, commit=False)
    log.advance_high_watermark(log.log_end_offset)


def end_of_whole_batches(data: bytes) -> int:
    return max((header.next_offset for _, header in iter_headers(data)), default=0)


@settings(max_examples=60, suppress_health_check=FRESH_LOG)
@given(STEPS, st.data())
def test_whoever_reads_is_told_of_every_aborted_record_it_gets(
    make_log: MakeLog, steps: list[tuple[int, str]], data: st.DataObject
) -> None:
    log = make_log(index_interval_bytes=INTERVAL_BYTES)
    sequences = dict.fromkeys(range(1, 4), 0)
    for producer_id, step in steps:
        if step == "write":
            write(log, producer_id, sequences[producer_id])
            sequences[producer_id] += 1
        elif step == "roll":
            log.roll(now_ms=NOW_MS)
        elif sequences[producer_id]:
            end(log, producer_id, commit=step == "commit")
    log.advance_high_watermark(log.log_end_offset)
    end_offset = log.last_stable_offset
    every = log.aborted_transactions(0, end_offset)
    for offset in range(0, end_offset, 3):
        found = log.read(offset, data.draw(st.integers(1, 2000)), end_offset=end_offset)
        told = log.aborted_in(found, end_offset)
        needed = log.aborted_transactions(offset, end_of_whole_batches(slice_bytes(found.data)))
        assert set(needed) <= set(told) <= set(every)


def test_a_short_read_is_not_told_of_the_whole_log(make_log: MakeLog) -> None:
    log = make_log(index_interval_bytes=INTERVAL_BYTES)
    aborted_alternately(log, 500)
    for offset in (0, 300, 800):
        found = log.read(offset, 1000, end_offset=log.log_end_offset)
        told = log.aborted_in(found, log.log_end_offset)
        batches = list(iter_headers(slice_bytes(found.data)))
        assert len(batches) // 2 <= len(told) <= len(batches) // 2 + 5
    everything = log.read(0, 1 << 20, end_offset=log.log_end_offset)
    assert len(log.aborted_in(everything, log.log_end_offset)) == 500


@pytest.mark.parametrize("damage", [b"\0\0\0\2", b"\0\0\0\x7f"])
def test_a_damaged_index_hides_nothing(make_log: MakeLog, damage: bytes) -> None:
    log = make_log(index_interval_bytes=INTERVAL_BYTES)
    aborted_alternately(log, 100)
    found = log.read(100, 1000, end_offset=log.log_end_offset)
    assert found.data is not None
    index = log.segments.active.offset_index
    entry = index.first_at_or_after(found.data.position + found.data.length)
    assert entry is not None
    number = next(n for n in range(index.entry_count) if index.entry(n) == entry)
    index.entries()[number * 8 : number * 8 + 4] = damage  # type: ignore[index]
    told = log.aborted_in(found, log.log_end_offset)
    assert set(log.aborted_transactions(100, end_of_whole_batches(slice_bytes(found.data)))) <= set(told)


def test_nothing_read_nothing_told(make_log: MakeLog) -> None:
    log = make_log()
    aborted_alternately(log, 30)
    at_end = log.read(log.log_end_offset, 1000, end_offset=log.log_end_offset)
    assert log.aborted_in(at_end, log.log_end_offset) == []
