"""What a broker's log directories say when a disk fails, at every step, and what goes on without it."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.clock import ManualClock
from ottla.base.errors import LogDirError, StartError
from ottla.base.ids import Ids
from ottla.base.types import NIL_UUID, TopicPartition
from ottla.log import log_dir
from ottla.log.config import LogConfig
from ottla.log.dir_names import MOVED_MARK
from ottla.log.log_dir import CLEAN_SHUTDOWN, LogDirs
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery import load_partition
from tests.unit.log.samples import NOW_MS, TOPIC_ID, append

CONFIG = LogConfig(segment_index_bytes=4096, file_delete_delay_ms=1000)
ONE, OTHER = TopicPartition("events", 0), TopicPartition("events", 1)
EIO = OSError(errno.EIO, "Input/output error")


class World:
    """Two directories, open."""

    def __init__(self, tmp_path: Path) -> None:
        self.a, self.b = self.paths = [tmp_path / "a", tmp_path / "b"]
        self.open()

    def open(self) -> LogDirs:
        self.dirs = LogDirs.open(
            self.paths,
            broker_id=1,
            cluster_id=None,
            clock=ManualClock(NOW_MS),
            ids=Ids(),
            config_for=lambda topic: CONFIG,
        )
        return self.dirs

    def create(self, tp: TopicPartition = ONE, **more: Any) -> PartitionLog:
        return self.dirs.create(tp, TOPIC_ID, CONFIG, **more)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.dirs.close(clean=False)


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Has something raise that error from now on."""

    def fail(owner: Any, name: str, error: Exception = EIO) -> None:
        def raises(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr(owner, name, raises)

    return fail


# -- start -------------------------------------------------------------------------------------------------------


def test_a_directory_that_cannot_be_loaded_is_done_without(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.create(ONE, in_dir=world.a)
    world.create(OTHER, in_dir=world.b)
    world.dirs.close()

    def loaded(directory: Path, *arguments: Any, **more: Any) -> PartitionLog:
        if directory.parent == world.a:
            raise LogDirError("disk on fire")
        return load_partition(directory, *arguments, **more)

    monkeypatch.setattr(log_dir, "load_partition", loaded)
    dirs = world.open()
    assert dirs.failed == {world.a: "disk on fire"}
    assert dirs.usable_paths == [world.b]
    assert dirs.get(ONE) is None and [log.topic_partition for log in dirs.logs()] == [OTHER]
    assert (world.a / CLEAN_SHUTDOWN).exists() and not (world.b / CLEAN_SHUTDOWN).exists()


def test_without_any_directory_there_is_no_start(world: World, fails: Any) -> None:
    world.create(ONE, in_dir=world.a)
    world.create(OTHER, in_dir=world.b)
    world.dirs.close()
    fails(log_dir, "load_partition", EIO)
    with pytest.raises(StartError) as refused:
        world.open()
    each = "[Errno 5] Input/output error"
    assert str(refused.value) == f"no log directory can be used: {each}; {each}"
    LogDirs.claim(world.paths, Ids()).close()


def test_a_mark_of_a_clean_stop_is_taken_away_for_good(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.dirs.close()
    marks = [path / CLEAN_SHUTDOWN for path in world.paths]
    assert [mark.read_text() for mark in marks] == ['{"version":0,"brokerEpoch":-1}'] * 2
    marks[1].unlink()
    synced: list[tuple[Path, bool]] = []
    monkeypatch.setattr(log_dir, "sync_directory", lambda path: synced.append((path, (path / CLEAN_SHUTDOWN).exists())))
    dirs = world.open()
    assert synced == [(world.a, False)] and not dirs.were_closed_cleanly


@pytest.mark.parametrize("is_clean", [True, False])
def test_what_is_said_of_directories_that_are_opened(
    world: World, caplog: pytest.LogCaptureFixture, is_clean: bool
) -> None:
    append(world.create(ONE, in_dir=world.a))
    world.dirs.close(clean=is_clean)
    caplog.set_level(logging.INFO, "ottla.log")
    world.open()
    words = [record.getMessage() for record in caplog.records]
    opened = f"{world.a}: 1 partitions were opened in 0 ms"
    assert (f"{world.a} was not closed cleanly; checking 1 partitions" in words) is not is_clean
    assert (opened in words) is is_clean
    assert not any(f"{world.b} was not closed" in each for each in words)


def test_a_topic_id_that_cannot_be_read_is_left_to_the_cluster(world: World, caplog: pytest.LogCaptureFixture) -> None:
    log = world.create()
    world.dirs.close()
    (log.directory / "partition.metadata").write_text("version: 0\n")
    again = world.open().get(ONE)
    assert again is not None and again.topic_id == NIL_UUID
    assert f"{log.directory / 'partition.metadata'} holds no topic id; the topic id will be taken from" in caplog.text


def test_one_directory_has_no_copies_to_look_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[list[Path]] = []
    monkeypatch.setattr(log_dir, "remove_replaced", looked.append)
    for paths in ([tmp_path / "a"], [tmp_path / "a", tmp_path / "b"]):
        LogDirs.open(
            paths, broker_id=1, cluster_id=None, clock=ManualClock(), ids=Ids(), config_for=lambda topic: CONFIG
        ).close()
    assert looked == [[tmp_path / "a", tmp_path / "b"]]


# -- partitions --------------------------------------------------------------------------------------------------


def test_where_a_partition_goes(world: World) -> None:
    dirs = world.dirs
    with pytest.raises(LogDirError, match=r"events-9 has no log here$"):
        dirs.delete(TopicPartition("events", 9))
    assert world.create(ONE).directory == world.a / "events-0"
    with pytest.raises(LogDirError) as twice:
        world.create(ONE, in_dir=world.b)
    assert twice.value.message == f"events-0 exists already in {world.a / 'events-0'}"
    assert world.create(OTHER, in_dir=world.a).directory.parent == world.a
    assert dirs.logs_in(world.b) == []
    third, fourth, fifth = (TopicPartition("events", number) for number in (2, 3, 4))
    dirs.prefer(third, world.a)
    assert world.create(third).directory.parent == world.a
    dirs.delete(third)
    assert world.create(third).directory.parent == world.b, "a wish is good for once"
    dirs.prefer(fourth, world.a)
    assert world.create(fourth, in_dir=world.b).directory.parent == world.b
    dirs.fail(world.a, LogDirError("gone"))
    with pytest.raises(LogDirError, match=r"no log directory can take a new partition$"):
        world.create(fifth, in_dir=world.a)
    assert world.create(fifth).directory.parent == world.b
    assert world.create(ONE).directory.parent == world.b, "its old log is lost"


def test_a_partition_that_cannot_be_made_fails_its_directory(world: World, fails: Any) -> None:
    fails(log_dir, "sync_directory", OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(LogDirError) as refused:
        world.create()
    assert refused.value.message == f"cannot create events-0 in {world.a}: No space left on device"
    assert world.dirs.failed == {world.a: refused.value.message} and world.dirs.get(ONE) is None


def test_a_directory_that_somebody_has_made_fails_nothing(world: World) -> None:
    (world.a / "events-0").mkdir()
    with pytest.raises(LogDirError, match=f"cannot create events-0 in {world.a}: File exists$"):
        world.create()
    assert world.dirs.failed == {}


def test_a_partition_that_cannot_be_deleted_fails_its_directory(world: World, fails: Any) -> None:
    world.create(ONE, in_dir=world.a)
    world.create(OTHER, in_dir=world.a)
    fails(PartitionLog, "move_to_deleted")
    with pytest.raises(LogDirError) as refused:
        world.dirs.delete(ONE)
    assert refused.value.message == "cannot delete events-0: Input/output error"
    assert world.dirs.failed == {world.a: refused.value.message} and world.dirs.logs() == []


def test_checkpoints_of_a_deleted_partition_are_written_anew_before_the_next_is_made(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tp in (ONE, OTHER):
        world.create(tp, in_dir=world.a)
    world.dirs.checkpoint()
    written: list[Path] = []
    checkpoint_dir = LogDirs.checkpoint_dir

    def noted(dirs: LogDirs, path: Path, *parts: Any) -> None:
        written.append(path)
        checkpoint_dir(dirs, path, *parts)

    monkeypatch.setattr(LogDirs, "checkpoint_dir", noted)
    world.dirs.delete(ONE)
    world.create(ONE, in_dir=world.b)
    assert written == []
    world.dirs.delete(OTHER)
    world.create(OTHER, in_dir=world.a)
    world.create(TopicPartition("events", 2), in_dir=world.a)
    assert written == [world.a], "once is enough"


# -- moves -------------------------------------------------------------------------------------------------------


def test_a_copy_that_cannot_be_marked_is_none(world: World, fails: Any) -> None:
    log = world.create(ONE, in_dir=world.a)
    fails(log_dir, "replace_file")
    with pytest.raises(LogDirError, match=r"cannot write to .*events-0\.\w+-future: Input/output error$"):
        world.dirs.create_future(log, world.b)
    assert world.dirs.future(ONE) is None and world.dirs.futures_in(world.b) == []


def test_what_a_copy_begins_with(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    log = world.create(ONE, in_dir=world.a)
    append(log, b"a", b"b", b"c")
    log.advance_high_watermark(3)
    log.advance_log_start_offset(2)
    log.clean_offset = 1
    (log.directory / MOVED_MARK).touch()
    synced: list[Path] = []
    monkeypatch.setattr(log_dir, "sync_directory", synced.append)
    future = world.dirs.create_future(log, world.b)
    assert not (log.directory / MOVED_MARK).exists() and synced == [log.directory, world.b]
    assert (future.directory / MOVED_MARK).read_text() == f"{log.directory}\n"
    assert (future.log_start_offset, future.log_end_offset, future.clean_offset) == (2, 2, 1)
    assert (future.topic_id, future.config, future.topic_partition) == (TOPIC_ID, CONFIG, ONE)
    assert world.dirs.get(ONE) is log and world.dirs.future(ONE) is future
    assert (world.dirs.futures_in(world.a), world.dirs.futures_in(world.b)) == ([], [future])


def test_a_copy_whose_name_cannot_be_changed_does_not_count(world: World, fails: Any) -> None:
    log = world.create(ONE, in_dir=world.a)
    future = world.dirs.create_future(log, world.b)
    name = future.directory
    fails(PartitionLog, "move_to")
    with pytest.raises(LogDirError) as refused:
        world.dirs.promote(future)
    assert refused.value.message == f"cannot rename {name}: Input/output error"
    assert world.dirs.get(ONE) is log and world.dirs.future(ONE) is future


def test_a_copy_that_took_the_place_is_secured_with_its_checkpoints(world: World, fails: Any) -> None:
    log = world.create(ONE, in_dir=world.a)
    future = world.dirs.create_future(log, world.b)
    world.dirs.promote(future)
    assert world.dirs.future(ONE) is None and world.dirs.get(ONE) is future
    assert (world.dirs.logs_in(world.a), world.dirs.logs_in(world.b)) == ([], [future])
    written = world.b / "recovery-point-offset-checkpoint"
    assert not written.exists()
    world.dirs.secure_promoted(future)
    assert written.read_text() == "0\n1\nevents 0 0\n"
    fails(log_dir, "sync_directory")
    with pytest.raises(LogDirError, match=f"cannot sync {world.b}: Input/output error$"):
        world.dirs.secure_promoted(future)


def test_a_mark_of_a_move_that_stays_does_no_harm(
    world: World, fails: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = world.create(ONE, in_dir=world.a)
    (log.directory / MOVED_MARK).touch()
    with monkeypatch.context():
        fails(log_dir, "sync_directory")
        world.dirs.forget_move(log, world.b)
    assert f"{log.directory} keeps its mark of a move: [Errno 5] Input/output error" in caplog.text
    assert (log.directory / MOVED_MARK).exists()
    synced: list[Path] = []
    monkeypatch.setattr(log_dir, "sync_directory", synced.append)
    world.dirs.forget_move(log, world.b)
    assert synced == [world.b] and not (log.directory / MOVED_MARK).exists()


def test_a_copy_is_discarded_and_another_one_stays(world: World) -> None:
    log = world.create(ONE, in_dir=world.a)
    first = world.dirs.create_future(log, world.b)
    second = world.dirs.create_future(log, world.b)
    world.dirs.discard_future(first)
    assert first.is_deleted and not first.directory.exists()
    assert world.dirs.future(ONE) is second and second.directory.exists() and not second.is_deleted
    world.dirs.discard_future(second)
    assert world.dirs.future(ONE) is None and not second.directory.exists()


# -- failure and the end -----------------------------------------------------------------------------------------


def test_the_first_reason_is_kept_and_partitions_are_lost_once(world: World) -> None:
    world.create(ONE, in_dir=world.a)
    other = world.create(OTHER, in_dir=world.b)
    assert world.dirs.fail(world.a, EIO) == [ONE]
    assert world.dirs.fail(world.a, LogDirError("again")) == []
    assert world.dirs.failed == {world.a: "[Errno 5] Input/output error"}
    assert world.dirs.logs() == [other] and world.dirs.logs_in(world.a) == []


def test_copies_in_other_directories_survive_a_failure(world: World) -> None:
    log, other = world.create(ONE, in_dir=world.a), world.create(OTHER, in_dir=world.b)
    world.dirs.create_future(log, world.b)
    back = world.dirs.create_future(other, world.a)
    world.dirs.fail(world.b, LogDirError("gone"))
    assert world.dirs.future(ONE) is None and world.dirs.future(OTHER) is back


def test_checkpoints_that_cannot_be_written_are_named(world: World, fails: Any) -> None:
    fails(os, "replace")
    fails(Path, "replace")
    with pytest.raises(LogDirError) as refused:
        world.dirs.checkpoint()
    assert refused.value.message == f"cannot write the checkpoints of {world.a}: Input/output error"


def test_a_directory_that_cannot_be_marked_is_checked_at_the_next_start(
    world: World, fails: Any, caplog: pytest.LogCaptureFixture
) -> None:
    fails(log_dir, "replace_file")
    world.dirs.close()
    assert [record.getMessage() for record in caplog.records if record.name == "ottla.log.log_dir"] == [
        f"{path} will be checked at the next start: cannot mark {path} as closed: Input/output error"
        for path in world.paths
    ]
    LogDirs.claim(world.paths, Ids()).close()


def test_closing_writes_what_is_known_of_the_logs(world: World) -> None:
    log = world.create(ONE, in_dir=world.a)
    append(log, b"a", b"b")
    log.advance_high_watermark(1)
    world.dirs.close()
    found = {path.name: path.read_text() for path in world.a.glob("*-checkpoint")}
    world.dirs.close()
    assert found == {
        "recovery-point-offset-checkpoint": "0\n1\nevents 0 2\n",
        "replication-offset-checkpoint": "0\n1\nevents 0 1\n",
        "log-start-offset-checkpoint": "0\n0\n",
        "cleaner-offset-checkpoint": "0\n0\n",
    }
    assert world.dirs.logs() == []


def test_what_was_deleted_is_removed_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.create(ONE, in_dir=world.a)
    world.dirs.delete(ONE)
    removed: list[Path] = []
    monkeypatch.setattr(log_dir, "shutil", SimpleNamespace(rmtree=lambda path, ignore_errors: removed.append(path)))
    for later_ms in (999, 1_000, 1_000, 5_000):
        world.dirs.remove_deleted(NOW_MS + later_ms)
    assert [path.parent for path in removed] == [world.a]
