"""The aborted transactions whose marker lies in a segment (`.txnindex`): what read_committed consumers must skip.

Like the other indexes it lives in memory while its segment is active and is written when asked. A sealed segment in
whose time there were transactions has the file even if none was aborted: so its loss can be told from its absence.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left
from operator import attrgetter
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from ottla.log.index_file import CorruptIndexError

_ENTRY = Struct(">hqqqq")
_VERSION = 0


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the ABORT marker."""
    last_stable_offset: int
    """Where the last stable offset stood once this transaction was over."""


_LAST_OFFSET = attrgetter("last_offset")


class TransactionIndex:
    def __init__(self, path: Path, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self._entries: list[AbortedTransaction] | None = None
        self._written = 0
        self._lock = threading.Lock()

    def create(self) -> None:
        """Start empty; a file left from before is removed."""
        self.path.unlink(missing_ok=True)
        self._entries = []
        self._written = 0

    def entries(self) -> list[AbortedTransaction]:
        if self._entries is None:
            self._entries = self._read()
            self._written = len(self._entries)
        return self._entries

    def append(self, aborted: AbortedTransaction) -> None:
        self.entries().append(aborted)

    def overlapping(self, start_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """The transactions that touch [start_offset, end_offset), and whether later segments need no look.

        Once an entry's last stable offset reaches the end, every later marker belongs to a transaction that began
        at or after the end.
        """
        found = []
        entries = self.entries()
        # They stand in the order of their markers.
        for number in range(bisect_left(entries, start_offset, key=_LAST_OFFSET), len(entries)):
            entry = entries[number]
            if entry.first_offset < end_offset:
                found.append(entry)
            if entry.last_stable_offset >= end_offset:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Forget every transaction whose marker is at or above `offset`."""
        with self._lock:
            kept = [entry for entry in self.entries() if entry.last_offset < offset]
            if self._written > len(kept):
                os.truncate(self.path, len(kept) * _ENTRY.size)
                self._written = len(kept)
            self._entries = kept

    def write_pending(self) -> None:
        """Bring the file up to date. May run beside appends."""
        with self._lock:
            if self._entries is None or self._written == len(self._entries):
                return
            pending = self._entries[self._written :]
            data = b"".join(_ENTRY.pack(_VERSION, *entry) for entry in pending)
            fd = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o644)
            try:
                position = self._written * _ENTRY.size
                while data:
                    written = os.pwrite(fd, data, position)
                    position += written
                    data = data[written:]
            finally:
                os.close(fd)
            self._written += len(pending)

    def ensure_file(self) -> None:
        """Make the file if it is not there: transactions have ended here, and all that were aborted are known."""
        self.path.touch()

    def sync(self) -> None:
        if self._entries is not None and self._written:
            fd = os.open(self.path, os.O_RDONLY)
            try:
                os.fdatasync(fd)
            finally:
                os.close(fd)

    def release(self) -> None:
        self._entries = None
        self._written = 0

    def rename(self, path: Path) -> None:
        if self.path.exists():
            self.path.rename(path)
        self.path = path

    def _read(self) -> list[AbortedTransaction]:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return []
        if len(data) % _ENTRY.size:
            raise CorruptIndexError(f"{self.path} has {len(data)} bytes, which is no multiple of {_ENTRY.size}")
        entries: list[AbortedTransaction] = []
        for version, *fields in _ENTRY.iter_unpack(data):
            entry = AbortedTransaction(*fields)
            in_order = not entries or entries[-1].last_offset < entry.last_offset
            if (
                version != _VERSION
                or not in_order
                or entry.producer_id < 0
                or not entry.first_offset <= entry.last_offset
                or entry.last_offset < self.base_offset
                or entry.last_stable_offset < entry.first_offset
            ):
                raise CorruptIndexError(f"{self.path} holds an impossible entry: {entry}")
            entries.append(entry)
        return entries
