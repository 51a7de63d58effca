"""Brings the producers' state up to date from batches that are in the log already."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ottla.base.errors import CorruptBatchError
from ottla.log.producer_snapshot import DUPLICATE_WINDOW, StoredBatch
from ottla.log.producer_state import CompletedTransaction, ProducerStates
from ottla.log.segment import Segment
from ottla.log.segment_set import SegmentSet
from ottla.log.transaction_index import AbortedTransaction, TransactionIndex
from ottla.records.batch import BatchHeader
from ottla.records.control import EndMarker, parse_end_marker
from ottla.records.reader import read_records


def read_end_marker(batch: memoryview | bytes, header: BatchHeader) -> EndMarker | None:
    """What a control batch says about a transaction; None if it is about something else."""
    records = read_records(batch, header)
    if len(records) != 1:
        raise CorruptBatchError(f"the control batch of offset {header.base_offset} holds {len(records)} records")
    return parse_end_marker(records[0])


def replay_into_index(
    index: TransactionIndex, producers: ProducerStates, header: BatchHeader, batch: memoryview | bytes
) -> None:
    """Apply a batch that was read back; a transaction that it aborts goes into `index`.

    Only the bytes of control batches are looked at. Compaction may have left one without its record: then there is
    nothing to learn from it.
    """
    marker = read_end_marker(batch, header) if header.is_control and header.record_count else None
    note_completed(index, producers, producers.replay(header, marker))


def note_completed(index: TransactionIndex, producers: ProducerStates, completed: CompletedTransaction | None) -> None:
    """Remember a transaction that has just ended, if it was aborted."""
    if completed is not None and completed.is_aborted:
        last_stable_offset = producers.last_stable_offset_after(completed)
        index.append(
            AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, last_stable_offset)
        )


def replay_producers(producers: ProducerStates, segments: SegmentSet, end_offset: int = 2**63) -> None:
    """Apply every batch from where `producers` ends up to `end_offset`."""
    for segment in segments.from_offset(producers.end_offset):
        for position, header in segment.headers(segment.position_of(producers.end_offset)):
            if header.base_offset >= end_offset:
                return
            marker = None
            if header.is_control and header.record_count:
                marker = read_end_marker(segment.batch_at(position, header), header)
            producers.replay(header, marker)


def recall_batches(producers: ProducerStates, segments: SegmentSet, look_back_bytes: int) -> None:
    """Find the batches before the newest one of each producer again, as far as `look_back_bytes` of the log go.

    A snapshot holds only the newest. After a crash a client sends all again that it had no reply for, up to five, and
    would be refused the first of them if it were not recognised.
    """
    forgetful = {
        producer_id: entry
        for producer_id, entry in producers.entries.items()
        if 0 < len(entry.batches) < DUPLICATE_WINDOW
    }
    if not forgetful:
        return
    found: dict[int, deque[StoredBatch]] = {}
    for header in _last_headers(segments, look_back_bytes):
        entry = forgetful.get(header.producer_id)
        if entry is not None and not header.is_control and header.producer_epoch == entry.producer_epoch:
            batch = StoredBatch(
                header.base_sequence,
                header.last_sequence,
                header.last_offset,
                header.last_offset_delta,
                header.max_timestamp,
            )
            found.setdefault(header.producer_id, deque(maxlen=DUPLICATE_WINDOW)).append(batch)
    for producer_id, batches in found.items():
        if batches[-1].last_offset == forgetful[producer_id].last_offset:
            forgetful[producer_id].batches = batches


def _last_headers(segments: SegmentSet, look_back_bytes: int) -> Iterator[BatchHeader]:
    """Headers of about the last `look_back_bytes` of the log, in its order."""
    starts: list[tuple[Segment, int]] = []
    for segment in reversed(segments.all()):
        start = 0
        if segment.size > look_back_bytes:
            entry = segment.offset_index.first_at_or_after(segment.size - look_back_bytes)
            start = entry.position if entry is not None else 0
        starts.append((segment, start))
        look_back_bytes -= segment.size - start
        if look_back_bytes <= 0:
            break
    for segment, start in reversed(starts):
        for _, header in segment.headers(start):
            yield header
