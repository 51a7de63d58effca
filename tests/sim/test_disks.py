"""What is left on a simulated disk: what was written, or after a loss of power at least what was synced."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from ottla.testing.sim.disks import SyncedLengths, leave_behind


@pytest.fixture
def synced() -> SyncedLengths:
    return SyncedLengths()


def write(path: Path, size: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(number % 251 for number in range(size)))
    return path


@pytest.mark.parametrize("sync", ["fsync", "fdatasync"])
def test_what_was_synced_is_safe_and_what_was_written_afterwards_is_not(
    synced: SyncedLengths, tmp_path: Path, sync: str
) -> None:
    path = write(tmp_path / "a.log", 10)
    real = {name: getattr(os, name) for name in ("fsync", "fdatasync", "ftruncate")}
    with synced.watching(), path.open("ab") as file:
        assert synced.of(path) == 0
        getattr(os, sync)(file.fileno())
        assert synced.of(path) == 10
        file.write(b"more")
        file.flush()
        assert synced.of(path) == 10
        os.ftruncate(file.fileno(), 12)
        assert (path.stat().st_size, synced.of(path)) == (12, 10)
        os.ftruncate(file.fileno(), 4)
        assert (path.stat().st_size, synced.of(path)) == (4, 4)
        os.ftruncate(file.fileno(), 8)
        assert synced.of(path) == 4
        assert all(getattr(os, name) is not function for name, function in real.items())
    assert all(getattr(os, name) is function for name, function in real.items())


def test_of_a_file_that_was_never_synced_nothing_is_safe_however_it_is_cut(
    synced: SyncedLengths, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.log", 10)
    with pytest.raises(ZeroDivisionError), synced.watching(), path.open("ab") as file:
        os.ftruncate(file.fileno(), 5)
        assert synced.of(path) == 0
        raise ZeroDivisionError
    assert os.ftruncate.__module__ in ("posix", "os")
    synced.keep(path, 3)
    assert synced.of(path) == 3


def test_a_killed_process_leaves_all_that_it_has_written(synced: SyncedLengths, tmp_path: Path) -> None:
    log, index = write(tmp_path / "0" / "t-0" / "0.log", 100), write(tmp_path / "0" / "t-0" / "0.index", 30)
    (tmp_path / "0" / "empty").mkdir()
    synced.keep(log, 40)
    synced.keep(index, 50)
    left = tmp_path / "1"
    assert leave_behind(tmp_path / "0", left, synced, power_loss=False, draw=Random(1)) == 0
    for path in (log, index):
        copy = left / path.relative_to(tmp_path / "0")
        assert copy.read_bytes() == path.read_bytes() and copy.stat().st_ino != path.stat().st_ino
    assert (left / "empty").is_dir()
    assert synced.of(left / "t-0" / "0.log") == 40, "the system still remembers the rest"
    assert synced.of(left / "t-0" / "0.index") == 30
    leave_behind(tmp_path / "0", left, synced, power_loss=False, draw=Random(1))


def test_a_loss_of_power_takes_any_part_of_what_was_not_synced_of_a_log(synced: SyncedLengths, tmp_path: Path) -> None:
    logs = {write(tmp_path / "0" / f"{number}.log", 100): number % 4 * 10 for number in range(300)}
    other = write(tmp_path / "0" / "a.checkpoint", 50)
    for path, safe in logs.items():
        if safe:
            synced.keep(path, safe)
    left = tmp_path / "1"
    lost = leave_behind(tmp_path / "0", left, synced, power_loss=True, draw=Random(1))
    sizes = {}
    for path, safe in logs.items():
        copy = left / path.name
        size = copy.stat().st_size
        assert safe <= size <= 100 and copy.read_bytes() == path.read_bytes()[:size]
        assert synced.of(copy) == size, "what is there afterwards is on the disk"
        sizes[path] = size
    assert lost == sum(100 - size for size in sizes.values())
    assert 30 * 300 < lost < 60 * 300 and max(sizes.values()) == 100
    assert min(size for path, size in sizes.items() if not logs[path]) < 5
    assert (left / other.name).read_bytes() == other.read_bytes()
