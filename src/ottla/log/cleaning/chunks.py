"""Reads segments in large pieces of whole batches, and opens the records of many batches at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import numpy as np

from ottla.base.errors import CorruptBatchError
from ottla.log.cleaning.key_hashes import PADDING
from ottla.log.file import LogFile
from ottla.log.segment import Segment
from ottla.records.arrays.headers import HeaderColumns, find_batches
from ottla.records.arrays.layout import Payloads, RecordLayout
from ottla.records.arrays.starts import find_all_starts
from ottla.records.arrays.varint import Int64s, Octets
from ottla.records.batch import CODEC_MASK, CRC_START, HEADER_SIZE, read_header
from ottla.records.checksum import crc32c
from ottla.records.scan import read_payload

_MIN_BYTES: Final = 4 << 20
"""In smaller pieces NumPy's own calls would take longer than what they do."""
_INDEX_ENTRY: Final = np.dtype([("offset", ">i4"), ("position", ">i4")])


class Chunk(NamedTuple):
    """Whole batches of a segment, valid until the next chunk is read."""

    path: str
    view: memoryview
    octets: Octets
    headers: HeaderColumns

    def bytes_of(self, number: int) -> memoryview:
        start = int(self.headers.positions[number])
        return self.view[start : start + int(self.headers.sizes[number])]


class Opened(NamedTuple):
    """The records of some batches, one batch behind the other in a buffer."""

    headers: HeaderColumns
    buf: bytes | memoryview
    octets: Octets
    payloads: Payloads

    def take(self, numbers: Int64s) -> Opened:
        """Only these of them."""
        payloads = Payloads(*(column[numbers] for column in self.payloads))
        return Opened(self.headers.take(numbers), self.buf, self.octets, payloads)

    def layout(self, path: str) -> RecordLayout:
        """Where all fields of the records are, and their offsets. Raises CorruptBatchError, with the path."""
        with _describing(path, self.headers):
            return RecordLayout(self.buf, self.octets, self.payloads, with_timestamps=False)

    def bounds(self, path: str) -> tuple[Int64s, Int64s]:
        """Where the records start and end. Raises CorruptBatchError, with the path."""
        payloads = self.payloads
        with _describing(path, self.headers):
            starts = find_all_starts(self.buf, self.octets, payloads.starts, payloads.ends, payloads.counts)
        ends = np.append(starts[1:], np.int64(0))
        ends[np.cumsum(payloads.counts) - 1] = payloads.ends
        return starts, ends


class ChunkReader:
    """Reads one chunk after the other into the same memory, which grows only for a batch that is larger."""

    def __init__(self, size: int) -> None:
        self._allocate(max(size, _MIN_BYTES))

    def _allocate(self, size: int) -> None:
        self._octets: Octets = np.zeros(size + PADDING, np.uint8)
        self._view = memoryview(self._octets.data).cast("B")[:size]

    def read(self, segment: Segment) -> Iterator[Chunk]:
        """All batches of a segment, in their order."""
        log, size = segment.log, segment.size
        indexed = _indexed_positions(segment)
        position = 0
        next_offset = -1
        while position < size:
            filled = log.read_into(position, self._view[: min(len(self._view), size - position)])
            view = self._view[:filled]
            first, last = indexed.searchsorted([position + 1, position + filled])
            try:
                positions = find_batches(view, self._octets, indexed[first:last] - position)
            except CorruptBatchError as e:
                raise CorruptBatchError(f"{log.path}, from position {position} on: {e.message}") from None
            if not len(positions):
                self._make_room(log, position, size)
                continue
            headers = HeaderColumns.read(self._octets, positions)
            next_offset = _check_order(headers, next_offset, log)
            yield Chunk(str(log.path), view, self._octets, headers)
            position += int(positions[-1] + headers.sizes[-1])

    def _make_room(self, log: LogFile, position: int, size: int) -> None:
        """For a batch that is larger than the buffer."""
        head = log.read_at(position, HEADER_SIZE)
        needed = read_header(head).size if len(head) == HEADER_SIZE else 0
        if not len(self._view) < needed <= size - position:
            raise CorruptBatchError(f"{log.path} ends inside the batch at position {position}")
        self._allocate(needed)


def _indexed_positions(segment: Segment) -> Int64s:
    """Where batches begin, as far as the index says so. Not from its mapping: it may be made anew meanwhile."""
    try:
        entries = segment.offset_index.path.read_bytes()
    except OSError:
        entries = b""
    found = np.frombuffer(entries[: len(entries) // _INDEX_ENTRY.itemsize * _INDEX_ENTRY.itemsize], _INDEX_ENTRY)
    positions: Int64s = found["position"].astype(np.int64)
    is_in_order = len(positions) < 2 or bool((np.diff(positions) > 0).all())
    return positions if is_in_order else np.zeros(0, np.int64)


def _check_order(headers: HeaderColumns, next_offset: int, log: LogFile) -> int:
    """Every batch has to begin behind the one before it. Returns where the last one ends."""
    after = headers.last_offsets + 1
    before = np.append(np.int64(next_offset), after[:-1])
    wrong = np.flatnonzero(headers.base_offsets < before)
    if len(wrong):
        raise CorruptBatchError(
            f"{log.path}: the batch of offset {headers.base_offsets[wrong[0]]} follows offset {before[wrong[0]] - 1}"
        )
    return int(after[-1])


def open_batches(chunk: Chunk, numbers: Int64s, *, is_checked: bool = False) -> Opened:
    """The records of these batches of a chunk, decompressed if need be. Raises CorruptBatchError.

    Checksums are compared, unless all of the batches are known to have been checked before.
    """
    headers = chunk.headers.take(numbers)
    starts, ends = headers.positions, headers.positions + headers.sizes
    view = chunk.view
    if not is_checked:
        crcs = [crc32c(view[a:b]) for a, b in zip((starts + CRC_START).tolist(), ends.tolist(), strict=True)]
        wrong = np.flatnonzero(headers.raw["crc"] != np.array(crcs, np.uint32))
        if len(wrong):
            offset = headers.base_offsets[wrong[0]]
            raise CorruptBatchError(f"{chunk.path}: the batch of offset {offset} has a wrong checksum")
    if not (headers.attributes & CODEC_MASK).any():
        return Opened(headers, view, chunk.octets, Payloads.of_columns(headers, starts + HEADER_SIZE, ends))
    with _describing(chunk.path, headers):
        parts = [
            read_payload(chunk.bytes_of(number), headers.header(row)) for row, number in enumerate(numbers.tolist())
        ]
    sizes = np.array([len(part) for part in parts], np.int64)
    ends = np.cumsum(sizes)
    joined = b"".join((*parts, bytes(PADDING)))
    return Opened(headers, joined, np.frombuffer(joined, np.uint8), Payloads.of_columns(headers, ends - sizes, ends))


@contextmanager
def _describing(path: str, headers: HeaderColumns) -> Iterator[None]:
    """Says of damage where it is."""
    first, last = headers.base_offsets[0], headers.last_offsets[-1]
    try:
        yield
    except IndexError:
        raise CorruptBatchError(f"{path}, offsets {first} to {last}: a record is cut short") from None
    except CorruptBatchError as e:
        raise CorruptBatchError(f"{path}, offsets {first} to {last}: {e.message}") from None
