"""One file of a partition, by its descriptor.

`LogFile` owns the descriptor and nothing else: no buffering, no position, no knowledge of what the bytes mean. It is
closed when its last holder lets go, so a slice of it that waits in a socket's queue stays readable after the segment
was renamed, replaced or deleted.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias, cast

Buffer: TypeAlias = bytes | bytearray | memoryview

_KEEP_SIZE = 1
"""FALLOC_FL_KEEP_SIZE of linux/falloc.h."""

_STAT_BLOCK_BYTES = 512


class LogFile:
    """An open file. `path` follows renames made through this object."""

    __slots__ = ("__weakref__", "fd", "path")

    def __init__(self, path: Path, flags: int) -> None:
        self.fd = -1
        self.path = path
        self.fd = os.open(path, flags, 0o644)

    @classmethod
    def create(cls, path: Path) -> LogFile:
        """A new, empty file; it must not exist yet."""
        return cls(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)

    @classmethod
    def open(cls, path: Path) -> LogFile:
        return cls(path, os.O_RDWR)

    @classmethod
    def open_read_only(cls, path: Path) -> LogFile:
        return cls(path, os.O_RDONLY)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def allocated_bytes(self) -> int:
        """What the file takes of the disk, reserved space included."""
        return os.fstat(self.fd).st_blocks * _STAT_BLOCK_BYTES

    def modified_ms(self) -> int:
        return os.fstat(self.fd).st_mtime_ns // 1_000_000

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of `data`. On OSError some of it may be in the file: the caller knows where its own data ends."""
        length = len(data)
        written = os.pwrite(self.fd, data, position)
        while written < length:
            written += os.pwrite(self.fd, memoryview(data)[written:], position + written)

    def read_at(self, position: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only where the file ends."""
        data = os.pread(self.fd, length, position)
        if len(data) == length or not data:
            return data
        parts = [data]
        have = len(data)
        while have < length:
            data = os.pread(self.fd, length - have, position + have)
            if not data:
                break
            parts.append(data)
            have += len(data)
        return b"".join(parts)

    def read_into(self, position: int, view: memoryview) -> int:
        """Fill `view` from `position`; returns how much of it was filled before the file ended."""
        have = 0
        while have < len(view):
            count = os.preadv(self.fd, [view[have:]], position + have)
            if count == 0:
                break
            have += count
        return have

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fd, size)

    def reserve(self, size: int) -> None:
        """Give the file its final size on disk now, so that appending later cannot run out of space."""
        os.posix_fallocate(self.fd, 0, size)

    def reserve_behind(self, position: int, length: int) -> bool:
        """Take disk space for bytes to come; the size of the file stays. False where that cannot be had."""
        fallocate = _find_fallocate()
        return fallocate is not None and fallocate(self.fd, _KEEP_SIZE, position, length) == 0

    def sync(self) -> None:
        os.fdatasync(self.fd)

    def rename(self, path: Path) -> None:
        self.path.rename(path)
        self.path = path


@functools.cache
def _find_fallocate() -> Callable[[int, int, int, int], int] | None:
    """Linux's own call: that of POSIX, which Python has, makes the file longer. Importing ctypes takes 10 ms."""
    import ctypes

    fallocate = getattr(ctypes.CDLL(None), "fallocate", None)
    if fallocate is not None and ctypes.sizeof(ctypes.c_long) == ctypes.sizeof(ctypes.c_int64):
        fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
        return cast("Callable[[int, int, int, int], int]", fallocate)
    return None


def file_names(directory: Path) -> list[str]:
    """What `directory` holds, by plain names: a broker with thousands of partitions looks at many files."""
    with os.scandir(directory) as entries:
        return [entry.name for entry in entries]


def sync_directory(directory: Path) -> None:
    """Make the creation, renaming or removal of files in `directory` durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
