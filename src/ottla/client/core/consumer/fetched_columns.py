"""Fetched bytes as Arrow columns: whole chunks at a time, with the cursors moved past what was given.

Keeps to the rules of reading by the record: nothing hidden is shown, what comes before a damaged batch is given first,
and the position passes over what holds no records. It needs numpy and pyarrow, and is imported by whoever asks for
columns. Decoding touches no more than the claimed data and their cursors, so that any thread may do it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ottla.base.errors import CorruptBatchError
from ottla.base.types import TopicPartition
from ottla.client.core.consumer.cursors import Cursor
from ottla.client.core.consumer.fetched_data import FetchedData
from ottla.client.core.consumer.handout import ClaimedData
from ottla.client.errors import CorruptRecordError
from ottla.records.batch import BatchHeader
from ottla.records.columns import COLUMN_NAMES, columns_schema, decode_columns

CLAIM_BYTES = 512 << 10
"""Small answers are decoded together until there are as many bytes as this. To join large ones is one more copy."""

PIECE_BYTES = 2 << 20
"""Of a large answer, as many are decoded for a call."""

_DEFAULT_SCHEMA = columns_schema(name for name in COLUMN_NAMES if name != "headers")


class _Decoded(NamedTuple):
    names: frozenset[str]
    rows: Any
    next_offset: int


def chosen_columns(columns: Iterable[str] | None) -> Any:
    """The schema of the asked columns, in their order; of all but the headers, slow to decode, if nobody says."""
    if isinstance(columns, str):
        raise ValueError(f"columns must be a list of names, such as [{columns!r}]")
    return _DEFAULT_SCHEMA if columns is None else _in_order(tuple(dict.fromkeys(columns)))


@lru_cache(maxsize=64)
def _in_order(names: tuple[str, ...]) -> Any:
    known = columns_schema(names)
    return pa.schema([known.field(name) for name in names])


def decode_claimed(
    claimed: Sequence[ClaimedData],
    schema: Any,
    rows_max: int | None = None,
    end_offsets: Mapping[TopicPartition, int] | None = None,
) -> Any:
    """The records of what was claimed as one RecordBatch; what is not given goes back to its cursor.

    Raises CorruptRecordError for a damaged batch, once everything before it has been given.
    """
    names = frozenset((*schema.names, "offset"))
    parts: list[Any] = []
    left = list(reversed(claimed))
    room = rows_max
    bytes_left = CLAIM_BYTES
    try:
        while left and bytes_left > 0 and (room is None or room > 0):
            cursor, turn, chunk = left[-1]
            if cursor.turn != turn:
                left.pop()
                continue
            end_offset = None if end_offsets is None else end_offsets.get(chunk.topic_partition)
            try:
                decoded = _decode(chunk, cursor.position, end_offset, names)
            except CorruptRecordError:
                if parts:
                    break
                raise
            rows = decoded.rows if room is None else decoded.rows[:room]
            if len(rows) < len(decoded.rows):
                chunk.leftover = decoded._replace(rows=decoded.rows[len(rows) :])
                _move(cursor, chunk, rows["offset"][-1].as_py() + 1)
            else:
                chunk.leftover = None
                end = _move(cursor, chunk, decoded.next_offset)
                if decoded.next_offset >= (end if end_offset is None else min(end, end_offset)):
                    left.pop()
            if len(rows):
                parts.append(rows)
                room = None if room is None else room - len(rows)
                bytes_left -= min(chunk.byte_count, CLAIM_BYTES)
    finally:
        for cursor, turn, chunk in left:
            if cursor.turn == turn:
                cursor.chunks.appendleft(chunk)
    return _joined(parts, schema)


def _decode(chunk: FetchedData, position: int, end_offset: int | None, names: frozenset[str]) -> _Decoded:
    leftover = chunk.leftover
    if isinstance(leftover, _Decoded) and leftover.names == names:
        # Records may have been read one by one since.
        passed = int(np.searchsorted(leftover.rows["offset"].to_numpy(), position))
        return leftover._replace(rows=leftover.rows[passed:])
    try:
        return _decode_batches(chunk, chunk.headers(), position, end_offset, names)
    except CorruptBatchError as e:
        intact, error = _intact_batches(chunk)
        decoded = _decode_batches(chunk, chunk.batches[:intact], position, end_offset, names)
        if decoded.next_offset <= position:
            raise error from e
        return decoded


def _decode_batches(
    chunk: FetchedData,
    batches: Iterable[tuple[int, BatchHeader]],
    position: int,
    end_offset: int | None,
    names: frozenset[str],
) -> _Decoded:
    topic, partition = chunk.topic_partition
    rows, next_offset = decode_columns(
        chunk.data,
        columns=names,
        batches=batches,
        topic=topic,
        partition=partition,
        start_offset=position,
        end_offset=end_offset,
        aborted=chunk.aborted or (),
        check_crc=chunk.check_crcs,
        size_max=PIECE_BYTES,
    )
    return _Decoded(names, rows, next_offset)


def _intact_batches(chunk: FetchedData) -> tuple[int, CorruptRecordError]:
    """How many batches come before the damaged one, and what is wrong with that."""
    data = chunk.from_its_start()
    intact = 0
    try:
        while data.next_batch() is not None:
            intact += 1
    except CorruptRecordError as e:
        return intact, e
    raise AssertionError(f"{chunk.topic_partition}: a batch was refused by the column and not by the record")


def _move(cursor: Cursor, chunk: FetchedData, position: int) -> int:
    """The application has been given everything before `position`; returns the offset after the last whole batch."""
    cursor.position = max(cursor.position, position)
    end = 0
    try:
        for _, header in chunk.headers():
            if header.base_offset < position:
                cursor.position_epoch = header.partition_leader_epoch
            end = header.next_offset
    except CorruptBatchError:
        # Who reads on has to be told, so what was fetched does not end here.
        return end + 1
    return end


def _joined(parts: list[Any], schema: Any) -> Any:
    if not parts:
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
    if len(parts) == 1:
        return parts[0] if parts[0].schema.names == schema.names else parts[0].select(schema.names)
    return pa.Table.from_batches([part.select(schema.names) for part in parts]).combine_chunks().to_batches()[0]


def as_table(batches: Sequence[Any], schema: Any) -> Any:
    return pa.Table.from_batches(batches, schema)
