"""Each step of a copy that is to take a log's place: what is copied next, when it is ready, what it begins again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.base.clock import ManualClock
from ottla.base.errors import CorruptBatchError, KafkaError
from ottla.base.ids import Ids
from ottla.base.types import FileSlice
from ottla.log.config import LogConfig
from ottla.log.file import LogFile
from ottla.log.future_log import FutureLog, SourceFailedError
from ottla.log.log_dir import LogDirs
from ottla.log.partition_log import PartitionLog
from tests.unit.log.samples import NOW_MS, TOPIC_ID, TP, append, batch, read_all

ONE = len(batch())
CONFIG = LogConfig(segment_bytes=10 * ONE, segment_index_bytes=4096)


class World:
    def __init__(self, tmp_path: Path) -> None:
        self.paths = [tmp_path / "a", tmp_path / "b"]
        self.dirs = LogDirs.open(
            self.paths,
            broker_id=1,
            cluster_id=None,
            clock=ManualClock(NOW_MS),
            ids=Ids(),
            config_for=lambda topic: CONFIG,
        )
        self.current = self.dirs.create(TP, TOPIC_ID, CONFIG, in_dir=self.paths[0])

    def begin(self, count: int = 0) -> FutureLog:
        """A copy of a log of so many batches."""
        for _ in range(count):
            append(self.current)
        return FutureLog.create(self.dirs, self.current, self.paths[1])


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.dirs.close(clean=False)


def copy_all(future: FutureLog) -> None:
    while (piece := future.next_piece()) is not None:
        future.copy(piece, NOW_MS)


def is_ready(future: FutureLog) -> bool:
    return future.is_ready


def piece_of(log: PartitionLog, start: int, end: int) -> FileSlice:
    return FileSlice(log.segments.first.log, start, end - start)


def test_a_piece_is_no_longer_than_a_segment_or_a_megabyte(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    future = world.begin(8)
    assert future.next_piece() == piece_of(world.current, 0, 8 * ONE)
    monkeypatch.setattr("ottla.log.future_log.PIECE_BYTES", 3 * ONE)
    assert future.next_piece() == piece_of(world.current, 0, 3 * ONE)
    world.current.update_config(replace(CONFIG, segment_bytes=2 * ONE))
    piece = future.next_piece()
    assert piece == piece_of(world.current, 0, 2 * ONE)
    assert future.log.config is world.current.config, "settings may change meanwhile"
    assert (future.lag_bytes, future.log.log_end_offset) == (8 * ONE, 0)
    assert piece is not None
    future.copy(piece, NOW_MS)
    assert (future.lag_bytes, future.log.log_end_offset) == (6 * ONE, 2)
    assert future.next_piece() == piece_of(world.current, 2 * ONE, 4 * ONE)


def test_of_a_piece_that_ends_inside_a_batch_the_whole_ones_are_taken(world: World) -> None:
    future = world.begin(4)
    for end, expected in ((ONE, 1), (3 * ONE - 1, 2), (4 * ONE - ONE + 11, 3), (4 * ONE, 4)):
        future.copy(piece_of(world.current, future.log.log_end_offset * ONE, end), NOW_MS)
        assert future.log.log_end_offset == expected
    for length in (0, 1, 11, 12, 13, ONE - 1):
        with pytest.raises(CorruptBatchError) as raised:
            future.copy(piece_of(world.current, 0, length), NOW_MS)
        assert raised.value.message == f"{world.current.directory} holds no whole batch at 4"
    assert read_all(future.log) == read_all(world.current)


@pytest.mark.parametrize("length", [0, -1, -12])
def test_a_length_that_is_none_ends_the_whole_batches(world: World, length: int) -> None:
    future = world.begin(3)
    world.current.segments.active.log.write_at(ONE + 8, length.to_bytes(4, "big", signed=True))
    future.copy(piece_of(world.current, 0, 3 * ONE), NOW_MS)
    assert future.log.log_end_offset == 1


def test_what_a_copy_knows_of_the_log_follows_it(world: World) -> None:
    future = world.begin(5)
    world.current.advance_high_watermark(4)
    copy_all(future)
    assert (future.log.high_watermark, future.log.log_start_offset) == (4, 0)
    world.current.advance_high_watermark(5)
    world.current.advance_log_start_offset(3)
    assert future.next_piece() is None
    assert (future.log.high_watermark, future.log.log_start_offset, future.log.log_end_offset) == (5, 3, 5)


def test_a_log_that_was_cut_and_has_not_gone_on_is_copied_again(world: World) -> None:
    future = world.begin(5)
    copy_all(future)
    future.settle(NOW_MS)
    assert is_ready(future)
    world.current.truncate_to(3)
    assert future.next_piece() == piece_of(world.current, 0, 3 * ONE)
    assert future.log.log_end_offset == 0 and not is_ready(future)
    copy_all(future)
    assert read_all(future.log) == read_all(world.current)
    assert not is_ready(future), "nothing of it is durable"
    future.settle(NOW_MS)
    assert is_ready(future)


@pytest.mark.parametrize(("cut_to", "again"), [(5, False), (4, True)])
def test_a_log_that_has_gone_on_in_another_epoch_is_compared(world: World, cut_to: int, again: bool) -> None:
    future = world.begin(5)
    copy_all(future)
    world.current.truncate_to(cut_to)
    for _ in range(3):
        world.current.append_as_leader(batch(b"n"), leader_epoch=2, now_ms=NOW_MS)
    piece = future.next_piece()
    assert piece is not None
    assert future.log.log_end_offset == (0 if again else 5)
    copy_all(future)
    assert read_all(future.log) == read_all(world.current)
    assert future.log.epochs.entries() == [(0, 0), (2, cut_to)]


def test_an_epoch_that_the_log_does_not_know_any_more_is_no_part_of_it(world: World) -> None:
    future = world.begin(3)
    for _ in range(2):
        world.current.append_as_leader(batch(), leader_epoch=1, now_ms=NOW_MS)
    copy_all(future)
    world.current.truncate_to(3)
    for _ in range(4):
        world.current.append_as_leader(batch(b"n"), leader_epoch=3, now_ms=NOW_MS)
    copy_all(future)
    assert read_all(future.log) == read_all(world.current)


def test_after_six_disagreements_it_is_given_up(world: World) -> None:
    future = world.begin(3)
    copy_all(future)
    for number in range(5):
        world.current.truncate_to(2)
        assert future.next_piece() is not None, number
        append(world.current)
        copy_all(future)
    world.current.truncate_to(2)
    with pytest.raises(KafkaError) as raised:
        future.next_piece()
    assert raised.value.message == "the history of events-0 does not agree with its leader epochs"


@pytest.mark.parametrize("behind", ["settled", "recovery point", "stage", "nothing"])
def test_when_a_copy_is_ready(world: World, behind: str) -> None:
    future = world.begin(2)
    world.current.flush()
    copy_all(future)
    if behind != "settled":
        future.settle(NOW_MS)
    if behind == "recovery point":
        append(world.current)
        world.current.flush()
        copy_all(future)
    if behind == "stage":
        assert world.current.stage.add(batch(), 0, NOW_MS) == 2
    assert future.is_ready is (behind == "nothing")


def test_a_copy_that_settles_is_durable_and_its_time_is_noted(world: World) -> None:
    future = world.begin(2)
    world.current.update_config(replace(CONFIG, flush_ms=1000))
    copy_all(future)
    assert future.log.is_flush_due(NOW_MS + 500)
    future.settle(NOW_MS)
    assert future.log.recovery_point == 2
    append(future.log)
    assert [future.log.is_flush_due(NOW_MS + later_ms) for later_ms in (999, 1000)] == [False, True]
    found = (world.paths[1] / "recovery-point-offset-checkpoint").read_text()
    assert found == "0\n1\nevents 0 2\n"


@pytest.mark.parametrize("is_due", [True, False])
def test_what_takes_the_place_has_the_same_flush_to_do(world: World, is_due: bool) -> None:
    future = world.begin(2)
    copy_all(future)
    future.settle(NOW_MS)
    assert not future.log.flush_due
    if is_due:
        world.current.ask_for_flush()
    future.take_place(NOW_MS)
    assert future.log.flush_due is is_due
    assert (future.log in world.dirs.take_due_flushes(NOW_MS)) is is_due


def test_what_takes_the_place_knows_all_that_the_log_knew(world: World) -> None:
    future = world.begin(4)
    copy_all(future)
    future.settle(NOW_MS)
    world.current.begin_leader_epoch(6)
    world.current.advance_high_watermark(3)
    world.current.advance_log_start_offset(2)
    world.current.skip_to(9, now_ms=NOW_MS)
    producers = world.current.producers
    future.take_place(NOW_MS)
    log = world.dirs.get(TP)
    assert log is future.log
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (2, 3, 9)
    assert log.epochs.entries() == world.current.epochs.entries() and log.epochs.latest_epoch == 6
    assert (log.producers.entries, log.producers.end_offset) == (producers.entries, 9)


def test_which_disk_has_failed_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    future = world.begin(2)
    piece = future.next_piece()
    assert piece is not None

    def fails(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", fails)
        with pytest.raises(SourceFailedError) as raised:
            future.copy(piece, NOW_MS)
    assert raised.value.message == f"cannot read {world.current.directory}: Input/output error"
    with monkeypatch.context() as patched:
        patched.setattr(LogFile, "write_at", fails)
        patched.setattr(os, "pwrite", fails)
        with pytest.raises(KafkaError) as other:
            future.copy(piece, NOW_MS)
    assert not isinstance(other.value, SourceFailedError)
    assert other.value.message == f"cannot append to events-0 in {future.log.directory}: Input/output error"
