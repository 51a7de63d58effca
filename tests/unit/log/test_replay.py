"""Batches that are read back: which of a producer's are found again, and what control batches say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.base.errors import CorruptBatchError
from ottla.log import replay
from ottla.log.partition_log import Origin, PartitionLog
from ottla.log.producer_snapshot import ProducerEntry, StoredBatch
from ottla.log.producer_state import CompletedTransaction, ProducerStates
from ottla.log.replay import note_completed, read_end_marker, recall_batches, replay_producers
from ottla.log.segment import Segment
from ottla.records.batch import BatchHeader, read_header
from ottla.records.builder import build_batch
from ottla.records.control import end_transaction_marker
from tests.unit.log.samples import NOW_MS, MakeLog, append, idempotent


def send(log: PartitionLog, sequence: int, *, producer_id: int = 7, epoch: int = 0) -> None:
    records = idempotent(sequence, 2, producer_id=producer_id, producer_epoch=epoch, timestamp=NOW_MS + sequence)
    log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)


def stored(sequence: int, last_offset: int) -> StoredBatch:
    return StoredBatch(sequence, sequence + 1, last_offset, 1, NOW_MS + sequence)


def known(log: PartitionLog, *numbers: int) -> ProducerEntry:
    """An entry that knows only these of the producer's last batches."""
    whole = list(log.producers.entries[7].batches)
    entry = ProducerEntry(7, log.producers.entries[7].producer_epoch, lacks_earlier=True)
    entry.batches.extend(whole[number] for number in numbers)
    return entry


def test_batches_are_recalled_in_their_order_and_no_more_than_five(log: PartitionLog) -> None:
    for number in range(7):
        send(log, 2 * number)
        send(log, 2 * number, producer_id=8)
        append(log)
    whole = list(log.producers.entries[7].batches)
    assert whole == [stored(2 * number, 5 * number + 1) for number in range(2, 7)]
    for numbers in ((4,), (3, 4), (1, 2, 3, 4)):
        entry = known(log, *numbers)
        recall_batches(entry, log.segments)
        assert list(entry.batches) == whole and not entry.lacks_earlier


def test_only_batches_of_the_same_epoch_with_data_are_recalled(log: PartitionLog) -> None:
    for epoch in (0, 1):
        for number in range(2):
            records = idempotent(2 * number, 2, producer_epoch=epoch, transactional=True)
            log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)
            marker = memoryview(bytearray(end_transaction_marker(7, epoch, True, 0, NOW_MS)))
            log.append_as_leader(marker, leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)
    entry = known(log, 1)
    recall_batches(entry, log.segments)
    assert [(each.base_sequence, each.last_offset) for each in entry.batches] == [(0, 7), (2, 10)]


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """The parts of segments that are searched: base offset, start and end."""
    parts: list[tuple[int, int, int]] = []
    headers = Segment.headers

    def noted(
        segment: Segment, position: int = 0, end_position: int | None = None
    ) -> Iterator[tuple[int, BatchHeader]]:
        parts.append((segment.base_offset, position, segment.size if end_position is None else end_position))
        return headers(segment, position, end_position)

    monkeypatch.setattr(Segment, "headers", noted)
    return parts


def test_a_search_goes_back_by_steps_until_it_has_enough(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch, walked: list[tuple[int, int, int]]
) -> None:
    log = make_log(index_interval_bytes=0)
    for number in range(12):
        send(log, 2 * number)
        if number in (3, 7):
            log.roll(now_ms=NOW_MS)
    size = log.segments.first.size // 4
    monkeypatch.setattr(replay, "_LOOK_BACK_STEP_BYTES", size)
    walked.clear()
    entry = known(log, 3, 4)
    recall_batches(entry, log.segments)
    assert list(entry.batches) == list(log.producers.entries[7].batches)
    assert [(base // 2, start // size, end // size) for base, start, end in walked] == [(8, 0, 2), (4, 2, 4)]


@pytest.mark.parametrize(("limit", "found"), [(0, 1), (1, 2), (2, 3), (3, 4)])
def test_a_search_ends_after_so_many_bytes(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch, limit: int, found: int
) -> None:
    log = make_log(index_interval_bytes=0)
    for number in range(5):
        send(log, 2 * number)
        log.roll(now_ms=NOW_MS)
    size = log.segments.first.size
    monkeypatch.setattr(replay, "_LOOK_BACK_BYTES", (limit - 1) * size + 1 if limit else 0)
    entry = known(log, 4)
    recall_batches(entry, log.segments)
    assert len(entry.batches) == found and not entry.lacks_earlier


def test_what_a_control_batch_says() -> None:
    for commit in (True, False):
        data = end_transaction_marker(7, 0, commit, 9, NOW_MS)
        marker = read_end_marker(data, read_header(data))
        assert marker is not None and (marker.commit, marker.coordinator_epoch) == (commit, 9)
    other = build_batch([(b"\0\0\0\2", b"", (), 0)], control=True)
    assert read_end_marker(other, read_header(other)) is None
    for records in ([(b"\0\0\0\0", b"\0" * 6, (), 0)] * 2, [(b"\0\0\0\1", b"\0" * 6, (), 0)] * 3):
        data = build_batch(records, control=True, base_offset=5)
        with pytest.raises(CorruptBatchError) as raised:
            read_end_marker(data, read_header(data))
        assert raised.value.message == f"the control batch of offset 5 holds {len(records)} records"


@pytest.mark.parametrize(("completed", "expected"), [(True, [(1, 2, 3, 4)]), (False, []), (None, [])])
def test_only_aborted_transactions_are_noted(
    tmp_path: Path, log: PartitionLog, completed: bool | None, expected: list[tuple[int, ...]]
) -> None:
    transaction = None if completed is None else CompletedTransaction(1, 2, 3, completed)
    index = log.segments.active.transaction_index
    note_completed(index, ProducerStates(tmp_path), transaction)
    assert index.entries() == expected


@pytest.mark.parametrize("end_offset", [None, 0, 1, 2, 4, 6, 99])
def test_producers_learn_of_the_batches_below_an_offset(
    make_log: MakeLog, tmp_path: Path, end_offset: int | None
) -> None:
    log = make_log()
    for number in range(3):
        send(log, 2 * number)
        if number == 1:
            log.roll(now_ms=NOW_MS)
    for start_offset in (0, 2, 4):
        producers = ProducerStates(tmp_path)
        producers.end_offset = start_offset
        if end_offset is None:
            replay_producers(producers, log.segments)
        else:
            replay_producers(producers, log.segments, end_offset)
        limit = 99 if end_offset is None else end_offset
        taken = [number for number in range(3) if start_offset <= 2 * number < limit]
        entry = producers.entries.get(7)
        assert [each.last_offset for each in (entry.batches if entry else ())] == [2 * number + 1 for number in taken]
        assert producers.end_offset == (2 * taken[-1] + 2 if taken else start_offset)
