"""Reads segments in large pieces of whole batches, and opens the records of many batches at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from ottla.base.errors import CorruptBatchError
from ottla.log.cleaning.key_hashes import PADDING
from ottla.log.file import LogFile
from ottla.records.arrays.layout import Payload, RecordLayout
from ottla.records.arrays.varint import Octets
from ottla.records.batch import HEADER_SIZE, BatchHeader, crc_is_valid, iter_headers, read_header
from ottla.records.compression import Codec
from ottla.records.faults import raise_cut_short
from ottla.records.scan import read_payload

_MIN_BYTES: Final = 1 << 16


class Batch(NamedTuple):
    position: int
    """Within its chunk."""
    header: BatchHeader


class Chunk(NamedTuple):
    """Whole batches of a segment, valid until the next chunk is read."""

    path: str
    view: memoryview
    octets: Octets
    batches: list[Batch]

    def bytes_of(self, batch: Batch) -> memoryview:
        return self.view[batch.position : batch.position + batch.header.size]


class ChunkReader:
    """Reads one chunk after the other into the same memory, which grows only for a batch that is larger."""

    def __init__(self, size: int) -> None:
        self._allocate(max(size, _MIN_BYTES))

    def _allocate(self, size: int) -> None:
        self._octets: Octets = np.zeros(size + PADDING, np.uint8)
        self._view = memoryview(self._octets.data).cast("B")[:size]

    def read(self, log: LogFile, size: int) -> Iterator[Chunk]:
        """All batches of the first `size` bytes of a file."""
        position = 0
        next_offset = -1
        while position < size:
            filled = log.read_into(position, self._view[: min(len(self._view), size - position)])
            view = self._view[:filled]
            try:
                batches = [Batch(at, header) for at, header in iter_headers(view)]
            except CorruptBatchError as e:
                raise CorruptBatchError(f"{log.path}, from position {position} on: {e.message}") from None
            if not batches:
                self._make_room(log, position, size)
                continue
            for batch in batches:
                if batch.header.base_offset < next_offset:
                    raise CorruptBatchError(
                        f"{log.path}: the batch of offset {batch.header.base_offset} follows offset {next_offset - 1}"
                    )
                next_offset = batch.header.next_offset
            yield Chunk(str(log.path), view, self._octets, batches)
            last = batches[-1]
            position += last.position + last.header.size

    def _make_room(self, log: LogFile, position: int, size: int) -> None:
        """For a batch that is larger than the buffer."""
        head = log.read_at(position, HEADER_SIZE)
        needed = read_header(head).size if len(head) == HEADER_SIZE else 0
        if not len(self._view) < needed <= size - position:
            raise CorruptBatchError(f"{log.path} ends inside the batch at position {position}")
        self._allocate(needed)


def open_batches(chunk: Chunk, batches: Sequence[Batch]) -> RecordLayout:
    """Where the records of these batches of a chunk lie, in one buffer. Raises CorruptBatchError."""
    for batch in batches:
        if not crc_is_valid(chunk.bytes_of(batch), batch.header):
            raise CorruptBatchError(
                f"{chunk.path}: the batch of offset {batch.header.base_offset} has a wrong checksum"
            )
    try:
        if all(header.codec is Codec.NONE for _, header in batches):
            payloads = [Payload(header, at + HEADER_SIZE, at + header.size) for at, header in batches]
            return RecordLayout(chunk.view, chunk.octets, payloads)
        parts: list[bytes] = []
        payloads = []
        filled = 0
        for batch in batches:
            part = read_payload(chunk.bytes_of(batch), batch.header)
            payloads.append(Payload(batch.header, filled, filled + len(part)))
            parts.append(part)
            filled += len(part)
        parts.append(bytes(PADDING))
        joined = b"".join(parts)
        return RecordLayout(joined, np.frombuffer(joined, np.uint8), payloads)
    except IndexError:
        raise_cut_short()
    except CorruptBatchError as e:
        first, last = batches[0].header.base_offset, batches[-1].header.last_offset
        raise CorruptBatchError(f"{chunk.path}, offsets {first} to {last}: {e.message}") from None
