"""What a producer gives for records it was handed: the promise of what becomes of them.

A receipt is the place of one record in a batch. It costs next to nothing: everything it can tell is the batch's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Self, TypeVar, overload

from ottla.client.core.producer.batch import Batch, RecordMetadata, copy_of
from ottla.client.core.producer.lane import Lane


class Receipt:
    """The promise of a record's `RecordMetadata`. How to wait for it is for the kinds of clients to say.

    It has no `__init__`, which would take as long as all the rest of sending a record.
    """

    __slots__ = ("_number", "_source")

    _source: Batch | Lane
    _number: int

    @classmethod
    def of(cls, source: Batch | Lane, number: int) -> Self:
        receipt = cls()
        receipt._source = source
        receipt._number = number
        return receipt

    @property
    def _batch(self) -> Batch:
        return self._source.batch

    @property
    def _index(self) -> int:
        """To be asked once no record is added any more."""
        return self._source.index_of(self._number)

    def done(self) -> bool:
        """Whether the record's fate is known, and the callbacks have been told."""
        return self._batch.announced

    def _outcome(self) -> RecordMetadata:
        """To be asked once the batch is done."""
        batch, index = self._batch, self._index
        error = batch.error_of(index)
        if error is not None:
            raise copy_of(error)
        return batch.metadata(index)

    def __repr__(self) -> str:
        batch = self._batch
        state = "pending"
        if batch.done:
            state = repr(batch.error_of(self._index) or batch.metadata(self._index))
        return f"<{type(self).__name__} {batch.topic_partition}: {state}>"


ReceiptT = TypeVar("ReceiptT", bound=Receipt)


class ReceiptRange(Sequence[ReceiptT]):
    """The receipts of many records, made only when one is asked for."""

    _kind: type[ReceiptT]

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._spans: list[tuple[Batch | Lane, int]] = []
        self._count = 0

    def add(self, source: Batch | Lane, first_number: int, count: int) -> None:
        self._starts.append(self._count)
        self._spans.append((source, first_number))
        self._count += count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, number: int) -> ReceiptT: ...

    @overload
    def __getitem__(self, number: slice) -> list[ReceiptT]: ...

    def __getitem__(self, number: int | slice) -> ReceiptT | list[ReceiptT]:
        if isinstance(number, slice):
            return [self._kind.of(*self._place(place)) for place in range(len(self))[number]]
        return self._kind.of(*self._place(number))

    def done(self) -> bool:
        return all(source.batch.announced for source, _ in self._spans)

    def _place(self, number: int) -> tuple[Batch | Lane, int]:
        if not -self._count <= number < self._count:
            raise IndexError(f"{number} of {self._count} records")
        number %= self._count
        span = bisect_right(self._starts, number) - 1
        source, first_number = self._spans[span]
        return source, first_number + number - self._starts[span]

    def _outcomes(self) -> list[RecordMetadata]:
        """To be asked once all batches are done."""
        return [Receipt.of(*self._place(number))._outcome() for number in range(self._count)]
