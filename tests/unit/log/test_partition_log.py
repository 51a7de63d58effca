"""What a partition's log answers: to each way of appending, to readers, and when its disk fails."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.errors import CorruptBatchError, InvalidRecordError, LogDirError, OffsetOutOfRangeError
from ottla.base.types import FileSlice
from ottla.log.config import LOG_APPEND_TIME
from ottla.log.file import LogFile
from ottla.log.partition_log import AppendInfo, LogRead, Origin, PartitionLog
from ottla.log.segment import Segment
from ottla.records.batch import BatchHeader, read_header
from ottla.records.builder import encode_record
from ottla.records.compression import Codec
from ottla.records.control import end_transaction_marker
from ottla.records.reader import read_records
from tests.unit.log.samples import NOW_MS, MakeLog, append, batch, idempotent, slice_bytes

ONE = len(batch())


def appended(log: PartitionLog, records: memoryview, *, epoch: int = 0, now_ms: int = NOW_MS) -> AppendInfo:
    return log.append_as_leader(records, leader_epoch=epoch, now_ms=now_ms)


def from_coordinator(log: PartitionLog, *batches: bytes | memoryview) -> AppendInfo:
    records = memoryview(bytearray(b"".join(map(bytes, batches))))
    return log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)


def fails(*_: object, **__: object) -> None:
    raise OSError(5, "Input/output error")


# -- appending ---------------------------------------------------------------------------------------------------


def test_what_is_told_of_batches_that_were_appended(make_log: MakeLog) -> None:
    log = make_log()
    append(log, b"a", b"b", b"c")
    log.advance_high_watermark(3)
    log.advance_log_start_offset(2)
    plain = appended(log, batch(b"d", b"e", timestamp=NOW_MS - 5))
    assert plain == AppendInfo(3, 4, NOW_MS - 5, -1, 2, False)
    assert appended(log, batch(b"f", timestamp=NOW_MS - 4), epoch=1) == AppendInfo(5, 5, NOW_MS - 4, -1, 2, False)
    assert appended(log, idempotent(0, 2, timestamp=NOW_MS - 3), epoch=1) == AppendInfo(6, 7, NOW_MS - 3, -1, 2, False)
    again = appended(log, idempotent(0, 2, timestamp=NOW_MS - 2), epoch=1)
    assert again == AppendInfo(6, 7, NOW_MS - 3, NOW_MS - 3, 2, True)
    transactional = idempotent(0, 3, producer_id=8, transactional=True, timestamp=NOW_MS - 1)
    assert appended(log, transactional, epoch=1) == AppendInfo(8, 10, NOW_MS - 1, -1, 2, False)


def test_what_is_told_of_the_time_of_an_append(make_log: MakeLog) -> None:
    log = make_log(message_timestamp_type=LOG_APPEND_TIME)
    assert appended(log, batch(b"a", b"b", timestamp=7)) == AppendInfo(0, 1, NOW_MS, NOW_MS, 0, False)
    info = appended(log, idempotent(0, timestamp=8), now_ms=NOW_MS + 1)
    assert info == AppendInfo(2, 2, NOW_MS + 1, NOW_MS + 1, 0, False)
    later = appended(log, idempotent(0, timestamp=8), now_ms=NOW_MS + 2)
    assert later == AppendInfo(2, 2, NOW_MS + 1, NOW_MS + 1, 0, True)
    assert from_coordinator(log, batch(timestamp=9)) == AppendInfo(3, 3, NOW_MS, NOW_MS, 0, False)


def test_what_is_told_of_several_batches_together(make_log: MakeLog) -> None:
    log = make_log()
    several = [batch(b"a", b"b", timestamp=NOW_MS), batch(b"c", timestamp=NOW_MS + 9), batch(b"d", timestamp=NOW_MS)]
    assert from_coordinator(log, *several) == AppendInfo(0, 3, NOW_MS + 9, -1, 0, False)
    assert [(header.base_offset, header.partition_leader_epoch) for _, header in log.segments.active.headers()] == [
        (0, 0), (2, 0), (3, 0),
    ]  # fmt: skip
    fetched = memoryview(
        bytearray(bytes(batch(b"e", base_offset=6, timestamp=5)) + bytes(batch(b"f", base_offset=9, timestamp=4)))
    )
    assert log.append_as_follower(fetched, now_ms=NOW_MS) == AppendInfo(6, 9, 5, -1, 0, False)
    assert (log.log_end_offset, log.producers.end_offset) == (10, 10)


def test_a_batch_that_cannot_follow_is_named(make_log: MakeLog) -> None:
    log = make_log()
    append(log, b"a", b"b")
    with pytest.raises(InvalidRecordError) as raised:
        log.append_as_follower(batch(base_offset=1))
    assert raised.value.message == "a batch of offset 1 cannot follow, the log of events-0 goes on at 2"


# -- batches of the broker ---------------------------------------------------------------------------------------


def own(log: PartitionLog, *values: bytes, now_ms: int = NOW_MS, epoch: int = 0, **more: Any) -> int:
    records = [encode_record(number, 0, b"k", value) for number, value in enumerate(values)]
    return log.append_own(records, leader_epoch=epoch, now_ms=now_ms, **more)


def last_stored(log: PartitionLog) -> tuple[BatchHeader, list[bytes | None]]:
    segment = log.segments.active
    *_, (position, header) = segment.headers()
    return header, [record.value for record in read_records(segment.batch_at(position, header), header)]


@pytest.mark.parametrize("epoch", [0, 3])
@pytest.mark.parametrize(
    ("more", "attributes", "producer"),
    [
        ({}, 0, (-1, -1)),
        ({"transaction_of": (7, 2)}, 0x10, (7, 2)),
        ({"codec": Codec.GZIP}, 0x01, (-1, -1)),
        ({"codec": Codec.ZSTD, "transaction_of": (0, 0)}, 0x14, (0, 0)),
    ],
)
def test_the_batch_that_the_broker_makes_of_its_records(
    make_log: MakeLog, epoch: int, more: dict[str, Any], attributes: int, producer: tuple[int, int]
) -> None:
    log = make_log()
    append(log, b"before")
    assert own(log, b"a", b"b", b"c", epoch=epoch, **more) == 1
    header, values = last_stored(log)
    assert values == [b"a", b"b", b"c"]
    assert (header.base_offset, header.last_offset, header.record_count) == (1, 3, 3)
    assert (header.partition_leader_epoch, header.attributes) == (epoch, attributes)
    assert (header.base_timestamp, header.max_timestamp) == (NOW_MS, NOW_MS)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (*producer, -1)
    assert (log.log_end_offset, log.producers.end_offset, log.epochs.latest_epoch) == (4, 4, epoch)
    assert log.producers.first_unstable_offset == (1 if "transaction_of" in more else None)


def test_records_of_the_broker_come_after_what_is_staged(make_log: MakeLog) -> None:
    log = make_log()
    append(log, b"a")
    assert log.stage.add(batch(b"b"), 0, NOW_MS) == 1
    assert own(log, b"c") == 2
    assert [header.base_offset for _, header in log.segments.active.headers()] == [0, 1, 2]


# -- reading -----------------------------------------------------------------------------------------------------


def test_what_a_read_tells(make_log: MakeLog) -> None:
    log = make_log()
    for number in range(4):
        append(log)
        if number == 1:
            log.roll(now_ms=NOW_MS)
    first, second = log.segments.all()
    assert log.read(0, 1 << 20, end_offset=4) == LogRead(FileSlice(first.log, 0, 2 * ONE), 0, 0, False)
    assert log.read(1, 1 << 20, end_offset=4) == LogRead(FileSlice(first.log, ONE, ONE), 1, 0, False)
    assert log.read(2, ONE, end_offset=99) == LogRead(FileSlice(second.log, 0, ONE), 2, 2, True)
    assert log.read(2, ONE + 1, end_offset=4) == LogRead(FileSlice(second.log, 0, ONE + 1), 2, 2, True)
    assert log.read(2, 1 << 20, end_offset=3) == LogRead(FileSlice(second.log, 0, ONE), 2, 2, True)
    nothing = [log.read(4, 9, end_offset=4), log.read(1, 9, end_offset=1), log.read(0, 9, end_offset=-1)]
    assert nothing == [LogRead(None, offset, 2, True) for offset in (4, 1, 0)]
    assert log.read(0, ONE - 1, end_offset=4, min_one_batch=False) == LogRead(None, 0, 2, True)
    for offset in (-1, 5):
        with pytest.raises(OffsetOutOfRangeError) as raised:
            log.read(offset, 9, end_offset=4)
        assert raised.value.message == f"offset {offset} of events-0 is outside [0, 4]"


def test_how_much_could_be_read(make_log: MakeLog) -> None:
    log = make_log()
    for number in range(6):
        append(log)
        if number in (1, 3):
            log.roll(now_ms=NOW_MS)
    log.advance_high_watermark(6)
    log.advance_log_start_offset(1)
    for end_offset in range(8):
        expected = [0, *((max(0, min(end_offset, 6) - offset) * ONE) for offset in range(1, 7)), 0]
        assert [log.available_bytes(offset, end_offset) for offset in range(8)] == expected


def test_no_more_is_promised_than_is_there(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = make_log()
    append(log, b"x" * 100)
    append(log, b"x" * 100)
    size = log.size_bytes // 2
    monkeypatch.setattr(Segment, "size_of_batch", lambda segment, position: size + 1)
    assert log.read(0, 10, end_offset=2).data == (log.segments.active.log, 0, size + 1)
    with pytest.raises(CorruptBatchError) as raised:
        log.read(1, 10, end_offset=2)
    path = log.segments.active.log.path
    assert raised.value.message == f"{path} holds no whole batch at position {size}"


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (lambda log: log.read(0, 100, end_offset=1), "read"),
        (lambda log: log.find_by_timestamp(NOW_MS), "search"),
        (lambda log: log.find_max_timestamp(), "search"),
    ],
)
def test_a_disk_that_cannot_be_read_is_named(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch, ask: Callable[[PartitionLog], object], what: str
) -> None:
    log = make_log()
    append(log)
    monkeypatch.setattr(Segment, "position_of", fails)
    monkeypatch.setattr(LogFile, "read_at", fails)
    with pytest.raises(LogDirError) as raised:
        ask(log)
    assert raised.value.message == f"cannot {what} events-0 in {log.directory}: Input/output error"


@pytest.mark.parametrize(
    "write",
    [
        lambda log: append(log),
        lambda log: appended(log, idempotent(0)),
        lambda log: own(log, b"a"),
        lambda log: own(log, b"a", codec=Codec.GZIP),
        lambda log: from_coordinator(log, end_transaction_marker(7, 0, True, 0, NOW_MS)),
        lambda log: log.append_fetched(batch(base_offset=1), now_ms=NOW_MS),
        lambda log: log.append_as_follower(batch(base_offset=1), now_ms=NOW_MS),
    ],
)
def test_a_disk_that_cannot_be_written_to_is_named_and_nothing_has_changed(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch, write: Callable[[PartitionLog], object]
) -> None:
    log = make_log()
    append(log)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", fails)
        with pytest.raises(LogDirError) as raised:
            write(log)
    assert raised.value.message == f"cannot append to events-0 in {log.directory}: Input/output error"
    assert (log.log_end_offset, log.producers.end_offset, log.producers.entries, log.size_bytes) == (1, 1, {}, ONE)
    assert not log.stage.has_batches
    assert append(log) == 1
    stored = slice_bytes(log.read(1, 1 << 20, end_offset=2).data)
    assert read_header(stored).base_offset == 1
