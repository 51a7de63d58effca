"""Fetched bytes into Arrow columns: runs of batches with any codec, without those an application must not see.

Checks what `reader` checks, a column at a time, and before Arrow is shown any position: Arrow trusts its offsets. Only
the headers of records are passed over unless they are asked for. Keys and values are copied once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from ottla.base.errors import CorruptBatchError
from ottla.base.types import ReadBuffer
from ottla.records.arrays.layout import Payload
from ottla.records.arrays.varint import Octets
from ottla.records.batch import HEADER_SIZE, BatchHeader, crc_is_valid, iter_ordered_headers
from ottla.records.columns.fields import read_fields
from ottla.records.columns.schema import PLAIN_COLUMNS, columns_schema
from ottla.records.compression import Codec
from ottla.records.control import ControlType, parse_control_key
from ottla.records.faults import raise_cut_short
from ottla.records.reader import read_records
from ottla.records.scan import MAX_UNCOMPRESSED, MIN_RECORD_SIZE, read_payload

MAX_DECODED: Final = 1 << 30
"""Decoding stops before the batch that would take it beyond this: Arrow counts the bytes of a column in 31 bits."""

_GROUP_SIZE: Final = 2 << 20
_KEPT_ROWS: Final = 1 << 14


class DecodedColumns(NamedTuple):
    records: Any
    """A pyarrow.RecordBatch."""
    next_offset: int
    """Where to go on reading: after the last whole batch, which may be well after the last record."""


def decode_columns(
    data: ReadBuffer,
    *,
    columns: Iterable[str] = PLAIN_COLUMNS,
    batches: Iterable[tuple[int, BatchHeader]] | None = None,
    topic: str = "",
    partition: int = 0,
    start_offset: int = 0,
    end_offset: int | None = None,
    aborted: Iterable[tuple[int, int]] = (),
    check_crc: bool = True,
    max_uncompressed: int = MAX_UNCOMPRESSED,
    size_max: int | None = None,
) -> DecodedColumns:
    """The records of every whole batch in `data`, from `start_offset` up to and without `end_offset`.

    With `size_max`, of the first batches that have no more bytes than that together, but of one at least. `aborted` are
    the (producer id, first offset) of a fetch reply for read_committed. `batches` are what `iter_ordered_headers` gives
    for `data`, from who has looked already. Control batches are left out. A batch cut short at the end is ignored, as
    in a fetch reply. Raises CorruptBatchError on anything else that is not as a record batch should be, but does not
    check what lies before `start_offset`.
    """
    schema = columns_schema(columns)
    view = memoryview(data)
    if batches is None:
        batches = iter_ordered_headers(view)
    kept, next_offset = _visible_batches(view, batches, start_offset, end_offset, aborted, check_crc, size_max)
    buf, payloads, stopped_at = _open_payloads(data, kept, max_uncompressed)
    if stopped_at is not None:
        next_offset = stopped_at
    octets: Octets = np.frombuffer(buf, np.uint8)
    parts: list[list[Any]] = []
    for group in _groups(payloads):
        try:
            fields = read_fields(buf, octets, group, start_offset, end_offset, has_headers="headers" in schema.names)
            parts.append([_COLUMNS[name](fields, topic, partition) for name in schema.names])
        except IndexError:
            raise_cut_short()
    arrays = parts[0] if len(parts) == 1 else [pa.concat_arrays(column) for column in zip(*parts, strict=True)]
    return DecodedColumns(pa.RecordBatch.from_arrays(arrays, schema=schema), next_offset)


def _groups(payloads: list[Payload]) -> Iterator[list[Payload]]:
    """Batches that are decoded together: enough to make the cost of a call small, and few enough to stay in the cache.

    There is always one group, if of nothing, because the columns of nothing have types too.
    """
    group: list[Payload] = []
    size = 0
    for payload in payloads:
        if size and size + payload.end - payload.start > _GROUP_SIZE:
            yield group
            group, size = [], 0
        group.append(payload)
        size += payload.end - payload.start
    yield group


def _visible_batches(
    view: memoryview,
    batches: Iterable[tuple[int, BatchHeader]],
    start_offset: int,
    end_offset: int | None,
    aborted: Iterable[tuple[int, int]],
    check_crc: bool,
    size_max: int | None,
) -> tuple[list[tuple[int, BatchHeader]], int]:
    """The batches that hold records to be shown, with their positions, and the offset after the last one looked at."""
    transactions = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
    aborting: set[int] = set()
    kept: list[tuple[int, BatchHeader]] = []
    next_offset = start_offset
    size = 0
    for pos, header in batches:
        if end_offset is not None and header.base_offset >= end_offset:
            return kept, max(next_offset, end_offset)
        is_wanted = header.last_offset >= start_offset
        if is_wanted:
            size += header.size
            if kept and size_max is not None and size > size_max:
                return kept, next_offset
            if check_crc and not crc_is_valid(view[pos:], header):
                raise CorruptBatchError(f"the batch at offset {header.base_offset} does not match its checksum")
        while transactions and transactions[-1][1] <= header.last_offset:
            aborting.add(transactions.pop()[0])
        next_offset = max(next_offset, header.next_offset)
        if header.is_control:
            if header.producer_id in aborting and _is_abort_marker(view[pos:], header):
                aborting.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in aborting:
            continue
        elif is_wanted:
            kept.append((pos, header))
    return kept, next_offset


def _is_abort_marker(batch: memoryview, header: BatchHeader) -> bool:
    records = read_records(batch, header)
    return bool(records) and parse_control_key(records[0].key) is ControlType.ABORT


def _open_payloads(
    data: ReadBuffer, batches: list[tuple[int, BatchHeader]], max_uncompressed: int
) -> tuple[ReadBuffer, list[Payload], int | None]:
    """One buffer with the records of all batches, where they lie in it, and the base offset it had to stop at, if any.

    Uncompressed batches are left where they are; only if there are compressed ones are all put together anew.
    """
    if all(header.codec is Codec.NONE for _, header in batches):
        payloads: list[Payload] = []
        for pos, header in batches:
            payload = Payload(header, pos + HEADER_SIZE, pos + header.size)
            if payload.end - batches[0][0] > MAX_DECODED and payloads:
                return _shift(data, payloads, header.base_offset)
            _check_room(header, payload.end - payload.start, max_uncompressed)
            payloads.append(payload)
        return _shift(data, payloads, None)
    view = memoryview(data)
    parts: list[bytes] = []
    opened: list[Payload] = []
    size = 0
    for pos, header in batches:
        part = read_payload(view[pos:], header, max_uncompressed=max_uncompressed)
        if size + len(part) > MAX_DECODED and opened:
            return b"".join(parts), opened, header.base_offset
        opened.append(Payload(header, size, size + len(part)))
        parts.append(part)
        size += len(part)
    return b"".join(parts), opened, None


def _shift(
    data: ReadBuffer, payloads: list[Payload], stopped_at: int | None
) -> tuple[ReadBuffer, list[Payload], int | None]:
    """Positions count from the first payload, so that they stay small however much is skipped before it."""
    if not payloads or payloads[-1].end <= MAX_DECODED:
        return data, payloads, stopped_at
    origin = payloads[0].start
    shifted = [Payload(header, start - origin, end - origin) for header, start, end in payloads]
    return memoryview(data)[origin : payloads[-1].end], shifted, stopped_at


def _check_room(header: BatchHeader, size: int, max_uncompressed: int) -> None:
    if size > max_uncompressed:
        raise CorruptBatchError(f"the records are {size} bytes, more than the {max_uncompressed} allowed")
    if not 0 <= header.record_count * MIN_RECORD_SIZE <= size:
        raise CorruptBatchError(f"{header.record_count} records cannot be in {size} bytes")


def _topic_column(topic: str, rows: int) -> Any:
    if rows > _KEPT_ROWS:
        return pa.repeat(pa.scalar(topic, pa.string()), rows)
    return _kept_topic_column(topic).slice(0, rows)


@lru_cache(maxsize=16)
def _kept_topic_column(topic: str) -> Any:
    """The column with the most rows that are kept: all others are its beginning."""
    return pa.repeat(pa.scalar(topic, pa.string()), _KEPT_ROWS)


def _number_column(kind: Any, numbers: Any) -> Any:
    """An Arrow array over a NumPy array, which must be of the same kind."""
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


_INT32: Final = pa.int32()
_INT64: Final = pa.int64()
_MILLISECONDS: Final = pa.timestamp("ms", tz="UTC")

_COLUMNS: Final[dict[str, Callable[[Any, str, int], Any]]] = {
    "key": lambda fields, topic, partition: fields.keys(),
    "value": lambda fields, topic, partition: fields.values(),
    "topic": lambda fields, topic, partition: _topic_column(topic, len(fields.offsets)),
    "partition": lambda fields, topic, partition: _number_column(
        _INT32, np.full(len(fields.offsets), partition, np.int32)
    ),
    "offset": lambda fields, topic, partition: _number_column(_INT64, fields.offsets),
    "timestamp": lambda fields, topic, partition: _number_column(_MILLISECONDS, fields.timestamps),
    "timestampType": lambda fields, topic, partition: _number_column(_INT32, fields.timestamp_types),
    "headers": lambda fields, topic, partition: fields.headers(),
}
