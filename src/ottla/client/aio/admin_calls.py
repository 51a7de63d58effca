"""What every family of administrative calls has: settings, and somebody who asks brokers for it."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.client.aio.admin_caller import AdminCaller
from ottla.client.core.admin_options import AdminSettings
from ottla.client.core.settings import merge_settings


class AdminCalls:
    def __init__(self, config: Mapping[str, object] | None = None, **settings: object) -> None:
        self.settings = AdminSettings.parse(merge_settings(config, settings))
        self._caller = AdminCaller(self.settings)

    @property
    def _request_ms(self) -> int:
        """How long a broker may wait until a change is made everywhere."""
        return self.settings.client.request_timeout_ms
