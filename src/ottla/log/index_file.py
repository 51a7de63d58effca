"""A sorted file of fixed-size entries beside a segment: what the offset index and the time index have in common.

A writable index keeps its entries in memory and writes them when asked (flush, roll, close), never during an append:
an append cannot fail halfway because of an index, and a full disk cannot kill the process as it would through a
writable memory map. What a crash loses is rebuilt from the log. A sealed index is mapped read-only on its first use.

The file of a writable index is pre-sized (sparsely) with a tail of zeros, as Kafka's is, and trimmed when sealed.
"""

from __future__ import annotations

import mmap
import os
import threading
from pathlib import Path
from typing import ClassVar

from ottla.base.errors import OttlaError


class CorruptIndexError(OttlaError):
    """An index that contradicts itself or its log. The log holds everything needed to rebuild it."""


class IndexFile:
    """Subclasses define what an entry means; entries never decrease."""

    entry_size: ClassVar[int]

    def __init__(self, path: Path, base_offset: int, max_bytes: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.max_entries = max_bytes // self.entry_size
        self.entry_count = 0
        self._memory: bytearray | None = None
        self._mapped: mmap.mmap | bytes | None = None
        self._written = 0
        # Held while the file is written or the entries shrink: flushing runs in another thread than appending.
        self._lock = threading.Lock()

    # -- opening and sealing -------------------------------------------------------------------------------------

    def create(self) -> None:
        """Start empty and writable; whatever the file held before is gone."""
        self._write_size(0, create=True)
        self._write_size(self.max_entries * self.entry_size)
        self._become_writable(bytearray())

    def open_sealed(self) -> None:
        """Use the file as it is, read-only. Raises CorruptIndexError if it cannot be one of ours."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            raise CorruptIndexError(f"{self.path} is missing") from None
        if size % self.entry_size:
            raise CorruptIndexError(f"{self.path} has {size} bytes, which is no multiple of {self.entry_size}")
        self._become_sealed(size // self.entry_size)

    def reopen_writable(self) -> None:
        """Turn a sealed index into the index of the active segment again."""
        if self._memory is not None:
            return
        entries = bytearray(self.entries())
        self._write_size(max(len(entries), self.max_entries * self.entry_size))
        self._become_writable(entries)
        self._written = self.entry_count

    def seal(self) -> None:
        """Write what is pending and trim the zero tail. Harmless on an index that is sealed already."""
        if self._memory is None:
            return
        self.write_pending()
        with self._lock:
            self._write_size(self.entry_count * self.entry_size)
            self._become_sealed(self.entry_count)

    def release(self) -> None:
        """Forget everything in memory, because the segment is being closed or deleted. The file is left as it is."""
        self._become_sealed(0)

    @property
    def is_writable(self) -> bool:
        return self._memory is not None

    @property
    def size_bytes(self) -> int:
        """What the entries take."""
        return self.entry_count * self.entry_size

    # -- entries -------------------------------------------------------------------------------------------------

    def entries(self) -> bytearray | mmap.mmap | bytes:
        """All entries, back to back. The buffer of a writable index must not be held across an append."""
        if self._memory is not None:
            return self._memory
        if self._mapped is None:
            self._mapped = self._map()
        return self._mapped

    def _append_packed(self, packed: bytes) -> None:
        if self._memory is None:
            raise CorruptIndexError(f"{self.path} is sealed and takes no entries")
        self._memory += packed
        self.entry_count += 1

    def _keep_first(self, count: int) -> None:
        """Drop all entries but the first `count`."""
        self.reopen_writable()
        with self._lock:
            assert self._memory is not None
            del self._memory[count * self.entry_size :]
            self.entry_count = count
            self._written = min(self._written, count)

    # -- the file ------------------------------------------------------------------------------------------------

    def write_pending(self) -> None:
        """Bring the file up to date with the entries. May run beside appends, not beside itself."""
        with self._lock:
            if self._memory is None:
                return
            start, count = self._written, self.entry_count
            if start == count:
                return
            # A copy: a view would forbid the appending thread to grow the array meanwhile.
            pending = bytes(self._memory[start * self.entry_size : count * self.entry_size])
            fd = os.open(self.path, os.O_WRONLY)
            try:
                position = start * self.entry_size
                while pending:
                    written = os.pwrite(fd, pending, position)
                    position += written
                    pending = pending[written:]
            finally:
                os.close(fd)
            self._written = count

    def sync(self) -> None:
        fd = os.open(self.path, os.O_RDONLY)
        try:
            os.fdatasync(fd)
        finally:
            os.close(fd)

    def rename(self, path: Path) -> None:
        self.path.rename(path)
        self.path = path

    def _write_size(self, size: int, *, create: bool = False) -> None:
        fd = os.open(self.path, os.O_WRONLY | (os.O_CREAT if create else 0), 0o644)
        try:
            os.ftruncate(fd, size)
        finally:
            os.close(fd)

    def _map(self) -> mmap.mmap | bytes:
        if self.entry_count == 0:
            return b""
        with self.path.open("rb") as f:
            return mmap.mmap(f.fileno(), self.entry_count * self.entry_size, access=mmap.ACCESS_READ)

    def _become_writable(self, entries: bytearray) -> None:
        self._memory = entries
        self._mapped = None
        self.entry_count = len(entries) // self.entry_size
        self._written = 0

    def _become_sealed(self, entry_count: int) -> None:
        self._memory = None
        self._mapped = None
        self.entry_count = entry_count
        self._written = entry_count
