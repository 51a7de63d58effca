"""Batches with fewer records, or with another base timestamp; what identifies them stays as it was."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ottla.log.cleaning.chunks import Opened
from ottla.records.arrays.headers import HeaderColumns, raw_headers
from ottla.records.arrays.layout import timestamps_of
from ottla.records.arrays.pieces import copy_pieces
from ottla.records.arrays.varint import Int64s, Octets, VarintColumn, read_varints
from ottla.records.batch import (
    CODEC_MASK,
    CRC_START,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    OFFSET_AND_LENGTH_SIZE,
    BatchHeader,
    pack_batch,
    read_header,
)
from ottla.records.checksum import crc32c
from ottla.records.compression import Codec, compress

_ATTRIBUTES_SIZE: Final = 1
_CRC_POSITION: Final = 17


class Rewritten(NamedTuple):
    """Batches, one behind the other."""

    data: bytes | bytearray
    sizes: Int64s
    record_counts: Int64s
    max_timestamps: Int64s


class _Kept(NamedTuple):
    """Records that stay: where they lie, and the parts of them up to the timestamp."""

    starts: Int64s
    ends: Int64s
    timestamp_starts: Int64s
    delta_starts: Int64s
    timestamp_deltas: Int64s


def emptied(header: BatchHeader) -> Rewritten:
    """A header alone: it still tells what its producer has written last."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
    data = pack_batch(header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0), b"")
    return Rewritten(data, np.array([len(data)]), np.zeros(1, np.int64), np.array([header.max_timestamp]))


def rewrite_batches(
    opened: Opened,
    starts: Int64s,
    ends: Int64s,
    counts: Int64s,
    needs_horizon: npt.NDArray[np.bool_],
    new_horizon_ms: int,
) -> Rewritten:
    """The opened batches with only the records that lie from `starts` to `ends`: `counts` of each, one at least.

    The base timestamp of a batch becomes the delete horizon (KIP-534), if it has or is given one, and else the
    timestamp of the first record that is left; the largest timestamp is that of the records left, or the time of the
    append.
    """
    headers, payloads = opened.headers, opened.payloads
    _, at = read_varints(opened.octets, starts, 32)
    deltas, after = read_varints(opened.octets, at + _ATTRIBUTES_SIZE, 64)
    kept = _Kept(starts, ends, at + _ATTRIBUTES_SIZE, after, deltas)
    timestamps = timestamps_of(deltas, payloads, counts)
    firsts = np.cumsum(counts) - counts
    attributes = np.where(needs_horizon, headers.attributes | DELETE_HORIZON_BIT, headers.attributes)
    is_append_time = attributes & LOG_APPEND_TIME_BIT != 0
    bases = np.where(headers.attributes & DELETE_HORIZON_BIT != 0, headers.base_timestamps, timestamps[firsts])
    bases[needs_horizon] = new_horizon_ms
    max_timestamps = np.where(is_append_time, headers.max_timestamps, np.maximum.reduceat(timestamps, firsts))
    is_changed = (bases != headers.base_timestamps) | is_append_time
    data, sizes = _payloads(opened, kept, counts, timestamps - np.repeat(bases, counts), is_changed)
    raw = headers.raw.copy()
    raw["batch_length"] = sizes - OFFSET_AND_LENGTH_SIZE
    raw["attributes"] = attributes
    raw["base_timestamp"] = bases
    raw["max_timestamp"] = max_timestamps
    raw["record_count"] = counts
    sealed, sizes = _seal(data, sizes, HeaderColumns(raw, headers.positions))
    return Rewritten(sealed, sizes, counts, max_timestamps)


def _payloads(
    opened: Opened, kept: _Kept, counts: Int64s, deltas: Int64s, is_changed: npt.NDArray[np.bool_]
) -> tuple[bytearray, Int64s]:
    """The records of all batches, each with room for its header in front, and the sizes of the batches."""
    column = VarintColumn(deltas)
    in_changed = np.repeat(is_changed, counts)
    rooms = HEADER_SIZE * (1 + np.repeat(np.arange(len(counts)), counts))
    if not ((column.sizes != kept.delta_starts - kept.timestamp_starts) & in_changed).any():
        # No record changes its length, as a rule: then only some bytes of the copy are written over.
        sizes = kept.ends - kept.starts
        data, octets, places = _room_for(sizes, rooms)
        copy_pieces(opened.octets, kept.starts, sizes, octets, places)
        if in_changed.any():
            rows = np.flatnonzero(in_changed)
            column.take(rows).write(octets, (places + kept.timestamp_starts - kept.starts)[rows])
    else:
        data, sizes = _with_timestamps(opened, kept, rooms, column)
    return data, np.add.reduceat(sizes, np.cumsum(counts) - counts) + HEADER_SIZE


def _room_for(sizes: Int64s, rooms: Int64s) -> tuple[bytearray, Octets, Int64s]:
    """Memory for records, the same as an array, and where they begin: `rooms` bytes further than without headers."""
    ends = np.cumsum(sizes) + rooms
    data = bytearray(int(ends[-1]))
    return data, np.frombuffer(data, np.uint8), ends - sizes


def _with_timestamps(opened: Opened, kept: _Kept, rooms: Int64s, column: VarintColumn) -> tuple[bytearray, Int64s]:
    """The records with other timestamps, which take more or fewer bytes than before."""
    rest = kept.ends - kept.delta_starts
    body_sizes = _ATTRIBUTES_SIZE + column.sizes + rest
    lengths = VarintColumn(body_sizes)
    sizes = lengths.sizes + body_sizes
    data, octets, places = _room_for(sizes, rooms)
    lengths.write(octets, places)
    places += lengths.sizes
    octets[places] = opened.octets[kept.timestamp_starts - _ATTRIBUTES_SIZE]
    places += _ATTRIBUTES_SIZE
    column.write(octets, places)
    copy_pieces(opened.octets, kept.delta_starts, rest, octets, places + column.sizes)
    return data, sizes


def _seal(data: bytearray, sizes: Int64s, headers: HeaderColumns) -> tuple[bytes | bytearray, Int64s]:
    """The batches with their headers and checksums, compressed where they were before, and their sizes then."""
    octets = np.frombuffer(data, np.uint8)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    raw_headers(octets)[starts] = headers.raw
    view = memoryview(data)
    crcs = [crc32c(view[a:b]) for a, b in zip((starts + CRC_START).tolist(), ends.tolist(), strict=True)]
    fields: npt.NDArray[np.uint32] = np.ndarray((len(octets) - 3,), ">u4", octets, strides=(1,))
    fields[starts + _CRC_POSITION] = crcs
    codecs = headers.attributes & CODEC_MASK
    if not codecs.any():
        return data, sizes
    parts = [
        pack_batch(read_header(view, start), compress(Codec(codec), view[start + HEADER_SIZE : end]))
        if codec
        else bytes(view[start:end])
        for codec, start, end in zip(codecs.tolist(), starts.tolist(), ends.tolist(), strict=True)
    ]
    return b"".join(parts), np.array([len(part) for part in parts], np.int64)
