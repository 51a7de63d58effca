"""Log directories: ownership, locks, loading, placement, deletion, checkpoints, failure."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.base.clock import ManualClock
from ottla.base.errors import LogDirError, StartError
from ottla.base.ids import Ids
from ottla.base.types import TopicPartition, Uuid
from ottla.log import dir_checkpoint
from ottla.log.checkpoints import read_offsets
from ottla.log.config import LogConfig
from ottla.log.dir_contents import remove_replaced
from ottla.log.dir_names import MOVED_MARK, deleted_directory_name, partition_of_directory
from ottla.log.log_dir import CLEAN_SHUTDOWN, LogDirs
from ottla.log.partition_log import PartitionLog
from tests.unit.log.samples import NOW_MS, TOPIC_ID, append, idempotent, read_all, slice_bytes

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "on_disk.json").read_text())
CONFIG = LogConfig(segment_index_bytes=4096, file_delete_delay_ms=1000)
CLUSTER = "fakeCluster000000000AA"


def golden_text(beginning: str) -> str:
    text: str = next(item["text"] for item in GOLDEN["items"] if item["what"].startswith(beginning))
    return text


class Directories:
    """Opens log directories again and again, and closes what is open at the end."""

    def __init__(self, *paths: Path) -> None:
        self.paths = list(paths)
        self.clock = ManualClock(NOW_MS)
        self.dirs: LogDirs | None = None

    def open(self, *, broker_id: int = 1, cluster_id: str | None = CLUSTER) -> LogDirs:
        self.dirs = LogDirs.open(
            self.paths,
            broker_id=broker_id,
            cluster_id=cluster_id,
            clock=self.clock,
            ids=Ids(),
            config_for=lambda topic: CONFIG,
        )
        return self.dirs

    def crash(self) -> None:
        """Leave the files as they are and give up the locks, as the end of a process does."""
        assert self.dirs is not None
        self.dirs.close(clean=False)

    def stop(self) -> None:
        assert self.dirs is not None
        self.dirs.close()


@pytest.fixture
def directories(tmp_path: Path) -> Iterator[Directories]:
    directories = Directories(tmp_path / "a", tmp_path / "b")
    yield directories
    if directories.dirs is not None:
        directories.dirs.close(clean=False)


def tp(partition: int, topic: str = "events") -> TopicPartition:
    return TopicPartition(topic, partition)


def make(dirs: LogDirs, partition: int = 0, records: int = 0) -> PartitionLog:
    log = dirs.create(tp(partition), TOPIC_ID, CONFIG)
    for number in range(records):
        append(log, b"%d" % number)
    return log


def test_spread_over_the_directories(directories: Directories) -> None:
    dirs = directories.open()
    for partition in range(5):
        make(dirs, partition)
    assert [len(dirs.logs_in(path)) for path in dirs.paths] == [3, 2]
    assert sorted(str(log.topic_partition) for log in dirs.logs()) == [f"events-{n}" for n in range(5)]
    log = dirs.get(tp(2))
    assert log is not None
    assert (log.directory / "partition.metadata").read_text().startswith("version: 0\ntopic_id: ")
    with pytest.raises(LogDirError, match="exists already"):
        make(dirs, 2)


def test_a_new_log_is_synced_with_the_directory_it_is_in(
    directories: Directories, monkeypatch: pytest.MonkeyPatch
) -> None:
    dirs = directories.open()
    synced: list[Path] = []
    monkeypatch.setattr("ottla.log.log_dir.sync_directory", synced.append)
    log = make(dirs, 0)
    assert synced == [log.directory.parent]


def test_an_old_copy_that_cannot_be_removed_keeps_nobody_from_starting(
    directories: Directories, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = directories.paths
    for path in (first, second):
        (path / "events-0").mkdir(parents=True)
    (second / "events-0" / MOVED_MARK).touch()

    def fails(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patched:
        patched.setattr(os, "rmdir", fails)
        remove_replaced(directories.paths)
    assert (first / "events-0").exists() and (second / "events-0").exists()
    remove_replaced(directories.paths)
    assert not (first / "events-0").exists() and (second / "events-0").exists()


def test_a_mark_of_a_move_stays_while_not_all_directories_are_there(tmp_path: Path) -> None:
    """The one that is left out now may come back with an old copy."""
    for paths, is_gone in (([tmp_path / "a"], False), ([tmp_path / "a", tmp_path / "b"], True)):
        directories = Directories(*paths)
        dirs = directories.open()
        if not is_gone:
            (make(dirs, 0).directory / MOVED_MARK).touch()
            dirs.close()
            dirs = directories.open()
        log = dirs.get(tp(0))
        assert log is not None
        assert (log.directory / MOVED_MARK).exists() is not is_gone
        dirs.close()


def test_topic_id_file(directories: Directories) -> None:
    dirs = directories.open()
    log = dirs.create(tp(0), Uuid(bytes.fromhex("112233445566778899aabbccddeeff00")), CONFIG)
    assert (log.directory / "partition.metadata").read_text() == golden_text("partition.metadata")
    directories.stop()
    again = directories.open().get(tp(0))
    assert again is not None
    assert again.topic_id.hex() == "112233445566778899aabbccddeeff00"


@pytest.mark.parametrize("is_clean", [True, False])
def test_restart(directories: Directories, is_clean: bool) -> None:
    dirs = directories.open()
    log = make(dirs, 0, 10)
    log.append_as_leader(idempotent(0), leader_epoch=3, now_ms=NOW_MS)
    log.advance_high_watermark(7)
    dirs.checkpoint()
    expected = read_all(log)
    if is_clean:
        directories.stop()
        assert all((path / CLEAN_SHUTDOWN).exists() for path in directories.paths)
    else:
        directories.crash()
    reopened = directories.open()
    assert reopened.were_closed_cleanly == is_clean
    again = reopened.get(tp(0))
    assert again is not None
    assert read_all(again) == expected
    assert (again.high_watermark, again.topic_id, again.epochs.latest_epoch) == (7, TOPIC_ID, 3)
    assert again.append_as_leader(idempotent(0), leader_epoch=3, now_ms=NOW_MS).is_duplicate
    assert not any((path / CLEAN_SHUTDOWN).exists() for path in directories.paths)


def test_nothing_is_committed_where_no_checkpoint_says_so(directories: Directories) -> None:
    make(directories.open(), 0, 10)
    directories.crash()
    for path in directories.paths:
        (path / "replication-offset-checkpoint").unlink(missing_ok=True)
    again = directories.open().get(tp(0))
    assert again is not None
    assert (again.high_watermark, again.log_end_offset) == (0, 10)


def test_a_crash_after_a_clean_start_is_a_crash(directories: Directories) -> None:
    log = make(directories.open(), 0, 3)
    directories.stop()
    directories.open()
    directories.crash()
    path = log.segments.active.log.path
    path.write_bytes(path.read_bytes()[:-1])
    again = directories.open().get(tp(0))
    assert again is not None
    assert again.log_end_offset == 2


def test_checkpoint_files(directories: Directories) -> None:
    directories.paths = directories.paths[:1]
    dirs = directories.open()
    for partition, end, high_watermark in ((1, 100, 77), (0, 1100, 1024)):
        log = dirs.create(tp(partition, "vec"), TOPIC_ID, CONFIG)
        append(log, *[b"v"] * end)
        log.advance_high_watermark(high_watermark)
    log.flush()
    log.advance_log_start_offset(5)
    dirs.checkpoint()
    (path,) = directories.paths
    assert (path / "replication-offset-checkpoint").read_text() == golden_text("replication-offset-checkpoint")
    assert (path / "recovery-point-offset-checkpoint").read_text() == "0\n2\nvec 0 1100\nvec 1 0\n"
    assert (path / "log-start-offset-checkpoint").read_text() == "0\n1\nvec 0 5\n"


@pytest.mark.parametrize("content", [b"", b"\0" * 40, b"0\n3\nevents 0 5\n", b"0\n1\nevents zero 5\n", b"\xff\xfe"])
@pytest.mark.parametrize("name", ["recovery-point", "replication", "log-start"])
def test_garbled_checkpoints_are_done_without(directories: Directories, name: str, content: bytes) -> None:
    make(directories.open(), 0, 5)
    directories.stop()
    (directories.paths[0] / f"{name}-offset-checkpoint").write_bytes(content)
    again = directories.open().get(tp(0))
    assert again is not None
    assert (again.log_start_offset, again.log_end_offset) == (0, 5)


class TestOwnership:
    def test_meta_properties(self, directories: Directories) -> None:
        dirs = directories.open(broker_id=5)
        lines = (directories.paths[0] / "meta.properties").read_text().splitlines()
        assert sorted(lines) == ["broker.id=5", f"cluster.id={CLUSTER}", "version=0"]
        assert (dirs.stored_broker_id(), dirs.stored_cluster_id()) == (5, CLUSTER)

    def test_kafkas_own_file_is_understood(self, directories: Directories) -> None:
        for path in directories.paths:
            path.mkdir()
            (path / "meta.properties").write_text(golden_text("meta.properties"))
        dirs = LogDirs.claim(directories.paths, Ids())
        assert (dirs.stored_broker_id(), dirs.stored_cluster_id()) == (1, CLUSTER)
        dirs.close()
        directories.open()

    def test_another_cluster(self, directories: Directories) -> None:
        directories.open()
        directories.stop()
        with pytest.raises(StartError, match=f"belongs to cluster {CLUSTER}, this cluster is other"):
            directories.open(cluster_id="other")

    def test_another_broker(self, directories: Directories) -> None:
        directories.open()
        directories.stop()
        with pytest.raises(StartError, match="belongs to broker 1, this is broker 2"):
            directories.open(broker_id=2)

    def test_a_refused_start_leaves_the_clean_mark_and_the_lock(self, directories: Directories) -> None:
        directories.open()
        directories.stop()
        with pytest.raises(StartError):
            directories.open(broker_id=2)
        assert (directories.paths[0] / CLEAN_SHUTDOWN).exists()
        directories.open()

    def test_the_cluster_is_added_once_known(self, directories: Directories) -> None:
        directories.open(cluster_id=None)
        directories.stop()
        dirs = directories.open()
        assert dirs.stored_cluster_id() == CLUSTER

    def test_unreadable_owner(self, directories: Directories) -> None:
        directories.open()
        directories.stop()
        (directories.paths[0] / "meta.properties").write_text("broker.id=one\n")
        with pytest.raises(StartError, match="no number"):
            directories.open()

    def test_named_twice(self, tmp_path: Path) -> None:
        with pytest.raises(StartError, match="twice"):
            LogDirs.claim([tmp_path, tmp_path], Ids())


class TestLock:
    def test_within_the_process(self, directories: Directories) -> None:
        directories.open()
        with pytest.raises(StartError, match=r"a is in use by another process"):
            LogDirs.claim(directories.paths, Ids())

    def test_from_another_process(self, directories: Directories) -> None:
        program = (
            "import sys; from pathlib import Path; from ottla.log.log_dir import LogDirs\n"
            "from ottla.base.errors import StartError; from ottla.base.ids import Ids\n"
            "try:\n    LogDirs.claim([Path(sys.argv[1])], Ids())\n"
            "except StartError as e:\n    print(e)\n"
            "else:\n    print('claimed')\n"
        )
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

        def attempt() -> str:
            arguments = [sys.executable, "-c", program, str(directories.paths[0])]
            return subprocess.run(arguments, env=environ, capture_output=True, text=True, timeout=60).stdout

        directories.open()
        assert "in use by another process" in attempt()
        directories.stop()
        assert attempt() == "claimed\n"

    def test_no_directory_can_be_made_there(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(StartError, match=r"file/logs cannot be used"):
            LogDirs.claim([tmp_path / "file" / "logs"], Ids())


class TestDeletion:
    def test_files_go_after_the_delay(self, directories: Directories) -> None:
        dirs = directories.open()
        log = make(dirs, 0, 3)
        held = log.read(0, 1000, end_offset=3).data
        expected = slice_bytes(held)
        dirs.delete(tp(0))
        assert dirs.get(tp(0)) is None
        (renamed,) = [path for path in directories.paths[0].iterdir() if path.is_dir()]
        assert renamed.name.startswith("events-0.") and renamed.name.endswith("-delete")
        dirs.remove_deleted(NOW_MS + 999)
        assert renamed.exists()
        dirs.remove_deleted(NOW_MS + 1000)
        assert not renamed.exists()
        assert held is not None
        assert slice_bytes(held) == expected

    def test_the_name_can_be_used_at_once(self, directories: Directories) -> None:
        dirs = directories.open()
        log = make(dirs, 0, 30)
        log.flush()
        log.advance_high_watermark(30)
        log.advance_log_start_offset(20)
        dirs.checkpoint()
        dirs.delete(tp(0))
        new = make(dirs, 0, 2)
        # What the checkpoints said about the old partition must not be believed of the new one.
        directories.crash()
        again = directories.open().get(tp(0))
        assert again is not None
        assert read_all(again) == read_all(new)
        assert (again.log_start_offset, again.log_end_offset) == (0, 2)

    def test_leftovers_are_removed_at_the_next_start(self, directories: Directories) -> None:
        dirs = directories.open()
        make(dirs, 0, 3)
        dirs.delete(tp(0))
        directories.crash()
        assert directories.open().get(tp(0)) is None
        assert not [path for path in directories.paths[0].iterdir() if path.is_dir()]

    def test_what_is_not_there(self, directories: Directories) -> None:
        with pytest.raises(LogDirError, match="no log here"):
            directories.open().delete(tp(9))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("events-0", ("events", 0)),
        ("a-b-12", ("a-b", 12)),
        ("events", None),
        ("-3", None),
        ("events-x", None),
        ("events-0.0123456789abcdef0123456789abcdef-delete", None),
        ("events-0.0123456789abcdef0123456789abcdef-future", None),
    ],
)
def test_names_of_directories(name: str, expected: tuple[str, int] | None) -> None:
    assert partition_of_directory(name) == expected


def test_names_of_deleted_directories_are_not_too_long() -> None:
    name = deleted_directory_name(tp(12, "t" * 249), Ids())
    assert len(name) == 255
    assert name.endswith("-delete")
    assert partition_of_directory(name) is None


def test_strange_directories_are_left_alone(directories: Directories) -> None:
    directories.open()
    directories.stop()
    for name in ("lost+found", "events-0.0123456789abcdef0123456789abcdef-stray"):
        (directories.paths[0] / name).mkdir()
    assert directories.open().logs() == []
    assert (directories.paths[0] / "lost+found").exists()


class TestFailure:
    def test_a_failed_directory_is_not_used(self, directories: Directories) -> None:
        dirs = directories.open()
        for partition in range(4):
            make(dirs, partition)
        lost = dirs.fail(dirs.paths[0], LogDirError("disk on fire"))
        assert lost == [tp(0), tp(2)]
        assert dirs.get(tp(0)) is None
        assert dirs.failed == {dirs.paths[0]: "disk on fire"}
        for partition in range(4, 8):
            assert make(dirs, partition).directory.parent == dirs.paths[1]
        directories.stop()
        assert not (dirs.paths[0] / CLEAN_SHUTDOWN).exists()
        assert (dirs.paths[1] / CLEAN_SHUTDOWN).exists()

    def test_all_failed(self, directories: Directories) -> None:
        dirs = directories.open()
        for path in dirs.paths:
            dirs.fail(path, LogDirError("gone"))
        with pytest.raises(LogDirError):
            make(dirs)

    def test_a_log_that_cannot_be_closed_is_checked_next_time(
        self, directories: Directories, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make(directories.open(), 0, 2)

        def fails(fd: int) -> None:
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", fails)
            directories.stop()
        assert not (directories.paths[0] / CLEAN_SHUTDOWN).exists()
        assert (directories.paths[1] / CLEAN_SHUTDOWN).exists()
        assert not directories.open().were_closed_cleanly, "one of two is not enough"

    def test_the_same_partition_twice(self, directories: Directories) -> None:
        make(directories.open(), 0, 1)
        directories.stop()
        (directories.paths[0] / "events-0").rename(directories.paths[1] / "events-0")
        make(directories.open(), 1)
        directories.stop()
        directories.paths[0].joinpath("events-0").mkdir()
        with pytest.raises(StartError, match="events-0 is both in"):
            directories.open()


def test_flush_raises_the_recovery_point_only_as_far_as_it_got(directories: Directories) -> None:
    dirs = directories.open()
    log = make(dirs, 0, 5)
    assert log.flush(3) == 3
    append(log)
    assert log.flush() == 6
    dirs.checkpoint()
    offsets = read_offsets(directories.paths[0] / "recovery-point-offset-checkpoint")
    assert offsets == {tp(0): 6}


def test_checkpoints_that_would_say_the_same_are_not_written_again(directories: Directories) -> None:
    dirs = directories.open()
    log = dirs.create(tp(0), TOPIC_ID, CONFIG)
    path = log.directory.parent
    dirs.checkpoint_dir(path)
    file = path / "replication-offset-checkpoint"
    before = file.stat().st_ino, file.stat().st_mtime_ns
    dirs.checkpoint_dir(path)
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == before
    append(log, b"a")
    log.advance_high_watermark(1)
    dirs.checkpoint_dir(path)
    assert read_offsets(file) == {tp(0): 1}


def test_a_checkpoint_that_could_not_be_written_is_tried_again(
    directories: Directories, monkeypatch: pytest.MonkeyPatch
) -> None:
    dirs = directories.open()
    log = dirs.create(tp(0), TOPIC_ID, CONFIG)
    append(log, b"a")
    log.advance_high_watermark(1)
    path = log.directory.parent
    file = path / "replication-offset-checkpoint"
    with monkeypatch.context() as full:
        full.setattr(dir_checkpoint, "write_offsets", no_space)
        with pytest.raises(LogDirError, match="No space left"):
            dirs.checkpoint_dir(path)
    dirs.checkpoint_dir(path)
    assert read_offsets(file) == {tp(0): 1}


def test_an_idle_log_is_not_asked_for_its_indexes_again(
    directories: Directories, monkeypatch: pytest.MonkeyPatch
) -> None:
    dirs = directories.open()
    idle, busy = (dirs.create(tp(number), TOPIC_ID, CONFIG) for number in range(2))
    dirs.checkpoint()
    written: list[TopicPartition] = []
    monkeypatch.setattr(PartitionLog, "write_indexes", lambda log: written.append(log.topic_partition))
    append(busy, b"a")
    dirs.checkpoint()
    assert written == [tp(1)]
    idle.checkpoint_is_behind = True
    dirs.checkpoint()
    assert written == [tp(1)] and not idle.checkpoint_is_behind


def no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
