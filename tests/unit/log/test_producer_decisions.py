"""What is remembered of producers and decided by it, with no log around it: each field, each refusal, each edge."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.log.producer_snapshot import (
    ProducerEntry,
    SnapshotError,
    StoredBatch,
    decode_snapshot,
    encode_snapshot,
    find_snapshots,
)
from ottla.log.producer_state import CompletedTransaction, ProducerStates
from ottla.records.batch import BatchHeader
from ottla.records.checksum import crc32c
from ottla.records.control import EndMarker

MAX_SEQUENCE = 2**31 - 1


@pytest.fixture
def states(tmp_path: Path) -> ProducerStates:
    return ProducerStates(tmp_path)


def put(
    states: ProducerStates,
    sequence: int,
    first_offset: int,
    *,
    count: int = 1,
    producer: int = 7,
    epoch: int = 0,
    transactional: bool = False,
) -> None:
    last_sequence = (sequence + count - 1) & MAX_SEQUENCE
    last_offset = first_offset + count - 1
    states.apply_batch(
        producer, epoch, sequence, last_sequence, first_offset, last_offset, 1_000 + first_offset, transactional
    )


def end(states: ProducerStates, offset: int, *, producer: int = 7, epoch: int = 0, commit: bool = True) -> Any:
    return states.apply_marker(producer, epoch, EndMarker(commit, 3), offset, 5_000 + offset)


def refused(decide: Callable[[], object]) -> tuple[ErrorCode, str]:
    with pytest.raises(KafkaError) as raised:
        decide()
    return raised.value.code, raised.value.message


def entry_of(*batches: StoredBatch, **fields: Any) -> ProducerEntry:
    entry = ProducerEntry(7, **{"producer_epoch": 0, **fields})
    entry.batches.extend(batches)
    return entry


# -- changes -----------------------------------------------------------------------------------------------------


def test_what_is_remembered_of_a_batch(states: ProducerStates) -> None:
    put(states, 5, 10, count=3)
    assert states.entries == {7: entry_of(StoredBatch(5, 7, 12, 2, 1_010), last_timestamp=1_010)}
    entry = states.entries[7]
    assert (entry.last_sequence, entry.last_offset, entry.batches[0].first_offset) == (7, 12, 10)
    assert not entry.has_ended_transaction and not states.has_seen_markers
    put(states, 0, 13, epoch=2)
    assert states.entries == {
        7: entry_of(StoredBatch(0, 0, 13, 0, 1_013), producer_epoch=2, last_timestamp=1_013)
    }  # fmt: skip
    for number in range(1, 7):
        put(states, number, 13 + number, epoch=2)
    assert [each.base_sequence for each in states.entries[7].batches] == [2, 3, 4, 5, 6]
    new = ProducerEntry(9)
    assert (new.last_sequence, new.last_offset, new.producer_epoch, new.coordinator_epoch) == (-1, -1, -1, -1)
    assert (new.last_timestamp, new.transaction_first_offset, new.lacks_earlier) == (-1, -1, False)


def test_what_is_remembered_of_transactions(states: ProducerStates) -> None:
    put(states, 0, 10, transactional=True)
    put(states, 1, 12, transactional=True)
    put(states, 0, 11, producer=8, transactional=True)
    assert (states.first_unstable_offset, states.entries[7].transaction_first_offset) == (10, 10)
    completed = end(states, 13, commit=False)
    assert completed == CompletedTransaction(7, 10, 13, True)
    assert states.last_stable_offset_after(completed) == 11
    assert states.first_unstable_offset == 10, "its marker is not replicated"
    entry = states.entries[7]
    assert (entry.coordinator_epoch, entry.last_timestamp, entry.transaction_first_offset) == (3, 5_013, -1)
    assert entry.has_ended_transaction and states.has_seen_markers
    states.high_watermark_moved(13)
    assert states.first_unstable_offset == 10
    states.high_watermark_moved(14)
    assert states.first_unstable_offset == 11
    put(states, 2, 14, transactional=True)
    assert states.first_unstable_offset == 11
    completed = end(states, 15, producer=8)
    assert completed == CompletedTransaction(8, 11, 15, False)
    assert states.last_stable_offset_after(completed) == 14
    states.high_watermark_moved(16)
    assert states.first_unstable_offset == 14
    completed = end(states, 17)
    assert states.last_stable_offset_after(completed) == 18
    states.high_watermark_moved(18)
    assert states.first_unstable_offset is None


def test_a_marker_of_a_producer_that_has_nothing_open(states: ProducerStates) -> None:
    assert end(states, 4, epoch=2) is None
    assert states.entries == {7: entry_of(producer_epoch=2, coordinator_epoch=3, last_timestamp=5_004)}
    put(states, 0, 5, epoch=2)
    assert end(states, 6, epoch=2) is None
    assert [each.base_sequence for each in states.entries[7].batches] == [0]
    assert end(states, 7, epoch=3) is None
    assert (states.entries[7].producer_epoch, list(states.entries[7].batches)) == (3, [])
    assert states.first_unstable_offset is None


def header(**fields: Any) -> BatchHeader:
    made = BatchHeader(20, 0, 0, 2, 0, 0, 2, 0, 77, 7, 1, 5, 3)
    return made._replace(**fields)


@pytest.mark.parametrize("attributes", [0, 0x10])
def test_what_a_batch_that_is_read_back_tells(states: ProducerStates, attributes: int) -> None:
    assert states.replay(header(attributes=attributes), None) is None
    is_open = bool(attributes)
    assert states.entries == {
        7: entry_of(
            StoredBatch(5, 7, 22, 2, 77),
            producer_epoch=1,
            last_timestamp=77,
            transaction_first_offset=20 if is_open else -1,
        )
    }
    assert (states.end_offset, states.first_unstable_offset) == (23, 20 if is_open else None)
    control = header(base_offset=23, last_offset_delta=0, attributes=0x30, max_timestamp=78)
    assert states.replay(control, None) is None and states.end_offset == 24
    found = states.replay(control._replace(base_offset=24), EndMarker(False, 4))
    assert found == (CompletedTransaction(7, 20, 24, True) if is_open else None)
    assert (states.end_offset, states.entries[7].coordinator_epoch, states.entries[7].last_timestamp) == (25, 4, 78)


def test_a_batch_of_no_producer_tells_how_far_the_log_goes(states: ProducerStates) -> None:
    assert states.replay(header(producer_id=-1), None) is None
    assert (states.entries, states.end_offset) == ({}, 23)
    assert states.replay(header(producer_id=0, base_offset=23), None) is None
    assert (list(states.entries), states.end_offset) == ([0], 26)


@pytest.mark.parametrize(("now_ms", "expected"), [(1_110, []), (1_111, [7]), (1_200, [7, 8])])
def test_producers_that_were_silent_are_forgotten_unless_a_transaction_is_open(
    states: ProducerStates, now_ms: int, expected: list[int]
) -> None:
    put(states, 0, 10)
    put(states, 0, 20, producer=8)
    put(states, 0, 5, producer=9, transactional=True)
    assert states.expire(now_ms, 100) == len(expected)
    assert list(states.entries) == [producer for producer in (7, 8, 9) if producer not in expected]


def test_the_start_of_a_log_moves_what_is_behind_it(states: ProducerStates) -> None:
    put(states, 0, 10, transactional=True)
    end(states, 11)
    states.end_offset = 12
    states.log_start_moved(11)
    assert (states.first_unstable_offset, states.end_offset) == (10, 12)
    states.log_start_moved(15)
    assert (states.first_unstable_offset, states.end_offset, list(states.entries)) == (None, 15, [7])


def test_all_is_cleared_or_taken_over(states: ProducerStates, tmp_path: Path) -> None:
    put(states, 0, 10, transactional=True)
    put(states, 0, 11, producer=8, transactional=True)
    end(states, 12)
    states.end_offset = 13
    other = ProducerStates(tmp_path)
    other.take_over(states)
    assert (other.entries, other.first_unstable_offset, other.end_offset) == (states.entries, 10, 13)
    other.high_watermark_moved(13)
    assert other.first_unstable_offset == 11
    end(other, 14, producer=8)
    other.high_watermark_moved(15)
    found = [other.first_unstable_offset]
    put(other, 1, 15, transactional=True)
    end(other, 16)
    put(other, 2, 17, transactional=True)
    other.clear(50)
    found.append(other.first_unstable_offset)
    assert (other.entries, other.end_offset) == ({}, 50)
    put(other, 0, 60, transactional=True)
    found.append(other.first_unstable_offset)
    assert found == [None, None, 60]
    completed = end(other, 61)
    assert other.last_stable_offset_after(completed) == 62


# -- decisions ---------------------------------------------------------------------------------------------------


def check(
    states: ProducerStates, base: int, last: int | None = None, *, epoch: int = 4, transactional: bool = False
) -> StoredBatch | None:
    return states.check_batch(7, epoch, base, base if last is None else last, transactional)


def test_what_may_be_appended(states: ProducerStates) -> None:
    assert check(states, 99) is None, "nobody knows the producer"
    put(states, 5, 10, count=2, epoch=4)
    assert check(states, 7) is None
    assert check(states, 5, 6) == StoredBatch(5, 6, 11, 1, 1_010)
    assert check(states, 0, epoch=5) is None
    out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for base, last in ((5, 5), (6, 6), (8, 8), (0, 0), (4, 6)):
        told = refused(lambda base=base, last=last: check(states, base, last))  # type: ignore[misc]
        assert told == (out_of_order, f"producer 7 sent sequence {base}, the last one stored is 6")
    assert refused(lambda: check(states, 1, epoch=5)) == (
        out_of_order,
        "producer 7 begins epoch 5 with sequence 1 instead of 0",
    )
    assert refused(lambda: check(states, 0, epoch=3)) == (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        "producer 7 has epoch 3, the partition has seen epoch 4",
    )


def test_sequences_go_round_at_their_largest(states: ProducerStates) -> None:
    put(states, MAX_SEQUENCE - 1, 10, epoch=4)
    assert refused(lambda: check(states, 0))[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.next_sequence(7) == (4, MAX_SEQUENCE)
    put(states, MAX_SEQUENCE, 11, epoch=4)
    assert check(states, 0) is None
    assert refused(lambda: check(states, 1))[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_what_may_be_appended_to_a_transaction(states: ProducerStates) -> None:
    put(states, 0, 10, epoch=4)
    put(states, 1, 11, epoch=4, transactional=True)
    put(states, 2, 12, epoch=4, transactional=True)
    assert check(states, 3, transactional=True) is None
    for sequence in (1, 2):
        assert check(states, sequence, transactional=True) == StoredBatch(
            sequence, sequence, 10 + sequence, 0, 1_010 + sequence
        )
    assert refused(lambda: check(states, 0, transactional=True))[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    words = "producer 7 sent a plain batch while its transaction of offset 11 is open"
    assert refused(lambda: check(states, 3)) == (ErrorCode.INVALID_TXN_STATE, words)
    assert refused(lambda: states.check_not_in_transaction(7)) == (ErrorCode.INVALID_TXN_STATE, words)
    assert refused(lambda: check(states, 0, epoch=5)) == (ErrorCode.INVALID_TXN_STATE, words)
    states.check_not_in_transaction(8)
    end(states, 13, epoch=4)
    states.check_not_in_transaction(7)
    assert check(states, 3) is None


def test_a_transaction_may_begin_at_offset_0(states: ProducerStates) -> None:
    put(states, 0, 0, epoch=4, transactional=True)
    assert states.first_unstable_offset == 0
    assert check(states, 0, transactional=True) == StoredBatch(0, 0, 0, 0, 1_000)
    assert refused(lambda: check(states, 1))[0] is ErrorCode.INVALID_TXN_STATE
    assert states.next_sequence(7) is None
    assert end(states, 1, epoch=4) == CompletedTransaction(7, 0, 1, False)


def test_what_a_marker_must_be(states: ProducerStates) -> None:
    states.check_marker(7, 0, EndMarker(True, 0))
    end(states, 4, epoch=2)
    states.check_marker(7, 2, EndMarker(True, 3))
    states.check_marker(7, 3, EndMarker(False, 4))
    assert refused(lambda: states.check_marker(7, 1, EndMarker(True, 3))) == (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        "producer 7 has epoch 1, the partition has seen epoch 2",
    )
    assert refused(lambda: states.check_marker(7, 2, EndMarker(True, 2))) == (
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        "a marker of coordinator epoch 2 came after one of epoch 3",
    )


def test_what_is_plainly_next(states: ProducerStates) -> None:
    assert states.next_sequence(7) is None
    end(states, 1, epoch=2)
    assert states.next_sequence(7) is None, "it has written nothing"
    put(states, 5, 2, count=4, epoch=2)
    assert states.next_sequence(7) == (2, 9)


def test_who_may_lack_the_batch_that_is_sent_again(states: ProducerStates) -> None:
    for number in range(4):
        put(states, number + 10, number, epoch=2)
    entry = states.entries[7]
    assert states.entry_to_complete(7, 2, 3) is None
    entry.lacks_earlier = True
    assert states.entry_to_complete(7, 2, 3) is entry
    assert states.entry_to_complete(7, 2, 15) is entry
    for producer, epoch, sequence in ((8, 2, 3), (7, 1, 3), (7, 3, 3), (7, 2, 14), (7, 2, 10), (7, 2, 13)):
        assert states.entry_to_complete(producer, epoch, sequence) is None
    put(states, 14, 4, epoch=2)
    assert states.entry_to_complete(7, 2, 3) is None, "all five are known"


# -- snapshots ---------------------------------------------------------------------------------------------------


def test_a_snapshot_brings_back_what_is_open(tmp_path: Path) -> None:
    states = ProducerStates(tmp_path)
    put(states, 0, 30, producer=9, transactional=True)
    put(states, 0, 20, producer=8, transactional=True)
    put(states, 4, 25, count=2)
    states.end_offset = 40
    states.take_snapshot()
    (tmp_path / f"{50:020}.snapshot").write_bytes(b"x")
    again = ProducerStates(tmp_path)
    again.load_newest_snapshot(0, 50)
    assert find_snapshots(tmp_path) == {40: tmp_path / f"{40:020}.snapshot"}
    assert (again.first_unstable_offset, again.end_offset) == (20, 40)
    assert [entry.lacks_earlier for entry in again.entries.values()] == [True] * 3
    for entry in again.entries.values():
        entry.lacks_earlier = False
    assert again.entries == states.entries
    completed = end(again, 41, producer=8)
    assert again.last_stable_offset_after(completed) == 30


@pytest.mark.parametrize(
    ("start", "end_offset", "keep_newer", "loaded", "left"),
    [
        (0, 99, False, 20, [5, 10, 20]),
        (0, 20, False, 20, [5, 10, 20]),
        (0, 19, False, 10, [5, 10]),
        (0, 19, True, 10, [5, 10, 20]),
        (10, 10, False, 10, [5, 10]),
        (11, 19, False, 11, [5, 10]),
        (6, 9, True, 6, [5, 10, 20]),
        (0, 4, False, 0, []),
    ],
)
def test_the_newest_snapshot_within_a_range_is_loaded(
    tmp_path: Path, start: int, end_offset: int, keep_newer: bool, loaded: int, left: list[int]
) -> None:
    states = ProducerStates(tmp_path)
    for offset in (5, 10, 20):
        put(states, offset, offset, producer=offset)
        states.end_offset = offset
        states.take_snapshot()
    again = ProducerStates(tmp_path)
    put(again, 0, 0, producer=99)
    again.load_newest_snapshot(start, end_offset, keep_newer=keep_newer)
    assert again.end_offset == loaded
    assert list(again.entries) == [offset for offset in (5, 10, 20) if loaded in (5, 10, 20) and offset <= loaded]
    assert sorted(find_snapshots(tmp_path)) == left


@pytest.mark.parametrize(
    ("sequence", "delta", "base"), [(7, 2, 5), (1, 3, MAX_SEQUENCE - 1), (0, 0, 0), (-1, 0, -1), (-1, 5, -1)]
)
def test_where_a_stored_batch_began(sequence: int, delta: int, base: int) -> None:
    entry = entry_of(StoredBatch(base, sequence, 90, delta, 5), last_timestamp=5)
    (again,) = decode_snapshot(encode_snapshot([entry]))
    assert list(again.batches) == [StoredBatch(base, sequence, 90, delta, 5)] and again.lacks_earlier


def test_a_snapshot_of_what_was_written_at_offset_0() -> None:
    (again,) = decode_snapshot(encode_snapshot([entry_of(StoredBatch(0, 0, 0, 0, 5), last_timestamp=5)]))
    assert list(again.batches) == [StoredBatch(0, 0, 0, 0, 5)] and again.lacks_earlier
    (none,) = decode_snapshot(encode_snapshot([ProducerEntry(7, 1, last_timestamp=6)]))
    assert none == ProducerEntry(7, 1, last_timestamp=6)


def snapshot(version: int, body: bytes) -> bytes:
    return struct.pack(">hI", version, crc32c(body)) + body


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it is too short"),
        (b"\0" * 9, "it is too short"),
        (snapshot(2, bytes(4)), "its version is 2"),
        (snapshot(0, bytes(4)), "its version is 0"),
        (snapshot(1, bytes(4))[:-1] + b"\1", "its checksum is wrong"),
        (snapshot(1, struct.pack(">i", 1)), "it does not hold the 1 producers it announces"),
        (snapshot(1, struct.pack(">i", 1) + bytes(47)), "it does not hold the 1 producers it announces"),
        (snapshot(1, struct.pack(">i", 0) + bytes(46)), "it does not hold the 0 producers it announces"),
    ],
)
def test_what_is_no_snapshot(data: bytes, words: str) -> None:
    with pytest.raises(SnapshotError) as raised:
        decode_snapshot(data)
    assert str(raised.value) == words


def test_the_smallest_snapshots() -> None:
    assert encode_snapshot([]) == snapshot(1, bytes(4)) and decode_snapshot(snapshot(1, bytes(4))) == []
    fields = struct.pack(">qhiqiqiq", 7, 1, -1, -1, 0, 9, 2, 30)
    data = snapshot(1, struct.pack(">i", 1) + fields)
    entry = ProducerEntry(7, 1, coordinator_epoch=2, last_timestamp=9, transaction_first_offset=30)
    assert encode_snapshot([entry]) == data and decode_snapshot(data) == [entry]
