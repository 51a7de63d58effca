"""Encoding records that are only values: no keys, no headers, and timestamps that come in runs.

Most producers send nothing else, and fast. The same bytes as `records.builder` writes, but made by C loops over whole
runs: within a run everything before the value is the same or can be looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from ottla.records.batch import (
    HEADER_SIZE,
    MAGIC_V2,
    NO_PARTITION_LEADER_EPOCH,
    TRANSACTIONAL_BIT,
    BatchHeader,
    pack_batch,
    pack_in_place,
)
from ottla.records.compression import Codec, compress
from ottla.records.varint import VARINT_TABLE, VARINT_TABLE_SIZE, encode_varint

MAX_VALUE_BYTES = 4096
"""Longer values are not worth a table: for them the time goes into copying."""

Mark = tuple[int, int]
"""From which record on a timestamp holds: index and milliseconds."""

_NO_KEY_AND_LENGTH = [b"\x01" + encode_varint(length) for length in range(MAX_VALUE_BYTES)]
_NO_HEADERS = b"\x00"
_WIDTH_BOUNDS = (64, VARINT_TABLE_SIZE, VARINT_TABLE_SIZE << 7)
"""The offset deltas from which on one more byte is needed."""
_KEPT_MS = 8


@lru_cache(maxsize=64)
def _length_and_attributes(fixed_bytes: int) -> list[bytes]:
    """How a record ends and the next starts, by the length of its value, if its other fields take `fixed_bytes`."""
    return [
        _NO_HEADERS + encode_varint(fixed_bytes + len(encode_varint(length)) + length) + b"\x00"
        for length in range(MAX_VALUE_BYTES)
    ]


@lru_cache(maxsize=32)
def _kept_heads(before: bytes, after: bytes, first: int, last: int) -> list[bytes]:
    return [before + offset + after for offset in VARINT_TABLE[first:last]]


def encode_values(
    values: Sequence[bytes], lengths: Sequence[int], marks: Sequence[Mark], *, room: int = 0
) -> bytearray | None:
    """The records of a batch behind `room` bytes for its header, None if a value is too long for this.

    The first mark is at 0; the indexes of marks rise.
    """
    is_even = lengths.count(lengths[0]) == len(lengths)
    if (lengths[0] if is_even else max(lengths)) >= MAX_VALUE_BYTES:
        return None
    cuts = sorted({index for index, _ in marks} | {bound for bound in _WIDTH_BOUNDS if bound < len(values)})
    timestamps = dict(marks)
    delta_ms = 0
    runs: list[_Run] = []
    for start, end in pairwise([*cuts, len(values)]):
        if start in timestamps:
            delta_ms = timestamps[start] - marks[0][1]
        runs.append(_Run(start, end, delta_ms))
    parts = _even_parts(values, lengths[0], runs) if is_even else _parts(values, lengths, runs)
    # What ends a record stands before the next one, so the first has too much, and the last too little.
    parts[0] = bytes(room) + parts[0][len(_NO_HEADERS) :]
    parts.append(_NO_HEADERS)
    return bytearray().join(parts)


class _Run(NamedTuple):
    """Records with one timestamp, whose offsets take as many bytes each."""

    start: int
    end: int
    delta_ms: int


def _even_parts(values: Sequence[bytes], length: int, runs: Sequence[_Run]) -> list[bytes]:
    """If values have the same length, all that is before a value depends on nothing but its number in the batch."""
    heads: list[bytes] = []
    after = _NO_KEY_AND_LENGTH[length]
    for start, end, delta_ms in runs:
        delta = encode_varint(delta_ms)
        size = 1 + len(delta) + len(encode_varint(start)) + len(after) + length + 1
        before = _NO_HEADERS + encode_varint(size) + b"\x00" + delta
        # The first milliseconds of a batch come again in every batch.
        if end <= VARINT_TABLE_SIZE and 0 <= delta_ms < _KEPT_MS:
            first, last = (0, _WIDTH_BOUNDS[0]) if start < _WIDTH_BOUNDS[0] else (_WIDTH_BOUNDS[0], VARINT_TABLE_SIZE)
            heads += _kept_heads(before, after, first, last)[start - first : end - first]
        else:
            heads += [before + offset + after for offset in _offset_deltas(start, end)]
    # Assigning every second part at once is by far the fastest way to put columns together.
    parts = [b""] * (2 * len(values))
    parts[0::2] = heads
    parts[1::2] = values
    return parts


def _parts(values: Sequence[bytes], lengths: Sequence[int], runs: Sequence[_Run]) -> list[bytes]:
    parts: list[bytes] = []
    for start, end, delta_ms in runs:
        delta = encode_varint(delta_ms)
        offsets = _offset_deltas(start, end)
        # Attributes, timestamp and offset delta, no key, no headers.
        heads = _length_and_attributes(1 + len(delta) + len(offsets[0]) + 1 + 1)
        run = [b"", delta, b"", b"", b""] * (end - start)
        run[0::5] = map(heads.__getitem__, lengths[start:end])
        run[2::5] = offsets
        run[3::5] = map(_NO_KEY_AND_LENGTH.__getitem__, lengths[start:end])
        run[4::5] = values[start:end]
        parts += run
    return parts


def _offset_deltas(start: int, end: int) -> list[bytes]:
    if end <= VARINT_TABLE_SIZE:
        return VARINT_TABLE[start:end]
    return [encode_varint(offset) for offset in range(start, end)]


def build_values_batch(
    values: Sequence[bytes],
    lengths: Sequence[int],
    marks: Sequence[Mark],
    *,
    codec: Codec,
    level: int | None,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    transactional: bool,
) -> memoryview | None:
    """A whole batch of values, as `build_batch` would make it; None if a value is too long for this."""
    encoded = encode_values(values, lengths, marks, room=HEADER_SIZE)
    if encoded is None:
        return None
    header = BatchHeader(
        0,
        0,
        NO_PARTITION_LEADER_EPOCH,
        MAGIC_V2,
        0,
        codec | (TRANSACTIONAL_BIT if transactional else 0),
        len(values) - 1,
        marks[0][1],
        max(timestamp_ms for _, timestamp_ms in marks),
        producer_id,
        producer_epoch,
        base_sequence,
        len(values),
    )
    data = memoryview(encoded)
    if codec:
        return memoryview(pack_batch(header, compress(codec, data[HEADER_SIZE:], level)))
    pack_in_place(header, data)
    return data
