"""A file by its descriptor: bytes at places, and space that is taken before it is needed."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from ottla.log import file as log_file
from ottla.log.file import LogFile, file_names, sync_directory
from tests.own_thread import patch_own_thread


@pytest.fixture
def file(tmp_path: Path) -> LogFile:
    return LogFile.create(tmp_path / "f")


@pytest.fixture
def forgets_the_system() -> Iterator[None]:
    """Whether the system can reserve space is found out anew, in the test and after it."""
    log_file._find_fallocate.cache_clear()
    yield
    log_file._find_fallocate.cache_clear()


@pytest.mark.usefixtures("forgets_the_system")
def test_no_space_is_reserved_where_the_system_has_no_call_for_it(
    file: LogFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())
    assert not file.reserve_behind(0, 1 << 20)
    assert file.allocated_bytes() < 1 << 20


@pytest.mark.usefixtures("forgets_the_system")
def test_no_space_is_reserved_where_the_call_takes_smaller_numbers(
    file: LogFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[int, ...]] = []

    def fallocate(*arguments: int) -> int:
        calls.append(arguments)
        return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(fallocate=fallocate))
    assert file.reserve_behind(5, 1 << 40)
    assert calls == [(file.fd, 1, 5, 1 << 40)], "with the size of the file as it is"
    log_file._find_fallocate.cache_clear()
    monkeypatch.setattr(ctypes, "c_long", ctypes.c_int32)
    assert not file.reserve_behind(5, 1 << 40)
    assert len(calls) == 1


def test_space_that_was_reserved_is_not_part_of_the_file(file: LogFile) -> None:
    file.write_at(0, b"abc")
    if not file.reserve_behind(3, 1 << 20):
        pytest.skip("this file system reserves nothing behind the end of a file")
    assert file.size() == 3
    assert file.allocated_bytes() >= 1 << 20
    assert not file.reserve_behind(-1, 10), "there is no such place"


def test_a_file_that_is_given_its_size_has_it_on_disk(file: LogFile) -> None:
    file.reserve(1 << 20)
    assert (file.size(), file.read_at(0, 3)) == (1 << 20, bytes(3))
    assert file.allocated_bytes() >= 1 << 20
    assert file.allocated_bytes() == file.path.stat().st_blocks * 512
    file.truncate(5)
    assert file.size() == 5


def test_reading_ends_with_the_file(file: LogFile) -> None:
    file.write_at(0, b"0123456789")
    file.write_at(4, b"four")
    assert file.read_at(0, 10) == b"0123four89"
    assert file.read_at(8, 10) == b"89"
    assert file.read_at(10, 1) == b""
    room = memoryview(bytearray(b"......"))
    assert file.read_into(7, room) == 3
    assert bytes(room) == b"r89..."
    assert file.read_into(0, room) == 6
    assert bytes(room) == b"0123fo"


def test_what_the_system_gives_and_takes_in_pieces_is_whole(file: LogFile, monkeypatch: pytest.MonkeyPatch) -> None:
    system = log_file.os
    pread, preadv, pwrite = system.pread, system.preadv, system.pwrite
    monkeypatch.setattr(system, "pwrite", lambda fd, data, at: pwrite(fd, memoryview(data)[:3], at))
    monkeypatch.setattr(system, "pread", lambda fd, length, at: pread(fd, min(length, 3), at))
    monkeypatch.setattr(system, "preadv", lambda fd, views, at: preadv(fd, [views[0][:3]], at))
    file.write_at(2, b"0123456789")
    assert file.size() == 12
    assert file.read_at(2, 10) == b"0123456789"
    assert file.read_at(2, 4) == b"0123"
    assert file.read_at(4, 20) == b"23456789"
    room = memoryview(bytearray(10))
    assert file.read_into(3, room) == 9
    assert bytes(room) == b"123456789\0"


def test_when_a_file_was_written_is_told_in_milliseconds(file: LogFile) -> None:
    os.utime(file.path, ns=(0, 1_700_000_000_123_999_999))
    assert file.modified_ms() == 1_700_000_000_123


def test_others_may_read_a_file_and_not_write_it(tmp_path: Path) -> None:
    usual = os.umask(0)
    try:
        file = LogFile.create(tmp_path / "f")
    finally:
        os.umask(usual)
    assert file.path.stat().st_mode & 0o777 == 0o644


def test_a_file_is_new_and_follows_its_renames(tmp_path: Path, file: LogFile) -> None:
    with pytest.raises(FileExistsError):
        LogFile.create(file.path)
    with pytest.raises(FileNotFoundError):
        LogFile.open(tmp_path / "g")
    file.rename(tmp_path / "g")
    assert (file.path, file_names(tmp_path)) == (tmp_path / "g", ["g"])
    file.write_at(0, b"x")
    assert LogFile.open(tmp_path / "g").read_at(0, 5) == b"x"
    with pytest.raises(OSError, match="Bad file descriptor"):
        LogFile.open_read_only(tmp_path / "g").write_at(0, b"y")


def test_files_are_no_matter_of_other_programs(file: LogFile) -> None:
    for opened in (file, LogFile.open(file.path), LogFile.open_read_only(file.path)):
        assert not os.get_inheritable(opened.fd)


def test_a_directory_is_synced_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    patch_own_thread(monkeypatch, os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    sync_directory(tmp_path)
    assert synced.count(str(tmp_path)) == 1
    (tmp_path / "f").touch()
    with pytest.raises(NotADirectoryError):
        sync_directory(tmp_path / "f")
    with pytest.raises(FileNotFoundError):
        sync_directory(tmp_path / "g")
