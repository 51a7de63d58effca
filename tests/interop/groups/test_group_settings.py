"""Settings of a single group (config resource 32): within the broker's bounds, kept, obeyed while the group lives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource as KafkaPythonResource
from kafka.admin import ConfigResourceType

import ottla.client.sync as ottla_sync
from ottla.base.errors import ErrorCode
from ottla.client.core.admin.types import ConfigChange, ConfigOperation, ConfigResource, ConfigSource
from tests.broker_process import BrokerProcess
from tests.interop.groups.raw_member import RawConsumerMember
from tests.interop.groups.scene import describe, wait_until
from tests.interop.peers.confluent import make_topic

pytestmark = pytest.mark.interop

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


@pytest.fixture
def admin(group_broker: BrokerProcess) -> Iterator[ottla_sync.Admin]:
    with ottla_sync.Admin(bootstrap_servers=group_broker.bootstrap) as client:
        yield client


def set_to(admin: ottla_sync.Admin, group: str, **settings: int) -> int:
    """The error code."""
    changes = [ConfigChange(name.replace("_", "."), str(value)) for name, value in settings.items()]
    resource = ConfigResource.group(group)
    failed = admin.incremental_alter_configs({resource: changes}).errors.get(resource)
    return ErrorCode.NONE if failed is None else failed.code


def test_a_group_without_settings_has_those_of_the_broker(admin: ottla_sync.Admin, group: str) -> None:
    resource = ConfigResource.group(group)
    found = admin.describe_configs([resource], include_synonyms=True)[resource]
    assert {name: (entry.value, entry.source) for name, entry in found.items()} == {
        SESSION: ("2500", ConfigSource.STATIC_BROKER),
        HEARTBEAT: ("200", ConfigSource.STATIC_BROKER),
    }
    assert [synonym.name for synonym in found[SESSION].synonyms] == [f"group.{SESSION}"] * 2


def test_a_living_group_obeys_from_the_next_heartbeat_on(
    group_broker: BrokerProcess, admin: ottla_sync.Admin, group: str
) -> None:
    make_topic(group_broker.bootstrap, group, 1)
    with RawConsumerMember(group_broker.port, group, "m", group) as member:
        assert member.beat().heartbeat_interval_ms == 200
        assert set_to(admin, group, consumer_heartbeat_interval_ms=700, consumer_session_timeout_ms=60_000) == 0
        assert member.beat().heartbeat_interval_ms == 700
        found = admin.describe_configs([ConfigResource.group(group)])[ConfigResource.group(group)]
        assert (found[SESSION].value, found[SESSION].source) == ("60000", ConfigSource.GROUP)
        # It may be silent for a minute now, and then no longer: its session ends well before the test's patience.
        assert set_to(admin, group, consumer_session_timeout_ms=1_000) == 0
        member.beat()
        wait_until(
            lambda: describe(group_broker, group, is_kip_848=True)[0] == "Empty",
            lambda: str(describe(group_broker, group, is_kip_848=True)),
        )
    back = [ConfigChange(SESSION, None, ConfigOperation.DELETE), ConfigChange(HEARTBEAT, None, ConfigOperation.DELETE)]
    admin.incremental_alter_configs({ConfigResource.group(group): back}).check()
    with RawConsumerMember(group_broker.port, group, "m", group) as member:
        assert member.beat().heartbeat_interval_ms == 200


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"consumer_session_timeout_ms": 999}, ErrorCode.INVALID_CONFIG),
        ({"consumer_session_timeout_ms": 60_001}, ErrorCode.INVALID_CONFIG),
        ({"consumer_heartbeat_interval_ms": 49}, ErrorCode.INVALID_CONFIG),
        ({"consumer_heartbeat_interval_ms": 15_001}, ErrorCode.INVALID_CONFIG),
        ({"consumer_heartbeat_interval_ms": 2_500}, ErrorCode.INVALID_CONFIG),
        ({"retention_ms": 1_000}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_what_is_refused(admin: ottla_sync.Admin, group: str, settings: dict[str, int], code: ErrorCode) -> None:
    assert set_to(admin, group, **settings) == code
    found = admin.describe_configs([ConfigResource.group(group)])[ConfigResource.group(group)]
    assert {entry.source for entry in found.values()} == {ConfigSource.STATIC_BROKER}


def test_there_are_no_settings_of_all_groups(admin: ottla_sync.Admin) -> None:
    assert set_to(admin, "", consumer_session_timeout_ms=2_000) == ErrorCode.INVALID_REQUEST
    failed = admin.describe_configs([ConfigResource.group("")]).errors[ConfigResource.group("")]
    assert failed.code == ErrorCode.INVALID_REQUEST


def test_kafka_python_sets_them_too(group_broker: BrokerProcess, group: str) -> None:
    client = KafkaAdminClient(bootstrap_servers=group_broker.bootstrap)
    try:
        client.alter_configs([KafkaPythonResource(ConfigResourceType.GROUP, group, {HEARTBEAT: "300"})])
    finally:
        client.close()
    with RawConsumerMember(group_broker.port, group, "m", "none") as member:
        assert member.beat().heartbeat_interval_ms == 300


def test_they_outlive_the_broker(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path).start()
    with ottla_sync.Admin(bootstrap_servers=broker.bootstrap) as admin:
        assert set_to(admin, "a group/with signs", consumer_heartbeat_interval_ms=6_000) == 0
    assert broker.stop() == 0
    broker.start()
    with ottla_sync.Admin(bootstrap_servers=broker.bootstrap) as admin:
        resource = ConfigResource.group("a group/with signs")
        assert admin.describe_configs([resource])[resource][HEARTBEAT].value == "6000"
    assert broker.stop() == 0
