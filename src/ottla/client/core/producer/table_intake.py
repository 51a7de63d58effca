"""From a table to encoded batches: which columns are sent, which partition each row goes to, portions of bounded size.

Nothing is done row by row, except for a partitioner of the user's own. It needs numpy and pyarrow, and is imported by
whoever sends a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.base.errors import InvalidRecordError
from ottla.base.options import MAX_INT
from ottla.base.types import TopicPartition
from ottla.client.core.metadata import TopicMetadata
from ottla.client.core.producer.batch import RECORD_OVERHEAD
from ottla.client.core.producer.encoded_batch import ASSUMED, EncodedRows, TableColumns
from ottla.client.core.producer.options import ProducerSettings
from ottla.client.core.producer.partitioners import Backlog, Partitioner, StickyChoice
from ottla.client.errors import ClientError, RecordTooLargeError, SerializationError
from ottla.records.arrays.varint import Int64s
from ottla.records.batch import HEADER_SIZE
from ottla.records.columns import HEADERS_TYPE, EncodedBatch, encode_columns
from ottla.records.columns.encode import DEFAULT_MAX_BATCH_SIZE
from ottla.records.columns.hashing import NO_PARTITION, partitions_for_keys

_PORTION_BYTES_MAX = 16 << 20
_HEADER_OVERHEAD = 4
_ROW_MARGIN = 10
"""The encoder allows for the longest varints when it cuts batches; so what shall be one batch is measured like that."""
_BYTES_OR_TEXT = (
    pa.types.is_null,
    pa.types.is_binary,
    pa.types.is_string,
    pa.types.is_large_binary,
    pa.types.is_large_string,
    pa.types.is_fixed_size_binary,
    pa.types.is_binary_view,
    pa.types.is_string_view,
)
_WITHOUT_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
"""Arrow can neither take rows of views nor compare them; no chunk of them is too large for these."""


class PreparedTable(NamedTuple):
    table: Any
    """With the columns `key`, `value`, `timestamp`, `headers`, `partition` and `topic`, as far as they are there."""
    topics: tuple[str, ...]
    ends: Int64s
    """The size of all rows up to and with each."""
    wall_ms: int


class TableIntake:
    def __init__(
        self,
        settings: ProducerSettings,
        *,
        partitioner: Partitioner | None,
        random_below: Callable[[int], int],
        backlog: Callable[[str], Backlog],
    ) -> None:
        """`backlog` tells what waits for the partitions of a topic."""
        self._settings = settings
        self._partitioner = partitioner
        self._random_below = random_below
        self._backlog = backlog
        self._largest = min(settings.max_request_size, settings.buffer_memory)
        self._batch_size = min(settings.largest_batch, settings.buffer_memory, DEFAULT_MAX_BATCH_SIZE)
        self._portion_size = max(self._batch_size, min(_PORTION_BYTES_MAX, settings.buffer_memory // 4))
        self._choices: dict[str, StickyChoice] = {}

    # The table as a whole

    def prepare(self, topic: str | None, table: Any, columns: TableColumns, wall_ms: int) -> PreparedTable:
        """Raises SerializationError if the table cannot be sent, RecordTooLargeError if one of its rows cannot."""
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        if not isinstance(table, pa.Table):
            raise SerializationError(
                f"send_arrow takes a pyarrow Table or RecordBatch, but was given a {type(table).__name__}"
            )
        if topic is not None:
            columns = columns._replace(topic=None)
        chosen = _choose(table, columns)
        topics = (topic,) if topic is not None else _topics_of(chosen)
        sizes = _row_sizes(chosen)
        if len(sizes) and int(sizes.max()) + HEADER_SIZE > self._largest:
            row = int(sizes.argmax())
            name = "max.request.size" if self._largest == self._settings.max_request_size else "buffer.memory"
            raise RecordTooLargeError(
                f"row {row}: a record of {sizes[row]} bytes is larger than {name} ({self._largest}) allows"
            )
        return PreparedTable(chosen, topics, np.cumsum(sizes + _ROW_MARGIN), wall_ms)

    def highest_partition(self, prepared: PreparedTable, topic: str) -> int | None:
        """The last partition that rows of the topic ask for by number, which may have been added only now."""
        table = prepared.table
        if "partition" not in table.column_names:
            return None
        asked = table["partition"]
        if not (pa.types.is_integer(asked.type) or pa.types.is_null(asked.type)):
            raise SerializationError(f"the column for the partition is {asked.type}, and must be whole numbers")
        if len(prepared.topics) > 1:
            asked = asked.filter(pc.equal(table["topic"], topic))
        highest: int | None = pc.max(asked).as_py()
        return highest if highest is not None and 0 <= highest <= MAX_INT else None

    def encode(
        self, prepared: PreparedTable, topics: Mapping[str, TopicMetadata]
    ) -> Iterator[tuple[TopicPartition, EncodedRows]]:
        """One batch after the other, each made when it is sent, as far as possible."""
        ends = prepared.ends
        total = int(ends[-1]) if len(ends) else 0
        share = _share(total, self._portion_size)
        first = taken = 0
        while first < len(ends):
            last = max(first + 1, int(np.searchsorted(ends, taken + share, side="right")))
            portion = prepared.table.slice(first, last - first)
            yield from self._encode_portion(portion, ends[first:last] - taken, prepared, topics)
            first, taken = last, int(ends[last - 1])

    def _encode_portion(
        self, portion: Any, ends: Int64s, prepared: PreparedTable, topics: Mapping[str, TopicMetadata]
    ) -> Iterator[tuple[TopicPartition, EncodedRows]]:
        portion = portion.combine_chunks()
        if len(prepared.topics) == 1:
            yield from self._encode_topic(portion, ends, topics[prepared.topics[0]], prepared.wall_ms)
            return
        sizes = np.diff(ends, prepend=0)
        for name in prepared.topics:
            rows = np.flatnonzero(pc.equal(portion["topic"], name).to_numpy(zero_copy_only=False))
            if len(rows):
                own = portion.take(pa.array(rows))
                yield from self._encode_topic(own, np.cumsum(sizes[rows]), topics[name], prepared.wall_ms)

    # One topic

    def _encode_topic(
        self, rows: Any, ends: Int64s, topic: TopicMetadata, wall_ms: int
    ) -> Iterator[tuple[TopicPartition, EncodedRows]]:
        if not self._has_wishes(rows):
            yield from self._encode_sticky(rows, ends, topic, wall_ms)
            return
        partitions = self._partitions(rows, ends, topic)
        rows = _without_places(rows)
        lowest, highest = int(partitions.min()), int(partitions.max())
        if lowest == highest:
            yield from self._encode_partition(rows, TopicPartition(topic.name, lowest), wall_ms)
            return
        order = np.argsort(partitions, kind="stable")
        rows = rows.take(pa.array(order))
        partitions = partitions[order]
        firsts = np.flatnonzero(np.diff(partitions, prepend=NO_PARTITION)).tolist()
        for first, last in zip(firsts, [*firsts[1:], len(partitions)], strict=True):
            target = TopicPartition(topic.name, int(partitions[first]))
            yield from self._encode_partition(rows.slice(first, last - first), target, wall_ms)

    def _has_wishes(self, rows: Any) -> bool:
        """Whether anything but the size of rows may decide on their partitions."""
        has_keys = "key" in rows.column_names and not self._settings.ignore_keys
        return has_keys or "partition" in rows.column_names or self._partitioner is not None

    def _encode_sticky(
        self, rows: Any, ends: Int64s, topic: TopicMetadata, wall_ms: int
    ) -> Iterator[tuple[TopicPartition, EncodedRows]]:
        """Neighbours go to the same partition, each batch to one, so nothing has to be put into another order.

        Batches are a little smaller than they could be: a small one left over would cost as much as a large one.
        """
        choice = self._choice(topic)
        largest = int(np.diff(ends, prepend=0).max())
        batch_size = min(self._batch_size, HEADER_SIZE + largest + _share(int(ends[-1]), self._batch_size))
        taken = 0
        for batch in self._encode_rows(_without_places(rows), topic.name, wall_ms, batch_size):
            partition = choice.choose(topic.available, topic.partition_count, partial(self._backlog, topic.name))
            yield TopicPartition(topic.name, partition), EncodedRows(batch.make, batch.size, batch.record_count)
            end = int(ends[batch.first_row + batch.record_count - 1])
            choice.produced(end - taken)
            taken = end

    def _encode_partition(
        self, rows: Any, target: TopicPartition, wall_ms: int
    ) -> Iterator[tuple[TopicPartition, EncodedRows]]:
        for batch in self._encode_rows(rows, target.topic, wall_ms, self._batch_size):
            yield target, EncodedRows(batch.make, batch.size, batch.record_count)

    def _encode_rows(self, rows: Any, topic: str, wall_ms: int, batch_size: int) -> Iterator[EncodedBatch]:
        settings = self._settings
        try:
            yield from encode_columns(
                rows,
                codec=settings.codec,
                level=settings.compression_level,
                max_batch_size=batch_size,
                default_timestamp_ms=wall_ms,
                transactional=settings.transactional_id is not None,
                checksum=not settings.idempotent,  # else each batch is given its number before it is sent
            )
        except InvalidRecordError as e:
            raise SerializationError(f"{topic}: {e.message}") from e

    def _partitions(self, rows: Any, ends: Int64s, topic: TopicMetadata) -> Int64s:
        """For each row the one it asks for, or that of its key, or one that its neighbours go to as well."""
        partitions = np.full(len(ends), NO_PARTITION, np.int64)
        if "partition" in rows.column_names:
            partitions = _asked_partitions(rows["partition"], topic)
        open_rows = partitions == NO_PARTITION
        if not open_rows.any():
            return partitions
        if self._partitioner is not None:
            self._ask_partitioner(partitions, rows, topic)
        elif "key" in rows.column_names and not self._settings.ignore_keys:
            keyed = partitions_for_keys(_one_array(rows["key"]), topic.partition_count)
            partitions[open_rows] = keyed[open_rows]
        self._stick(partitions, ends, topic)
        return partitions

    def _ask_partitioner(self, partitions: Int64s, rows: Any, topic: TopicMetadata) -> None:
        assert self._partitioner is not None
        keys = rows["key"].to_pylist() if "key" in rows.column_names else [None] * len(partitions)
        values = rows["value"].to_pylist()
        for row in np.flatnonzero(partitions == NO_PARTITION).tolist():
            chosen = self._partitioner(topic.name, keys[row], values[row], topic.partition_count, topic.available)
            if chosen not in topic.partitions:
                raise _no_such_partition(topic, chosen)
            partitions[row] = chosen

    def _stick(self, partitions: Int64s, ends: Int64s, topic: TopicMetadata) -> None:
        """What has no partition yet goes to one at a time, for as many bytes as a batch has (KIP-480)."""
        rows = np.flatnonzero(partitions == NO_PARTITION)
        if not len(rows):
            return
        if len(rows) < len(ends):
            ends = np.cumsum(np.diff(ends, prepend=0)[rows])
        for first, last, partition in self._sticky_runs(ends, topic):
            partitions[rows[first:last]] = partition

    def _sticky_runs(self, ends: Int64s, topic: TopicMetadata) -> Iterator[tuple[int, int, int]]:
        """Rows that go to one partition: the first, the one after the last, the partition."""
        choice = self._choice(topic)
        share = _share(int(ends[-1]), self._batch_size)
        first = taken = 0
        while first < len(ends):
            last = max(first + 1, int(np.searchsorted(ends, taken + share, side="right")))
            partition = choice.choose(topic.available, topic.partition_count, partial(self._backlog, topic.name))
            yield first, last, partition
            choice.produced(int(ends[last - 1]) - taken)
            first, taken = last, int(ends[last - 1])

    def _choice(self, topic: TopicMetadata) -> StickyChoice:
        choice = self._choices.get(topic.name)
        if choice is None:
            choice = self._choices[topic.name] = StickyChoice(self._batch_size, self._random_below)
        return choice


def _share(total: int, most: int) -> int:
    """How large parts are that are equally large, no larger than `most`, and as few as possible."""
    return -(-total // -(-total // most)) if total else 0


def _without_places(rows: Any) -> Any:
    return rows.select([name for name in rows.column_names if name not in ("topic", "partition")])


def _choose(table: Any, columns: TableColumns) -> Any:
    """The columns that are sent, under the names of `TableColumns`."""
    if columns.value is None:
        raise SerializationError("value_column must name a column; one of nulls sends records without a value")
    chosen: dict[str, Any] = {}
    for field, name in columns._asdict().items():
        if name is None:
            continue
        count = table.column_names.count(name)
        if count > 1:
            raise SerializationError(f"the table has {count} columns {name!r}")
        if count:
            chosen[field] = table[name]
        elif field == "value" or name != getattr(ASSUMED, field):
            known = ", ".join(table.column_names)
            raise SerializationError(f"the table has no column {name!r} for the {field}; its columns: {known}")
    for field in ("key", "value"):
        if field in chosen:
            chosen[field] = _as_bytes(chosen[field], field)
    if "timestamp" in chosen:
        chosen["timestamp"] = _as_milliseconds(chosen["timestamp"])
    if "headers" in chosen:
        chosen["headers"] = _as_headers(chosen["headers"])
    if "topic" in chosen:
        chosen["topic"] = _plain(chosen["topic"])
    return pa.table(chosen)


def _as_bytes(column: Any, field: str) -> Any:
    kind = _kind_of_values(column)
    if not any(fits(kind) for fits in _BYTES_OR_TEXT):
        raise SerializationError(
            f"the column for the {field} is {kind}, and must be bytes or text: cast it to what shall be sent"
        )
    return _plain(column)


def _kind_of_values(column: Any) -> Any:
    return column.type.value_type if pa.types.is_dictionary(column.type) else column.type


def _plain(column: Any) -> Any:
    """Without dictionaries and views."""
    values = _kind_of_values(column)
    kind = _WITHOUT_VIEWS.get(values, values)
    if pa.types.is_dictionary(column.type):
        chunks = [chunk.dictionary.cast(kind).take(chunk.indices) for chunk in column.chunks]
        return pa.chunked_array(chunks, kind)
    return column if column.type == kind else column.cast(kind)


def _as_headers(column: Any) -> Any:
    if column.null_count == len(column):
        return pa.chunked_array([pa.nulls(len(column), HEADERS_TYPE)])
    if pa.types.is_list_view(column.type) or pa.types.is_large_list_view(column.type):
        # Arrow's own cast of these makes offsets that do not belong to the data.
        return pa.chunked_array([chunk.to_pylist() for chunk in column.chunks], HEADERS_TYPE)
    try:
        return column.cast(HEADERS_TYPE)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        raise SerializationError(
            f"the column for the headers is {column.type}, and must be a list of (key, value)"
        ) from e


def _as_milliseconds(column: Any) -> Any:
    kind = column.type
    if not (pa.types.is_timestamp(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
        raise SerializationError(f"the column for the timestamp is {kind}, neither a timestamp nor milliseconds")
    try:
        if pa.types.is_timestamp(kind):
            # Finer units are cut to milliseconds; seconds may be too many of them.
            column = column.cast(pa.timestamp("ms", tz=kind.tz), safe=kind.unit == "s")
        column = column.cast(pa.int64())
    except pa.ArrowInvalid as e:
        raise SerializationError("the column for the timestamp does not fit 64 bits of milliseconds") from e
    earliest = pc.min(column).as_py()
    if earliest is not None and earliest < 0:
        row = pc.index(column, earliest).as_py()
        raise SerializationError(f"row {row}: the timestamp must not be before 1970, but was {earliest} ms")
    return column


def _topics_of(table: Any) -> tuple[str, ...]:
    if "topic" not in table.column_names:
        raise SerializationError("send_arrow needs a topic, or a table with a column that names one for each row")
    column = table["topic"]
    if column.null_count:
        raise SerializationError("a row names no topic: the column for the topic has nulls")
    names = pc.unique(column).to_pylist()
    for name in names:
        if not isinstance(name, str) or not name:
            raise SerializationError(f"the topic must be a name, but was {name!r}")
    return tuple(names)


def _row_sizes(table: Any) -> Int64s:
    """How much each row adds to the size of its batch, as `record_size` counts."""
    sizes = np.full(table.num_rows, RECORD_OVERHEAD, np.int64)
    for name in ("key", "value"):
        if name in table.column_names and not pa.types.is_null(table[name].type):
            column = table[name]
            if not _tells_lengths(column.type):
                column = column.cast(pa.large_binary())
            lengths = pc.binary_length(column)
            sizes += (pc.fill_null(lengths, 0) if lengths.null_count else lengths).to_numpy()
    if "headers" in table.column_names:
        first = 0
        for chunk in table["headers"].chunks:
            sizes[first : first + len(chunk)] += _header_sizes(chunk)
            first += len(chunk)
    return sizes


def _tells_lengths(kind: Any) -> bool:
    """Whether Arrow knows the lengths of such a column without turning it into another kind."""
    return any(fits(kind) for fits in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string))


def _header_sizes(headers: Any) -> Int64s:
    if headers.null_count == len(headers):
        return np.zeros(len(headers), np.int64)
    counts = pc.fill_null(headers.value_lengths(), 0).to_numpy(zero_copy_only=False)
    names, values = headers.flatten().flatten()
    totals = np.zeros(len(names) + 1, np.int64)
    for part in (names, values):
        totals[1:] += pc.fill_null(pc.binary_length(part), 0).to_numpy(zero_copy_only=False)
    np.cumsum(totals[1:] + _HEADER_OVERHEAD, out=totals[1:])
    edges = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=edges[1:])
    return np.diff(totals[edges])


def _asked_partitions(column: Any, topic: TopicMetadata) -> Int64s:
    try:
        asked = pc.fill_null(column.cast(pa.int64()), NO_PARTITION).to_numpy()
    except pa.ArrowInvalid as e:
        raise _no_such_partition(topic, pc.max(column).as_py()) from e
    is_null = pc.is_null(column).to_numpy()
    unknown = ~is_null & ~np.isin(asked, np.fromiter(topic.partitions, np.int64))
    if unknown.any():
        raise _no_such_partition(topic, int(asked[unknown][0]))
    return np.array(asked, np.int64)


def _no_such_partition(topic: TopicMetadata, partition: int) -> ClientError:
    count = topic.partition_count
    return ClientError(f"topic {topic.name} has the partitions 0 to {count - 1}, and no partition {partition}")


def _one_array(column: Any) -> Any:
    column = column.combine_chunks()
    return column if not isinstance(column, pa.ChunkedArray) else pa.concat_arrays(column.chunks)
