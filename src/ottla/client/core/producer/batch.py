"""Records on their way to one partition, and what became of them.

A batch collects records, is encoded once, and settles all of them together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.plain_records import Mark, build_values_batch
from ottla.client.core.producer.lane import Lane
from ottla.client.errors import ClientError
from ottla.records.batch import HEADER_SIZE, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP
from ottla.records.builder import RecordFields, build_batch
from ottla.records.compression import Codec

UNKNOWN_OFFSET = -1
RECORD_OVERHEAD = 14
"""Lengths, deltas and counts of a record of usual size, rounded up."""


class RecordMetadata(NamedTuple):
    """Where a record was stored. The offset is -1 if nobody knows: with acks=0, and after a lost reply."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


DeliveryCallback = Callable[[RecordMetadata | None, ClientError | None], None]


class Batch:
    __slots__ = (
        "_compressed",
        "_lengths",
        "_size",
        "_waiters",
        "announced",
        "attempts",
        "base_offset",
        "base_sequence",
        "callbacks",
        "culprits",
        "deadline_ms",
        "done",
        "error",
        "lane",
        "log_append_time_ms",
        "longest",
        "marks",
        "maybe_stored",
        "opened_ms",
        "order",
        "parent",
        "partition",
        "parts",
        "producer_epoch",
        "producer_id",
        "refused",
        "reserved",
        "retry_at_ms",
        "room",
        "rows",
        "topic",
        "topic_partition",
        "values",
    )

    def __init__(self, topic: str, partition: int, order: tuple[int, ...], *, opened_ms: int, deadline_ms: int) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_partition = TopicPartition(topic, partition)
        self.order = order
        """The place of the batch among those of its partition. Parts of a batch that was split share their start."""
        self.values: list[bytes] = []
        """The records, as long as they are only values; `marks` say when they were made."""
        self.marks: list[Mark] = []
        self.rows: list[RecordFields] | None = None
        """The records, once one of them was more than a value."""
        self.room = 0
        """Up to which size there is memory for the batch. 0 once it is closed."""
        self.lane: Lane | None = None
        """Where values are added without asking; those it holds are not among `values` yet."""
        self.longest = 0
        """The length of the longest value."""
        self._size = HEADER_SIZE
        self._lengths: list[int] = []
        self.reserved = 0
        self.opened_ms = opened_ms
        self.deadline_ms = deadline_ms
        self._compressed: bytes | memoryview | None = None
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE
        self.attempts = 0
        self.retry_at_ms = 0
        self.maybe_stored = False
        """Whether an attempt ended without a word on whether the records were stored."""
        self.refused = False
        """Whether the broker has said of the last attempt that its sequence is out of order."""
        self.done = False
        self.announced = False
        """Whether the callbacks have been told what became of the batch. Only then are those who wait."""
        self.base_offset = UNKNOWN_OFFSET
        self.log_append_time_ms = NO_TIMESTAMP
        self.error: ClientError | None = None
        self.culprits: Mapping[int, ClientError] = {}
        """The records for which the batch was refused, by index (KIP-467). For the others `error` holds."""
        self.callbacks: list[tuple[int, DeliveryCallback]] = []
        self.parts: list[Batch] = []
        self.parent: Batch | None = None
        self._waiters: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<Batch {self.order} of {self.topic_partition}: {self.record_count} records>"

    @property
    def is_numbered(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    # The records

    @property
    def batch(self) -> Batch:
        """A record is known by its place in a lane, or in the batch itself."""
        return self

    def index_of(self, number: int) -> int:
        return number

    @property
    def record_count(self) -> int:
        """Without what is in the lane."""
        return len(self.values) if self.rows is None else len(self.rows)

    @property
    def size(self) -> int:
        """About what the records take before compression; for a lane as much as it can hold."""
        lane = self.lane
        return self._size if lane is None else self._size + lane.place_count * (lane.timed_length + RECORD_OVERHEAD)

    @size.setter
    def size(self, size: int) -> None:
        self._size = size

    def add(self, record: RecordFields, size: int) -> int:
        """Adds a record, for which there is room; returns its index."""
        self.close_lane()
        self._size += size
        key, value, headers, timestamp_ms = record
        rows = self.rows
        if rows is None:
            if key is None and value is not None and not headers:
                if not self.marks or self.marks[-1][1] != timestamp_ms:
                    self.marks.append((len(self.values), timestamp_ms))
                self.values.append(value)
                self._lengths.append(len(value))
                self.longest = max(self.longest, len(value))
                return len(self.values) - 1
            rows = self.rows = self.records()
            self.values, self.marks, self._lengths = [], [], []
        rows.append(record)
        return len(rows) - 1

    def extend(self, values: Sequence[bytes], lengths: Sequence[int], size: int) -> None:
        """Adds values, for which there is room, with the timestamp of the last one there is."""
        self.close_lane()
        self._size += size
        self.values += values
        self._lengths += lengths

    def open_lane(self, most: int, timestamp_ms: int, now_ms: int, *, is_timed: bool) -> Lane | None:
        """A way to add up to `most` values that are no longer than those there are; None if there is no room for one.

        They get the timestamp of the last record, which is `timestamp_ms`.
        """
        place_count = min(most, (self.room - self._size) // (self.longest + RECORD_OVERHEAD))
        if self.rows is not None or place_count < 1:
            return None
        self.lane = Lane(
            self,
            len(self.values),
            most=most,
            place_count=place_count,
            length=self.longest,
            timestamp_ms=timestamp_ms,
            is_timed=is_timed,
            opened_ms=now_ms,
            size_before=self._size,
        )
        return self.lane

    def close_lane(self) -> None:
        """What was added through the lane becomes part of the batch."""
        lane = self.lane
        if lane is not None:
            added, lengths = lane.close()
            # Whoever is interrupted in here leaves the lane in its place, and this is done again.
            self.values[lane.base :] = added
            self._lengths[lane.base :] = lengths
            self._size = lane.size_before + sum(lengths) + RECORD_OVERHEAD * len(lengths)
            self.lane = None

    def repair(self) -> None:
        """Takes what was written last for granted, and makes the rest agree with it."""
        self.close_lane()
        if self.rows is not None:
            self.values, self.marks, self._lengths = [], [], []
            self._size = HEADER_SIZE + sum(map(record_size, self.rows))
            return
        self.marks = [mark for mark in self.marks if mark[0] < len(self.values)]
        self._lengths = list(map(len, self.values))
        self.longest = max(self._lengths, default=0)
        self._size = HEADER_SIZE + sum(self._lengths) + RECORD_OVERHEAD * len(self._lengths)

    def seal(self) -> None:
        """No record is added from now on."""
        self.close_lane()
        self.room = 0

    def records(self) -> list[RecordFields]:
        """All records in full."""
        if self.rows is not None:
            return self.rows
        bounds = [*self.marks[1:], (len(self.values), 0)]
        return (
            [
                (None, value, (), timestamp_ms)
                for (start, timestamp_ms), (end, _) in zip(self.marks, bounds, strict=True)
                for value in self.values[start:end]
            ]
            if self.marks
            else []
        )

    def timestamp_of(self, index: int) -> int:
        if self.rows is not None:
            return self.rows[index][3]
        return next(timestamp_ms for start, timestamp_ms in reversed(self.marks) if start <= index)

    # On the way out

    def encode(self, codec: Codec, level: int | None, *, transactional: bool) -> bytes | memoryview:
        """What goes to the broker. It is kept for another attempt only if it was compressed.

        To make it once more takes less time than is lost by filling other memory with the next batch, which is not in
        the processor's cache.
        """
        payload = self._compressed
        if payload is None and self.rows is None:
            payload = build_values_batch(
                self.values,
                self._lengths,
                self.marks,
                codec=codec,
                level=level,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=self.base_sequence,
                transactional=transactional,
            )
        if payload is None:
            payload = build_batch(
                self.records(),
                codec=codec,
                level=level,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=self.base_sequence,
                transactional=transactional,
            )
        if codec:
            self._compressed = payload
        return payload

    def number(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Gives the batch its place in the sequence of a producer; what was encoded before no longer holds."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self._compressed = None

    # What became of it

    def succeed(self, base_offset: int, log_append_time_ms: int = NO_TIMESTAMP) -> None:
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self._settle()

    def fail(self, error: ClientError, culprits: Mapping[int, ClientError] | None = None) -> None:
        self.error = error
        self.culprits = culprits or {}
        self._settle()

    def _settle(self) -> None:
        self._compressed = None
        self.done = True

    def split_into(self, parts: Sequence[Batch]) -> None:
        """The batch lives on in its parts and is done when they are."""
        self.parts = list(parts)
        self._compressed = None
        for part in parts:
            part.parent = self

    def settle_parents(self) -> Iterator[Batch]:
        """The batches that are done now because this part of them is. Of several parts, only the first gives them."""
        parent = self.parent
        while parent is not None and not parent.done and all(part.done for part in parent.parts):
            parent.done = True
            yield parent
            parent = parent.parent

    def part_of(self, index: int) -> tuple[Batch, int]:
        """The batch that really carries record number `index`, and its number there."""
        batch = self
        while batch.parts:
            for part in batch.parts:
                if index < part.record_count or part is batch.parts[-1]:
                    batch = part
                    break
                index -= part.record_count
        return batch, index

    def metadata(self, index: int) -> RecordMetadata:
        batch, place = self.part_of(index)
        offset = batch.base_offset + place if batch.base_offset != UNKNOWN_OFFSET else UNKNOWN_OFFSET
        timestamp_ms = (
            batch.log_append_time_ms if batch.log_append_time_ms != NO_TIMESTAMP else batch.timestamp_of(place)
        )
        return RecordMetadata(self.topic, self.partition, offset, timestamp_ms)

    def error_of(self, index: int) -> ClientError | None:
        batch, place = self.part_of(index)
        return batch.culprits.get(place, batch.error)

    @property
    def reason(self) -> ClientError | None:
        """Why the batch as a whole has failed, if it has."""
        return next(iter(self.culprits.values()), self.error)

    # Who waits for it. Completion may come from another thread: the order of the steps replaces a lock.

    def add_waiter(self, waiter: Callable[[], None]) -> None:
        """Calls `waiter` once the batch is done and announced, which may be now. It may be called twice."""
        self._waiters.append(waiter)
        if self.announced:
            waiter()

    def announce(self) -> list[Callable[[], None]]:
        """The callbacks have been called: gives those who wait and are to be told now."""
        self.announced = True
        waiters, self._waiters = self._waiters, []
        return waiters

    def outcomes(self) -> Iterator[tuple[DeliveryCallback, RecordMetadata | None, ClientError | None]]:
        """What each callback is to be told."""
        for index, callback in self.callbacks:
            error = self.error_of(index)
            yield callback, None if error is not None else self.metadata(index), error


def copy_of(error: ClientError) -> ClientError:
    """Every waiter gets an exception of its own: a shared one would collect all their tracebacks."""
    copied = copy(error)
    copied.__cause__ = error.__cause__
    return copied


def record_size(record: RecordFields) -> int:
    """How much a record adds to the size of its batch, without looking at every varint."""
    key, value, headers, _ = record
    size = RECORD_OVERHEAD + (len(key) if key is not None else 0) + (len(value) if value is not None else 0)
    return size + headers_size(headers) if headers else size


def headers_size(headers: Iterable[tuple[str, bytes | None]]) -> int:
    return sum(len(name.encode()) + (len(value) if value is not None else 0) + 4 for name, value in headers)
