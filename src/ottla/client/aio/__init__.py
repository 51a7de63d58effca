"""The client library for asyncio: thin shells around `ottla.client.core`."""

from __future__ import annotations

from ottla.client.aio.admin import Admin
from ottla.client.aio.consumer import Consumer
from ottla.client.aio.parallel import ParallelConsumer
from ottla.client.aio.producer import Producer, SendFuture, SendFutures, TableFuture

__all__ = ["Admin", "Consumer", "ParallelConsumer", "Producer", "SendFuture", "SendFutures", "TableFuture"]
