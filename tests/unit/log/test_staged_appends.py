"""Several batches in one write: the same log as if they had been written one by one, or no trace of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from ottla.base.errors import KafkaError, LogDirError
from ottla.log.config import LOG_APPEND_TIME
from ottla.log.partition_log import PartitionLog
from ottla.log.stage import NOT_STAGED
from tests.unit.log.samples import NOW_MS, MakeLog, append, batch, idempotent, read_all, reopen


@pytest.fixture
def log(make_log: MakeLog) -> PartitionLog:
    log = make_log()
    append(log, b"first")
    append(log, b"second")
    return log


def test_nothing_is_there_before_the_write(log: PartitionLog) -> None:
    assert [log.stage.add(batch(b"a", b"b"), 0, NOW_MS), log.stage.add(batch(b"c"), 0, NOW_MS)] == [2, 4]
    assert (log.log_end_offset, log.producers.end_offset, len(read_all(log))) == (2, 2, 2)
    log.stage.write(NOW_MS)
    assert not log.stage.has_batches
    assert (log.log_end_offset, log.producers.end_offset) == (5, 5)
    assert [(r.offset, r.value) for r in read_all(log)[2:]] == [(2, b"a"), (3, b"b"), (4, b"c")]


def test_other_appends_come_after_what_is_staged(log: PartitionLog) -> None:
    log.stage.add(batch(b"a"), 0, NOW_MS)
    assert append(log, b"b") == 3
    assert [r.value for r in read_all(log)] == [b"first", b"second", b"a", b"b"]


def test_one_producer_stages_one_batch_after_the_other(log: PartitionLog) -> None:
    assert log.stage.add(idempotent(0), 0, NOW_MS) == NOT_STAGED, "the first batch of a producer goes the long way"
    log.append_as_leader(idempotent(0), leader_epoch=0, now_ms=NOW_MS)
    assert [log.stage.add(idempotent(at, 2), 0, NOW_MS) for at in (1, 3)] == [3, 5]
    assert log.stage.add(idempotent(3, 2), 0, NOW_MS) == NOT_STAGED, "a duplicate of what is not even written"
    assert log.stage.add(idempotent(5, producer_epoch=1), 0, NOW_MS) == NOT_STAGED
    assert log.producers.entries[7].last_sequence == 0
    duplicate = log.append_as_leader(idempotent(3, 2), leader_epoch=0, now_ms=NOW_MS)
    assert (duplicate.first_offset, duplicate.is_duplicate) == (5, True)
    assert log.producers.entries[7].last_sequence == 4


def test_what_was_staged_of_a_producer_is_forgotten_once_written(log: PartitionLog) -> None:
    log.append_as_leader(idempotent(0), leader_epoch=0, now_ms=NOW_MS)
    assert log.stage.add(idempotent(1), 0, NOW_MS) == 3
    log.stage.write(NOW_MS)
    # A new leader epoch goes the long way, past the stage.
    log.append_as_leader(idempotent(2), leader_epoch=1, now_ms=NOW_MS)
    assert log.stage.add(idempotent(2), 1, NOW_MS) == NOT_STAGED


def _fails(*_: Any) -> int:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("count", [1, 3])
def test_a_failed_write_leaves_no_trace(log: PartitionLog, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    log.append_as_leader(idempotent(0), leader_epoch=0, now_ms=NOW_MS)
    size_before = log.size_bytes
    for sequence in range(1, count + 1):
        assert log.stage.add(idempotent(sequence), 0, NOW_MS) != NOT_STAGED
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", _fails)
        patched.setattr(os, "pwritev", _fails)
        with pytest.raises(LogDirError, match="No space left"):
            log.stage.write(NOW_MS)
    assert not log.stage.has_batches
    assert (log.log_end_offset, log.size_bytes, log.producers.entries[7].last_sequence) == (3, size_before, 0)
    assert log.append_as_leader(idempotent(1), leader_epoch=0, now_ms=NOW_MS).first_offset == 3


def test_a_short_write_is_completed(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    values = [b"a" * 300, b"b" * 300]
    for value in values:
        log.stage.add(batch(value), 0, NOW_MS)
    real: Callable[..., int] = os.pwritev
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwritev", lambda fd, data, position: real(fd, [data[0][:50]], position))
        log.stage.write(NOW_MS)
    assert [r.value for r in read_all(log)] == [b"first", b"second", *values]


def test_more_batches_than_one_write_takes(log: PartitionLog) -> None:
    count = os.sysconf("SC_IOV_MAX") + 1
    for number in range(count):
        assert log.stage.add(batch(b"%d" % number), 0, NOW_MS) == 2 + number
    log.stage.write(NOW_MS)
    assert [r.value for r in read_all(log)[2:]] == [b"%d" % number for number in range(count)]
    assert read_all(reopen(log, is_clean=False)) == read_all(log)


def test_the_first_batch_of_a_segment_is_staged_alone(make_log: MakeLog) -> None:
    """Only when it is there, the age of the segment can be told."""
    log = make_log()
    log.begin_leader_epoch(0)
    assert [log.stage.add(batch(), 0, NOW_MS) for _ in range(2)] == [0, NOT_STAGED]
    log.stage.write(NOW_MS)
    assert [log.stage.add(batch(), 0, NOW_MS) for _ in range(2)] == [1, 2]


def test_without_timestamps_the_clock_is_asked_each_time(make_log: MakeLog) -> None:
    log = make_log(segment_ms=1000)
    append(log, timestamp=-1)
    damaged = batch(timestamp=-1)
    damaged[-1] ^= 1
    assert log.stage.add(damaged, 0, NOW_MS) == NOT_STAGED
    assert log.stage.add(batch(timestamp=-1), 0, NOW_MS + 1001) == NOT_STAGED
    assert [log.stage.add(batch(timestamp=-1), 0, NOW_MS + 1000) for _ in range(2)] == [1, NOT_STAGED]


def test_a_new_leader_epoch_goes_the_long_way(log: PartitionLog) -> None:
    assert log.stage.add(batch(), 3, NOW_MS) == NOT_STAGED
    log.append_as_leader(batch(), leader_epoch=3, now_ms=NOW_MS)
    assert log.stage.add(batch(), 3, NOW_MS) == 3


@pytest.mark.parametrize(
    "setting",
    [
        {"max_message_bytes": 120},
        {"segment_bytes": 200},
        {"segment_ms": -1},
        {"cleanup_policy": frozenset({"compact"})},
        {"compression_type": "zstd"},
        {"message_timestamp_type": LOG_APPEND_TIME},
        {"message_timestamp_before_max_ms": 1000},
        {"message_timestamp_after_max_ms": -1},
    ],
    ids=str,
)
def test_settings_are_obeyed_as_they_change(log: PartitionLog, setting: dict[str, Any]) -> None:
    config = log.config

    def is_staged() -> bool:
        with suppress(KafkaError):
            append(log)
        first_offset = log.stage.add(batch(b"x" * 100), 0, NOW_MS)
        log.stage.write(NOW_MS)
        return first_offset != NOT_STAGED

    assert is_staged()
    log.update_config(replace(config, **setting))
    assert not is_staged()
    log.update_config(config)
    assert is_staged()
