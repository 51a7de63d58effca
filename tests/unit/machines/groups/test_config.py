"""Defaults are Kafka's: what a group follows when the broker's configuration says nothing."""

from __future__ import annotations

import pytest

from ottla.machines.groups.config import ConsumerTimeouts, GroupConfig, MigrationPolicy


def test_the_defaults_are_those_that_kafka_documents() -> None:
    config = GroupConfig()
    minute_ms = 60_000
    assert (config.min_session_timeout_ms, config.max_session_timeout_ms) == (6_000, 30 * minute_ms)
    assert (config.initial_rebalance_delay_ms, config.new_member_join_timeout_ms) == (3_000, 5 * minute_ms)
    assert config.max_size == config.consumer_max_size == 2_147_483_647
    assert config.offset_metadata_max_bytes == 4_096
    assert config.offsets_retention_ms == 7 * 24 * 60 * minute_ms
    assert config.consumer_timeouts("g") == ConsumerTimeouts(45_000, 5_000)
    assert config.consumer_assignors == ("uniform", "range")
    assert config.migration_policy is MigrationPolicy.BIDIRECTIONAL


def test_only_the_group_with_settings_of_its_own_follows_them() -> None:
    own = ConsumerTimeouts(60_000, 1_000)
    config = GroupConfig(own_consumer_timeouts={"g": own})
    assert config.consumer_timeouts("g") == own
    assert config.consumer_timeouts("h") == ConsumerTimeouts(45_000, 5_000)


@pytest.mark.parametrize(
    ("policy", "upgrade", "downgrade"),
    [("disabled", False, False), ("upgrade", True, False), ("downgrade", False, True), ("bidirectional", True, True)],
)
def test_what_each_policy_allows(policy: str, upgrade: bool, downgrade: bool) -> None:
    found = MigrationPolicy(policy)
    assert (found.allows_upgrade, found.allows_downgrade) == (upgrade, downgrade)
