"""Options of the format "ottla", as Spark hands them over: text by name, the case of names of no importance."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.base.errors import InvalidConfigError

CLIENT_PREFIX = "kafka."
"""An option `kafka.X` is the client's setting X."""

_SERVERS = "bootstrap.servers"


def client_properties(options: Mapping[str, str]) -> dict[str, str]:
    """The settings of the client among the options; InvalidConfigError if they do not say where the brokers are."""
    properties = {
        name.lower().removeprefix(CLIENT_PREFIX): text
        for name, text in options.items()
        if name.lower().startswith(CLIENT_PREFIX)
    }
    if not properties.get(_SERVERS, "").strip():
        raise InvalidConfigError(
            CLIENT_PREFIX + _SERVERS,
            f"the option {CLIENT_PREFIX}{_SERVERS} is missing: name the host:port of a broker or more, with commas",
        )
    return properties
