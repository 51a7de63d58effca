"""Logs say when there is something to be done for them; the others are never asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.base.clock import ManualClock
from ottla.base.errors import LogDirError
from ottla.base.ids import Ids
from ottla.base.types import TopicPartition
from ottla.log.config import LogConfig
from ottla.log.log_dir import LogDirs
from ottla.log.partition_log import PartitionLog
from tests.unit.log.samples import NOW_MS, TOPIC_ID, append

UNTIMED = LogConfig(segment_index_bytes=4096, file_delete_delay_ms=1000)
TIMED = replace(UNTIMED, flush_ms=5000)
T0 = TopicPartition("t", 0)


@pytest.fixture
def dirs(tmp_path: Path) -> Iterator[LogDirs]:
    made = LogDirs.open(
        [tmp_path / "a"],
        broker_id=0,
        cluster_id=None,
        clock=ManualClock(NOW_MS),
        ids=Ids(),
        config_for=lambda _: UNTIMED,
    )
    yield made
    made.close()


def asked(monkeypatch: pytest.MonkeyPatch, name: str) -> list[TopicPartition]:
    """Which logs are called by this name from now on."""
    calls: list[TopicPartition] = []
    real = getattr(PartitionLog, name)

    def called(log: PartitionLog, now_ms: int) -> object:
        calls.append(log.topic_partition)
        return real(log, now_ms)

    monkeypatch.setattr(PartitionLog, name, called)
    return calls


def test_only_logs_with_something_to_flush_are_asked(dirs: LogDirs, monkeypatch: pytest.MonkeyPatch) -> None:
    _, untimed, timed = (
        dirs.create(TopicPartition("t", number), TOPIC_ID, config)
        for number, config in enumerate((TIMED, UNTIMED, TIMED))
    )
    for log in (untimed, timed):
        log.note_flush_time(NOW_MS)
        append(log, b"a")
    calls = asked(monkeypatch, "is_flush_due")
    assert dirs.take_due_flushes(NOW_MS + 4999) == []
    assert dirs.take_due_flushes(NOW_MS + 5000) == [timed]
    assert dirs.take_due_flushes(NOW_MS + 9999) == []
    assert calls == [timed.topic_partition] * 2


def test_a_log_that_is_given_a_time_is_flushed_after_it(dirs: LogDirs) -> None:
    log = dirs.create(T0, TOPIC_ID, UNTIMED)
    log.note_flush_time(NOW_MS)
    append(log, b"a")
    assert dirs.take_due_flushes(NOW_MS + 5000) == []
    log.update_config(TIMED)
    assert dirs.take_due_flushes(NOW_MS + 5000) == [log]


def test_a_sealed_segment_is_flushed_at_once_and_a_deleted_log_never(dirs: LogDirs) -> None:
    logs = [dirs.create(TopicPartition("t", number), TOPIC_ID, UNTIMED) for number in range(2)]
    for log in logs:
        log.ask_for_flush()
    dirs.delete(TopicPartition("t", 1))
    assert dirs.take_due_flushes(NOW_MS) == logs[:1]
    assert dirs.take_due_flushes(NOW_MS) == []


def test_logs_of_a_failed_directory_are_left_alone(dirs: LogDirs, monkeypatch: pytest.MonkeyPatch) -> None:
    log = dirs.create(T0, TOPIC_ID, UNTIMED)
    append(log, b"a")
    log.truncate_fully_and_start_at(10)
    log.ask_for_flush()
    dirs.fail(log.directory.parent, LogDirError("broken"))
    calls = asked(monkeypatch, "remove_deleted")
    dirs.remove_deleted(NOW_MS)
    assert dirs.take_due_flushes(NOW_MS) == []
    assert calls == []


def test_only_logs_with_retired_segments_are_asked_to_remove_them(
    dirs: LogDirs, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, cut = (dirs.create(TopicPartition("t", number), TOPIC_ID, UNTIMED) for number in range(2))
    append(cut, b"a")
    calls = asked(monkeypatch, "remove_deleted")
    dirs.remove_deleted(NOW_MS)
    assert calls == []
    cut.truncate_fully_and_start_at(10)
    for now_ms in (NOW_MS, NOW_MS + 999, NOW_MS + 1000, NOW_MS + 9999):
        dirs.remove_deleted(now_ms)
    assert calls == [cut.topic_partition] * 3, "the third time the files went"
    assert not list(cut.directory.glob("*.deleted"))
