"""The client library for threads: the same calls as `ottla.client.aio`, with an event loop in a thread behind them.

Each client is loaded when it is first asked for: whoever produces does not pay for the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client.lazy_names import lazy_names

if TYPE_CHECKING:
    from ottla.client.sync.admin.admin import Admin
    from ottla.client.sync.consumer.consumer import Consumer
    from ottla.client.sync.processing.parallel import ParallelConsumer
    from ottla.client.sync.producer.producer import Producer
    from ottla.client.sync.producer.send_futures import SendFuture, SendFutures, TableFuture

__all__ = ["Admin", "Consumer", "ParallelConsumer", "Producer", "SendFuture", "SendFutures", "TableFuture"]

__getattr__, __dir__ = lazy_names(__name__)
