"""Which permission each kind of settings needs, to look at them and to change them."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.options import Type
from ottla.broker.authorizer import ResourceType
from ottla.broker.config.describe import Alteration, AlterOperation, ConfigEntry, ConfigSource, ConfigSynonym
from ottla.broker.handlers import describe_configs
from ottla.broker.handlers.config_resources import BROKER, BROKER_LOGGER, GROUP, TOPIC, alter
from ottla.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsSynonym
from tests.waiting import run_async

LOGGER_NAME = "ottla.broker.handlers"
KINDS = [
    (TOPIC, "t", (ResourceType.TOPIC, "t")),
    (BROKER, "1", (ResourceType.CLUSTER,)),
    (BROKER, "", (ResourceType.CLUSTER,)),
    (GROUP, "g", (ResourceType.GROUP, "g")),
    (BROKER_LOGGER, "1", (ResourceType.CLUSTER,)),
]
REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def _nothing_new() -> None:
    """Nobody has changed anything through another broker."""


class Stranger:
    """Somebody who may do nothing, at a broker whose settings nobody may touch."""

    def __init__(self, **configs: Any) -> None:
        image = SimpleNamespace(topics={"t": None})
        dynamic_configs = SimpleNamespace(catch_up=_nothing_new, **configs)
        self.broker = SimpleNamespace(broker_id=1, image=image, dynamic_configs=dynamic_configs)
        self.needed: list[tuple[object, ...]] = []

    def require(self, *resource: object) -> None:
        self.needed.append(resource)
        raise KafkaError(code=REFUSED)


class Friend(Stranger):
    def require(self, *resource: object) -> None:
        self.needed.append(resource)


def described(context: Any, kind: int, name: str, *keys: str, **options: bool) -> Any:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys))
    answer = run_async(describe_configs.respond(context, DescribeConfigsRequest(resources=[resource], **options)))
    (result,) = answer.results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


@pytest.mark.parametrize(("kind", "name", "needed"), KINDS)
def test_settings_are_shown_to_those_who_may_see_them(kind: int, name: str, needed: tuple[object, ...]) -> None:
    stranger = Stranger()
    answer = described(stranger, kind, name)
    assert (answer.error_code, answer.configs) == (REFUSED, [])
    assert stranger.needed == [needed]


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize(("kind", "name", "needed"), KINDS)
def test_settings_are_changed_by_those_who_may_change_them(
    kind: int, name: str, needed: tuple[object, ...], replace: bool
) -> None:
    stranger: Any = Stranger()
    changes = [Alteration(LOGGER_NAME, AlterOperation.SET, "DEBUG")]
    level = logging.getLogger(LOGGER_NAME).level
    with pytest.raises(KafkaError) as refused:
        run_async(alter(stranger, kind, name, changes, replace=replace, validate_only=False))
    assert refused.value.code == REFUSED
    assert stranger.needed == [needed]
    assert logging.getLogger(LOGGER_NAME).level == level


def test_who_may_not_is_not_told_whether_there_is_such_a_topic() -> None:
    assert described(Stranger(), TOPIC, "nowhere").error_code == REFUSED


def test_an_empty_list_of_keys_asks_for_all() -> None:
    asked: list[object] = []

    def describe(names: object) -> list[ConfigEntry]:
        asked.append(names)
        return []

    friend = Friend(describe_broker=describe, describe_cluster_defaults=describe)
    for name in ("1", ""):
        described(friend, BROKER, name)
        described(friend, BROKER, name, "a", "b")
    assert asked == [None, ["a", "b"]] * 2


@pytest.mark.parametrize("synonyms", [False, True])
@pytest.mark.parametrize("documentation", [False, True])
def test_an_entry_says_what_was_asked_for(synonyms: bool, documentation: bool) -> None:
    source = ConfigSource.DEFAULT
    synonym = ConfigSynonym("older", "2", source)
    found = ConfigEntry("a", "3", source, False, True, Type.INT, [synonym], "what it is")
    friend = Friend(describe_broker=lambda names: [found])
    (entry,) = described(friend, BROKER, "1", include_synonyms=synonyms, include_documentation=documentation).configs
    assert (entry.name, entry.value, entry.config_source) == ("a", "3", ConfigSource.DEFAULT)
    assert (entry.read_only, entry.is_sensitive, entry.config_type) == (
        found.read_only,
        found.sensitive,
        Type.INT.value,
    )
    assert entry.synonyms == ([DescribeConfigsSynonym(name="older", value="2", source=source)] if synonyms else [])
    assert entry.documentation == ("what it is" if documentation else None)


def test_a_secret_is_named_but_not_shown() -> None:
    fields = ConfigEntry("a", "secret", ConfigSource.DEFAULT, False, False, Type.PASSWORD, [], "")
    friend = Friend(describe_broker=lambda names: [fields._replace(sensitive=True)])
    (entry,) = described(friend, BROKER, "1").configs
    assert (entry.name, entry.value, entry.is_sensitive) == ("a", None, True)


def test_a_logger_shows_its_level() -> None:
    (entry,) = described(Friend(), BROKER_LOGGER, "1", LOGGER_NAME, include_documentation=True).configs
    assert (entry.name, entry.config_source) == (LOGGER_NAME, ConfigSource.DYNAMIC_BROKER_LOGGER)
    assert (entry.read_only, entry.is_sensitive, entry.config_type) == (False, False, Type.STRING.value)
    assert LOGGER_NAME in entry.documentation
