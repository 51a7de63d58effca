"""Gets at the records of a batch without decoding them: the decompressed payload, and where each record lies in it.

The bytes come from producers, so everything a record says about itself is checked: it must take exactly the bytes it
claims, there must be as many records as the header counts, nothing may be left over, and offsets must rise within
the range the header gives. The checksum is not checked here; `batch.crc_is_valid` does that.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Final, NamedTuple

from ottla.base.errors import CorruptBatchError
from ottla.base.types import ReadBuffer
from ottla.records.batch import HEADER_SIZE, LOG_APPEND_TIME_BIT, BatchHeader
from ottla.records.compression import Codec, decompress
from ottla.records.faults import check_end, check_timestamps, raise_cut_short
from ottla.records.walk import walk_records

MAX_UNCOMPRESSED: Final = 100 * 1024 * 1024
"""How large the records of one batch may become unless a caller says otherwise: as large as a request may be."""

MIN_RECORD_SIZE: Final = 7

_TIMESTAMP_OF: Final = itemgetter(1)


class RecordSpan(NamedTuple):
    """A record that was located but not decoded: `payload[start:end]` is all of it, its length included."""

    offset: int
    timestamp: int
    key: bytes | None
    is_tombstone: bool
    start: int
    end: int


def read_payload(batch: ReadBuffer, header: BatchHeader, *, max_uncompressed: int = MAX_UNCOMPRESSED) -> bytes:
    """The records of a batch as one run of bytes, decompressed. `batch` may go on after the batch."""
    size = header.size
    if not HEADER_SIZE <= size <= len(batch):
        raise CorruptBatchError(f"the batch claims {size} bytes, {len(batch)} are there")
    codec = header.codec
    payload = memoryview(batch)[HEADER_SIZE:size]
    # A batch that compaction has emptied has no payload at all, which is not what a codec makes of no records.
    if not header.record_count and not len(payload):
        codec = Codec.NONE
    records = decompress(codec, payload, max_uncompressed)
    if not 0 <= header.record_count * MIN_RECORD_SIZE <= len(records):
        raise CorruptBatchError(f"{header.record_count} records cannot be in {len(records)} bytes")
    return records


def scan_payload(payload: bytes, header: BatchHeader) -> list[RecordSpan]:
    """Where each record of a payload lies, with its key; values and headers are passed over."""
    try:
        return _locate_records(payload, header)
    except IndexError:
        raise_cut_short()


def _locate_records(buf: bytes, header: BatchHeader) -> list[RecordSpan]:
    spans: list[RecordSpan] = []
    pos, last_delta = walk_records(buf, 0, header.record_count, -1, header, RecordSpan, spans, locates=True)
    check_end(buf, pos, last_delta, header)
    if not header.attributes & LOG_APPEND_TIME_BIT:
        check_timestamps(map(_TIMESTAMP_OF, spans))
    return spans
