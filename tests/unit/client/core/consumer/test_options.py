"""The settings of a consumer: what holds if nothing is said, where each one goes, and which do not go together."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import InvalidConfigError
from ottla.client.core.consumer.options import ConsumerSettings, Isolation


def parse(**settings: object) -> ConsumerSettings:
    return ConsumerSettings.parse(
        {"bootstrap.servers": "h:1", **{name.replace("_", "."): value for name, value in settings.items()}}
    )


DEFAULTS: dict[str, Any] = {
    "group_id": None,
    "group_instance_id": None,
    "uses_consumer_protocol": False,
    "remote_assignor": None,
    "assignors": ("range", "cooperative-sticky"),
    "session_timeout_ms": 45_000,
    "heartbeat_interval_ms": 3_000,
    "max_poll_interval_ms": 300_000,
    "max_poll_records": 500,
    "reset": -1,
    "auto_commit": True,
    "auto_commit_interval_ms": 5_000,
    "fetch_min_bytes": 1,
    "fetch_max_bytes": 52_428_800,
    "fetch_max_wait_ms": 500,
    "max_partition_fetch_bytes": 2_097_152,
    "check_crcs": True,
    "isolation": Isolation.READ_UNCOMMITTED,
    "client_rack": "",
    "exclude_internal_topics": True,
    "allow_auto_create_topics": True,
    "api_timeout_ms": 60_000,
}


def fields_of(settings: ConsumerSettings) -> dict[str, Any]:
    return {name: value for name, value in settings._asdict().items() if name != "client"}


def test_what_holds_if_nothing_is_said() -> None:
    assert fields_of(parse()) == DEFAULTS


@pytest.mark.parametrize(
    ("settings", "changed"),
    [
        ({"group_id": "g"}, {"group_id": "g"}),
        ({"group_instance_id": "i"}, {"group_instance_id": "i"}),
        ({"group_protocol": "consumer"}, {"uses_consumer_protocol": True}),
        ({"group_remote_assignor": "range"}, {"remote_assignor": "range"}),
        ({"partition_assignment_strategy": "sticky"}, {"assignors": ("sticky",)}),
        ({"session_timeout_ms": 3001}, {"session_timeout_ms": 3001}),
        ({"heartbeat_interval_ms": 44_999}, {"heartbeat_interval_ms": 44_999}),
        ({"max_poll_interval_ms": 1}, {"max_poll_interval_ms": 1}),
        ({"max_poll_records": 1}, {"max_poll_records": 1}),
        ({"auto_offset_reset": "latest"}, {"reset": -1}),
        ({"auto_offset_reset": "earliest"}, {"reset": -2}),
        ({"auto_offset_reset": "none"}, {"reset": None}),
        ({"enable_auto_commit": False}, {"auto_commit": False}),
        ({"auto_commit_interval_ms": 0}, {"auto_commit_interval_ms": 0}),
        ({"fetch_min_bytes": 0}, {"fetch_min_bytes": 0}),
        ({"fetch_max_bytes": 0}, {"fetch_max_bytes": 0}),
        ({"fetch_max_wait_ms": 0}, {"fetch_max_wait_ms": 0}),
        ({"max_partition_fetch_bytes": 0}, {"max_partition_fetch_bytes": 0}),
        ({"check_crcs": False}, {"check_crcs": False}),
        ({"isolation_level": "read_committed"}, {"isolation": Isolation.READ_COMMITTED}),
        ({"isolation_level": "read_uncommitted"}, {}),
        ({"client_rack": "r"}, {"client_rack": "r"}),
        ({"exclude_internal_topics": False}, {"exclude_internal_topics": False}),
        ({"allow_auto_create_topics": False}, {"allow_auto_create_topics": False}),
        ({"default_api_timeout_ms": 0}, {"api_timeout_ms": 0}),
    ],
)
def test_each_setting_changes_what_it_is_about(settings: dict[str, object], changed: dict[str, Any]) -> None:
    assert fields_of(parse(**settings)) == {**DEFAULTS, **changed}


@pytest.mark.parametrize(
    ("settings", "key", "message"),
    [
        ({"group_id": ""}, "group.id", "must not be empty; leave it out to read without a group"),
        ({"group_instance_id": ""}, "group.instance.id", "must not be empty"),
        ({"enable_auto_commit": True}, "enable.auto.commit", "needs a group.id to commit for"),
        (
            {"group_protocol": "consumer", "partition_assignment_strategy": "range"},
            "partition.assignment.strategy",
            "is the broker's to set with group.protocol=consumer",
        ),
        (
            {"group_protocol": "consumer", "session_timeout_ms": 45_000},
            "session.timeout.ms",
            "is the broker's to set with group.protocol=consumer",
        ),
        (
            {"group_protocol": "consumer", "heartbeat_interval_ms": 3_000},
            "heartbeat.interval.ms",
            "is the broker's to set with group.protocol=consumer",
        ),
        (
            {"session_timeout_ms": 3_000},
            "heartbeat.interval.ms",
            r"heartbeat.interval.ms \(3000\) must be below session.timeout.ms \(3000\)",
        ),
        ({"heartbeat_interval_ms": 45_000}, "heartbeat.interval.ms", "must be below"),
        ({"partition_assignment_strategy": ""}, "partition.assignment.strategy", "at least one assignor is needed"),
        ({"max_poll_records": 0}, "max.poll.records", "at least 1"),
        ({"session_timeout_ms": 0}, "session.timeout.ms", "at least 1"),
        ({"heartbeat_interval_ms": 0}, "heartbeat.interval.ms", "at least 1"),
        ({"max_poll_interval_ms": 0}, "max.poll.interval.ms", "at least 1"),
        ({"fetch_min_bytes": -1}, "fetch.min.bytes", "at least 0"),
        ({"fetch_max_bytes": -1}, "fetch.max.bytes", "at least 0"),
        ({"fetch_max_wait_ms": -1}, "fetch.max.wait.ms", "at least 0"),
        ({"max_partition_fetch_bytes": -1}, "max.partition.fetch.bytes", "at least 0"),
        ({"auto_commit_interval_ms": -1}, "auto.commit.interval.ms", "at least 0"),
        ({"default_api_timeout_ms": -1}, "default.api.timeout.ms", "at least 0"),
        ({"auto_offset_reset": "first"}, "auto.offset.reset", "must be one of"),
        ({"isolation_level": "serializable"}, "isolation.level", "must be one of"),
        ({"group_protocol": "new"}, "group.protocol", "must be one of"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, object], key: str, message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message) as refusal:
        parse(**settings)
    assert refusal.value.key == key


def test_smallest_values_and_values_side_by_side() -> None:
    found = parse(session_timeout_ms=2, heartbeat_interval_ms=1, group_id="g", enable_auto_commit=True)
    assert (found.session_timeout_ms, found.heartbeat_interval_ms, found.auto_commit) == (2, 1, True)
    kip_848 = parse(group_protocol="consumer", group_id="g")
    assert (kip_848.session_timeout_ms, kip_848.heartbeat_interval_ms) == (45_000, 3_000)


@pytest.mark.parametrize(
    ("group_id", "auto_commit", "commits"), [("g", True, True), ("g", False, False), (None, None, False)]
)
def test_who_is_in_no_group_commits_nothing(group_id: str | None, auto_commit: bool | None, commits: bool) -> None:
    given = {"group_id": group_id, "enable_auto_commit": auto_commit}
    found = parse(**{name: value for name, value in given.items() if value is not None})
    assert found.commits_automatically is commits


def test_levels_of_isolation_are_numbered_as_kafka_does() -> None:
    assert {each.name: each.value for each in Isolation} == {"READ_UNCOMMITTED": 0, "READ_COMMITTED": 1}


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("key.deserializer", "give the consumer a function, or an object, as key_deserializer="),
        ("value.deserializer", "give the consumer a function, or an object, as value_deserializer="),
        ("interceptor.classes", "give the consumer a list of objects as interceptors="),
    ],
)
def test_what_is_a_class_in_java_is_given_otherwise(name: str, instead: str) -> None:
    with pytest.raises(InvalidConfigError, match=instead):
        ConsumerSettings.parse({"bootstrap.servers": "h:1", name: "a.B"})
