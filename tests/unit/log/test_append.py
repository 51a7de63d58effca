"""Appending as a leader: which batches are refused and how, what is changed in those that are taken."""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import replace

import pytest

from ottla.base.errors import CorruptBatchError, ErrorCode, InvalidRecordError, KafkaError, LogDirError
from ottla.log.append_rules import AppendRules
from ottla.log.config import LOG_APPEND_TIME
from ottla.log.partition_log import Origin, PartitionLog
from ottla.log.preparation import prepare_coordinator_batches
from ottla.records.batch import TimestampType, crc_is_valid, read_header, set_max_timestamp
from ottla.records.compression import Codec
from ottla.records.control import end_transaction_marker
from tests.unit.log.samples import NOW_MS, MakeLog, append, batch, idempotent, read_all, slice_bytes


def refusal(log: PartitionLog, records: memoryview, *, now_ms: int = NOW_MS) -> ErrorCode:
    """The code of the error, after checking that the log has not changed."""
    before = (log.log_end_offset, log.size_bytes, dict(log.producers.entries))
    with pytest.raises(KafkaError) as raised:
        log.append_as_leader(records, leader_epoch=0, now_ms=now_ms)
    assert (log.log_end_offset, log.size_bytes, dict(log.producers.entries)) == before
    return raised.value.code


def with_field(records: memoryview, position: int, value: bytes) -> memoryview:
    """The batch with some bytes replaced and its checksum made right again."""
    records[position : position + len(value)] = value
    set_max_timestamp(records, 0, len(records), read_header(records).max_timestamp)
    return records


def test_offsets_and_epoch_are_assigned_in_place(log: PartitionLog) -> None:
    append(log, b"a", b"b", b"c")
    records = batch(b"d", b"e")
    info = log.append_as_leader(records, leader_epoch=4, now_ms=NOW_MS)
    assert info == (3, 4, NOW_MS, -1, 0, False)
    header = read_header(records)
    assert (header.base_offset, header.partition_leader_epoch) == (3, 4)
    assert crc_is_valid(records, header)
    assert [(r.offset, r.value) for r in read_all(log)] == list(enumerate([b"a", b"b", b"c", b"d", b"e"]))
    assert log.epochs.entries() == [(0, 0), (4, 3)]


def test_what_is_stored_is_what_came(log: PartitionLog) -> None:
    records = batch(b"x" * 1000, codec=Codec.ZSTD)
    log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)
    assert slice_bytes(log.read(0, 1 << 20, end_offset=1).data) == bytes(records)


def test_rules_in_their_order(make_log: MakeLog) -> None:
    log = make_log(max_message_bytes=200)
    # Each batch breaks its own rule and every later one that it can break at the same time.
    broken_crc = batch(b"v" * 200)
    broken_crc[-1] ^= 1
    moved = bytearray(broken_crc)
    moved[7] = 1
    assert refusal(log, memoryview(moved)) is ErrorCode.INVALID_RECORD
    assert refusal(log, broken_crc) is ErrorCode.MESSAGE_TOO_LARGE
    damaged = batch(control=True)
    damaged[-1] ^= 1
    assert refusal(log, damaged) is ErrorCode.CORRUPT_MESSAGE
    assert refusal(log, with_field(batch(b"a", b"b"), 23, (5).to_bytes(4, "big"))) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("length", [0, 11, 60])
def test_less_than_a_header(log: PartitionLog, length: int) -> None:
    assert refusal(log, batch()[:length]) is ErrorCode.CORRUPT_MESSAGE


def test_cut_and_doubled_batches(log: PartitionLog) -> None:
    assert refusal(log, batch()[:-1]) is ErrorCode.CORRUPT_MESSAGE
    assert refusal(log, memoryview(bytearray(batch()) * 2)) is ErrorCode.INVALID_RECORD


def test_old_formats(log: PartitionLog) -> None:
    records = batch()
    records[16] = 1
    assert refusal(log, records) is ErrorCode.INVALID_RECORD


def test_control_batches_are_for_coordinators(log: PartitionLog) -> None:
    marker = memoryview(bytearray(end_transaction_marker(7, 0, True, 0, NOW_MS)))
    assert refusal(log, marker) is ErrorCode.INVALID_RECORD
    assert log.append_as_leader(marker, leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR).first_offset == 0


def test_coordinators_may_append_several_batches(log: PartitionLog) -> None:
    info = log.append_as_leader(
        memoryview(bytearray(bytes(batch(b"a", b"b")) + bytes(batch(b"c")))),
        leader_epoch=2,
        now_ms=NOW_MS,
        origin=Origin.COORDINATOR,
    )
    assert (info.first_offset, info.last_offset) == (0, 2)
    assert [r.value for r in read_all(log)] == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (batch(b"v" * 200, base_offset=5), ErrorCode.MESSAGE_TOO_LARGE),
        (with_field(batch(b"a", b"b"), 23, (5).to_bytes(4, "big")), ErrorCode.INVALID_RECORD),
    ],
    ids=["too large", "miscounted"],
)
def test_coordinators_keep_to_these_rules_as_well(make_log: MakeLog, records: memoryview, code: ErrorCode) -> None:
    log = make_log(max_message_bytes=200)
    with pytest.raises(KafkaError) as raised:
        log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)
    assert (raised.value.code, log.log_end_offset) == (code, 0)


def test_producer_id_needs_a_sequence(log: PartitionLog) -> None:
    assert refusal(log, batch(producer_id=7, producer_epoch=0)) is ErrorCode.INVALID_RECORD
    assert refusal(log, batch(transactional=True)) is ErrorCode.INVALID_RECORD


def test_unknown_codec(log: PartitionLog) -> None:
    assert refusal(log, with_field(batch(), 21, b"\x00\x06")) is ErrorCode.CORRUPT_MESSAGE


def test_compacted_topic_needs_keys(make_log: MakeLog) -> None:
    log = make_log(cleanup_policy=frozenset({"compact"}))
    append(log, b"a")
    with pytest.raises(InvalidRecordError) as raised:
        log.append_as_leader(batch(b"a", b"b", key=None), leader_epoch=0, now_ms=NOW_MS)
    assert [index for index, _ in raised.value.record_errors] == [0, 1]
    assert log.log_end_offset == 1


def test_timestamp_limits(make_log: MakeLog) -> None:
    log = make_log(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500)
    assert refusal(log, batch(timestamp=NOW_MS - 1001)) is ErrorCode.INVALID_TIMESTAMP
    assert refusal(log, batch(timestamp=NOW_MS + 501)) is ErrorCode.INVALID_TIMESTAMP
    append(log, timestamp=NOW_MS - 1000)
    append(log, timestamp=NOW_MS + 500)
    append(log, timestamp=-1)
    assert log.log_end_offset == 3


def test_only_future_limited_needs_no_decoding(make_log: MakeLog) -> None:
    log = make_log(message_timestamp_after_max_ms=500)
    assert refusal(log, batch(timestamp=NOW_MS + 501)) is ErrorCode.INVALID_TIMESTAMP
    append(log, timestamp=NOW_MS + 500)


def test_clients_must_not_stamp_append_time(log: PartitionLog) -> None:
    assert refusal(log, batch(log_append_time_ms=NOW_MS)) is ErrorCode.INVALID_TIMESTAMP


def test_keys_are_judged_before_append_time(make_log: MakeLog) -> None:
    log = make_log(cleanup_policy=frozenset({"compact"}))
    assert refusal(log, batch(log_append_time_ms=NOW_MS, key=None)) is ErrorCode.INVALID_RECORD
    assert refusal(log, batch(log_append_time_ms=NOW_MS)) is ErrorCode.INVALID_TIMESTAMP


def test_set_larger_than_a_segment(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=200)
    assert refusal(log, batch(b"x" * 200)) is ErrorCode.RECORD_LIST_TOO_LARGE


def test_log_append_time(make_log: MakeLog) -> None:
    log = make_log(message_timestamp_type=LOG_APPEND_TIME)
    records = batch(b"a", b"b", timestamp=5)
    info = log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS + 3)
    assert (info.log_append_time_ms, info.max_timestamp) == (NOW_MS + 3, NOW_MS + 3)
    assert {r.timestamp for r in read_all(log)} == {NOW_MS + 3}
    assert crc_is_valid(records, read_header(records))


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("topic_codec", list(Codec))
def test_recompression(make_log: MakeLog, codec: Codec, topic_codec: Codec) -> None:
    name = "uncompressed" if topic_codec is Codec.NONE else topic_codec.config_name
    log = make_log(compression_type=name)
    append(log, b"x" * 500, b"y" * 500, codec=codec)
    stored = slice_bytes(log.read(0, 1 << 20, end_offset=2).data)
    header = read_header(stored)
    assert header.codec is topic_codec
    assert crc_is_valid(memoryview(stored), header)
    assert [r.value for r in read_all(log)] == [b"x" * 500, b"y" * 500]


def test_size_is_checked_again_after_recompression(make_log: MakeLog) -> None:
    log = make_log(compression_type="uncompressed", max_message_bytes=400)
    assert refusal(log, batch(b"x" * 1000, codec=Codec.GZIP)) is ErrorCode.MESSAGE_TOO_LARGE


def test_settings_can_change(log: PartitionLog) -> None:
    append(log, b"a" * 300)
    log.update_config(replace(log.config, max_message_bytes=200))
    assert refusal(log, batch(b"a" * 300)) is ErrorCode.MESSAGE_TOO_LARGE


def test_a_failed_write_changes_nothing(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    append(log, b"kept")
    real_pwrite = os.pwrite

    def half_then_full(fd: int, data: memoryview, position: int) -> int:
        if position == size_before:
            return real_pwrite(fd, data[:20], position)
        raise OSError(28, "No space left on device")

    size_before = log.size_bytes
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", half_then_full)
        with pytest.raises(LogDirError, match="No space left"):
            log.append_as_leader(idempotent(0), leader_epoch=0, now_ms=NOW_MS)
    assert (log.log_end_offset, log.size_bytes) == (1, size_before)
    assert log.segments.active.log.size() == size_before
    assert not log.producers.entries
    # Space is free again: the same batch is taken as new.
    assert log.append_as_leader(idempotent(0), leader_epoch=0, now_ms=NOW_MS).first_offset == 1
    assert [r.value for r in read_all(log)] == [b"kept", b"v"]


def test_a_failed_sync_is_never_retried(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    append(log)

    def fails(fd: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", fails)
        with pytest.raises(LogDirError, match="Input/output error"):
            log.flush()
    with pytest.raises(LogDirError):
        log.flush()
    assert log.recovery_point == 0


def test_flush_is_due_by_count_and_by_time(make_log: MakeLog) -> None:
    log = make_log(flush_messages=3)
    append(log, b"a", b"b")
    assert not log.flush_due
    append(log, b"c")
    assert log.flush_due
    assert log.flush() == 3
    assert not log.flush_due
    timed = make_log(flush_ms=1000)
    timed.note_flush_time(NOW_MS)
    timed.append_as_leader(batch(), leader_epoch=0, now_ms=NOW_MS + 999)
    assert not timed.flush_due
    timed.append_as_leader(batch(), leader_epoch=0, now_ms=NOW_MS + 1000)
    assert timed.flush_due


class TestFollower:
    def fetched(self, leader: PartitionLog, offset: int = 0) -> memoryview:
        data = leader.read(offset, 1 << 20, end_offset=leader.log_end_offset).data
        return memoryview(bytearray(slice_bytes(data)))

    def test_becomes_byte_for_byte_the_same(self, make_log: MakeLog) -> None:
        leader, follower = make_log(index_interval_bytes=100), make_log(index_interval_bytes=100)
        for epoch in range(3):
            for _ in range(10):
                leader.append_as_leader(batch(b"v" * 50), leader_epoch=epoch, now_ms=NOW_MS)
        info = follower.append_as_follower(self.fetched(leader))
        assert (info.first_offset, info.last_offset) == (0, 29)
        assert self.fetched(follower) == self.fetched(leader)
        assert follower.epochs.entries() == leader.epochs.entries()
        ours, theirs = follower.segments.active, leader.segments.active
        assert bytes(ours.offset_index.entries()) == bytes(theirs.offset_index.entries())
        assert bytes(ours.time_index.entries()) == bytes(theirs.time_index.entries())

    def test_gaps_are_allowed_and_overlaps_are_not(self, make_log: MakeLog) -> None:
        follower = make_log()
        follower.append_as_follower(batch(b"a", b"b", base_offset=5))
        assert follower.log_end_offset == 7
        with pytest.raises(InvalidRecordError, match="goes on at 7"):
            follower.append_as_follower(batch(b"c", base_offset=6))

    def test_damage_is_refused(self, make_log: MakeLog) -> None:
        follower = make_log()
        good, bad = bytearray(batch(b"a")), bytearray(batch(b"b", base_offset=1))
        bad[-1] ^= 1
        with pytest.raises(CorruptBatchError):
            follower.append_as_follower(memoryview(good + bad))
        with pytest.raises(CorruptBatchError):
            follower.append_as_follower(memoryview(good + bytearray(batch(b"b", base_offset=1))[:-1]))
        assert follower.log_end_offset == 0


def test_an_idle_log_is_asked_whether_a_flush_is_due(make_log: MakeLog) -> None:
    log = make_log(flush_ms=100)
    log.note_flush_time(NOW_MS)
    assert not log.is_flush_due(NOW_MS + 1000), "there is nothing to flush"
    append(log, b"a")
    log.flush_due = False  # as if the append had come in time
    assert not log.is_flush_due(NOW_MS + 99)
    assert log.is_flush_due(NOW_MS + 100)
    log.flush()
    assert not log.is_flush_due(NOW_MS + 1000)
    log.flush_due = True
    assert log.is_flush_due(NOW_MS)


def test_what_the_broker_writes_itself_gets_the_time_of_its_append_but_markers_keep_theirs(make_log: MakeLog) -> None:
    config = make_log(message_timestamp_type=LOG_APPEND_TIME).config
    rules = AppendRules(config)
    marker = end_transaction_marker(9, 1, True, 6, 5, base_offset=1)
    records = memoryview(bytearray(bytes(batch(b"a", timestamp=5)) + bytes(marker)))
    (_, data), (_, control) = prepare_coordinator_batches(records, rules, NOW_MS)
    assert (data.timestamp_type, data.max_timestamp) == (TimestampType.LOG_APPEND_TIME, NOW_MS)
    assert (control.timestamp_type, control.max_timestamp) == (TimestampType.CREATE_TIME, 5)


def test_indexes_are_written_for_those_who_look_from_outside(make_log: MakeLog) -> None:
    log = make_log(index_interval_bytes=0)
    for value in (b"a", b"b", b"c"):
        append(log, value)
    (path,) = log.directory.glob("*.index")
    before = path.read_bytes().rstrip(b"\0")
    log.write_indexes()
    assert len(path.read_bytes().rstrip(b"\0")) > len(before)


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_disk_that_fails_is_told_of_unless_the_log_is_deleted(
    log: PartitionLog, is_deleted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise OSError(errno.EIO, "Input/output error")

    append(log, b"a")
    log.is_deleted = is_deleted
    monkeypatch.setattr(log.segments.active.offset_index, "write_pending", fails)
    if is_deleted:
        log.write_indexes()
    else:
        with pytest.raises(LogDirError, match=r"write indexes of .*Input/output error"):
            log.write_indexes()
        monkeypatch.setattr(log.producers, "take_snapshot", fails)
        with pytest.raises(LogDirError, match=r"write the producers of .*Input/output error"):
            log.take_snapshot()


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_directory_that_is_gone_is_told_of_unless_the_log_is_deleted(log: PartitionLog, is_deleted: bool) -> None:
    append(log, b"a")
    shutil.rmtree(log.directory)
    log.is_deleted = is_deleted
    if is_deleted:
        assert log.flush() == 1
    else:
        with pytest.raises(LogDirError, match=r"sync .*No such file"):
            log.flush()
        with pytest.raises(LogDirError, match="an earlier sync"):
            log.flush()
