"""One pass over a log: reads its dirty part, then writes what is left of its segments, group by group.

Runs beside the thread that appends, or in another process (`worker`). It touches no file of the log: it makes new ones
beside them, and who calls it lets them take their place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator

from ottla.log.cleaning.chunks import ChunkReader
from ottla.log.cleaning.dirty_part import DirtyPart
from ottla.log.cleaning.offset_map import OffsetMap
from ottla.log.cleaning.pass_plan import CleanedGroup, CleanerLimits, CleaningAbortedError, Counts, PassPlan, Source
from ottla.log.cleaning.survivors import Survivors
from ottla.log.segment import Segment
from ottla.log.segment_files import CLEANED_SUFFIX


class Cleaner:
    """`groups` does the work of a pass, a group at a time; `end_offset` says how far the log is clean then."""

    def __init__(
        self,
        plan: PassPlan,
        limits: CleanerLimits,
        *,
        throttle: Callable[[int], None] = lambda count: None,
        is_called_off: Callable[[], bool] = lambda: False,
    ) -> None:
        """`throttle` is told how many bytes were read or written, and may take its time. Once a pass `is_called_off`,
        what it makes is of no use any more."""
        self._plan = plan
        self._limits = limits
        self._throttle = throttle
        self._is_called_off = is_called_off
        self._reader = ChunkReader(limits.buffer_bytes)
        self.end_offset = plan.first_dirty_offset
        self.keyless = 0
        self.counts = Counts()

    def groups(self) -> Generator[CleanedGroup, None, None]:
        """Each group that comes must have taken its place, or been discarded, before the next is asked for."""
        plan = self._plan
        dirty = self._read_dirty_part()
        self.end_offset, self.keyless = dirty.end_offset, dirty.keyless
        survivors = Survivors(plan, dirty, self.counts)
        for group in plan.groups(self.end_offset):
            segment = self._create_segment(group)
            try:
                for source in group:
                    self._clean_into(segment, source, survivors)
                self._complete(segment, group, survivors)
            except BaseException:
                segment.remove_files()
                raise
            yield CleanedGroup([source.segment for source in group], segment)

    def _read_dirty_part(self) -> DirtyPart:
        plan, limits = self._plan, self._limits
        keys_max = plan.end_offset - plan.first_dirty_offset
        newest = OffsetMap(limits.map_bytes, limits.map_load_factor, keys_max)
        dirty = DirtyPart(newest, plan.first_dirty_offset, plan.aborted)
        dirty.read(plan.dirty_sources(), self._reader, self._went_on)
        return dirty

    def _create_segment(self, group: list[Source]) -> Segment:
        directory, base_offset = self._plan.directory, group[0].segment.base_offset
        return Segment.create(
            directory, base_offset, self._plan.config, now_ms=self._plan.now_ms, ending=CLEANED_SUFFIX
        )

    def _clean_into(self, segment: Segment, source: Source, survivors: Survivors) -> None:
        for chunk in self._reader.read(source.segment):
            self._went_on(len(chunk.view))
            written = survivors.of_chunk(chunk)
            if written.pieces:
                segment.append_all(written.pieces, written.batches_to_note(segment), segment.size + written.size)
                self._throttle(written.size)

    def _complete(self, segment: Segment, group: list[Source], survivors: Survivors) -> None:
        for aborted in survivors.take_aborted():
            segment.transaction_index.append(aborted)
        segment.seal()
        if any(source.segment.transaction_index.path.exists() for source in group):
            segment.transaction_index.ensure_file()
        segment.sync()
        segment.is_synced = True
        # Where records have no timestamps, the age of the file is what retention goes by.
        modified_ns = os.fstat(group[-1].segment.log.fd).st_mtime_ns
        segment.created_ms = modified_ns // 1_000_000
        for path in (segment.log.path, segment.offset_index.path, segment.time_index.path):
            os.utime(path, ns=(modified_ns, modified_ns))

    def _went_on(self, byte_count: int) -> None:
        self.counts.bytes_read += byte_count
        if self._is_called_off():
            raise CleaningAbortedError("the log is not there any more as it was")
        self._throttle(byte_count)
