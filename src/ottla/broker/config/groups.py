"""Group settings: declared, defaulted from the broker's, checked against its bounds, and as the machines want them."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.base.errors import InvalidConfigError
from ottla.base.options import OptionSet, Values
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.config.keys import groups
from ottla.machines.groups.config import ConsumerTimeouts

GROUP_OPTIONS = OptionSet("group", groups.GROUP)

SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"

_BOUNDS = {
    SESSION_TIMEOUT: ("group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
    HEARTBEAT_INTERVAL: ("group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
}


def broker_synonym(name: str) -> str:
    """The broker setting a group setting takes its default from."""
    return f"group.{name}"


def group_values(overrides: Mapping[str, str], broker: BrokerConfig) -> Values:
    """Every group setting with the value it has for a group with these overrides."""
    own = GROUP_OPTIONS.parse(overrides)
    values = {name: own[name] if name in own.given else broker[broker_synonym(name)] for name in GROUP_OPTIONS}
    return Values(values, own.given)


def validate_group_overrides(overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    """Raises InvalidConfigError for an unknown name, a bad value, or one beyond the bounds the broker sets."""
    values = group_values(overrides, broker)
    for name in sorted(values.given):
        lowest, highest = (broker.integer(bound) for bound in _BOUNDS[name])
        if not lowest <= values.integer(name) <= highest:
            bounds = " and ".join(_BOUNDS[name])
            raise InvalidConfigError(name, f"{name} must be from {lowest} to {highest}, as {bounds} say")
    if values.integer(SESSION_TIMEOUT) <= values.integer(HEARTBEAT_INTERVAL):
        raise InvalidConfigError(SESSION_TIMEOUT, f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}")


def consumer_timeouts(overrides: Mapping[str, str], broker: BrokerConfig) -> ConsumerTimeouts:
    """As stored, within the bounds there are now: they may have been wider when the settings were made."""
    values = group_values(overrides, broker)

    def bounded(name: str) -> int:
        if name not in values.given:
            return values.integer(name)
        lowest, highest = (broker.integer(bound) for bound in _BOUNDS[name])
        return min(max(values.integer(name), lowest), highest)

    return ConsumerTimeouts(
        session_timeout_ms=bounded(SESSION_TIMEOUT), heartbeat_interval_ms=bounded(HEARTBEAT_INTERVAL)
    )
