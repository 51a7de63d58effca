"""Ranges of log files as memory that a socket can send from.

Large ranges are sent from a mapping of their file, without a copy of ours in between; small ones are read into a buffer
that all share. A few mappings are kept, because what one consumer has read is often read by others. Nobody may look
into a view of a mapping: where the file has become shorter, that would be a SIGBUS, while a send only fails.
"""

from __future__ import annotations

import mmap
import os
from typing import NamedTuple
from weakref import WeakKeyDictionary

from ottla.base.types import FileSlice, OpenFile

READ_BYTES_MAX = 131_072
"""Up to this size reading costs less than to map a part of a file that has grown since it was mapped."""

WINDOW_BYTES = 4 * 1_048_576
WINDOWS_MAX = 16
"""Mapped pages count as memory of the process, as long as they are mapped."""


class _Window(NamedTuple):
    start: int
    end: int
    view: memoryview


class FileViews:
    """For the channels of one thread. A view is valid until the next call."""

    def __init__(self, *, read_bytes_max: int = READ_BYTES_MAX, window_bytes: int = WINDOW_BYTES) -> None:
        # Unlike a bytearray, a mapping takes no memory before it is used.
        self._buffer = memoryview(mmap.mmap(-1, read_bytes_max, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        self._window_bytes = window_bytes
        # A mapping would keep the space of a deleted file. With the last user of the file its window is gone, too.
        self._windows: WeakKeyDictionary[OpenFile, _Window] = WeakKeyDictionary()

    def view(self, file_slice: FileSlice, max_bytes: int) -> memoryview:
        """The beginning of the range, as much of it as is convenient; empty if the file ends before it."""
        file, position, length = file_slice
        count = min(length, max_bytes)
        if count > len(self._buffer):
            # Behind the end of the file, but within its last page, a mapping has zeros.
            size = os.fstat(file.fd).st_size
            end = min(position + count, size)
            window = self._windows.get(file)
            if window is None or not window.start <= position < end <= window.end:
                window = self._map(file, position, size)
            if window is not None:
                return window.view[position - window.start : end - window.start]
        return self._read(file, position, count)

    def drop(self) -> None:
        """Unmaps everything."""
        self._windows.clear()

    def _read(self, file: OpenFile, position: int, count: int) -> memoryview:
        return self._buffer[: os.preadv(file.fd, [self._buffer[:count]], position)]

    def _map(self, file: OpenFile, position: int, size: int) -> _Window | None:
        """None if there is nothing to map, or no way to."""
        self._windows.pop(file, None)
        start = position - position % mmap.ALLOCATIONGRANULARITY
        end = min(start + self._window_bytes, size)
        if end <= position:
            return None
        try:
            mapped = mmap.mmap(file.fd, end - start, mmap.MAP_SHARED, mmap.PROT_READ, offset=start)
        except (OSError, ValueError):
            return None
        if len(self._windows) >= WINDOWS_MAX:
            self._windows.pop(next(iter(self._windows)), None)
        window = self._windows[file] = _Window(start, end, memoryview(mapped))
        return window
