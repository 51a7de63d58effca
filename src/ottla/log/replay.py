"""Brings the producers' state up to date from batches that are in the log already."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.base.errors import CorruptBatchError
from ottla.log.producer_snapshot import DUPLICATE_WINDOW, ProducerEntry, StoredBatch
from ottla.log.producer_state import CompletedTransaction, ProducerStates
from ottla.log.segment_set import SegmentSet
from ottla.log.transaction_index import AbortedTransaction, TransactionIndex
from ottla.records.batch import BatchHeader
from ottla.records.control import EndMarker, parse_end_marker
from ottla.records.reader import read_records

_LOOK_BACK_BYTES = 64 << 20
"""How much of the log is searched for the batches that a client sends again: what others may have written between."""
_LOOK_BACK_STEP_BYTES = 1 << 20


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


def recall_batches(entry: ProducerEntry, segments: SegmentSet) -> None:
    """Find the batches again that the log holds before those `entry` knows, as many as a client may send again.

    A client that was told nothing when leaders changed sends up to five again. If the first were not recognised, the
    client would take all five for lost and send them with new numbers (KIP-360), and they would be stored twice.
    """
    missing = DUPLICATE_WINDOW - len(entry.batches)
    first_offset = entry.batches[0].first_offset
    for headers in _headers_before(first_offset, segments):
        own = [
            StoredBatch(h.base_sequence, h.last_sequence, h.last_offset, h.last_offset_delta, h.max_timestamp)
            for h in headers
            if h.producer_id == entry.producer_id and h.producer_epoch == entry.producer_epoch and not h.is_control
        ][-missing:]
        entry.batches.extendleft(reversed(own))
        missing -= len(own)
        if missing <= 0:
            break
    entry.lacks_earlier = False


def _headers_before(offset: int, segments: SegmentSet) -> Iterator[list[BatchHeader]]:
    """Headers of the batches before the one that `offset` begins, in pieces: the last piece first, each in order."""
    to_search = _LOOK_BACK_BYTES
    for segment in reversed(segments.up_to(segments.number_of(offset)).all()):
        end = segment.position_of(offset)
        while end > 0 and to_search > 0:
            start = segment.offset_index.last_before(end - _LOOK_BACK_STEP_BYTES).position
            yield [header for _, header in segment.headers(start, end)]
            to_search -= end - start
            end = start
