"""Encoding records that are only values: no keys, no headers, and timestamps that come in runs.

Most producers send nothing else, and fast. The same bytes as `records.builder` writes, but made by C loops over whole
runs: within a run everything before the value is the same or can be looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from ottla.records.batch import MAGIC_V2, NO_PARTITION_LEADER_EPOCH, TRANSACTIONAL_BIT, BatchHeader, pack_batch
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


@lru_cache(maxsize=64)
def _length_and_attributes(fixed_bytes: int) -> list[bytes]:
    """How a record ends and the next starts, by the length of its value, if its other fields take `fixed_bytes`."""
    return [
        _NO_HEADERS + encode_varint(fixed_bytes + len(encode_varint(length)) + length) + b"\x00"
        for length in range(MAX_VALUE_BYTES)
    ]


def encode_values(values: Sequence[bytes], marks: Sequence[Mark]) -> bytes | None:
    """The records of a batch without its header, None if a value is too long for this.

    The first mark is at 0; the indexes of marks rise.
    """
    lengths = list(map(len, values))
    if max(lengths) >= MAX_VALUE_BYTES:
        return None
    parts: list[bytes] = []
    same_length = lengths.count(lengths[0]) == len(lengths)
    base_timestamp_ms = marks[0][1]
    cuts = sorted({index for index, _ in marks} | {bound for bound in _WIDTH_BOUNDS if bound < len(values)})
    timestamps = dict(marks)
    delta = b""
    for start, end in pairwise([*cuts, len(values)]):
        if start in timestamps:
            delta = encode_varint(timestamps[start] - base_timestamp_ms)
        offsets = _offset_deltas(start, end)
        # Attributes, timestamp and offset delta, no key, no headers.
        heads = _length_and_attributes(1 + len(delta) + len(offsets[0]) + 1 + 1)
        # Assigning every fourth or fifth part at once is by far the fastest way to put columns together.
        if same_length:
            run = [heads[lengths[0]] + delta, b"", _NO_KEY_AND_LENGTH[lengths[0]], b""] * (end - start)
            run[1::4] = offsets
            run[3::4] = values[start:end]
        else:
            run = [b"", delta, b"", b"", b""] * (end - start)
            run[0::5] = map(heads.__getitem__, lengths[start:end])
            run[2::5] = offsets
            run[3::5] = map(_NO_KEY_AND_LENGTH.__getitem__, lengths[start:end])
            run[4::5] = values[start:end]
        parts += run
    # What ends a record stands before the next one, so the first has too much, and the last too little.
    parts[0] = parts[0][len(_NO_HEADERS) :]
    parts.append(_NO_HEADERS)
    return b"".join(parts)


def _offset_deltas(start: int, end: int) -> list[bytes]:
    if end <= VARINT_TABLE_SIZE:
        return VARINT_TABLE[start:end]
    return [encode_varint(offset) for offset in range(start, end)]


def build_values_batch(
    values: Sequence[bytes],
    marks: Sequence[Mark],
    *,
    codec: Codec,
    level: int | None,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    transactional: bool,
) -> bytes | None:
    """A whole batch of values, as `build_batch` would make it; None if a value is too long for this."""
    payload = encode_values(values, marks)
    if payload is None:
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
    return pack_batch(header, compress(codec, payload, level) if codec else payload)
