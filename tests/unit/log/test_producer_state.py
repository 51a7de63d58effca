"""Idempotent and transactional producers: duplicates, gaps, fencing, open transactions, snapshots."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import ErrorCode, KafkaError, LogDirError
from ottla.log.partition_log import Origin, PartitionLog
from ottla.log.producer_snapshot import (
    ProducerEntry,
    SnapshotError,
    StoredBatch,
    decode_snapshot,
    encode_snapshot,
)
from ottla.log.producer_state import ProducerStates
from ottla.log.segment import Segment
from ottla.records.batch import MAX_SEQUENCE, BatchHeader
from ottla.records.control import end_transaction_marker
from tests.unit.log.samples import FRESH_LOG, NOW_MS, MakeLog, append, batch, idempotent, reopen

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "on_disk.json").read_text())


def send(log: PartitionLog, records: memoryview) -> tuple[int, bool]:
    info = log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)
    return info.first_offset, info.is_duplicate


def refused(log: PartitionLog, records: memoryview, origin: Origin = Origin.CLIENT) -> ErrorCode:
    end = log.log_end_offset
    with pytest.raises(KafkaError) as raised:
        log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS, origin=origin)
    assert log.log_end_offset == end
    return raised.value.code


def transactional(base_sequence: int, *, producer_id: int = 7, producer_epoch: int = 0) -> memoryview:
    return idempotent(base_sequence, producer_id=producer_id, producer_epoch=producer_epoch, transactional=True)


def marker(*, commit: bool, producer_id: int = 7, producer_epoch: int = 0, coordinator_epoch: int = 0) -> memoryview:
    return memoryview(bytearray(end_transaction_marker(producer_id, producer_epoch, commit, coordinator_epoch, NOW_MS)))


def end(log: PartitionLog, *, commit: bool, producer_id: int = 7, producer_epoch: int = 0) -> int:
    records = marker(commit=commit, producer_id=producer_id, producer_epoch=producer_epoch)
    return log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR).first_offset


class TestIdempotence:
    def test_a_duplicate_gets_the_original_offset(self, log: PartitionLog) -> None:
        assert send(log, idempotent(0, 3)) == (0, False)
        append(log)
        assert send(log, idempotent(3, 2)) == (4, False)
        info = log.append_as_leader(idempotent(0, 3), leader_epoch=0, now_ms=NOW_MS + 5)
        assert info == (0, 2, NOW_MS, NOW_MS, 0, True)
        assert log.log_end_offset == 6

    def test_five_batches_are_remembered(self, log: PartitionLog) -> None:
        for sequence in range(6):
            send(log, idempotent(sequence))
        assert refused(log, idempotent(0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        for sequence in range(1, 6):
            assert send(log, idempotent(sequence)) == (sequence, True)

    def test_a_duplicate_must_match_as_a_whole(self, log: PartitionLog) -> None:
        send(log, idempotent(0, 3))
        assert refused(log, idempotent(0, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert refused(log, idempotent(1, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def test_a_gap(self, log: PartitionLog) -> None:
        send(log, idempotent(0))
        assert refused(log, idempotent(2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def test_an_unknown_producer_may_begin_anywhere(self, log: PartitionLog) -> None:
        assert send(log, idempotent(40)) == (0, False)
        assert send(log, idempotent(41)) == (1, False)

    def test_epochs(self, log: PartitionLog) -> None:
        send(log, idempotent(5, producer_epoch=3))
        assert refused(log, idempotent(6, producer_epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert refused(log, idempotent(6, producer_epoch=4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(log, idempotent(0, producer_epoch=4)) == (1, False)
        # The batches of the old epoch are forgotten, and so is its epoch.
        assert refused(log, idempotent(5, producer_epoch=3)) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert send(log, idempotent(0, producer_epoch=4)) == (1, True)

    def test_sequences_go_round(self, log: PartitionLog) -> None:
        send(log, idempotent(MAX_SEQUENCE - 1, 2))
        assert send(log, idempotent(0, 2)) == (2, False)
        across = idempotent(MAX_SEQUENCE, 3, producer_id=8)
        assert send(log, across) == (4, False)
        assert send(log, idempotent(2, producer_id=8)) == (7, False)
        assert send(log, idempotent(MAX_SEQUENCE, 3, producer_id=8)) == (4, True)

    def test_producers_do_not_mix(self, log: PartitionLog) -> None:
        send(log, idempotent(0, producer_id=1))
        assert send(log, idempotent(0, producer_id=2)) == (1, False)

    def test_expiry(self, log: PartitionLog) -> None:
        send(log, idempotent(0, producer_id=1, timestamp=NOW_MS))
        send(log, transactional(0, producer_id=2))
        send(log, idempotent(0, producer_id=3, timestamp=NOW_MS + 1))
        assert log.producers.expire(NOW_MS + 1001, 1000) == 1
        assert sorted(log.producers.entries) == [2, 3]
        assert send(log, idempotent(17, producer_id=1)) == (3, False)


class TestTransactions:
    @pytest.mark.parametrize("commit", [True, False])
    def test_what_an_ended_transaction_has_stored_is_no_duplicate(self, log: PartitionLog, commit: bool) -> None:
        assert send(log, transactional(0)) == (0, False)
        assert send(log, transactional(0)) == (0, True), "its transaction is open"
        end(log, commit=commit)
        assert refused(log, transactional(0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(log, transactional(1)) == (2, False)
        assert send(log, transactional(1)) == (2, True)
        assert refused(log, transactional(0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "nor in the next one"

    def test_last_stable_offset(self, log: PartitionLog) -> None:
        append(log)
        send(log, transactional(0))
        append(log)
        send(log, transactional(1))
        assert log.last_stable_offset == 0
        log.advance_high_watermark(4)
        assert log.last_stable_offset == 1
        end(log, commit=True)
        assert log.last_stable_offset == 1
        log.advance_high_watermark(5)
        assert log.last_stable_offset == 5

    def test_it_waits_until_the_marker_is_replicated(self, log: PartitionLog) -> None:
        send(log, transactional(0))
        end(log, commit=True)
        append(log)
        log.advance_high_watermark(1)
        assert log.last_stable_offset == 0
        log.advance_high_watermark(2)
        assert log.last_stable_offset == 2

    def test_interleaved(self, log: PartitionLog) -> None:
        send(log, transactional(0, producer_id=1))
        send(log, transactional(0, producer_id=2))
        end(log, commit=False, producer_id=1)
        send(log, transactional(1, producer_id=2))
        log.advance_high_watermark(4)
        assert log.last_stable_offset == 1
        end(log, commit=False, producer_id=2)
        log.advance_high_watermark(5)
        assert log.last_stable_offset == 5
        assert log.aborted_transactions(0, 5) == [(1, 0, 2, 1), (2, 1, 4, 5)]
        assert log.aborted_transactions(3, 5) == [(2, 1, 4, 5)]
        assert log.aborted_transactions(0, 1) == [(1, 0, 2, 1)]

    def test_commits_are_not_listed(self, log: PartitionLog) -> None:
        send(log, transactional(0))
        end(log, commit=True)
        assert log.aborted_transactions(0, 2) == []

    def test_a_marker_without_batches_ends_nothing(self, log: PartitionLog) -> None:
        end(log, commit=False)
        assert log.aborted_transactions(0, 1) == []
        assert log.producers.first_unstable_offset is None

    def test_aborts_are_found_across_segments(self, log: PartitionLog) -> None:
        send(log, transactional(0))
        log.roll(now_ms=NOW_MS)
        append(log)
        log.roll(now_ms=NOW_MS)
        end(log, commit=False)
        assert log.aborted_transactions(0, 1) == [(7, 0, 2, 3)]
        assert log.aborted_transactions(1, 3) == [(7, 0, 2, 3)]

    def test_plain_batches_do_not_go_between(self, log: PartitionLog) -> None:
        send(log, transactional(0))
        assert refused(log, idempotent(1)) is ErrorCode.INVALID_TXN_STATE
        end(log, commit=True)
        assert send(log, idempotent(1)) == (2, False)

    def test_markers_fence(self, log: PartitionLog) -> None:
        send(log, transactional(0, producer_epoch=1))
        end(log, commit=False, producer_epoch=2)
        assert refused(log, transactional(1, producer_epoch=1)) is ErrorCode.INVALID_PRODUCER_EPOCH
        late = marker(commit=True, producer_epoch=1)
        assert refused(log, late, Origin.COORDINATOR) is ErrorCode.INVALID_PRODUCER_EPOCH
        # The new epoch begins at zero.
        assert refused(log, transactional(1, producer_epoch=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(log, transactional(0, producer_epoch=2)) == (2, False)

    def test_old_coordinators_are_fenced(self, log: PartitionLog) -> None:
        for coordinator_epoch in (3, 3, 4):
            log.append_as_leader(
                marker(commit=True, coordinator_epoch=coordinator_epoch),
                leader_epoch=0,
                now_ms=NOW_MS,
                origin=Origin.COORDINATOR,
            )
        stale = marker(commit=True, coordinator_epoch=3)
        assert refused(log, stale, Origin.COORDINATOR) is ErrorCode.TRANSACTION_COORDINATOR_FENCED

    def test_followers_learn_the_same(self, make_log: MakeLog) -> None:
        leader, follower = make_log(), make_log()
        for records in (transactional(0), transactional(0, producer_id=8), transactional(1)):
            send(leader, records)
            follower.append_as_follower(records)
        for producer_id, commit in ((8, False), (7, True)):
            records = marker(commit=commit, producer_id=producer_id)
            leader.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)
            follower.append_as_follower(records)
        assert follower.producers.entries == leader.producers.entries
        assert follower.aborted_transactions(0, 5) == leader.aborted_transactions(0, 5) == [(8, 1, 3, 0)]

    def test_truncation_reopens_a_transaction(self, log: PartitionLog) -> None:
        send(log, transactional(0))
        end(log, commit=False)
        log.truncate_to(1)
        assert log.aborted_transactions(0, 1) == []
        assert log.producers.first_unstable_offset == 0
        end(log, commit=True)
        log.advance_high_watermark(2)
        assert log.last_stable_offset == 2

    @pytest.mark.parametrize("is_clean", [True, False])
    def test_restart(self, log: PartitionLog, is_clean: bool) -> None:
        send(log, transactional(0))
        send(log, transactional(0, producer_id=8))
        end(log, commit=False)
        send(log, transactional(1))
        log.advance_high_watermark(4)
        if is_clean:
            log.close()
        again = reopen(log, is_clean=is_clean, high_watermark=4)
        assert again.last_stable_offset == 1
        assert again.aborted_transactions(0, 4) == [(7, 0, 2, 1)]
        assert send(again, transactional(1)) == (3, True)
        end(again, commit=True, producer_id=8)
        end(again, commit=True)
        again.advance_high_watermark(6)
        assert again.last_stable_offset == 6


entries = st.builds(
    lambda pid, epoch, sequence, offset, delta, timestamp, coordinator, first: ProducerEntry(
        pid,
        epoch,
        _stored(sequence, offset, delta, timestamp),
        coordinator_epoch=coordinator,
        last_timestamp=timestamp,
        transaction_first_offset=first,
        lacks_earlier=True,
    ),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**15 - 1),
    st.integers(0, MAX_SEQUENCE),
    st.integers(0, 2**62),
    st.integers(0, 2**31 - 1),
    st.integers(-1, 2**62),
    st.integers(-1, 2**31 - 1),
    st.integers(-1, 2**62),
)


def _stored(sequence: int, offset: int, delta: int, timestamp: int):  # type: ignore[no-untyped-def]
    batches = ProducerEntry(0).batches
    batches.append(StoredBatch((sequence - delta) & MAX_SEQUENCE, sequence, offset, delta, timestamp))
    return batches


class TestSnapshots:
    def golden(self) -> bytes:
        return next(bytes.fromhex(i["hex"]) for i in GOLDEN["items"] if i["what"].startswith(".snapshot"))

    def test_golden(self) -> None:
        (entry,) = decode_snapshot(self.golden())
        assert (entry.producer_id, entry.producer_epoch, entry.coordinator_epoch) == (4000, 7, 5)
        assert list(entry.batches) == [(42, 44, 1022, 2, 1_700_000_000_000)]
        assert entry.transaction_first_offset == -1
        assert encode_snapshot([entry]) == self.golden()

    @given(st.lists(entries, max_size=5))
    def test_round_trip(self, given_entries: list[ProducerEntry]) -> None:
        assert decode_snapshot(encode_snapshot(given_entries)) == given_entries

    def test_a_producer_without_batches(self) -> None:
        entry = ProducerEntry(1, 2, coordinator_epoch=3, last_timestamp=4)
        assert decode_snapshot(encode_snapshot([entry])) == [entry]

    def test_every_cut_and_every_flipped_bit_is_noticed(self) -> None:
        data = self.golden()
        for length in range(len(data)):
            with pytest.raises(SnapshotError):
                decode_snapshot(data[:length])
        for position in range(len(data) * 8):
            damaged = bytearray(data)
            damaged[position // 8] ^= 1 << position % 8
            with pytest.raises(SnapshotError):
                decode_snapshot(bytes(damaged))

    def test_a_damaged_one_falls_back_to_an_older_one_and_replay(self, log: PartitionLog) -> None:
        for sequence in range(4):
            send(log, idempotent(sequence))
            log.roll(now_ms=NOW_MS)
        log.close()
        for offset in (3, 4):
            path = log.directory / f"{offset:020d}.snapshot"
            path.write_bytes(path.read_bytes()[:-1] + b"\x77")
        again = reopen(log, is_clean=True)
        assert again.producers.entries[7].last_sequence == 3
        # The snapshot at 2 knows one batch, the replay adds two.
        assert [stored.last_sequence for stored in again.producers.entries[7].batches] == [1, 2, 3]

    def test_those_beyond_the_log_are_removed(self, tmp_path: Path) -> None:
        states = ProducerStates(tmp_path)
        for offset in (5, 10, 15):
            states.end_offset = offset
            states.take_snapshot()
        states.load_newest_snapshot(0, 12)
        assert states.end_offset == 10
        assert sorted(path.name for path in tmp_path.iterdir()) == [f"{n:020d}.snapshot" for n in (5, 10)]


def restarted(log: PartitionLog) -> PartitionLog:
    log.close()
    return reopen(log, is_clean=True)


def crashed(log: PartitionLog) -> PartitionLog:
    log.flush()
    return reopen(log, is_clean=False, recovery_point=log.recovery_point)


def cut(log: PartitionLog) -> PartitionLog:
    """One that wrote a batch which no follower had got, and was told to drop it."""
    log.take_snapshot()
    end_offset = log.log_end_offset
    append(log)
    log.truncate_to(end_offset)
    return log


class TestBatchesBeforeASnapshot:
    """A snapshot keeps the newest batch of a producer; the others of the window are found in the log when asked for."""

    @pytest.mark.parametrize("lose_memory", [restarted, crashed, cut])
    def test_all_that_may_be_in_flight_are_recognised(
        self, log: PartitionLog, lose_memory: Callable[[PartitionLog], PartitionLog]
    ) -> None:
        for sequence in range(6):
            send(log, idempotent(sequence))
            send(log, idempotent(sequence, producer_id=8))
            log.roll(now_ms=NOW_MS)
        again = lose_memory(log)
        assert refused(again, idempotent(0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert [send(again, idempotent(n)) for n in range(1, 6)] == [(2 * n, True) for n in range(1, 6)]
        assert send(again, idempotent(6)) == (12, False)
        assert send(again, idempotent(2, producer_id=8)) == (5, True)

    def test_batches_of_another_epoch_are_no_duplicates(self, log: PartitionLog) -> None:
        send(log, idempotent(0, 2))
        send(log, idempotent(0, producer_epoch=1))
        send(log, idempotent(1, producer_epoch=1))
        again = restarted(log)
        assert refused(again, idempotent(0, 2, producer_epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(again, idempotent(0, producer_epoch=1)) == (2, True)
        assert list(again.producers.entries[7].batches) == [(0, 0, 2, 0, NOW_MS), (1, 1, 3, 0, NOW_MS)]

    def test_an_epoch_that_begins_afterwards_lacks_nothing(self, log: PartitionLog) -> None:
        send(log, idempotent(0))
        send(log, idempotent(1))
        again = restarted(log)
        send(again, idempotent(0, producer_epoch=1))
        assert not again.producers.entries[7].lacks_earlier
        assert refused(again, idempotent(2, producer_epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert len(again.producers.entries[7].batches) == 1

    def test_what_was_appended_since_stays_known(self, log: PartitionLog) -> None:
        for sequence in range(4):
            send(log, idempotent(sequence))
        again = restarted(log)
        for sequence in range(4, 7):
            send(again, idempotent(sequence))
        assert refused(again, idempotent(1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert [send(again, idempotent(n)) for n in range(2, 7)] == [(n, True) for n in range(2, 7)]

    def test_the_log_is_searched_once(self, log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
        for sequence in range(3):
            send(log, idempotent(sequence))
        again = restarted(log)
        searched: list[int] = []
        headers = Segment.headers

        def counted(segment: Segment, *positions: int) -> Iterator[tuple[int, BatchHeader]]:
            searched.append(segment.base_offset)
            return headers(segment, *positions)

        monkeypatch.setattr(Segment, "headers", counted)
        assert send(again, idempotent(2)) == (2, True)
        assert send(again, idempotent(3)) == (3, False)
        assert searched == []
        for _ in range(3):
            assert refused(again, idempotent(9)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert send(again, idempotent(0)) == (0, True)
        assert searched == [0]

    def test_a_search_goes_back_step_by_step_and_not_for_ever(
        self, make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("ottla.log.replay._LOOK_BACK_STEP_BYTES", 300)
        log = make_log(index_interval_bytes=100)
        send(log, idempotent(0))
        size = log.size_bytes
        for _ in range(50):
            append(log)
        send(log, idempotent(1))
        log.close()
        monkeypatch.setattr("ottla.log.replay._LOOK_BACK_BYTES", 40 * size)
        assert refused(reopen(log, is_clean=True), idempotent(0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        monkeypatch.setattr("ottla.log.replay._LOOK_BACK_BYTES", 60 * size)
        assert send(reopen(log, is_clean=True), idempotent(0)) == (0, True)

    def test_damage_that_a_search_meets_is_logged(self, log: PartitionLog, caplog: pytest.LogCaptureFixture) -> None:
        for sequence in range(3):
            send(log, idempotent(sequence))
        log.close()
        again = reopen(log, is_clean=True)
        os.pwrite(again.segments.active.log.fd, b"\xff", 16)
        assert refused(again, idempotent(1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert "holds no batch at position 0" in caplog.text
        assert send(again, idempotent(3)) == (3, False)

    def test_a_disk_that_cannot_be_read_fails_the_directory(
        self, log: PartitionLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for sequence in range(3):
            send(log, idempotent(sequence))
        again = restarted(log)

        def broken(*_: object) -> None:
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(Segment, "headers", broken)
        with pytest.raises(LogDirError, match=r"cannot read .*events-0"):
            send(again, idempotent(0))

    @given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.booleans()), min_size=1, max_size=25))
    @settings(suppress_health_check=FRESH_LOG, max_examples=40)
    def test_as_if_nothing_had_been_forgotten(self, make_log: MakeLog, sent: list[tuple[int, int, bool]]) -> None:
        log = make_log(index_interval_bytes=100)
        stored: dict[int, list[tuple[int, int, int]]] = {}
        for producer_id, count, rolls in sent:
            earlier = stored.setdefault(producer_id, [])
            sequence = earlier[-1][0] + earlier[-1][1] if earlier else 0
            offset, _ = send(log, idempotent(sequence, count, producer_id=producer_id))
            earlier.append((sequence, count, offset))
            if rolls:
                log.roll(now_ms=NOW_MS)
        again = restarted(log)
        for producer_id, batches in stored.items():
            for sequence, count, offset in batches[-5:]:
                assert send(again, idempotent(sequence, count, producer_id=producer_id)) == (offset, True)
            for sequence, count, _ in batches[:-5]:
                code = refused(again, idempotent(sequence, count, producer_id=producer_id))
                assert code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_coordinator_batches_have_no_sequence(log: PartitionLog) -> None:
    records = batch(producer_id=7, producer_epoch=0, transactional=True)
    for _ in range(2):
        log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)
    assert log.producers.first_unstable_offset == 0
    plain = batch(producer_id=7, producer_epoch=0)
    assert refused(log, plain, Origin.COORDINATOR) is ErrorCode.INVALID_TXN_STATE
