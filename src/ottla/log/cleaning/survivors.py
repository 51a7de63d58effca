"""The second look of a pass: what is written of each batch. All the rules of what stays are here.

A batch that keeps everything is written as its bytes are. Of the dirty part it is known already which records stay, so
most of its batches are never opened: those that lose everything, and those that lose nothing.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ottla.log.cleaning.chunks import Batch, Chunk, open_batches
from ottla.log.cleaning.dirty_part import DirtyPart
from ottla.log.cleaning.key_hashes import hash_keys
from ottla.log.cleaning.pass_plan import Counts, PassPlan
from ottla.log.cleaning.rewriting import empty_batch, rewrite_batch
from ottla.log.cleaning.transactions import TransactionWalk
from ottla.log.segment import WrittenBatch
from ottla.log.transaction_index import AbortedTransaction
from ottla.records.arrays.layout import RecordLayout
from ottla.records.arrays.varint import Int64s
from ottla.records.batch import BatchHeader, read_header


class _Rewritten(NamedTuple):
    data: bytes
    record_count: int
    max_timestamp: int


class _Inside(NamedTuple):
    """The records have to be looked at. In the dirty part it is known which of them stay."""

    entries: Int64s | None


class _Whole(Enum):
    DROPPED = auto()
    COPIED = auto()


_Outcome: TypeAlias = _Whole | _Rewritten | _Inside
_DROPPED, _COPIED = _Whole.DROPPED, _Whole.COPIED


class Survivors:
    def __init__(self, plan: PassPlan, dirty: DirtyPart, counts: Counts) -> None:
        self._newest = dirty.newest
        self._dirty_from = dirty.start_offset
        self._end_offset = dirty.end_offset
        self._entries: Int64s = dirty.newest.sorted_entries().view(np.int64)
        """Of the records of the dirty part that stay: twice the offset, plus one for a tombstone."""
        self._has_tombstones = bool((self._entries & 1).any())
        self._last_written = plan.last_written
        self._transactions = TransactionWalk(plan.aborted)
        self._counts = counts
        self._now_ms = plan.now_ms
        self._horizon_ms = plan.now_ms + plan.config.delete_retention_ms

    def take_aborted(self) -> list[AbortedTransaction]:
        """The aborted transactions whose markers were seen since the last call, and that readers must know of."""
        taken, self._transactions.still_aborted = self._transactions.still_aborted, []
        return taken

    def of_chunk(self, chunk: Chunk, position: int) -> tuple[list[memoryview], list[WrittenBatch], int]:
        """What is written of a chunk, to be put at `position`: pieces, where each batch will lie, and the end."""
        outcomes = self._decide_all(chunk)
        counts = self._counts
        pieces: list[memoryview] = []
        written: list[WrittenBatch] = []
        copy_from = copy_to = 0
        for (at, header), outcome in zip(chunk.batches, outcomes, strict=True):
            counts.records_before += header.record_count
            counts.bytes_before += header.size
            if outcome is _DROPPED:
                continue
            size, record_count, max_timestamp = header.size, header.record_count, header.max_timestamp
            if outcome is _COPIED:
                # Neighbours are written as one piece.
                if at != copy_to:
                    if copy_to > copy_from:
                        pieces.append(chunk.view[copy_from:copy_to])
                    copy_from = at
                copy_to = at + size
            else:
                assert isinstance(outcome, _Rewritten)
                if copy_to > copy_from:
                    pieces.append(chunk.view[copy_from:copy_to])
                copy_from = copy_to = 0
                data, record_count, max_timestamp = outcome
                size = len(data)
                pieces.append(memoryview(data))
            written.append((position, header.last_offset, max_timestamp))
            position += size
            counts.records_after += record_count
            counts.bytes_after += size
        if copy_to > copy_from:
            pieces.append(chunk.view[copy_from:copy_to])
        return pieces, written, position

    def _decide_all(self, chunk: Chunk) -> list[_Outcome]:
        batches = chunk.batches
        firsts = self._entries.searchsorted([header.base_offset << 1 for _, header in batches]).tolist()
        lasts = self._entries.searchsorted([header.next_offset << 1 for _, header in batches]).tolist()
        outcomes = [
            self._decide_control(chunk, batch)
            if batch.header.is_control
            else self._decide(batch.header, self._entries[first:last])
            for batch, first, last in zip(batches, firsts, lasts, strict=True)
        ]
        opened = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, _Inside)]
        if opened:
            self._decide_inside(chunk, opened, outcomes)
        return outcomes

    def _decide_control(self, chunk: Chunk, batch: Batch) -> _Outcome:
        """A marker stays until all of its transaction is gone, and then until its horizon."""
        header = batch.header
        ends_nothing = self._transactions.ends_nothing(header, chunk.bytes_of(batch))
        if not header.record_count:
            return _COPIED if self._is_last_of_producer(header) else _DROPPED
        if not ends_nothing:
            return _COPIED
        horizon_ms = header.delete_horizon_ms
        if horizon_ms is None:
            return _rewritten(header, open_batches(chunk, [batch]), np.zeros(1, np.int64), self._horizon_ms)
        return _COPIED if self._now_ms < horizon_ms else self._emptied(header)

    def _decide(self, header: BatchHeader, entries: Int64s) -> _Outcome:
        """`entries` are those of the records of the batch that stay, if it is in the dirty part."""
        if self._transactions.is_aborted(header):
            return self._emptied(header)
        if not header.record_count:
            return _COPIED if self._is_last_of_producer(header) else _DROPPED
        if header.base_offset >= self._end_offset:
            return _COPIED
        if header.base_offset < self._dirty_from:
            return _Inside(None)
        if not len(entries):
            return self._emptied(header)
        if len(entries) == header.record_count and not (self._has_tombstones and (entries & 1).any()):
            return _COPIED
        return _Inside(entries)

    def _decide_inside(self, chunk: Chunk, opened: list[int], outcomes: list[_Outcome]) -> None:
        """Look at the records of the batches with these numbers, all at once."""
        batches = [chunk.batches[number] for number in opened]
        layout = open_batches(chunk, batches)
        counts = np.array([header.record_count for _, header in batches])
        starts = np.cumsum(counts) - counts
        is_tombstone = layout.value_lengths < 0
        is_kept = self._find_kept(layout, [outcomes[number] for number in opened])
        is_past_horizon = [
            header.delete_horizon_ms is not None and header.delete_horizon_ms <= self._now_ms for _, header in batches
        ]
        if any(is_past_horizon):
            is_kept &= ~(is_tombstone & np.repeat(is_past_horizon, counts))
        kept = np.add.reduceat(is_kept, starts, dtype=np.int64).tolist()
        tombstones = np.add.reduceat(is_kept & is_tombstone, starts, dtype=np.int64).tolist()
        for number, (_, header), start, kept_here, tombstones_here in zip(
            opened, batches, starts.tolist(), kept, tombstones, strict=True
        ):
            needs_horizon = tombstones_here > 0 and header.delete_horizon_ms is None
            if not kept_here:
                outcomes[number] = self._emptied(header)
            elif kept_here == header.record_count and not needs_horizon:
                outcomes[number] = _COPIED
            else:
                rows = start + np.flatnonzero(is_kept[start : start + header.record_count])
                outcomes[number] = _rewritten(header, layout, rows, self._horizon_ms if needs_horizon else None)

    def _find_kept(self, layout: RecordLayout, known: list[_Outcome]) -> npt.NDArray[np.bool_]:
        """Which records are the newest of their keys."""
        entries = [batch.entries for batch in known if isinstance(batch, _Inside) and batch.entries is not None]
        if len(entries) < len(known):
            return self._find_newest(layout)
        is_kept = np.zeros(len(layout.offsets), np.bool_)
        is_kept[layout.offsets.searchsorted(np.concatenate(entries) >> 1)] = True
        return is_kept

    def _find_newest(self, layout: RecordLayout) -> npt.NDArray[np.bool_]:
        """By their keys, where it is not known yet. Records without a key are there only if the topic was not compacted
        when they were written, and go."""
        is_kept = layout.key_lengths >= 0
        left, right = hash_keys(layout.octets, layout.key_starts, np.maximum(layout.key_lengths, 0))
        entries, is_known = self._newest.get(left, right)
        is_kept &= ~is_known | (layout.offsets >= entries.view(np.int64) >> 1)
        return is_kept

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether the batch is what is left to tell the last sequence number, or the epoch, of a producer."""
        last = self._last_written.get(header.producer_id)
        if last is None:
            return False
        if last.data_offset >= 0:
            return header.last_offset == last.data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    def _emptied(self, header: BatchHeader) -> _Outcome:
        if self._is_last_of_producer(header):
            return _Rewritten(empty_batch(header), 0, header.max_timestamp)
        return _DROPPED


def _rewritten(header: BatchHeader, layout: RecordLayout, rows: Int64s, new_horizon_ms: int | None) -> _Rewritten:
    data = rewrite_batch(header, layout, rows, new_horizon_ms)
    return _Rewritten(data, len(rows), read_header(data).max_timestamp)
