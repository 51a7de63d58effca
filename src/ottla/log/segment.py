"""One segment: a log file with its offset, time and transaction indexes, named by the first offset it may hold.

It stores batches and finds them again; which batches may be stored, and when to start another segment, is decided by
the partition's log. `size` is the truth about where the data ends: bytes behind it are a torn write or reserved space.
"""

from __future__ import annotations

import logging
import os
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from ottla.base.errors import CorruptBatchError
from ottla.base.types import ReadBuffer
from ottla.log.config import LogConfig
from ottla.log.file import LogFile
from ottla.log.file_walk import begins_with_batch, iter_file, walk_to
from ottla.log.index_file import CorruptIndexError
from ottla.log.offset_index import OffsetIndex, OffsetPosition
from ottla.log.segment_files import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_path,
)
from ottla.log.time_index import TimeIndex
from ottla.log.transaction_index import TransactionIndex
from ottla.records.batch import HEADER_SIZE, NO_TIMESTAMP, BatchHeader, read_header

MAX_RELATIVE_OFFSET = 2**31 - 1
# Where the newest batches lie, so that readers at the end of the log need neither index nor file to find their place.
_RECENT_BATCHES = 1024
_NOWHERE = 2**63
# A write into space that is there already costs a quarter less. What is reserved is in proportion to what is stored, so
# that many small partitions do not fill a disk with nothing.
_RESERVE_FROM_BYTES = 4 << 20
_RESERVE_BYTES_MAX = 16 << 20
_RESERVED_PART = 4

# As many buffers as Linux takes with one call (IOV_MAX).
_VECTORS_MAX = 1024

WrittenBatch: TypeAlias = tuple[int, int, int]
"""Position, last offset and largest timestamp."""

_log = logging.getLogger(__name__)


class Segment:
    def __init__(
        self, directory: Path, base_offset: int, config: LogConfig, log: LogFile, size: int, *, ending: str = ""
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.log = log
        self.size = size
        self.offset_index = OffsetIndex(
            segment_path(directory, base_offset, INDEX_SUFFIX + ending), base_offset, config.segment_index_bytes
        )
        self.time_index = TimeIndex(
            segment_path(directory, base_offset, TIME_INDEX_SUFFIX + ending), base_offset, config.segment_index_bytes
        )
        self.transaction_index = TransactionIndex(
            segment_path(directory, base_offset, TRANSACTION_INDEX_SUFFIX + ending), base_offset
        )
        self.index_interval_bytes = config.index_interval_bytes
        self.max_timestamp = NO_TIMESTAMP
        self.offset_of_max_timestamp = base_offset
        self.created_ms = 0
        self.is_deleted = False
        self.is_index_full = False
        self.is_synced = False
        """Set once a sealed segment is durable with its indexes, so that no later flush looks at it."""
        # Part of segment.ms that is taken off, so that partitions made together do not all roll together. It comes
        # from the names and not from chance: the same history always rolls at the same places.
        self.roll_jitter_ms = zlib.crc32(str(log.path).encode()) % (config.segment_jitter_ms + 1)
        self._first_timestamp: int | None = None
        self._indexed_position = 0
        self._has_torn_tail = False
        self._reserve_at = _RESERVE_FROM_BYTES
        """Where the space ends that was reserved; beyond it more is asked for."""
        self._recent_from = _NOWHERE
        self._reset_recent(base_offset if size == 0 else None)

    # -- opening -------------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, directory: Path, base_offset: int, config: LogConfig, *, now_ms: int, ending: str = "") -> Segment:
        """A new, empty, writable segment. Files left from an earlier one of this name are replaced.

        One that is not yet part of its log has another `ending`.
        """
        path = segment_path(directory, base_offset, LOG_SUFFIX + ending)
        path.unlink(missing_ok=True)
        log = LogFile.create(path)
        if config.preallocate:
            log.reserve(config.segment_bytes)
        segment = cls(directory, base_offset, config, log, 0, ending=ending)
        segment.created_ms = now_ms
        if config.preallocate:
            segment._has_torn_tail = True
            segment._reserve_at = _NOWHERE
        segment.create_indexes()
        return segment

    @classmethod
    def open(cls, directory: Path, base_offset: int, config: LogConfig, *, read_only: bool = False) -> Segment:
        """An existing segment, sealed. Its indexes are opened by `open_indexes` or made anew by recovery."""
        path = segment_path(directory, base_offset, LOG_SUFFIX)
        log = LogFile.open_read_only(path) if read_only else LogFile.open(path)
        segment = cls(directory, base_offset, config, log, log.size())
        segment.created_ms = log.modified_ms()
        return segment

    def create_indexes(self) -> None:
        """Empty, writable indexes, for a new segment or before a rebuild."""
        self.offset_index.create()
        self.time_index.create()
        self.transaction_index.create()
        self.max_timestamp = NO_TIMESTAMP
        self.offset_of_max_timestamp = self.base_offset
        self._indexed_position = 0

    def open_indexes(self) -> None:
        """Trust the index files after a cheap check of each; raises CorruptIndexError if one must be rebuilt."""
        self.offset_index.open_sealed()
        self.time_index.open_sealed()
        self.offset_index.check(self.size)
        self.time_index.check()
        self.transaction_index.entries()
        last_indexed = self.offset_index.last()
        if last_indexed is not None:
            self._indexed_position = last_indexed.position
        elif self.size > self.index_interval_bytes + HEADER_SIZE and self._second_batch_is_indexable():
            raise CorruptIndexError(f"{self.offset_index.path} is empty although its log is not")
        last_time = self.time_index.last()
        if last_time is None:
            if self.size:
                self._check_has_no_timestamps()
            return
        self.max_timestamp, self.offset_of_max_timestamp = last_time
        try:
            position = self.position_of(last_time.offset)
            header = self.header_at(position) if position < self.size else None
        except CorruptBatchError as e:
            raise CorruptIndexError(f"{self.offset_index.path} does not point at batches: {e.message}") from e
        if header is None or header.max_timestamp != last_time.timestamp:
            raise CorruptIndexError(f"{self.time_index.path} does not fit its log")

    def _second_batch_is_indexable(self) -> bool:
        """Whether some batch starts far enough into the log to deserve an entry."""
        return any(position > self.index_interval_bytes for position, _ in self.headers())

    def _check_has_no_timestamps(self) -> None:
        """A closed segment always has its largest timestamp in the time index, unless its batches have none."""
        if self.header_at(0).max_timestamp > NO_TIMESTAMP:
            raise CorruptIndexError(f"{self.time_index.path} is empty although its log has timestamps")

    def become_active(self) -> None:
        """Make a sealed segment writable again."""
        self.offset_index.reopen_writable()
        self.time_index.reopen_writable()
        self.is_index_full = self.offset_index.is_full or self.time_index.is_full
        self.is_synced = False
        # A broker that was killed has left space reserved.
        self._has_torn_tail = self.log.allocated_bytes() - self.size >= _RESERVE_FROM_BYTES // _RESERVED_PART

    # -- appending -----------------------------------------------------------------------------------------------

    def append(self, data: ReadBuffer, last_offset: int, max_timestamp: int) -> None:
        """Store one batch. On OSError nothing has changed, except perhaps bytes behind `size`."""
        position = self.write(data)
        self.note_batches(((position, last_offset, max_timestamp),))
        self.size = position + len(data)

    def append_all(self, data: list[memoryview], batches: list[WrittenBatch], end_position: int) -> None:
        """Store batches with one write. On OSError nothing has changed, except perhaps bytes behind `size`."""
        if len(data) == 1:
            self.write(data[0])
        else:
            self._write_all(data, end_position)
        self.note_batches(batches)
        self.size = end_position

    def write(self, data: ReadBuffer) -> int:
        """Put bytes behind the data and return their position; `size` stays, for the caller to move."""
        position = self.size
        if position >= self._reserve_at:
            self._reserve_more()
        try:
            if os.pwrite(self.log.fd, data, position) != len(data):
                self.log.write_at(position, data)
        except OSError:
            self._has_torn_tail = True
            self._cut_torn_tail()
            raise
        return position

    def _write_all(self, data: list[memoryview], end_position: int) -> None:
        position = self.size
        if position >= self._reserve_at:
            self._reserve_more()
        try:
            if len(data) > _VECTORS_MAX or os.pwritev(self.log.fd, data, position) != end_position - position:
                self.log.write_at(position, b"".join(data))
        except OSError:
            self._has_torn_tail = True
            self._cut_torn_tail()
            raise

    def _reserve_more(self) -> None:
        """Space for what is likely to come. `seal` gives back what was not needed."""
        length = min(self.size // _RESERVED_PART, _RESERVE_BYTES_MAX)
        if self.log.reserve_behind(self.size, length):
            self._reserve_at = self.size + length
            self._has_torn_tail = True
        else:
            self._reserve_at = _NOWHERE

    def note_batches(self, batches: Iterable[WrittenBatch]) -> None:
        """Index batches that were written, in their order. Cannot fail."""
        recent, positions = self._recent_last_offsets, self._recent_positions
        for position, last_offset, max_timestamp in batches:
            if max_timestamp > self.max_timestamp:
                self.max_timestamp = max_timestamp
                self.offset_of_max_timestamp = last_offset
            if position - self._indexed_position > self.index_interval_bytes:
                self.offset_index.append(last_offset, position)
                self.time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
                self._indexed_position = position
                self.is_index_full = self.offset_index.is_full or self.time_index.is_full
            elif position == 0:
                self._first_timestamp = max_timestamp
            recent.append(last_offset)
            positions.append(position)
        if self._recent_from == _NOWHERE:
            self._recent_from = recent[0]
        if len(recent) > _RECENT_BATCHES:
            del recent[: -_RECENT_BATCHES // 2], positions[: -_RECENT_BATCHES // 2]
            self._recent_from = recent[0]

    @property
    def indexed_up_to(self) -> int:
        """No batch that begins at this position or before can find one of the indexes full."""
        free_entries = min(index.max_entries - 1 - index.entry_count for index in (self.offset_index, self.time_index))
        # Two entries are further apart than the interval.
        return self._indexed_position + free_entries * self.index_interval_bytes

    @property
    def first_timestamp(self) -> int:
        """The max timestamp of the first batch: the age of the segment is counted from it. -1 if there is none."""
        if self._first_timestamp is None:
            self._first_timestamp = self.header_at(0).max_timestamp if self.size else NO_TIMESTAMP
        return self._first_timestamp

    # -- finding -------------------------------------------------------------------------------------------------

    def position_of(self, offset: int) -> int:
        """Where the first batch lies whose last offset is not below `offset`; `size` if there is none."""
        if offset >= self._recent_from:
            number = bisect_left(self._recent_last_offsets, offset)
            positions = self._recent_positions
            return positions[number] if number < len(positions) else self.size
        entry = self.offset_index.lookup(offset)
        try:
            return self._walk_from(entry, offset)
        except CorruptIndexError as e:
            _log.warning("%s; rebuilding it", e)
            self.rebuild_indexes()
            return walk_to(self.log, self.offset_index.lookup(offset).position, self.size, offset)

    def size_of_batch(self, position: int) -> int:
        """How long the batch at `position` is, or says it is."""
        positions = self._recent_positions
        number = bisect_left(positions, position)
        if number == len(positions) or positions[number] != position:
            return self.header_at(position).size
        return (positions[number + 1] if number + 1 < len(positions) else self.size) - position

    def header_at(self, position: int) -> BatchHeader:
        return read_header(self.log.read_at(position, HEADER_SIZE))

    def batch_at(self, position: int, header: BatchHeader) -> bytes:
        """The whole batch. Only for what has to look inside: never on the way of a produce or a fetch."""
        data = self.log.read_at(position, header.size)
        if len(data) < header.size:
            raise CorruptBatchError(f"{self.log.path} ends inside the batch at position {position}")
        return data

    def headers(self, position: int = 0, end_position: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Every batch from `position` on, by its header; payloads are skipped. One must end at `end_position`."""
        return iter_file(self.log, position, self.size if end_position is None else end_position)

    def next_offset(self) -> int:
        """The offset after the last batch."""
        if self._recent_last_offsets:
            return self._recent_last_offsets[-1] + 1
        last = self.offset_index.last()
        result = self.base_offset
        for _, header in self.headers(last.position if last else 0):
            result = header.next_offset
        return result

    def _walk_from(self, entry: OffsetPosition, offset: int) -> int:
        """Where the first batch lies that reaches `offset`, at or behind the one the entry points at."""
        if entry.position == 0:
            return walk_to(self.log, 0, self.size, offset)
        if not 0 <= entry.position <= self.size - HEADER_SIZE:
            raise self._misled_by(entry)

        def check(found: bytes) -> None:
            # A batch that begins after the entry's offset is not the one that was indexed.
            if not begins_with_batch(found, self.base_offset, entry.offset):
                raise self._misled_by(entry)

        return walk_to(self.log, entry.position, self.size, offset, check)

    def _misled_by(self, entry: OffsetPosition) -> CorruptIndexError:
        return CorruptIndexError(f"{self.offset_index.path} does not fit its log at offset {entry.offset}")

    # -- changing ------------------------------------------------------------------------------------------------

    def rebuild_indexes(self) -> None:
        """Make the offset and time index anew from the headers, up to the first place that is no batch."""
        was_writable = self.offset_index.is_writable
        self.offset_index.create()
        self.time_index.create()
        self.max_timestamp, self.offset_of_max_timestamp = NO_TIMESTAMP, self.base_offset
        self._indexed_position = 0
        self._reset_recent(self.base_offset)
        try:
            for position, header in self.headers():
                self.note_batches(((position, header.last_offset, header.max_timestamp),))
        except CorruptBatchError as e:
            # The batches behind the damage can still be read by those who hold their position; the index cannot
            # lead to them any more.
            _log.error("%s", e.message)
            self._reset_recent(None)
        self.time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
        if not was_writable:
            self.offset_index.seal()
            self.time_index.seal()

    def truncate_to(self, offset: int) -> int:
        """Drop every batch that reaches `offset` or beyond; returns the number of bytes dropped."""
        position = self.position_of(offset)
        dropped = self.size - position
        if dropped == 0:
            return 0
        kept_end = min(offset, self.header_at(position).base_offset)
        self.become_active()
        self.offset_index.truncate_to(kept_end)
        self.time_index.truncate_to(kept_end)
        self.transaction_index.truncate_to(kept_end)
        self.size = position
        self.log.truncate(position)
        last_indexed = self.offset_index.last()
        self._indexed_position = last_indexed.position if last_indexed else 0
        self._restore_max_timestamp()
        self._reset_recent(self.base_offset if position == 0 else None)
        self.is_index_full = False
        if position == 0:
            self._first_timestamp = None
        return dropped

    def _restore_max_timestamp(self) -> None:
        """After entries were dropped: the last one left, and what the batches after it say."""
        last = self.time_index.last()
        self.max_timestamp, self.offset_of_max_timestamp = last or (NO_TIMESTAMP, self.base_offset)
        start = self.position_of(last.offset) if last else 0
        for _, header in self.headers(start):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.offset_of_max_timestamp = header.max_timestamp, header.last_offset

    def _reset_recent(self, from_offset: int | None) -> None:
        """Forget the newest batches' places; from `from_offset` on (None: nowhere) the list is complete."""
        self._recent_last_offsets: list[int] = []
        self._recent_positions: list[int] = []
        self._recent_from = from_offset if from_offset is not None else _NOWHERE

    # -- files ---------------------------------------------------------------------------------------------------

    def seal(self) -> None:
        """Nothing more will be appended: complete the time index and trim all files to what they hold."""
        if self.time_index.is_writable:
            self.time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
        self.offset_index.seal()
        self.time_index.seal()
        self.transaction_index.write_pending()
        self._cut_torn_tail()
        self._reset_recent(None)

    def write_indexes(self) -> None:
        self.offset_index.write_pending()
        self.time_index.write_pending()
        self.transaction_index.write_pending()

    def sync(self) -> None:
        """Make log and indexes durable. May run in another thread than the one that appends."""
        self.log.sync()
        self.write_indexes()
        self.offset_index.sync()
        self.time_index.sync()
        self.transaction_index.sync()

    def mark_deleted(self) -> None:
        """Rename the files so that a restart removes them; whoever holds the log file can go on reading it."""
        self.is_deleted = True
        self.rename_files(DELETED_SUFFIX)

    def rename_files(self, ending: str) -> None:
        """Give the files their names with another ending; none makes them part of the log."""
        for file, suffix in (
            (self.log, LOG_SUFFIX),
            (self.offset_index, INDEX_SUFFIX),
            (self.time_index, TIME_INDEX_SUFFIX),
            (self.transaction_index, TRANSACTION_INDEX_SUFFIX),
        ):
            try:
                file.rename(segment_path(self.directory, self.base_offset, suffix + ending))
            except FileNotFoundError:
                if not self.is_deleted:
                    raise
                _log.warning("%s was to be deleted, but somebody has removed it already", file.path)

    def remove_files(self) -> None:
        for path in (self.log.path, self.offset_index.path, self.time_index.path, self.transaction_index.path):
            path.unlink(missing_ok=True)

    def moved_to(self, directory: Path) -> None:
        """The directory was renamed under the files."""
        self.directory = directory
        for file in (self.log, self.offset_index, self.time_index, self.transaction_index):
            file.path = directory / file.path.name

    def _cut_torn_tail(self) -> None:
        if self._has_torn_tail:
            try:
                self.log.truncate(self.size)
            except OSError as e:
                _log.error("%s has bytes behind its end that cannot be cut now: %s", self.log.path, e)
                return
            self._has_torn_tail = False
