"""Arrow columns into record batches, byte for byte what `builder` writes for the same rows.

All rows are encoded in one go and then cut into batches: a row only has to know which batch it will be in, because its
offset and timestamp count from the first row of that one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.base.errors import ErrorCode, InvalidRecordError
from ottla.records.arrays.varint import Int64s, VarintColumn
from ottla.records.batch import (
    HEADER_SIZE,
    MAGIC_V2,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    increment_sequence,
    pack_batch,
    pack_in_place,
)
from ottla.records.columns.even import RecordsOfBatch, encode_evenly
from ottla.records.columns.input import NO_HEADERS, RecordColumns
from ottla.records.columns.varint import join_varints
from ottla.records.compression import Codec, compress
from ottla.records.varint import encode_varint

DEFAULT_MAX_BATCH_SIZE: Final = 1_000_000
"""What a broker accepts unless it is told otherwise is a little more."""

_GROUP_SIZE: Final = 2 << 20
# Attributes, offset delta, and the lengths of the record, its key and its value, each as long as it can be.
_MAX_OVERHEAD: Final = 1 + 5 + 5 + 5 + 5
_NOTHING: Final = pa.scalar(b"", pa.binary())


class EncodedBatch(NamedTuple):
    make: Callable[[], memoryview]
    """Gives the whole batch, in memory that may be written to: whoever sends it may have to say in whose name.

    As far as possible it is made when this is called, and anew each time. Whoever sends it at once and forgets it finds
    it in the processor's cache, and the memory for the next one, too."""
    size: int
    first_row: int
    record_count: int


def encode_columns(
    table: Any,
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    max_batch_size: int = DEFAULT_MAX_BATCH_SIZE,
    default_timestamp_ms: int = NO_TIMESTAMP,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    checksum: bool = True,
) -> Iterator[EncodedBatch]:
    """The rows of a pyarrow Table or RecordBatch as batches of one partition, in the order of the rows.

    Columns are `value` and, if there, `key`, `timestamp` and `headers`. No batch is larger than `max_batch_size` before
    compression, except one of a single row, which the broker judges. The sequences of the batches follow each other.
    Batches without a `checksum` are for those who will say with `set_producer` whose they are.
    """
    columns = RecordColumns.of(table, default_timestamp_ms)
    header = BatchHeader(
        0,
        0,
        NO_PARTITION_LEADER_EPOCH,
        MAGIC_V2,
        0,
        codec | (TRANSACTIONAL_BIT if transactional else 0),
        0,
        NO_TIMESTAMP,
        NO_TIMESTAMP,
        producer_id,
        producer_epoch,
        base_sequence,
        0,
    )
    return _finish(columns, max_batch_size, header, codec, level, checksum=checksum)


def _finish(
    columns: RecordColumns, max_batch_size: int, usual: BatchHeader, codec: Codec, level: int | None, *, checksum: bool
) -> Iterator[EncodedBatch]:
    for records in encode_evenly(columns, max_batch_size) or _encode_unevenly(columns, max_batch_size):
        make, size, first, count, is_made = records
        timestamps = columns.timestamps[first : first + count]
        sequence = usual.base_sequence
        header = usual._replace(
            last_offset_delta=count - 1,
            base_timestamp=int(timestamps[0]),
            max_timestamp=int(timestamps.max()),
            base_sequence=sequence if sequence == NO_SEQUENCE else increment_sequence(sequence, first),
            record_count=count,
        )
        if codec:
            data = memoryview(bytearray(pack_batch(header, compress(codec, make()[HEADER_SIZE:], level))))
            make, size = partial(_same, data), len(data)
        elif is_made:
            pack_in_place(header, make(), checksum=checksum)
        else:
            make = partial(_packed, header, make, checksum=checksum)
        yield EncodedBatch(make, size, first, count)


def _same(data: memoryview) -> memoryview:
    return data


def _packed(header: BatchHeader, make: Callable[[], memoryview], *, checksum: bool) -> memoryview:
    data = make()
    pack_in_place(header, data, checksum=checksum)
    return data


def _encode_unevenly(columns: RecordColumns, max_batch_size: int) -> Iterator[RecordsOfBatch]:
    for firsts, last in _groups(columns, max_batch_size):
        payload, bounds = _encode_rows(columns, firsts, last)
        edges = [*firsts.tolist(), last]
        for index, (first, next_first) in enumerate(pairwise(edges)):
            yield RecordsOfBatch.made(payload[bounds[index] : bounds[index + 1]], first, next_first - first)


def _groups(columns: RecordColumns, max_batch_size: int) -> list[tuple[Int64s, int]]:
    """Which rows begin a batch, in groups that are encoded at once, each with the row after its last.

    A group is small enough to stay in the cache. Sizes are bounds from above: how much room an offset or a timestamp
    takes is known only once the batches are.
    """
    count = len(columns)
    span_ms = int(columns.timestamps.max()) - int(columns.timestamps.min()) if count else 0
    bounds = np.cumsum(columns.payload_sizes + (_MAX_OVERHEAD + len(encode_varint(span_ms))))
    room = max_batch_size - HEADER_SIZE
    groups: list[tuple[Int64s, int]] = []
    firsts: list[int] = []
    first = group_start = taken = 0
    while first < count:
        if taken - group_start > _GROUP_SIZE:
            groups.append((np.array(firsts, np.int64), first))
            firsts, group_start = [], taken
        firsts.append(first)
        first = max(first + 1, int(np.searchsorted(bounds, taken + room, side="right")))
        taken = int(bounds[first - 1])
    if firsts:
        groups.append((np.array(firsts, np.int64), count))
    return groups


def _encode_rows(columns: RecordColumns, firsts: Int64s, last: int) -> tuple[memoryview, list[int]]:
    """The records of the batches that begin at `firsts` up to the row `last`, and where each batch begins.

    Before the records of each batch there is room for its header.
    """
    start = int(firsts[0])
    part = columns.slice(start, last)
    rows = last - start
    counts = np.diff(np.append(firsts, last))
    first_of_row = np.repeat(firsts - start, counts)
    offset_deltas = VarintColumn(np.arange(rows, dtype=np.int64) - first_of_row)
    timestamp_deltas = VarintColumn(part.timestamps - part.timestamps[first_of_row])
    key_lengths = VarintColumn(part.key_lengths)
    value_lengths = VarintColumn(part.value_lengths)
    body_sizes = part.payload_sizes + (
        1 + timestamp_deltas.sizes + offset_deltas.sizes + key_lengths.sizes + value_lengths.sizes
    )
    head: list[VarintColumn | int] = [VarintColumn(body_sizes), 0, timestamp_deltas, offset_deltas, key_lengths]
    room = np.zeros(rows, np.int64)
    room[firsts - start] = HEADER_SIZE
    if part.keys is None:
        pieces = [join_varints([*head, value_lengths], room)]
    else:
        pieces = [join_varints(head, room), part.keys, join_varints([value_lengths])]
    if part.values is not None:
        pieces.append(part.values)
    pieces.append(NO_HEADERS if part.headers is None else part.headers)
    try:
        joined = pc.binary_join_element_wise(*pieces, _NOTHING)
    except pa.ArrowInvalid as e:
        raise InvalidRecordError(
            f"a record between the rows {start} and {last} is too large to be encoded", code=ErrorCode.MESSAGE_TOO_LARGE
        ) from e
    _, offsets_buffer, data = joined.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[joined.offset : joined.offset + rows + 1]
    bounds = [*offsets[firsts - start].tolist(), int(offsets[rows])]
    # What Arrow has just made belongs to nobody else, so headers can be written into it.
    return memoryview(data if data.is_mutable else bytearray(data)).cast("B"), bounds
