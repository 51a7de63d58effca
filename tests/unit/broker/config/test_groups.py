"""Settings of a single group: their defaults, their bounds, and what members are told."""

from __future__ import annotations

import pytest

from ottla.base.errors import InvalidConfigError
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.config.describe import ConfigSource, describe_group_config
from ottla.broker.config.groups import HEARTBEAT_INTERVAL, SESSION_TIMEOUT, consumer_timeouts, validate_group_overrides

BROKER = BrokerConfig({"group.consumer.session.timeout.ms": "50000"})


def test_what_a_group_does_not_set_comes_from_the_broker() -> None:
    assert consumer_timeouts({}, BROKER) == (50_000, 5_000)
    assert consumer_timeouts({HEARTBEAT_INTERVAL: "6000"}, BROKER) == (50_000, 6_000)


@pytest.mark.parametrize(
    ("overrides", "names"),
    [
        ({SESSION_TIMEOUT: "44999"}, "group.consumer.min.session.timeout.ms"),
        ({SESSION_TIMEOUT: "60001"}, "group.consumer.max.session.timeout.ms"),
        ({HEARTBEAT_INTERVAL: "4999"}, "group.consumer.min.heartbeat.interval.ms"),
        ({HEARTBEAT_INTERVAL: "15001"}, "group.consumer.max.heartbeat.interval.ms"),
        ({SESSION_TIMEOUT: "soon"}, SESSION_TIMEOUT),
        ({"retention.ms": "1"}, "retention.ms"),
    ],
)
def test_what_is_beyond_the_bounds_of_the_broker_is_refused(overrides: dict[str, str], names: str) -> None:
    with pytest.raises(InvalidConfigError, match=names):
        validate_group_overrides(overrides, BROKER)


@pytest.mark.parametrize("value", ["45000", "60000"])
def test_the_bounds_themselves_are_allowed(value: str) -> None:
    validate_group_overrides({SESSION_TIMEOUT: value}, BROKER)


def test_a_session_is_longer_than_the_time_between_heartbeats() -> None:
    broker = BrokerConfig({"group.consumer.min.session.timeout.ms": "5000"})
    validate_group_overrides({SESSION_TIMEOUT: "5001"}, broker)
    with pytest.raises(InvalidConfigError, match="greater"):
        validate_group_overrides({SESSION_TIMEOUT: "5000"}, broker)


def test_the_bounds_of_the_broker_win_over_what_was_stored_under_others() -> None:
    assert consumer_timeouts({SESSION_TIMEOUT: "1000", HEARTBEAT_INTERVAL: "99999"}, BROKER) == (45_000, 15_000)


def test_it_is_shown_where_a_value_comes_from() -> None:
    session, heartbeat = sorted(describe_group_config({HEARTBEAT_INTERVAL: "6000"}, BROKER), reverse=True)
    assert (session.name, session.value, session.source) == (SESSION_TIMEOUT, "50000", ConfigSource.STATIC_BROKER)
    assert (heartbeat.name, heartbeat.value, heartbeat.source) == (HEARTBEAT_INTERVAL, "6000", ConfigSource.GROUP)
    assert [(s.name, s.value) for s in heartbeat.synonyms] == [
        (HEARTBEAT_INTERVAL, "6000"),
        ("group.consumer.heartbeat.interval.ms", "5000"),
    ]
    (only,) = describe_group_config({}, BROKER, [SESSION_TIMEOUT, "unknown"])
    assert only.name == SESSION_TIMEOUT
