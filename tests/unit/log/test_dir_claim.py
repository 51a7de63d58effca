"""What a log directory says about its owner, when that is written, and how it is locked."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

import pytest

from ottla.base.errors import StartError
from ottla.base.ids import Ids
from ottla.log import dir_claim
from ottla.log.dir_claim import META_PROPERTIES, DirOwner, lock_directory, read_owner, take_ownership
from ottla.log.log_dir import LogDirs

CLUSTER = "zP1DjmB8RBuXMkn2O1MImg"


@pytest.mark.parametrize(
    ("text", "cluster_id"),
    [
        (f"# by hand\nbroker.id=1\ncluster.id={CLUSTER}\n", CLUSTER),
        (f"# by hand\nbroker.id=1\ncluster.id={CLUSTER}\n", None),
        ("# by hand\nbroker.id=1\n", None),
        (f"# by hand\nnode.id=1\ncluster.id={CLUSTER}\n", CLUSTER),
    ],
)
def test_what_says_all_there_is_to_say_is_left_alone(tmp_path: Path, text: str, cluster_id: str | None) -> None:
    (tmp_path / META_PROPERTIES).write_text(text)
    take_ownership(tmp_path, 1, cluster_id)
    assert (tmp_path / META_PROPERTIES).read_text() == text


@pytest.mark.parametrize("text", ["", "broker.id=1\n", f"cluster.id={CLUSTER}\n"])
def test_what_is_missing_is_written(tmp_path: Path, text: str) -> None:
    (tmp_path / META_PROPERTIES).write_text(f"made.by=somebody\n{text}")
    take_ownership(tmp_path, 1, CLUSTER)
    assert read_owner(tmp_path) == DirOwner(1, CLUSTER)
    assert "made.by=somebody" in (tmp_path / META_PROPERTIES).read_text().splitlines()


@pytest.mark.parametrize(
    ("before", "cluster_id", "after"),
    [
        (None, CLUSTER, f"version=0\nbroker.id=1\ncluster.id={CLUSTER}\n"),
        (None, None, "version=0\nbroker.id=1\n"),
        ("version=1\nnode.id=1\n", CLUSTER, f"version=1\nbroker.id=1\nnode.id=1\ncluster.id={CLUSTER}\n"),
        ("cluster.id=c\n", None, "version=0\nbroker.id=1\ncluster.id=c\n"),
    ],
)
def test_the_file_of_a_directory_that_was_taken(
    tmp_path: Path, before: str | None, cluster_id: str | None, after: str
) -> None:
    path = tmp_path / META_PROPERTIES
    if before is not None:
        path.write_text(before)
    take_ownership(tmp_path, 1, cluster_id)
    assert path.read_text() == after


@pytest.mark.parametrize(
    ("text", "owner"),
    [
        ("", DirOwner(None, None)),
        ("broker.id=0\n", DirOwner(0, None)),
        ("node.id=3\ncluster.id=c\n", DirOwner(3, "c")),
        ("node.id=3\nbroker.id=4\n", DirOwner(4, None)),
        ("cluster.id=c\n", DirOwner(None, "c")),
    ],
)
def test_whose_a_directory_is(tmp_path: Path, text: str, owner: DirOwner) -> None:
    (tmp_path / META_PROPERTIES).write_text(text)
    assert read_owner(tmp_path) == owner


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("broker.id=2\n", "belongs to broker 2, this is broker 1"),
        ("broker.id=0\n", "belongs to broker 0, this is broker 1"),
        ("cluster.id=other\n", f"belongs to cluster other, this cluster is {CLUSTER}"),
        ("broker.id=1\ncluster.id=other\n", f"belongs to cluster other, this cluster is {CLUSTER}"),
        ("node.id=one\n", "meta.properties names 'one' as its broker, which is no number"),
        ("one\n", "meta.properties holds a line that is no property: 'one'"),
    ],
)
def test_what_is_somebody_else_s_is_not_taken(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / META_PROPERTIES).write_text(text)
    with pytest.raises(StartError) as refused:
        take_ownership(tmp_path, 1, CLUSTER)
    assert words in str(refused.value) and str(tmp_path) in str(refused.value)
    assert (tmp_path / META_PROPERTIES).read_text() == text


def test_a_file_that_cannot_be_read_or_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / META_PROPERTIES).mkdir()
    with pytest.raises(StartError) as unread:
        read_owner(tmp_path)
    assert str(unread.value) == f"the log directory {tmp_path} cannot be read: Is a directory"
    (tmp_path / META_PROPERTIES).rmdir()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(dir_claim, "write_properties", full)
    with pytest.raises(StartError) as unwritten:
        take_ownership(tmp_path, 1, None)
    assert str(unwritten.value) == f"the log directory {tmp_path} cannot be written: No space left on device"


# -- the lock ----------------------------------------------------------------------------------------------------


def test_a_directory_is_made_with_those_above_it(tmp_path: Path) -> None:
    directory = tmp_path / "disk" / "ottla" / "log"
    for _ in range(2):
        os.close(lock_directory(directory))
    assert read_owner(directory) == DirOwner(None, None)
    assert stat.S_IMODE((directory / ".lock").stat().st_mode) == 0o644


def test_the_lock_is_the_kind_that_java_takes_and_one_that_holds_within_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[str, int, int]] = []
    for name in ("flock", "lockf"):
        take = getattr(fcntl, name)

        def noted(fd: int, kind: int, name: str = name, take: object = take) -> None:
            taken.append((name, fd, kind))
            take(fd, kind)  # type: ignore[operator]

        monkeypatch.setattr(fcntl, name, noted)
    fd = lock_directory(tmp_path)
    assert taken == [(name, fd, fcntl.LOCK_EX | fcntl.LOCK_NB) for name in ("flock", "lockf")]
    assert not os.get_inheritable(fd)
    os.close(fd)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (BlockingIOError(errno.EWOULDBLOCK, "busy"), "is in use by another process"),
        (PermissionError(errno.EACCES, "busy"), "is in use by another process"),
        (OSError(errno.ENOLCK, "No locks available"), "cannot be locked: No locks available"),
    ],
)
def test_a_lock_that_is_not_to_be_had_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, words: str
) -> None:
    tried: list[int] = []

    def fails(fd: int, kind: int) -> None:
        tried.append(fd)
        raise error

    monkeypatch.setattr(fcntl, "lockf", fails)
    with pytest.raises(StartError) as refused:
        lock_directory(tmp_path)
    assert str(refused.value) == f"the log directory {tmp_path} {words}"
    monkeypatch.undo()
    assert len(tried) == 1
    # The other lock went with its descriptor.
    os.close(lock_directory(tmp_path))


def test_a_claim_that_fails_gives_back_what_it_had(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    wanted = [tmp_path / "a", tmp_path / "b", tmp_path / "file" / "c"]
    with pytest.raises(StartError, match="file/c cannot be used: Not a directory"):
        LogDirs.claim(wanted, Ids())
    dirs = LogDirs.claim(wanted[:2], Ids())
    dirs.close()
    dirs.close()
    LogDirs.claim(wanted[:2], Ids()).close()


def test_directories_are_known_by_their_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StartError, match=r"^log\.dirs names a directory twice$"):
        LogDirs.claim([Path("a"), tmp_path / "a"], Ids())
    dirs = LogDirs.claim([Path("a"), Path("b")], Ids())
    assert dirs.paths == dirs.usable_paths == [tmp_path / "a", tmp_path / "b"]
    assert (dirs.stored_broker_id(), dirs.stored_cluster_id()) == (None, None)
    (tmp_path / "b" / META_PROPERTIES).write_text("broker.id=0\ncluster.id=c\n")
    assert (dirs.stored_broker_id(), dirs.stored_cluster_id()) == (0, "c")
    dirs.close()
    assert not list(tmp_path.glob("*/.kafka_cleanshutdown")), "nothing was loaded"
