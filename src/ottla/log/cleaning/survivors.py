"""The second look of a pass: what is written of each batch. All the rules of what stays are here.

A batch that keeps everything is written as its bytes are. Of the dirty part it is known already which records stay, so
most of its batches are never opened: those that lose everything, and those that lose nothing. Of the others only the
records that stay are looked at.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ottla.log.cleaning.chunks import Chunk, open_batches
from ottla.log.cleaning.dirty_part import DirtyPart
from ottla.log.cleaning.key_hashes import hash_keys
from ottla.log.cleaning.pass_plan import Counts, PassPlan
from ottla.log.cleaning.rewriting import emptied, rewrite_batches
from ottla.log.cleaning.transactions import TransactionWalk
from ottla.log.cleaning.written import Written
from ottla.log.transaction_index import AbortedTransaction
from ottla.records.arrays.layout import RecordLayout
from ottla.records.arrays.varint import Int64s
from ottla.records.batch import CONTROL_BIT, DELETE_HORIZON_BIT, TRANSACTIONAL_BIT, BatchHeader

Flags = npt.NDArray[np.bool_]


class Survivors:
    def __init__(self, plan: PassPlan, dirty: DirtyPart, counts: Counts) -> None:
        self._newest = dirty.newest
        self._dirty_from = dirty.start_offset
        self._end_offset = dirty.end_offset
        self._entries: Int64s = dirty.newest.sorted_entries().view(np.int64)
        """Of the records of the dirty part that stay: twice the offset, plus one for a tombstone."""
        self._has_tombstones = bool((self._entries & 1).any())
        self._last_written = plan.last_written
        self._last_data_offsets = np.array([last.data_offset for last in plan.last_written.values()], np.int64)
        self._transactions = TransactionWalk(plan.aborted)
        self._counts = counts
        self._now_ms = plan.now_ms
        self._horizon_ms = plan.now_ms + plan.config.delete_retention_ms

    def take_aborted(self) -> list[AbortedTransaction]:
        """The aborted transactions whose markers were seen since the last call, and that readers must know of."""
        taken, self._transactions.still_aborted = self._transactions.still_aborted, []
        return taken

    def of_chunk(self, chunk: Chunk) -> Written:
        headers = chunk.headers
        written = Written(chunk)
        is_emptied, is_data = self._follow_transactions(chunk, written)
        # What has no records any more is there for its producer, and stays for as long as that is known.
        is_emptied |= is_data & (headers.record_counts == 0)
        is_judged = is_data & (headers.record_counts != 0) & (headers.base_offsets < self._end_offset)
        is_clean = headers.base_offsets < self._dirty_from
        self._look_into_clean(chunk, np.flatnonzero(is_judged & is_clean), written)
        firsts = self._entries.searchsorted(headers.base_offsets << 1)
        kept = self._entries.searchsorted((headers.last_offsets + 1) << 1) - firsts
        is_dirty = is_judged & ~is_clean
        is_emptied |= is_dirty & (kept == 0)
        is_dirty &= (kept > 0) & ((kept < headers.record_counts) | self._have_tombstones(firsts, kept))
        numbers = np.flatnonzero(is_dirty)
        self._look_into_dirty(chunk, numbers, firsts[numbers], kept[numbers], written)
        self._empty(chunk, np.flatnonzero(is_emptied), written)
        written.finish(self._counts)
        return written

    def _follow_transactions(self, chunk: Chunk, written: Written) -> tuple[Flags, Flags]:
        """Which batches lose all records, because they were aborted or are markers of no use any more; and which hold
        data that is to be judged by its keys."""
        headers = chunk.headers
        is_emptied = np.zeros(len(headers), np.bool_)
        is_data = np.ones(len(headers), np.bool_)
        marked = []
        for number in np.flatnonzero(headers.attributes & (CONTROL_BIT | TRANSACTIONAL_BIT)).tolist():
            header = headers.header(number)
            if not header.is_control:
                is_emptied[number] = self._transactions.is_aborted(header)
                is_data[number] = not is_emptied[number]
                continue
            is_data[number] = False
            # A marker stays until all of its transaction is gone, and then until its horizon.
            if self._transactions.ends_nothing(header, chunk.bytes_of(number)):
                horizon_ms = header.delete_horizon_ms
                if header.record_count and horizon_ms is None:
                    marked.append(number)
                else:
                    is_emptied[number] = horizon_ms is None or self._now_ms >= horizon_ms
        if marked:
            numbers = np.array(marked)
            opened = open_batches(chunk, numbers)
            counts = opened.payloads.counts
            starts, ends = opened.bounds(chunk.path)
            written.replace(numbers, rewrite_batches(opened, starts, ends, counts, counts > 0, self._horizon_ms))
        return is_emptied, is_data

    def _have_tombstones(self, firsts: Int64s, kept: Int64s) -> Flags:
        """Of batches whose entries begin at `firsts` and are `kept` many."""
        if not self._has_tombstones:
            return np.zeros(len(firsts), np.bool_)
        first, last = int(firsts[0]), int((firsts + kept).max())
        before = np.concatenate((np.zeros(1, np.int64), np.cumsum(self._entries[first:last] & 1)))
        has_some: Flags = before[firsts + kept - first] > before[firsts - first]
        return has_some

    def _look_into_dirty(self, chunk: Chunk, numbers: Int64s, firsts: Int64s, kept: Int64s, written: Written) -> None:
        """At batches of which it is known which records stay."""
        if not len(numbers):
            return
        opened = open_batches(chunk, numbers, is_checked=True)
        payloads = opened.payloads
        rows = np.arange(int(kept.sum())) - np.repeat(np.cumsum(kept) - kept, kept) + np.repeat(firsts, kept)
        entries = self._entries[rows]
        first_rows = np.cumsum(payloads.counts) - payloads.counts
        if (payloads.counts == payloads.last_offset_deltas + 1).all():
            # There are no gaps: the offset says which record it is.
            rows = (entries >> 1) - np.repeat(payloads.base_offsets - first_rows, kept)
            starts, ends = opened.bounds(chunk.path)
        else:
            layout = opened.layout(chunk.path)
            rows, starts, ends = layout.offsets.searchsorted(entries >> 1), layout.starts, layout.ends
        tombstones = np.add.reduceat(entries & 1, np.cumsum(kept) - kept)
        needs_horizon = (tombstones > 0) & (payloads.attributes & DELETE_HORIZON_BIT == 0)
        written.replace(
            numbers, rewrite_batches(opened, starts[rows], ends[rows], kept, needs_horizon, self._horizon_ms)
        )

    def _look_into_clean(self, chunk: Chunk, numbers: Int64s, written: Written) -> None:
        """At batches of which the keys have to tell, and the horizons of their tombstones."""
        if not len(numbers):
            return
        opened = open_batches(chunk, numbers)
        layout = opened.layout(chunk.path)
        payloads = opened.payloads
        counts = payloads.counts
        firsts = np.cumsum(counts) - counts
        is_tombstone = layout.value_lengths < 0
        is_kept = self._find_newest(layout)
        has_horizon = payloads.attributes & DELETE_HORIZON_BIT != 0
        is_past_horizon = has_horizon & (payloads.base_timestamps <= self._now_ms)
        if is_past_horizon.any():
            is_kept &= ~(is_tombstone & np.repeat(is_past_horizon, counts))
        kept = np.add.reduceat(is_kept, firsts, dtype=np.int64)
        needs_horizon = ~has_horizon & (np.add.reduceat(is_kept & is_tombstone, firsts, dtype=np.int64) > 0)
        self._empty(chunk, numbers[kept == 0], written)
        is_changed = (kept > 0) & ((kept < counts) | needs_horizon)
        if is_changed.any():
            changed = np.flatnonzero(is_changed)
            rows = np.flatnonzero(is_kept & np.repeat(is_changed, counts))
            rewritten = rewrite_batches(
                opened.take(changed),
                layout.starts[rows],
                layout.ends[rows],
                kept[changed],
                needs_horizon[changed],
                self._horizon_ms,
            )
            written.replace(numbers[changed], rewritten)

    def _find_newest(self, layout: RecordLayout) -> Flags:
        """Which records are the newest of their keys. Those without a key are there only if the topic was not compacted
        when they were written, and go."""
        is_kept = layout.key_lengths >= 0
        left, right = hash_keys(layout.octets, layout.key_starts, np.maximum(layout.key_lengths, 0))
        entries, is_known = self._newest.get(left, right)
        is_kept &= ~is_known | (layout.offsets >= entries.view(np.int64) >> 1)
        return is_kept

    def _empty(self, chunk: Chunk, numbers: Int64s, written: Written) -> None:
        """Batches that lose all their records go, or leave a header that tells what their producer has written last."""
        headers = chunk.headers
        may_be_last = headers.attributes[numbers] & CONTROL_BIT != 0
        may_be_last |= np.isin(headers.last_offsets[numbers], self._last_data_offsets)
        written.drop(numbers)
        for number in numbers[may_be_last].tolist():
            header = headers.header(number)
            if self._is_last_of_producer(header):
                written.keep(number)
                if header.record_count:
                    written.replace(np.array([number]), emptied(header))

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether the batch is what is left to tell the last sequence number, or the epoch, of a producer."""
        last = self._last_written.get(header.producer_id)
        if last is None:
            return False
        if last.data_offset >= 0:
            return header.last_offset == last.data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch
