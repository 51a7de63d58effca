"""The client library for asyncio: thin shells around `ottla.client.core`. Each is loaded when it is first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client.lazy_names import lazy_names

if TYPE_CHECKING:
    from ottla.client.aio.admin.admin import Admin
    from ottla.client.aio.consumer.consumer import Consumer
    from ottla.client.aio.processing.parallel import ParallelConsumer
    from ottla.client.aio.producer.producer import Producer
    from ottla.client.aio.producer.send_futures import SendFuture, SendFutures, TableFuture

__all__ = ["Admin", "Consumer", "ParallelConsumer", "Producer", "SendFuture", "SendFutures", "TableFuture"]

__getattr__, __dir__ = lazy_names(__name__)
