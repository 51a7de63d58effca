"""Searches over a partition's segments that are not the fetch path: by timestamp, and for aborted transactions."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from ottla.base.errors import CorruptBatchError
from ottla.log.segment import Segment
from ottla.log.segment_set import SegmentSet
from ottla.log.transaction_index import AbortedTransaction
from ottla.records.batch import NO_TIMESTAMP
from ottla.records.reader import Record, read_records

_log = logging.getLogger(__name__)

_FEW = 16
"""Up to so many aborted transactions are listed without a search for the exact end of what was read."""


class FoundRecord(NamedTuple):
    timestamp: int
    offset: int
    partition_leader_epoch: int


def find_by_timestamp(segments: SegmentSet, timestamp: int, start_offset: int, end_offset: int) -> FoundRecord | None:
    """The first record in [start_offset, end_offset) that is at least as young as `timestamp`."""
    for segment in segments.from_offset(start_offset):
        if segment.max_timestamp < timestamp:
            continue
        for position, header in segment.headers(_time_search_start(segment, timestamp, start_offset)):
            if header.base_offset >= end_offset:
                return None
            if header.max_timestamp < timestamp or header.last_offset < start_offset:
                continue
            for record in read_records(segment.batch_at(position, header), header):
                if record.timestamp >= timestamp and start_offset <= record.offset < end_offset:
                    return FoundRecord(record.timestamp, record.offset, header.partition_leader_epoch)
    return None


def find_max_timestamp(segments: SegmentSet, start_offset: int, end_offset: int) -> FoundRecord | None:
    """The record with the largest timestamp in [start_offset, end_offset), the first one if there are several."""
    best: FoundRecord | None = None
    # Youngest first: the segments that cannot hold anything younger are then never opened.
    for segment in sorted(segments.from_offset(start_offset), key=lambda s: (-s.max_timestamp, s.base_offset)):
        if segment.max_timestamp == NO_TIMESTAMP or (best is not None and segment.max_timestamp < best.timestamp):
            break
        found = _max_in_segment(segment, start_offset, end_offset)
        if found is not None and (best is None or (-found.timestamp, found.offset) < (-best.timestamp, best.offset)):
            best = found
    return best


def _max_in_segment(segment: Segment, start_offset: int, end_offset: int) -> FoundRecord | None:
    candidate = _first_youngest(segment, segment.position_of(segment.offset_of_max_timestamp), start_offset, end_offset)
    if candidate is not None and candidate.timestamp == segment.max_timestamp:
        return candidate
    # The youngest batch is partly or wholly outside the range, so the rest of the segment has to be looked at.
    best: FoundRecord | None = None
    for position, header in segment.headers():
        if header.last_offset < start_offset or (best is not None and header.max_timestamp <= best.timestamp):
            continue
        if header.base_offset >= end_offset:
            break
        found = _first_youngest(segment, position, start_offset, end_offset)
        if found is not None and (best is None or found.timestamp > best.timestamp):
            best = found
    return best


def _first_youngest(segment: Segment, position: int, start_offset: int, end_offset: int) -> FoundRecord | None:
    if position >= segment.size:
        return None
    header = segment.header_at(position)
    best: Record | None = None
    for record in read_records(segment.batch_at(position, header), header):
        if start_offset <= record.offset < end_offset and (best is None or record.timestamp > best.timestamp):
            best = record
    return FoundRecord(best.timestamp, best.offset, header.partition_leader_epoch) if best else None


def _time_search_start(segment: Segment, timestamp: int, start_offset: int) -> int:
    """The position from which a forward search cannot miss anything, as the time index tells it."""
    entry = segment.time_index.lookup(timestamp)
    if entry is None:
        return segment.position_of(start_offset)
    position = segment.position_of(entry.offset)
    if position >= segment.size or segment.header_at(position).max_timestamp != entry.timestamp:
        _log.warning("%s does not fit its log at offset %d; rebuilding it", segment.time_index.path, entry.offset)
        segment.rebuild_indexes()
        return 0
    return segment.position_of(max(entry.offset, start_offset))


def aborted_transactions(
    segments: SegmentSet, start_offset: int, end_offset: int, narrower_end: Callable[[], int] | None = None
) -> list[AbortedTransaction]:
    """The aborted transactions that touch [start_offset, end_offset), by their first offset.

    Markers may lie in later segments than the records they end, so the search goes on until an entry shows that no
    later one can matter. `narrower_end` is asked for a better end if there may be many.
    """
    following = segments.from_offset(start_offset)
    if narrower_end is not None and sum(len(segment.transaction_index.entries()) for segment in following) > _FEW:
        end_offset = min(end_offset, narrower_end())
    found: list[AbortedTransaction] = []
    for segment in following:
        overlapping, is_complete = segment.transaction_index.overlapping(start_offset, end_offset)
        found += overlapping
        if is_complete:
            break
    return sorted(found, key=lambda aborted: aborted.first_offset)


def end_of_bytes(segment: Segment, end_position: int, segment_end_offset: int) -> int:
    """An offset not below the end of the batches that end at `end_position` or before, by the index if it can tell."""
    entry = segment.offset_index.first_at_or_after(end_position)
    if entry is None:
        return segment_end_offset
    try:
        header = segment.header_at(entry.position)
    except CorruptBatchError:
        return segment_end_offset
    # An index that has been damaged must not hide an aborted transaction.
    return header.base_offset if header.last_offset == entry.offset else segment_end_offset
