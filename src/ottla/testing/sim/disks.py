"""What is left on a simulated broker's disk when its process is killed, or its machine loses power.

A killed process leaves all that it has written: the system's memory of it lives on. A machine that loses power leaves
what was synced, and as much of the rest as happened to be written.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any


class SyncedLengths:
    """How much of each file is safe, by what the log asks of the system meanwhile."""

    def __init__(self) -> None:
        self._lengths: dict[int, int] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        original: dict[str, Callable[..., Any]] = {
            name: getattr(os, name) for name in ("fsync", "fdatasync", "ftruncate")
        }

        def synced(name: str) -> Callable[[int], None]:
            def sync(fd: int) -> None:
                # What the real call is for cannot be lost here, and its time is not ours.
                found = os.fstat(fd)
                self._lengths[found.st_ino] = found.st_size

            return sync

        def ftruncate(fd: int, length: int) -> None:
            original["ftruncate"](fd, length)
            number = os.fstat(fd).st_ino
            self._lengths[number] = min(self._lengths.get(number, 0), length)

        replaced: dict[str, Callable[..., Any]] = {
            "fsync": synced("fsync"),
            "fdatasync": synced("fdatasync"),
            "ftruncate": ftruncate,
        }
        try:
            for name, function in replaced.items():
                setattr(os, name, function)
            yield
        finally:
            for name, function in original.items():
                setattr(os, name, function)

    def of(self, path: Path) -> int:
        return self._lengths.get(path.stat().st_ino, 0)

    def keep(self, path: Path, length: int) -> None:
        self._lengths[path.stat().st_ino] = length


def leave_behind(directory: Path, target: Path, synced: SyncedLengths, *, power_loss: bool, draw: Random) -> int:
    """Copies to `target` what a dead broker has left in `directory`; returns how many bytes of records are lost."""
    lost = 0
    for path in sorted(directory.rglob("*")):
        copy = target / path.relative_to(directory)
        if path.is_dir():
            copy.mkdir(parents=True, exist_ok=True)
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
        size = path.stat().st_size
        safe = min(synced.of(path), size)
        if power_loss and path.suffix == ".log":
            left = draw.randint(safe, size)
            os.truncate(copy, left)
            lost += size - left
            # What is on the disk after a restart cannot be lost by the next loss of power.
            safe = left
        synced.keep(copy, safe)
    return lost
