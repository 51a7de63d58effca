"""The settings of an admin client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.base.options import Between, Option, OptionSet, Type
from ottla.client.core.settings import CLIENT_OPTIONS, NO_METRICS, ClientSettings, parse_settings

ADMIN_OPTIONS = OptionSet(
    "admin client",
    (
        *CLIENT_OPTIONS,
        Option(
            "default.api.timeout.ms",
            Type.INT,
            60_000,
            "How long a call may take, retries included, unless it is given a time of its own.",
            Between(0),
        ),
    ),
    elsewhere=NO_METRICS,
)


class AdminSettings(NamedTuple):
    client: ClientSettings
    api_timeout_ms: int

    @classmethod
    def parse(cls, settings: Mapping[str, object]) -> AdminSettings:
        values = parse_settings(ADMIN_OPTIONS, settings)
        return cls(ClientSettings.of(values), values.integer("default.api.timeout.ms"))
