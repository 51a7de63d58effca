"""What a parallel consumer for threads does otherwise than that for asyncio: its handlers are no coroutines."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Generic

from ottla.client.aio.processing.parallel import ParallelConsumer as AsyncParallelConsumer
from ottla.client.core.consumer.record import ConsumerRecord, K, V
from ottla.client.core.processing.handlers import check_handler, is_coroutine_function
from ottla.client.sync.thread_client import ThreadClient


class BaseParallelConsumer(ThreadClient, Generic[K, V]):
    _what = "parallel consumer"
    _inner: AsyncParallelConsumer[K, V]

    def _for_threads(
        self, handler: Callable[[ConsumerRecord[K, V]], object], settings: Mapping[str, object]
    ) -> Callable[[ConsumerRecord[K, V]], object]:
        """The handler, which must not return a coroutine. TypeError for what only asyncio has."""
        check_handler(handler)
        if "producer" in settings:
            raise TypeError("a producer can be given to ottla.aio.ParallelConsumer only; here there is always one")
        if is_coroutine_function(handler):
            raise TypeError("the handler is a coroutine function; use ottla.aio.ParallelConsumer")

        def handle(record: ConsumerRecord[K, V]) -> object:
            returned = handler(record)
            if inspect.isawaitable(returned):
                if inspect.iscoroutine(returned):
                    returned.close()
                raise TypeError("the handler has returned a coroutine; use ottla.aio.ParallelConsumer")
            return returned

        return handle
