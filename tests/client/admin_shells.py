"""Both admin clients behind the same blocking calls, so that one suite describes both."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import ottla.client.aio as ottla_aio
import ottla.client.sync as ottla_sync
from tests.client.consumer_shells import PATIENCE_S, AioDriver


class Make:
    """Makes admin clients of one kind, all with the same blocking calls, and closes them."""

    def __init__(self, kind: str) -> None:
        self._loop = asyncio.new_event_loop() if kind == "aio" else None
        self._made: list[Any] = []

    def __call__(self, bootstrap: str, **settings: Any) -> Any:
        settings = {"bootstrap_servers": bootstrap, **settings}
        admin: Any = (
            ottla_sync.Admin(**settings)
            if self._loop is None
            else AioDriver(self._loop, lambda: ottla_aio.Admin(**settings))
        )
        self._made.append(admin)
        return admin

    def close(self) -> None:
        for admin in self._made:
            admin.close()
        if self._loop is not None:
            self._loop.close()


def until(condition: Callable[[], bool]) -> None:
    """A broker of Kafka may hear a little later than its controller what an admin client has changed."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.05)
