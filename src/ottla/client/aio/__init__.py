"""The client library for asyncio: thin shells around `ottla.client.core`. Each is loaded when it is first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.client.aio.admin import Admin
    from ottla.client.aio.consumer import Consumer
    from ottla.client.aio.parallel import ParallelConsumer
    from ottla.client.aio.producer import Producer
    from ottla.client.aio.send_futures import SendFuture, SendFutures, TableFuture

__all__ = ["Admin", "Consumer", "ParallelConsumer", "Producer", "SendFuture", "SendFutures", "TableFuture"]

_HOMES = {
    "Admin": "admin",
    "Consumer": "consumer",
    "ParallelConsumer": "parallel",
    "Producer": "producer",
    "SendFuture": "send_futures",
    "SendFutures": "send_futures",
    "TableFuture": "send_futures",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
