"""Batches that come as bytes, from whole tables, and the one receipt for all batches of a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.client.core.producer_batch import UNKNOWN_OFFSET, Batch, copy_of
from ottla.client.errors import ClientError
from ottla.records.batch import NO_TIMESTAMP, set_producer
from ottla.records.builder import RecordFields
from ottla.records.compression import Codec
from ottla.records.reader import read_records


class EncodedRows(NamedTuple):
    data: memoryview
    """A whole record batch, to be written to: it does not say yet which producer it is from."""
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

    __slots__ = ("_data", "_is_sealed", "_record_count")

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
        self._data = rows.data
        self._record_count = rows.record_count
        self._is_sealed = True
        self.size = len(rows.data)

    @property
    def record_count(self) -> int:
        return self._record_count

    def records(self) -> list[RecordFields]:
        return [(key, value, headers, timestamp) for _, timestamp, key, value, headers in read_records(self._data)]

    def timestamp_of(self, index: int) -> int:
        """Known only until the batch is settled; receipts of tables do not tell it."""
        return self.records()[index][3] if self._data else NO_TIMESTAMP

    def encode(self, codec: Codec, level: int | None, *, transactional: bool) -> memoryview:
        if not self._is_sealed:
            # Nobody is writing it to a broker now: a batch that is on its way is not numbered anew.
            set_producer(
                self._data,
                0,
                len(self._data),
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=self.base_sequence,
            )
            self._is_sealed = True
        return self._data

    def number(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """The checksum waits until the batch is sent, by a thread that does not hold the producer's lock then."""
        super().number(producer_id, producer_epoch, base_sequence)
        self._is_sealed = False

    def _settle(self) -> None:
        super()._settle()
        self._data = memoryview(b"")


class TableReceipt:
    """The promise of what became of a table's rows. How to wait for it is for the kinds of clients to say."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []

    def add(self, batch: Batch) -> None:
        self._batches.append(batch)

    def done(self) -> bool:
        return all(batch.done for batch in self._batches)

    def _error(self) -> ClientError | None:
        """The first there is, once all batches are done."""
        return next((copy_of(leaf.error) for leaf in self._leaves() if leaf.error is not None), None)

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
