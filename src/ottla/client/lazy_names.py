"""The names in both packages of clients, each loaded when it is first asked for: who produces pays for no consumer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module

_HOMES = {
    "Admin": "admin.admin",
    "Consumer": "consumer.consumer",
    "ParallelConsumer": "processing.parallel",
    "Producer": "producer.producer",
    "SendFuture": "producer.send_futures",
    "SendFutures": "producer.send_futures",
    "TableFuture": "producer.send_futures",
}
"""The module below the package that each is in."""


def lazy_names(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package."""
    names = vars(sys.modules[package])

    def find(name: str) -> object:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found: object = getattr(import_module(f"{package}.{home}"), name)
        names[name] = found
        return found

    return find, lambda: sorted({*names, *_HOMES})
