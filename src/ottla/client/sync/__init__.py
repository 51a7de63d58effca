"""The client library for threads: the same calls as `ottla.client.aio`, with an event loop in a thread behind them."""

from __future__ import annotations

from ottla.client.sync.admin import Admin
from ottla.client.sync.consumer import Consumer
from ottla.client.sync.parallel import ParallelConsumer
from ottla.client.sync.producer import Producer, SendFuture, SendFutures, TableFuture

__all__ = ["Admin", "Consumer", "ParallelConsumer", "Producer", "SendFuture", "SendFutures", "TableFuture"]
