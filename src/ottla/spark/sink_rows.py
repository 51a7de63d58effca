"""Rows as Spark hands them to a task, Arrow batch by Arrow batch, on their way into a producer.

Never holds more of them than the producer's buffer does. What a transaction is, is not known here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from ottla.base.types import TopicPartition
from ottla.spark.sink_options import SinkSchemaError

if TYPE_CHECKING:
    from ottla.client.core.producer.encoded_batch import SentRows
    from ottla.client.sync import Producer, TableFuture


class Rows:
    """The rows of one task that are left to be sent. Empty Arrow batches are passed over."""

    def __init__(self, batches: Iterable[Any], topic: str | None) -> None:
        self._topic = topic
        self._batches = (batch for batch in batches if batch.num_rows)
        self._first = next(self._batches, None)

    @property
    def are_none(self) -> bool:
        return self._first is None

    @property
    def first_topic(self) -> str:
        """The topic of the first row, before any was taken."""
        assert self._first is not None
        if self._topic is not None:
            return self._topic
        _check_topics(self._first)
        name: str = self._first.column("topic")[0].as_py()
        return name

    def _take(self) -> Iterator[Any]:
        first, self._first = self._first, None
        return self._batches if first is None else chain([first], self._batches)

    def drain(self) -> int:
        """Takes all rows and does nothing with them: Spark counts on being read to the end. Gives their number."""
        return sum(batch.num_rows for batch in self._take())

    def send(self, producer: Producer) -> int:
        """Sends all rows and waits until they are stored; raises the first error there is. Gives their number."""
        under_way: deque[tuple[Any, TableFuture]] = deque()
        count = 0
        for batch in self._take():
            if self._topic is None:
                _check_topics(batch)
            partition_column = "partition" if "partition" in batch.schema.names else None
            noted = self._note(batch)
            under_way.append((noted, producer.send_arrow(self._topic, batch, partition_column=partition_column)))
            count += batch.num_rows
            while under_way and under_way[0][1].done():
                self._settle(*under_way.popleft())
        for noted, future in under_way:
            self._settle(noted, future)
        return count

    def _settle(self, noted: Any, future: TableFuture) -> None:
        self._stored(noted, future.result())

    def _note(self, batch: Any) -> Any:
        """What `_stored` needs to know of a batch, which is not kept that long itself."""

    def _stored(self, noted: Any, sent: dict[TopicPartition, SentRows]) -> None:
        """Where rows of a batch that was noted are now."""


def _check_topics(batch: Any) -> None:
    if batch.column("topic").null_count:
        raise SinkSchemaError(
            "a row has no topic: its column topic is null. Filter such rows out, or set the option topic for all"
        )
