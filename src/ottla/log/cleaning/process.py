"""A pass in a process of its own, seen from the broker.

In a thread, NumPy and Python code would take turns with the event loop over the interpreter's lock, and a produce would
wait for milliseconds. That is fit for small passes only. Imports no NumPy.
"""

from __future__ import annotations

import os
import pickle
import select
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, replace
from struct import Struct
from typing import NamedTuple, TypeAlias

from ottla.base.errors import OttlaError
from ottla.log.cleaning.pass_plan import (
    CleanedGroup,
    CleanerLimits,
    CleaningAbortedError,
    CleaningEndedError,
    Counts,
    PassPlan,
    Source,
)
from ottla.log.file import LogFile
from ottla.log.segment import Segment
from ottla.log.segment_files import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_path,
)

_LOOK_EVERY_MS = 100
_HAS_ENDED = "the process that compacts it has ended"
_SIZE = Struct(">I")
_COMMAND = ("-m", "ottla.log.cleaning.worker")
_ENVIRONMENT = {
    # The start of NumPy's threads for linear algebra costs as much as all else that is loaded, and nobody needs them.
    "OPENBLAS_NUM_THREADS": "1",
    # The arrays of one chunk are freed before those of the next are made. glibc would give their memory back to the
    # system and fetch it again each time, which takes a quarter of a pass.
    "MALLOC_TRIM_THRESHOLD_": str(128 << 20),
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
}


class Made(NamedTuple):
    """What is left of a group is complete."""

    base_offsets: list[int]
    size: int


class Done(NamedTuple):
    end_offset: int
    keyless: int
    counts: Counts


class Failed(NamedTuple):
    errno: int | None
    reason: str
    path: str | None = None
    """What could not be read or written."""


Message: TypeAlias = Made | Done | Failed


def pack_message(message: Message) -> bytes:
    data = pickle.dumps(message)
    return _SIZE.pack(len(data)) + data


class CleaningFailedError(OttlaError):
    """The other process could not clean the log."""


@dataclass(frozen=True, slots=True)
class Job:
    """A plan for another process, which opens the segments by itself."""

    plan: PassPlan
    sources: list[tuple[int, int, int]]
    """Base offset, size and end offset of each."""
    limits: CleanerLimits
    bytes_per_second: float

    @classmethod
    def of(cls, plan: PassPlan, limits: CleanerLimits, bytes_per_second: float) -> Job:
        sources = [(segment.base_offset, segment.size, end_offset) for segment, end_offset in plan.sources]
        return cls(replace(plan, sources=()), sources, limits, bytes_per_second)

    def open_plan(self) -> PassPlan:
        opened = []
        for base_offset, size, end_offset in self.sources:
            segment = Segment.open(self.plan.directory, base_offset, self.plan.config, read_only=True)
            segment.size = size
            segment.offset_index.open_sealed()
            segment.time_index.open_sealed()
            opened.append(Source(segment, end_offset))
        return replace(self.plan, sources=tuple(opened))


class CleaningProcess:
    """Has the form of `Cleaner`."""

    def __init__(
        self,
        plan: PassPlan,
        limits: CleanerLimits,
        *,
        bytes_per_second: float,
        is_called_off: Callable[[], bool],
    ) -> None:
        self._plan = plan
        self._job = Job.of(plan, limits, bytes_per_second)
        self._is_called_off = is_called_off
        self.end_offset = plan.first_dirty_offset
        self.keyless = 0
        self.counts = Counts()

    def groups(self) -> Generator[CleanedGroup, None, None]:
        """Each group that comes must have taken its place, or been discarded, before the next is asked for."""
        process = _start()
        assert process.stdin is not None and process.stdout is not None
        try:
            try:
                process.stdin.write(pickle.dumps(self._job))
                process.stdin.flush()
            except BrokenPipeError:
                raise CleaningEndedError(_HAS_ENDED) from None
            while True:
                message = self._receive(process.stdout.fileno())
                if isinstance(message, Failed):
                    raise _error_of(message)
                if isinstance(message, Done):
                    self.end_offset, self.keyless, self.counts = message
                    return
                yield self._open(message)
        finally:
            process.kill()
            process.wait()
            with suppress(BrokenPipeError):  # of a job that was not taken
                process.stdin.close()
            process.stdout.close()
            self._remove_unfinished()

    def _receive(self, fd: int) -> Message:
        (size,) = _SIZE.unpack(self._read(fd, _SIZE.size))
        message: Message = pickle.loads(self._read(fd, size))
        return message

    def _read(self, fd: int, size: int) -> bytes:
        # Not select, which knows no descriptors above 1,023.
        arrived = select.poll()
        arrived.register(fd, select.POLLIN)
        data = b""
        while len(data) < size:
            while not arrived.poll(_LOOK_EVERY_MS):
                if self._is_called_off():
                    raise CleaningAbortedError("the log is not there any more as it was")
            more = os.read(fd, size - len(data))
            if not more:
                raise CleaningEndedError(_HAS_ENDED)
            data += more
        return data

    def _open(self, made: Made) -> CleanedGroup:
        sources = [segment for segment, _ in self._plan.sources if segment.base_offset in set(made.base_offsets)]
        directory, base_offset = self._plan.directory, made.base_offsets[0]
        log = LogFile.open(segment_path(directory, base_offset, LOG_SUFFIX + CLEANED_SUFFIX))
        segment = Segment(directory, base_offset, self._plan.config, log, made.size, ending=CLEANED_SUFFIX)
        segment.open_indexes()
        segment.created_ms = log.modified_ms()
        segment.is_synced = True
        return CleanedGroup(sources, segment)

    def _remove_unfinished(self) -> None:
        for segment, _ in self._plan.sources:
            for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
                path = segment_path(self._plan.directory, segment.base_offset, suffix + CLEANED_SUFFIX)
                path.unlink(missing_ok=True)


def _start() -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            [sys.executable, *_COMMAND],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={**_ENVIRONMENT, **os.environ},
        )
    except OSError as e:
        # Memory or descriptors are short: the disk, which an OSError is about elsewhere, is not to blame.
        raise CleaningEndedError(f"no process can be started to compact it ({e.strerror})") from e


def _error_of(failed: Failed) -> Exception:
    if failed.errno is not None:
        return OSError(failed.errno, failed.reason, failed.path)
    return CleaningFailedError(failed.reason)
