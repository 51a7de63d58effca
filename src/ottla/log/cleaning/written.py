"""What becomes of the batches of a chunk: which are written, from which buffer, and what the indexes must know."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ottla.log.cleaning.chunks import Chunk
from ottla.log.cleaning.pass_plan import Counts
from ottla.log.cleaning.rewriting import Rewritten
from ottla.log.segment import Segment, WrittenBatch
from ottla.records.arrays.varint import Int64s


class Written:
    """At first every batch of the chunk is written as its bytes are. Once all is decided, `pieces` are to be written,
    `size` bytes in all."""

    def __init__(self, chunk: Chunk) -> None:
        headers = chunk.headers
        self._headers = headers
        self._buffers = [chunk.view]
        self._buffer_numbers = np.zeros(len(headers), np.int64)
        self._starts = headers.positions.copy()
        self._sizes = headers.sizes.copy()
        self._record_counts = headers.record_counts.copy()
        self._max_timestamps = headers.max_timestamps.copy()
        self._is_written = np.ones(len(headers), np.bool_)
        self.pieces: list[memoryview] = []
        self.size = 0

    def drop(self, numbers: Int64s | npt.NDArray[np.bool_]) -> None:
        self._is_written[numbers] = False

    def keep(self, number: int) -> None:
        self._is_written[number] = True

    def replace(self, numbers: Int64s, by: Rewritten) -> None:
        self._buffer_numbers[numbers] = len(self._buffers)
        self._buffers.append(memoryview(by.data))
        self._starts[numbers] = np.cumsum(by.sizes) - by.sizes
        self._sizes[numbers] = by.sizes
        self._record_counts[numbers] = by.record_counts
        self._max_timestamps[numbers] = by.max_timestamps

    def finish(self, counts: Counts) -> None:
        headers, is_written = self._headers, self._is_written
        counts.records_before += int(headers.record_counts.sum())
        counts.bytes_before += int(headers.sizes.sum())
        counts.records_after += int(self._record_counts[is_written].sum())
        self.size = int(self._sizes[is_written].sum())
        counts.bytes_after += self.size
        numbers, starts, sizes = (column[is_written] for column in (self._buffer_numbers, self._starts, self._sizes))
        if not len(starts):
            return
        # Neighbours are written as one piece.
        ends = starts + sizes
        begins = np.ones(len(starts), np.bool_)
        begins[1:] = (numbers[1:] != numbers[:-1]) | (starts[1:] != ends[:-1])
        firsts = np.flatnonzero(begins)
        lasts = np.append(firsts[1:], len(begins)) - 1
        buffers = self._buffers
        self.pieces = [
            buffers[number][start:end]
            for number, start, end in zip(
                numbers[firsts].tolist(), starts[firsts].tolist(), ends[lasts].tolist(), strict=True
            )
        ]

    def batches_to_note(self, segment: Segment) -> list[WrittenBatch]:
        """Those the indexes of the segment have to be told of, if what is written goes to its end: others change
        nothing in them."""
        is_written = self._is_written
        sizes, max_timestamps = self._sizes[is_written], self._max_timestamps[is_written]
        positions = segment.size + np.cumsum(sizes) - sizes
        last_offsets = self._headers.last_offsets[is_written]
        before = np.append(np.int64(segment.max_timestamp), max_timestamps[:-1])
        is_newest = max_timestamps > np.maximum.accumulate(before)
        newest = np.maximum.accumulate(np.where(is_newest, np.arange(len(sizes)), -1))
        noted = {0, int(newest[-1])}
        last_indexed = segment.offset_index.last()
        indexed = last_indexed.position if last_indexed is not None else 0
        while (row := int(positions.searchsorted(indexed + segment.index_interval_bytes, "right"))) < len(positions):
            noted.update((row, int(newest[row])))
            indexed = int(positions[row])
        noted.discard(-1)
        rows = np.array(sorted(noted))
        columns = (positions[rows].tolist(), last_offsets[rows].tolist(), max_timestamps[rows].tolist())
        return list(zip(*columns, strict=True))
