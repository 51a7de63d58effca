# Written by `make generate` from src/ottla/client/aio/producer/producer.py: change that instead.

"""The producer for threads."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from ottla.client.aio.producer.producer import not_transactional
from ottla.client.aio.producer.transactions import Transactions
from ottla.client.core.metadata import TopicMetadata
from ottla.client.core.on_demand import open_table_intake
from ottla.client.core.producer.encoded_batch import TableColumns
from ottla.client.core.producer.partitioners import Partitioner
from ottla.client.core.producer.record_intake import (
    KeyT,
    ProducerInterceptor,
    Serializer,
    ValueT,
    listed,
)
from ottla.client.core.settings import merge_settings
from ottla.client.sync.producer.send_futures import SendFutures, TableFuture
from ottla.client.sync.producer.sending import BaseProducer
from ottla.client.sync.producer.transaction_calls import ProducerTransactionCalls

if TYPE_CHECKING:
    from ottla.client.core.keywords import ProducerKeywords


class Producer(BaseProducer[KeyT, ValueT], ProducerTransactionCalls):
    """Sends records to topics; any thread may use it. Use it with `with`, or call `close`.

    Settings have Kafka's names, in a mapping, or as keywords in snake_case:
    `Producer({"bootstrap.servers": "localhost:9092"})` or `Producer(bootstrap_servers="localhost:9092")`.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        key_serializer: Serializer[KeyT] | None = None,
        value_serializer: Serializer[ValueT] | None = None,
        partitioner: Partitioner | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        **settings: Unpack[ProducerKeywords],
    ) -> None:
        self._set_up(merge_settings(config, settings), key_serializer, value_serializer, partitioner, interceptors)

    # Sending

    def send_many(self, topic: str, values: Iterable[ValueT | None]) -> SendFutures:
        """Sends many values without keys: the same as `send` for each, and several times as fast."""
        futures = SendFutures()
        values = listed(values)
        if not values:
            return futures
        _, intake = self._started()
        prepared = intake.prepare_values(topic, values, int(time.time() * 1000))
        if prepared is None:
            for value in values:
                future = self.send(topic, value)
                futures.add(future._source, future._number, 1)
            return futures
        known = self._known_topic(topic) or self._find_topic(topic)
        start = 0
        while start < len(values):
            batch, first_index, end = self._append(partial(intake.append_values, prepared, start, known))
            futures.add(batch, first_index, end - start)
            start = end
            if not first_index:
                self._wake()
        return futures

    def send_arrow(
        self,
        topic: str | None,
        table: Any,
        *,
        key_column: str | None = "key",
        value_column: str = "value",
        timestamp_column: str | None = "timestamp",
        headers_column: str | None = "headers",
        partition_column: str | None = None,
        topic_column: str | None = "topic",
    ) -> TableFuture:
        """Sends the rows of a pyarrow Table or RecordBatch, encoded whole: many times as fast as `send` for each.

        Every row of `value_column` is a record; the other columns are used if they are there, all others are ignored.
        Without a `topic` each row says its own. Keys decide on partitions as in `send`. Rows go out at once in batches
        of up to a megabyte, whatever batch.size and linger.ms are. Serializers and interceptors see no columns. The
        memory of the table must stay as it is until everything is stored.
        """
        engine, _ = self._started()
        if self._tables is None:
            self._tables = open_table_intake(self._settings, self._partitioner, random.randrange, engine.backlog)
        columns = TableColumns(
            key_column, value_column, timestamp_column, headers_column, partition_column, topic_column
        )
        prepared = self._tables.prepare(topic, table, columns, int(time.time() * 1000))
        topics: dict[str, TopicMetadata] = {}
        for name in prepared.topics:
            topics[name] = self._find_topic(name, self._tables.highest_partition(prepared, name))
        future = TableFuture()
        for target, rows in self._tables.encode(prepared, topics):
            future.add(self._append(partial(engine.accumulator.append_encoded, target, rows)))
            # It goes out now, as far as the broker takes it.
            self._send_now()
        return future

    def partitions_for(self, topic: str) -> list[int]:
        engine, _ = self._started()
        found = self._call(engine.topic(topic, self._settings.max_block_ms))
        return list(found.partitions)

    def _transactional(self) -> Transactions:
        self._started()
        if self._transactions is None:
            raise not_transactional()
        return self._transactions
