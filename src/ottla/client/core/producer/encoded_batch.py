"""Batches that come as bytes, from whole tables, and the one receipt for all batches of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.client.core.producer.batch import UNKNOWN_OFFSET, Batch, copy_of
from ottla.client.errors import ClientError
from ottla.records.batch import NO_TIMESTAMP, set_producer
from ottla.records.builder import RecordFields
from ottla.records.compression import Codec
from ottla.records.reader import read_records


class EncodedRows(NamedTuple):
    make: Callable[[], memoryview]
    """Gives a whole record batch, to be written to: it does not say yet which producer it is from."""
    size: int
    record_count: int


class TableColumns(NamedTuple):
    """Which columns of a table are which part of a record; None for those that are not sent."""

    key: str | None
    value: str
    timestamp: str | None
    headers: str | None
    partition: str | None
    topic: str | None


ASSUMED = TableColumns("key", "value", "timestamp", "headers", None, "topic")
"""Under these names columns are looked for without being asked for, and may be missing."""


class SentRows(NamedTuple):
    """What one partition got of a table. Offsets are -1 if nobody knows: with acks=0, and after a lost reply."""

    record_count: int
    first_offset: int
    last_offset: int


class EncodedBatch(Batch):
    """Takes no more records, and is ready to be sent as soon as it is there."""

    __slots__ = ("_make", "_record_count")

    def __init__(
        self,
        topic_partition: TopicPartition,
        order: tuple[int, ...],
        rows: EncodedRows,
        *,
        opened_ms: int,
        deadline_ms: int,
    ) -> None:
        super().__init__(*topic_partition, order, opened_ms=opened_ms, deadline_ms=deadline_ms)
        self._make: Callable[[], memoryview] | None = rows.make
        """None once the batch is settled: until then it needs the table."""
        self._record_count = rows.record_count
        self.size = rows.size

    @property
    def record_count(self) -> int:
        return self._record_count

    def records(self) -> list[RecordFields]:
        if self._make is None:
            return []
        return [(key, value, headers, timestamp) for _, timestamp, key, value, headers in read_records(self._make())]

    def timestamp_of(self, index: int) -> int:
        """Known only until the batch is settled; receipts of tables do not tell it."""
        return self.records()[index][3] if self._make is not None else NO_TIMESTAMP

    def repair(self) -> None:
        """It is written in one step."""

    def encode(self, codec: Codec, level: int | None, *, transactional: bool) -> memoryview:
        assert self._make is not None
        data = self._make()
        if self.is_numbered:
            # Where that is memory which is on its way already, it says the same: no such batch is numbered anew.
            set_producer(
                data,
                0,
                len(data),
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=self.base_sequence,
            )
        return data

    def _settle(self) -> None:
        super()._settle()
        self._make = None


class TableReceipt:
    """The promise of what became of a table's rows. How to wait for it is for the kinds of clients to say."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []

    def add(self, batch: Batch) -> None:
        self._batches.append(batch)

    def done(self) -> bool:
        return all(batch.announced for batch in self._batches)

    def _error(self) -> ClientError | None:
        """The first there is, once all batches are done."""
        return next((copy_of(leaf.reason) for leaf in self._leaves() if leaf.reason is not None), None)

    def _outcome(self) -> dict[TopicPartition, SentRows]:
        error = self._error()
        if error is not None:
            raise error
        return self.stored()

    def stored(self) -> dict[TopicPartition, SentRows]:
        """What is known to be stored by now: after an error, the rows of the table that were not affected by it."""
        sent: dict[TopicPartition, SentRows] = {}
        for leaf in self._leaves():
            if not leaf.done or leaf.error is not None:
                continue
            first = last = UNKNOWN_OFFSET
            if leaf.base_offset != UNKNOWN_OFFSET:
                first, last = leaf.base_offset, leaf.base_offset + leaf.record_count - 1
            before = sent.get(leaf.topic_partition)
            if before is None:
                sent[leaf.topic_partition] = SentRows(leaf.record_count, first, last)
            else:
                # One batch whose place is unknown does not hide that of the others.
                first = before.first_offset if before.first_offset != UNKNOWN_OFFSET else first
                sent[leaf.topic_partition] = SentRows(
                    before.record_count + leaf.record_count, first, max(before.last_offset, last)
                )
        return sent

    def _leaves(self) -> Iterator[Batch]:
        """The batches that really carried the rows: one that was too large lives on in its parts."""
        pending = self._batches[::-1]
        while pending:
            batch = pending.pop()
            if batch.parts:
                pending += reversed(batch.parts)
            else:
                yield batch
