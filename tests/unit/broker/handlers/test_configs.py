"""Settings of topics, brokers, groups and loggers: changed, only tried, replaced, and refused."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.wire.apis import alter_configs, incremental_alter_configs
from ottla.wire.apis.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.unit.broker.running_broker import RunningBroker, running_broker

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
LOGGER_NAME = "ottla.broker.handlers"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("broker") / "data") as running:
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        running.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        yield running


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    logging.getLogger(LOGGER_NAME).setLevel(logging.NOTSET)


@pytest.fixture
def own_name(broker: RunningBroker) -> str:
    return str(broker.broker.broker_id)


def alter(
    broker: RunningBroker, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> int:
    wire = incremental_alter_configs
    configs = [wire.AlterableConfig(name=key, config_operation=op, value=value) for key, op, value in changes]
    resource = wire.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = wire.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (answer,) = broker.ask(request).responses
    assert (answer.resource_type, answer.resource_name) == (kind, name)
    return int(answer.error_code)


def replace(broker: RunningBroker, kind: int, name: str, *, validate_only: bool = False, **settings: str) -> int:
    wire = alter_configs
    configs = [wire.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()]
    resource = wire.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    (answer,) = broker.ask(wire.AlterConfigsRequest(resources=[resource], validate_only=validate_only)).responses
    return int(answer.error_code)


def described(broker: RunningBroker, kind: int, name: str, *keys: str) -> Any:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) if keys else None
    )
    (answer,) = broker.ask(DescribeConfigsRequest(resources=[resource], include_synonyms=True)).results
    return answer


def value_of(broker: RunningBroker, kind: int, name: str, key: str) -> tuple[str, int]:
    (entry,) = described(broker, kind, name, key).configs
    return entry.value, entry.config_source


CASES = [
    (TOPIC, "t", "max.message.bytes", "5000", 1),
    (BROKER, "", "log.cleaner.threads", "2", 3),
    (BROKER, None, "log.cleaner.threads", "3", 2),
    (GROUP, "g", "consumer.session.timeout.ms", "46000", 8),
]


@pytest.mark.parametrize(("kind", "name", "key", "value", "source"), CASES)
def test_settings_come_and_go(
    broker: RunningBroker, own_name: str, kind: int, name: str | None, key: str, value: str, source: int
) -> None:
    name = own_name if name is None else name
    before = value_of(broker, kind, name, key) if name else None
    assert alter(broker, kind, name, (key, SET, value), validate_only=True) == 0
    if name:
        assert value_of(broker, kind, name, key) == before
    assert alter(broker, kind, name, (key, SET, value)) == 0
    assert value_of(broker, kind, name, key) == (value, source)
    assert alter(broker, kind, name, (key, DELETE, None)) == 0
    if name:
        assert value_of(broker, kind, name, key) == before


def test_what_is_not_named_goes_back_to_its_default_if_all_is_replaced(broker: RunningBroker) -> None:
    for key in ("max.message.bytes", "segment.bytes"):
        assert alter(broker, TOPIC, "t", (key, SET, "500000")) == 0
    assert replace(broker, TOPIC, "t", max_message_bytes="7000", validate_only=True) == 0
    assert value_of(broker, TOPIC, "t", "max.message.bytes") == ("500000", 1)
    assert replace(broker, TOPIC, "t", max_message_bytes="7000") == 0
    assert value_of(broker, TOPIC, "t", "max.message.bytes") == ("7000", 1)
    assert value_of(broker, TOPIC, "t", "segment.bytes")[1] != 1
    assert replace(broker, TOPIC, "t") == 0


def test_lists_are_added_to_and_taken_from(broker: RunningBroker) -> None:
    assert alter(broker, TOPIC, "t", ("cleanup.policy", SET, "delete")) == 0
    assert alter(broker, TOPIC, "t", ("cleanup.policy", APPEND, "compact")) == 0
    assert value_of(broker, TOPIC, "t", "cleanup.policy")[0] == "delete,compact"
    assert alter(broker, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")) == 0
    assert value_of(broker, TOPIC, "t", "cleanup.policy")[0] == "compact"
    assert replace(broker, TOPIC, "t") == 0


@pytest.mark.parametrize(
    ("kind", "name", "change", "code"),
    [
        (TOPIC, "t", ("nonsense", SET, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("max.message.bytes", SET, "many"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("max.message.bytes", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("max.message.bytes", 9, "1"), ErrorCode.INVALID_REQUEST),
        (TOPIC, "nowhere", ("max.message.bytes", SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "here", ("log.cleaner.threads", SET, "1"), ErrorCode.INVALID_REQUEST),
        (GROUP, "", ("consumer.session.timeout.ms", SET, "46000"), ErrorCode.INVALID_REQUEST),
        (LOGGER, "999", (LOGGER_NAME, SET, "DEBUG"), ErrorCode.INVALID_REQUEST),
        (64, "x", ("a", SET, "1"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_set(
    broker: RunningBroker, kind: int, name: str, change: tuple[str, int, str], code: ErrorCode
) -> None:
    assert alter(broker, kind, name, change) == code


# Loggers


def test_levels_of_loggers(broker: RunningBroker, own_name: str) -> None:
    assert alter(broker, LOGGER, own_name, (LOGGER_NAME, SET, "DEBUG"), validate_only=True) == 0
    assert logging.getLogger(LOGGER_NAME).level == logging.NOTSET
    assert alter(broker, LOGGER, own_name, (LOGGER_NAME, SET, "DEBUG")) == 0
    assert logging.getLogger(LOGGER_NAME).level == logging.DEBUG
    assert value_of(broker, LOGGER, own_name, LOGGER_NAME)[0] == "DEBUG"
    assert alter(broker, LOGGER, own_name, (LOGGER_NAME, DELETE, None)) == 0
    assert logging.getLogger(LOGGER_NAME).level == logging.NOTSET
    names = {entry.name for entry in described(broker, LOGGER, own_name).configs}
    assert {"root", "ottla", LOGGER_NAME} <= names
    assert all(name == "root" or name.partition(".")[0] == "ottla" for name in names)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("root", DELETE, None), ErrorCode.INVALID_REQUEST),
        ((LOGGER_NAME, APPEND, "DEBUG"), ErrorCode.INVALID_REQUEST),
        ((LOGGER_NAME, SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        ((LOGGER_NAME, SET, None), ErrorCode.INVALID_CONFIG),
        (("asyncio", SET, "DEBUG"), ErrorCode.INVALID_CONFIG),
    ],
)
def test_levels_that_cannot_be_set(
    broker: RunningBroker, own_name: str, change: tuple[str, int, str | None], code: ErrorCode
) -> None:
    assert alter(broker, LOGGER, own_name, (LOGGER_NAME, SET, "WARN"), change) == code
    assert logging.getLogger(LOGGER_NAME).level == logging.NOTSET, "all of them, or none"


def test_loggers_are_not_replaced_all_at_once(broker: RunningBroker, own_name: str) -> None:
    assert replace(broker, LOGGER, own_name, ottla="DEBUG") == ErrorCode.INVALID_REQUEST
    assert logging.getLogger("ottla").level != logging.DEBUG


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "here", ErrorCode.INVALID_REQUEST),
        (BROKER, "999", ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (64, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_described(broker: RunningBroker, kind: int, name: str, code: ErrorCode) -> None:
    answer = described(broker, kind, name)
    assert (answer.error_code, answer.configs) == (code, [])
