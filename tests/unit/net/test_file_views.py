from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.base.types import FileSlice
from ottla.net.channel import FileTruncatedError, PlainChannel
from ottla.net.file_views import WINDOWS_MAX, FileViews

from .conftest import StoredFile

CONTENT = bytes(n * 7 % 251 for n in range(300_000))
MAPS = Path("/proc/self/maps")

needs_maps = pytest.mark.skipif(not MAPS.exists(), reason="only Linux tells what is mapped")


def stored(path: Path, content: bytes = CONTENT) -> StoredFile:
    path.write_bytes(content)
    return StoredFile(path)


def small_views() -> FileViews:
    return FileViews(read_bytes_max=10_000, window_bytes=65_536)


def mapped_files(directory: Path) -> list[str]:
    return [line for line in MAPS.read_text().splitlines() if str(directory) in line]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ranges=st.lists(
        st.tuples(st.sampled_from([0, 1]), st.integers(0, 310_000), st.integers(1, 200_000), st.integers(1, 200_000)),
        max_size=8,
    )
)
def test_a_view_is_the_beginning_of_its_range(tmp_path: Path, ranges: list[tuple[int, int, int, int]]) -> None:
    contents = [CONTENT, CONTENT[::-1]]
    files = [stored(tmp_path / str(number), content) for number, content in enumerate(contents)]
    views = small_views()
    for number, position, length, max_bytes in ranges:
        view = views.view(FileSlice(files[number], position, length), max_bytes)
        expected = contents[number][position : position + min(length, max_bytes)]
        assert bytes(view) == expected[: len(view)]
        assert bool(view) == bool(expected)


def test_what_a_file_has_grown_by_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = stored(path, CONTENT[:50_000])
    views = small_views()
    assert bytes(views.view(FileSlice(file, 20_000, 30_000), 30_000)) == CONTENT[20_000:50_000]
    with path.open("ab") as growing:
        growing.write(CONTENT[50_000:])
    assert bytes(views.view(FileSlice(file, 30_000, 40_000), 40_000)) == CONTENT[30_000:70_000]


def test_a_shorter_file_has_no_zeros_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = stored(path)
    views = small_views()
    assert views.view(FileSlice(file, 0, 60_000), 60_000)
    os.truncate(path, 30_001)
    assert bytes(views.view(FileSlice(file, 0, 60_000), 60_000)) == CONTENT[:30_001]
    assert not views.view(FileSlice(file, 30_001, 60_000), 60_000)


class TruncatedBehindItsBack(FileViews):
    """The file loses its content between the look at its size and the send."""

    def view(self, file_slice: FileSlice, max_bytes: int) -> memoryview:
        view = super().view(file_slice, max_bytes)
        os.truncate(f"/proc/self/fd/{file_slice.file.fd}", 0)
        return view


@needs_maps
def test_sending_what_was_cut_off_meanwhile_is_an_error_and_no_signal(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = PlainChannel(ours, TruncatedBehindItsBack(), is_peer_local=True)
        with pytest.raises(FileTruncatedError):
            channel.send_file(FileSlice(stored(tmp_path / "log"), 0, len(CONTENT)), len(CONTENT))


@needs_maps
def test_a_deleted_file_does_not_stay_mapped(tmp_path: Path) -> None:
    file = stored(tmp_path / "log")
    views = small_views()
    assert views.view(FileSlice(file, 0, 60_000), 60_000)
    assert len(mapped_files(tmp_path)) == 1
    (tmp_path / "log").unlink()
    del file
    assert not mapped_files(tmp_path)


@needs_maps
def test_only_the_last_few_files_are_mapped(tmp_path: Path) -> None:
    files = [stored(tmp_path / str(number)) for number in range(WINDOWS_MAX + 3)]
    views = small_views()
    for file in files:
        assert bytes(views.view(FileSlice(file, 5, 60_000), 60_000)) == CONTENT[5:60_005]
    mapped = {Path(line.split()[-1]).name for line in mapped_files(tmp_path)}
    assert mapped == {str(number) for number in range(3, WINDOWS_MAX + 3)}
    views.drop()
    assert not mapped_files(tmp_path)


@needs_maps
def test_another_part_of_a_file_takes_the_place_of_the_one_that_was_mapped(tmp_path: Path) -> None:
    files = [stored(tmp_path / str(number)) for number in range(WINDOWS_MAX)]
    views = small_views()
    for file in files:
        views.view(FileSlice(file, 0, 60_000), 60_000)
    assert bytes(views.view(FileSlice(files[1], 200_000, 60_000), 60_000)) == CONTENT[200_000:260_000]
    mapped = [Path(line.split()[-1]).name for line in mapped_files(tmp_path)]
    assert sorted(mapped) == sorted(str(number) for number in range(WINDOWS_MAX)), "nobody had to go for it"


def test_a_file_that_cannot_be_mapped_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(19, "No such device")

    views = small_views()
    file = stored(tmp_path / "log")
    monkeypatch.setattr("ottla.net.file_views.mmap.mmap", refuse)
    assert bytes(views.view(FileSlice(file, 7, 60_000), 60_000)) == CONTENT[7:10_007]
