"""What a start finds in log directories and removes before anything is loaded; what is written down of logs."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import pytest

from ottla.base.types import TopicPartition
from ottla.log.checkpoints import write_offsets
from ottla.log.dir_checkpoint import EVERYTHING, DirCheckpoint, Part
from ottla.log.dir_contents import Checkpoints, find_partitions, remove_replaced
from ottla.log.dir_names import MOVED_MARK
from ottla.log.partition_log import PartitionLog
from tests.unit.log.samples import NOW_MS, TOPIC_ID, MakeLog, append

A, B = TopicPartition("a", 0), TopicPartition("b", 1)
FILES = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
HEX = "0123456789abcdef0123456789abcdef"


def names(path: Path) -> set[str]:
    return {found.name for found in path.iterdir()}


# -- checkpoints that are read -----------------------------------------------------------------------------------


def test_each_checkpoint_has_a_file_of_its_own(tmp_path: Path) -> None:
    assert Checkpoints.read(tmp_path) == Checkpoints({}, {}, {}, {})
    for number, name in enumerate(FILES):
        write_offsets(tmp_path / name, {A: number})
    assert Checkpoints.read(tmp_path) == Checkpoints({A: 0}, {A: 1}, {A: 2}, {A: 3})


@pytest.mark.parametrize("name", FILES)
def test_a_checkpoint_that_is_garbled_is_done_without_and_an_empty_one_is_none(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    for other in FILES:
        write_offsets(tmp_path / other, {A: 5})
    (tmp_path / name).write_bytes(b"")
    expected = [{} if other == name else {A: 5} for other in FILES]
    assert list(Checkpoints.read(tmp_path)) == expected and caplog.records == []
    (tmp_path / name).write_bytes(b"x")
    assert list(Checkpoints.read(tmp_path)) == expected
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path / name} does not begin with a version and a count; going on without it"
    ]


@pytest.mark.parametrize("place", range(4))
def test_what_is_said_of_partitions_that_are_not_there_is_noticed(place: int) -> None:
    said: list[dict[TopicPartition, int]] = [{A: 1}, {}, {A: 2}, {}]
    assert not Checkpoints(*said).names_others_than({A})
    assert not Checkpoints(*said).names_others_than({A, B})
    assert Checkpoints(*said).names_others_than(set())
    said[place] = {B: 1, A: 1}
    assert Checkpoints(*said).names_others_than({A})
    assert not Checkpoints(*said).names_others_than({A, B})


# -- directories -------------------------------------------------------------------------------------------------


def test_partitions_are_found_in_order_and_remains_are_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gone = {f"a-0.{HEX}-delete", f"b-1.{HEX}-future", f"c-2.{HEX}-future"}
    strange = {"lost+found", f"a-0.{HEX}-stray"}
    kept = {"b-1", "a-0", "a-10", "__cluster_metadata-0", *strange}
    for name in gone | kept:
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    files = {"c-5", "meta.properties", f"d-0.{HEX}-delete"}
    for name in files:
        (tmp_path / name).touch()
    found = find_partitions(tmp_path)
    assert found == [(A, tmp_path / "a-0"), (TopicPartition("a", 10), tmp_path / "a-10"), (B, tmp_path / "b-1")]
    assert names(tmp_path) == kept | files
    assert sorted(record.getMessage() for record in caplog.records) == sorted(
        [
            f"{tmp_path}: 2 partitions were being moved here; they stay where they were",
            *(f"{tmp_path / name} is not the directory of a partition and is left alone" for name in strange),
        ]
    )


@pytest.mark.parametrize(
    ("marked", "gone"),
    [({"x"}, {"y"}), ({"y"}, {"x"}), (set(), set()), ({"x", "y"}, set())],
)
def test_of_two_copies_the_one_without_a_mark_goes(
    tmp_path: Path, marked: set[str], gone: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for name in ("x", "y"):
        (tmp_path / name / "a-0").mkdir(parents=True)
        (tmp_path / name / "lost+found").mkdir()
        if name in marked:
            (tmp_path / name / "a-0" / MOVED_MARK).touch()
    (tmp_path / "x" / "b-1").mkdir()
    remove_replaced([tmp_path / "x", tmp_path / "y"])
    assert names(tmp_path / "x") == {"b-1", "lost+found"} | ({"a-0"} - {"a-0"} if "x" in gone else {"a-0"})
    assert names(tmp_path / "y") == {"lost+found"} | (set() if "y" in gone else {"a-0"})
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path / name / 'a-0'} is removed: the partition was moved to another directory" for name in gone
    ]


def test_three_copies_are_for_a_person_and_a_directory_that_cannot_be_seen_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    paths = [tmp_path / name for name in "xyz"]
    for path in paths:
        (path / "a-0").mkdir(parents=True)
    (paths[0] / "a-0" / MOVED_MARK).touch()
    (paths[1] / "a-0" / MOVED_MARK).touch()
    remove_replaced(paths)
    assert [names(path) for path in paths] == [{"a-0"}] * 3
    shutil.rmtree(paths[1])
    remove_replaced([paths[1], paths[2], paths[0]])
    assert (names(paths[0]), names(paths[2])) == ({"a-0"}, set())
    assert f"{paths[1]} cannot be looked into: [Errno 2] No such file or directory" in caplog.text


# -- checkpoints that are written --------------------------------------------------------------------------------


class Written:
    """A directory's checkpoints, and which of its files have been written since the last look."""

    def __init__(self, path: Path, *logs: PartitionLog) -> None:
        path.mkdir()
        self.path = path
        self.checkpoint = DirCheckpoint(path)
        self.logs = list(logs)
        self._seen: dict[str, int] = {}

    def write(self, *parts: Part, futures: tuple[PartitionLog, ...] = ()) -> dict[str, str]:
        self.checkpoint.write(self.logs, list(futures), set(parts) if parts else EVERYTHING)
        now = {name: os.stat(self.path / name).st_ino for name in names(self.path)}
        changed = {name for name, number in now.items() if self._seen.get(name) != number}
        self._seen = now
        return {name.partition("-offset")[0]: (self.path / name).read_text() for name in changed}


def rows(*rows: str) -> str:
    return "".join(f"{line}\n" for line in ("0", str(len(rows)), *rows))


@pytest.fixture
def log(make_log: MakeLog) -> PartitionLog:
    log = make_log(index_interval_bytes=0)
    for _ in range(4):
        append(log)
    log.advance_high_watermark(3)
    return log


def test_everything_is_written_once_and_what_has_changed_again(tmp_path: Path, log: PartitionLog) -> None:
    written = Written(tmp_path / "d", log)
    nothing = {"log-start": rows()}
    assert written.write() == {
        "recovery-point": rows("events 0 0"),
        "replication": rows("events 0 3"),
        "cleaner": rows(),
        **nothing,
    }
    assert written.write() == nothing, "this one is written each time, so that a dead disk is noticed"
    log.advance_high_watermark(4)
    assert written.write() == nothing | {"replication": rows("events 0 4")}
    append(log)
    assert written.write() == nothing, "nothing of it is committed or durable"
    log.flush()
    assert written.write() == nothing | {"recovery-point": rows("events 0 5")}
    log.clean_offset = 0
    assert written.write() == nothing | {"cleaner": rows("events 0 0")}
    log.advance_log_start_offset(2)
    assert written.write() == {"log-start": rows("events 0 2")}


def test_a_part_is_written_at_its_own_time(tmp_path: Path, log: PartitionLog) -> None:
    written = Written(tmp_path / "d", log)
    nothing = {"log-start": rows()}
    log.advance_log_start_offset(1)
    log.checkpoint_is_behind = True
    were_behind = []
    assert written.write(Part.HIGH_WATERMARKS) == nothing | {"replication": rows("events 0 3")}
    were_behind.append(log.checkpoint_is_behind)
    assert written.write(Part.RECOVERY_POINTS) == nothing | {"recovery-point": rows("events 0 0"), "cleaner": rows()}
    were_behind.append(log.checkpoint_is_behind)
    assert were_behind == [True, False]
    assert written.write(Part.LOG_START_OFFSETS) == {"log-start": rows("events 0 1")}
    assert written.write(Part.HIGH_WATERMARKS) == {"log-start": rows("events 0 1")}


def test_a_start_that_the_first_segment_tells_is_not_written(tmp_path: Path, log: PartitionLog) -> None:
    log.roll(now_ms=NOW_MS)
    log.advance_high_watermark(4)
    log.advance_log_start_offset(4)
    assert Written(tmp_path / "d", log).write()["log-start"] == rows()


def test_what_is_known_of_a_copy_is_written_and_its_indexes_are_not(
    tmp_path: Path, log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, future = (
        PartitionLog.create(tmp_path / name, B._replace(partition=number), TOPIC_ID, log.config, now_ms=NOW_MS)
        for number, name in ((1, "other"), (2, "future"))
    )
    for each in (other, future):
        append(each, b"a", b"b", b"c")
        each.advance_high_watermark(2)
        each.advance_log_start_offset(1)
    indexed: list[PartitionLog] = []
    monkeypatch.setattr(PartitionLog, "write_indexes", lambda each: indexed.append(each))
    written = Written(tmp_path / "d", log, other)
    found = written.write(futures=(future,))
    assert found == {
        "recovery-point": rows("b 1 0", "b 2 0", "events 0 0"),
        "replication": rows("b 1 2", "b 2 2", "events 0 3"),
        "log-start": rows("b 1 1", "b 2 1"),
        "cleaner": rows(),
    }
    assert indexed == [log, other]
    append(future, b"d")
    append(other, b"d")
    written.write(futures=(future,))
    assert indexed == [log, other, other]
