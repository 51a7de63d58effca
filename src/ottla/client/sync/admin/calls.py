"""What every family of administrative calls has: the client for asyncio, in a thread of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Unpack

from ottla.client.aio.admin.admin import Admin as AsyncAdmin
from ottla.client.sync.thread_client import ThreadClient

if TYPE_CHECKING:
    from ottla.client.core.keywords import AdminKeywords


class AdminCalls(ThreadClient):
    _what = "admin client"
    _inner: AsyncAdmin

    def __init__(self, config: Mapping[str, object] | None = None, **settings: Unpack[AdminKeywords]) -> None:
        self._inner = AsyncAdmin(config, **settings)
        self.settings = self._inner.settings
        self._begin()
