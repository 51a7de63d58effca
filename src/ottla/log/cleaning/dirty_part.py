"""The first look of a pass: which records of the dirty part are the newest of their keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from ottla.base.errors import OttlaError
from ottla.log.cleaning.chunks import Chunk, ChunkReader, open_batches
from ottla.log.cleaning.key_hashes import UInt64s, hash_keys
from ottla.log.cleaning.offset_map import OffsetMap
from ottla.log.cleaning.pass_plan import Source
from ottla.log.cleaning.transactions import TransactionWalk
from ottla.log.transaction_index import AbortedTransaction
from ottla.records.arrays.layout import RecordLayout
from ottla.records.arrays.varint import Int64s
from ottla.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT


class OutOfMemoryError(OttlaError):
    """Not even one batch goes into the memory for keys."""


class DirtyPart:
    """`newest` is filled by `read`; `end_offset` says how far it got before the memory was full."""

    def __init__(self, newest: OffsetMap, start_offset: int, aborted: Iterable[AbortedTransaction]) -> None:
        self.newest = newest
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.keyless = 0
        self._transactions = TransactionWalk(aborted)

    def read(self, sources: Iterable[Source], reader: ChunkReader, on_read: Callable[[int], None]) -> None:
        """Look at segments, until the memory is full. `on_read` is told of bytes, and may raise."""
        for segment, end_offset in sources:
            for chunk in reader.read(segment):
                on_read(len(chunk.view))
                if not self._note(chunk):
                    return
            self.end_offset = end_offset

    def _note(self, chunk: Chunk) -> bool:
        """Enter the keys of a chunk; False if there was no room for all."""
        wanted = self._find_wanted(chunk)
        headers = chunk.headers
        if int(headers.record_counts[wanted].sum()) <= self.newest.room:
            self._put(chunk, wanted)
        elif not self._note_one_by_one(chunk, wanted):
            return False
        self.end_offset = max(self.end_offset, int(headers.last_offsets[-1]) + 1)
        return True

    def _find_wanted(self, chunk: Chunk) -> Int64s:
        """The numbers of the batches with data that counts."""
        headers = chunk.headers
        is_dirty = headers.last_offsets >= self.start_offset
        is_wanted = is_dirty & (headers.record_counts != 0) & (headers.attributes & CONTROL_BIT == 0)
        for number in np.flatnonzero(is_dirty & (headers.attributes & (CONTROL_BIT | TRANSACTIONAL_BIT) != 0)).tolist():
            header = headers.header(number)
            if header.is_control:
                self._transactions.ends_nothing(header, chunk.bytes_of(number))
            elif self._transactions.is_aborted(header):
                is_wanted[number] = False
        return np.flatnonzero(is_wanted)

    def _note_one_by_one(self, chunk: Chunk, wanted: Int64s) -> bool:
        for number in wanted.tolist():
            own = np.array([number])
            if int(chunk.headers.record_counts[number]) > self.newest.room:
                left, right, _ = self._keys(open_batches(chunk, own).layout(chunk.path))
                _, is_known = self.newest.get(left, right)
                is_new = ~is_known
                new = len(set(zip(left[is_new].tolist(), right[is_new].tolist(), strict=True)))
                if new > self.newest.room:
                    if not self.newest.key_count:
                        raise OutOfMemoryError(
                            f"the {new} keys of one batch do not go into log.cleaner.dedupe.buffer.size"
                        )
                    self.end_offset = max(self.end_offset, int(chunk.headers.base_offsets[number]))
                    return False
            self._put(chunk, own)
        return True

    def _put(self, chunk: Chunk, numbers: Int64s) -> None:
        if len(numbers):
            self.newest.put(*self._keys(open_batches(chunk, numbers).layout(chunk.path)))

    def _keys(self, layout: RecordLayout) -> tuple[UInt64s, UInt64s, UInt64s]:
        """The hashes of the keys, and what is to be entered for them."""
        offsets, starts, lengths, values = layout.offsets, layout.key_starts, layout.key_lengths, layout.value_lengths
        is_wanted = lengths >= 0
        if not is_wanted.all():
            self.keyless += int(np.count_nonzero(~is_wanted))
        if layout.first_offset < self.start_offset:
            is_wanted &= offsets >= self.start_offset
        if not is_wanted.all():
            rows = np.flatnonzero(is_wanted)
            offsets, starts, lengths, values = offsets[rows], starts[rows], lengths[rows], values[rows]
        entries = (offsets << 1 | (values < 0)).view(np.uint64)
        left, right = hash_keys(layout.octets, starts, lengths)
        return left, right, entries
