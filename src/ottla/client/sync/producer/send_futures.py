"""What a producer for threads gives for the records it was handed: promises to wait for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ottla.base.types import TopicPartition
from ottla.client.core.producer.batch import RecordMetadata, copy_of
from ottla.client.core.producer.encoded_batch import SentRows, TableReceipt
from ottla.client.core.producer.receipts import Receipt, ReceiptRange
from ottla.client.errors import ClientError, ConcurrentUseError

sending = threading.local()
"""In the thread of a producer: the `batches` that it has yet to settle, and that nobody may wait for there."""


class SendFuture(Receipt):
    """What `send` gives: `result()` waits for the record's `RecordMetadata`, or raises why it was not stored."""

    __slots__ = ()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Waits up to `timeout` seconds; TimeoutError says nothing about the record, which is still on its way."""
        self._wait(timeout)
        return self._outcome()

    def exception(self, timeout: float | None = None) -> ClientError | None:
        self._wait(timeout)
        error = self._batch.error_of(self._index)
        return None if error is None else copy_of(error)

    def add_done_callback(self, callback: Callable[[SendFuture], object]) -> None:
        """Calls back once: in the producer's thread when the record is settled, or at once if it is."""
        called = threading.Lock()

        def call_once() -> None:
            if called.acquire(blocking=False):
                callback(self)

        self._batch.add_waiter(call_once)

    def _wait(self, timeout: float | None) -> None:
        batch = self._batch
        if not batch.announced and not (batch.done and hasattr(sending, "batches")):
            if batch in getattr(sending, "batches", ()):
                raise ConcurrentUseError("a callback of the producer must not wait for a record that is not stored yet")
            settled = threading.Event()
            batch.add_waiter(settled.set)
            if not settled.wait(timeout):
                raise TimeoutError(f"the record was not acknowledged within {timeout} s")


class SendFutures(ReceiptRange[SendFuture]):
    """What `send_many` gives: a future for each value, and `result()` for all of them."""

    _kind = SendFuture

    def result(self, timeout: float | None = None) -> list[RecordMetadata]:
        """Waits for all; raises the first error there is."""
        deadline_s = None if timeout is None else time.monotonic() + timeout
        for start in self._starts:
            self[start]._wait(None if deadline_s is None else max(0.0, deadline_s - time.monotonic()))
        return self._outcomes()


class TableFuture(TableReceipt):
    """What `send_arrow` gives: `result()` waits for all rows, and says what each partition got."""

    def result(self, timeout: float | None = None) -> dict[TopicPartition, SentRows]:
        """Waits up to `timeout` seconds; raises the first error there is."""
        self._wait(timeout)
        return self._outcome()

    def exception(self, timeout: float | None = None) -> ClientError | None:
        self._wait(timeout)
        return self._error()

    def _wait(self, timeout: float | None) -> None:
        deadline_s = None if timeout is None else time.monotonic() + timeout
        for batch in self._batches:
            SendFuture.of(batch, 0)._wait(None if deadline_s is None else max(0.0, deadline_s - time.monotonic()))
