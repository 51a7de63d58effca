"""What a producer for asyncio gives for the records it was handed: promises to await."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

from ottla.base.types import TopicPartition
from ottla.client.aio.producer.engine import wait_done
from ottla.client.core.producer.batch import RecordMetadata
from ottla.client.core.producer.encoded_batch import SentRows, TableReceipt
from ottla.client.core.producer.receipts import Receipt, ReceiptRange


class SendFuture(Receipt):
    """What `send` gives: await it for the record's `RecordMetadata`, or the error that kept it from being stored."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self._batch.done:
            yield from wait_done(self._batch, asyncio.get_running_loop()).__await__()
        return self._outcome()


class SendFutures(ReceiptRange[SendFuture]):
    """What `send_many` gives: a future for each value; await it for the `RecordMetadata` of all."""

    _kind = SendFuture

    def __await__(self) -> Generator[Any, None, list[RecordMetadata]]:
        for source, _ in self._spans:
            yield from wait_done(source.batch, asyncio.get_running_loop()).__await__()
        return self._outcomes()


class TableFuture(TableReceipt):
    """What `send_arrow` gives: await it to learn what each partition got of the table."""

    def __await__(self) -> Generator[Any, None, dict[TopicPartition, SentRows]]:
        for batch in self._batches:
            yield from wait_done(batch, asyncio.get_running_loop()).__await__()
        return self._outcome()
