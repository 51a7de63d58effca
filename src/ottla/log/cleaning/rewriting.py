"""A batch with fewer records, or with another base timestamp; what identifies it stays as it was."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np

from ottla.records.arrays.layout import RecordLayout
from ottla.records.arrays.varint import Int64s, VarintColumn
from ottla.records.batch import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    BatchHeader,
    pack_batch,
)
from ottla.records.compression import compress
from ottla.records.varint import encode_varint

_ATTRIBUTES_SIZE: Final = 1


def empty_batch(header: BatchHeader) -> bytes:
    """A header alone: it still tells what its producer has written last."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
    return pack_batch(header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0), b"")


def rewrite_batch(header: BatchHeader, layout: RecordLayout, rows: Int64s, new_horizon_ms: int | None) -> bytes:
    """The batch with only the records of `rows`, of which there is one at least.

    Its base timestamp becomes the delete horizon (KIP-534), if it has or is given one, and else the timestamp of the
    first record that is left; the largest timestamp is that of the records left, or the time of the append.
    """
    attributes = header.attributes
    timestamps = layout.timestamps[rows]
    if new_horizon_ms is not None:
        base_timestamp = new_horizon_ms
        attributes |= DELETE_HORIZON_BIT
    elif attributes & DELETE_HORIZON_BIT:
        base_timestamp = header.base_timestamp
    else:
        base_timestamp = int(timestamps[0])
    is_append_time = bool(attributes & LOG_APPEND_TIME_BIT)
    payload: bytes | bytearray
    if base_timestamp == header.base_timestamp and not is_append_time:
        payload = _copied(layout, rows)
    else:
        payload = _with_timestamps(layout, rows, timestamps - base_timestamp)
    rewritten = header._replace(
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=header.max_timestamp if is_append_time else int(timestamps.max()),
        record_count=len(rows),
    )
    codec = header.codec
    return pack_batch(rewritten, compress(codec, payload) if codec else payload)


def _copied(layout: RecordLayout, rows: Int64s) -> bytearray:
    """The records as they are, neighbours together."""
    view = memoryview(layout.buf)
    cuts = [0, *(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), len(rows)]
    starts, ends = layout.starts[rows], layout.ends[rows]
    firsts, lasts = starts[cuts[:-1]].tolist(), ends[[cut - 1 for cut in cuts[1:]]].tolist()
    return bytearray().join([view[first:last] for first, last in zip(firsts, lasts, strict=True)])


def _with_timestamps(layout: RecordLayout, rows: Int64s, deltas: Int64s) -> bytearray | bytes:
    column = VarintColumn(deltas)
    starts, ends = layout.starts[rows], layout.ends[rows]
    at, after = layout.timestamp_starts[rows], layout.delta_starts[rows]
    if bool((column.sizes == after - at).all()):
        # No record changes its length, as a rule: then only these bytes of the copy are written over.
        payload = _copied(layout, rows)
        sizes = ends - starts
        column.write(np.frombuffer(payload, np.uint8), np.cumsum(sizes) - sizes + at - starts)
        return payload
    heads: Int64s = np.empty(len(rows) + 1, np.int64)
    heads[0] = 0
    np.cumsum(column.sizes, out=heads[1:])
    encoded = bytearray(int(heads[-1]))
    column.write(np.frombuffer(encoded, np.uint8), heads[:-1])
    lengths = (_ATTRIBUTES_SIZE + column.sizes + ends - after).tolist()
    view = memoryview(layout.buf)
    parts: list[bytes | bytearray | memoryview] = []
    for (first, last), length, attributes_at, rest, end in zip(
        pairwise(heads.tolist()), lengths, (at - _ATTRIBUTES_SIZE).tolist(), after.tolist(), ends.tolist(), strict=True
    ):
        parts += (
            encode_varint(length),
            view[attributes_at : attributes_at + _ATTRIBUTES_SIZE],
            encoded[first:last],
            view[rest:end],
        )
    return b"".join(parts)
