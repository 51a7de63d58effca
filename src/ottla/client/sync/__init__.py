"""The client library for threads: the same calls as `ottla.client.aio`, with an event loop in a thread behind them.

Each client is loaded when it is first asked for: whoever produces does not pay for the others.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.client.sync.admin import Admin
    from ottla.client.sync.consumer import Consumer
    from ottla.client.sync.parallel import ParallelConsumer
    from ottla.client.sync.producer import Producer
    from ottla.client.sync.send_futures import SendFuture, SendFutures, TableFuture

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
