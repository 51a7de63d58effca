"""What every family of administrative calls has: settings, and somebody who asks brokers for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Unpack

from ottla.client.aio.admin.caller import AdminCaller
from ottla.client.core.admin.options import AdminSettings
from ottla.client.core.settings import merge_settings

if TYPE_CHECKING:
    from ottla.client.core.keywords import AdminKeywords


class AdminCalls:
    def __init__(self, config: Mapping[str, object] | None = None, **settings: Unpack[AdminKeywords]) -> None:
        self.settings = AdminSettings.parse(merge_settings(config, settings))
        self._caller = AdminCaller(self.settings)

    @property
    def _request_ms(self) -> int:
        """How long a broker may wait until a change is made everywhere."""
        return self.settings.client.request_timeout_ms
