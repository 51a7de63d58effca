"""What one pass over a log looks at, fixed on the event loop's thread: the log goes on changing meanwhile.

Segments are grouped so that what is left of a group goes into one segment, by their sizes before the cleaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ottla.base.errors import OttlaError
from ottla.log import lookup
from ottla.log.cleaning.candidates import Candidate
from ottla.log.config import LogConfig
from ottla.log.producer_snapshot import NO_OFFSET
from ottla.log.segment import MAX_RELATIVE_OFFSET, Segment
from ottla.log.transaction_index import AbortedTransaction


class LastWritten(NamedTuple):
    """What a producer that is not forgotten has written last."""

    data_offset: int
    """The last offset of its last data batch; -1 if none is known."""
    producer_epoch: int


class Source(NamedTuple):
    segment: Segment
    end_offset: int
    """Exclusive: where the next segment begins."""


class CleaningAbortedError(OttlaError):
    """The log was cut, deleted or closed under the cleaning."""


class CleaningEndedError(OttlaError):
    """The process of a pass was ended by somebody else, or could not begin, as it happens where memory is short."""


@dataclass(frozen=True, slots=True)
class CleanerLimits:
    """What one pass may use."""

    map_bytes: int
    map_load_factor: float
    buffer_bytes: int


@dataclass(slots=True)
class Counts:
    """What a pass has read, both looks together, and what was left of the log."""

    bytes_read: int = 0
    records_before: int = 0
    records_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0


class CleanedGroup(NamedTuple):
    sources: list[Segment]
    segment: Segment
    """Holds what is left of them. Complete and durable, under a name that a start would remove."""


@dataclass(frozen=True, slots=True)
class PassPlan:
    directory: Path
    sources: tuple[Source, ...]
    first_dirty_offset: int
    end_offset: int
    now_ms: int
    aborted: list[AbortedTransaction]
    last_written: dict[int, LastWritten]
    config: LogConfig

    def dirty_sources(self) -> list[Source]:
        return [source for source in self.sources if source.end_offset > self.first_dirty_offset]

    def groups(self, end_offset: int) -> list[list[Source]]:
        """The segments that begin below `end_offset`, in groups of which each becomes one."""
        return group_sources(
            [source for source in self.sources if source.segment.base_offset < end_offset], self.config
        )


def plan_pass(candidate: Candidate, now_ms: int) -> PassPlan:
    log = candidate.log
    segments = log.segments
    sources = tuple(
        Source(segment, segments.end_of(number, log.log_end_offset))
        for number, segment in enumerate(segments.all())
        if segment.base_offset < candidate.end_offset
    )
    expiration_ms = log.config.producer_id_expiration_ms
    last_written = {
        producer_id: LastWritten(entry.last_offset, entry.producer_epoch)
        for producer_id, entry in log.producers.entries.items()
        if entry.transaction_first_offset != NO_OFFSET or now_ms - entry.last_timestamp <= expiration_ms
    }
    return PassPlan(
        directory=log.directory,
        sources=sources,
        first_dirty_offset=candidate.first_dirty_offset,
        end_offset=candidate.end_offset,
        now_ms=now_ms,
        aborted=lookup.aborted_transactions(segments, segments.first.base_offset, candidate.end_offset),
        last_written=last_written,
        config=log.config,
    )


def group_sources(sources: Sequence[Source], config: LogConfig) -> list[list[Source]]:
    groups: list[list[Source]] = []
    size = offset_index_size = time_index_size = 0
    for source in sources:
        segment = source.segment
        size += segment.size
        offset_index_size += segment.offset_index.size_bytes
        time_index_size += segment.time_index.size_bytes
        if (
            groups
            and size <= config.segment_bytes
            and max(offset_index_size, time_index_size) <= config.segment_index_bytes
            and source.end_offset - 1 - groups[-1][0].segment.base_offset <= MAX_RELATIVE_OFFSET
        ):
            groups[-1].append(source)
        else:
            groups.append([source])
            size = segment.size
            offset_index_size, time_index_size = segment.offset_index.size_bytes, segment.time_index.size_bytes
    return groups
