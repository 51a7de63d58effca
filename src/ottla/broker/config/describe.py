"""Configuration as DescribeConfigs shows it, and the changes AlterConfigs asks for. Stores and applies nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from ottla.base.errors import InvalidConfigError, InvalidRequestError
from ottla.base.options import Option, OptionSet, Type, Update, format_value
from ottla.broker.config.broker_config import BROKER_OPTIONS, SYNONYMS, BrokerConfig
from ottla.broker.config.groups import GROUP_OPTIONS, broker_synonym, group_values
from ottla.broker.config.topics import BROKER_SYNONYMS, TOPIC_OPTIONS, topic_values


class ConfigSource(IntEnum):
    """Where a value comes from, numbered as on the wire."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    GROUP = 8


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource
    sensitive: bool
    read_only: bool
    type: Type
    synonyms: list[ConfigSynonym]
    """Every layer that gives a value, the one in force first."""
    documentation: str

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT


class AlterOperation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Alteration(NamedTuple):
    name: str
    operation: AlterOperation
    value: str | None


def describe_topic_config(
    overrides: Mapping[str, str], broker: BrokerConfig, names: Iterable[str] | None = None
) -> list[ConfigEntry]:
    """Entries for `names` (unknown ones are left out, as Kafka does), or for every topic setting."""
    values = topic_values(overrides, broker)
    entries = []
    for name in _known(names, TOPIC_OPTIONS):
        option = TOPIC_OPTIONS[name]
        chain = _broker_chain(BROKER_SYNONYMS.get(name, ()), broker)
        if name in overrides:
            chain.insert(0, ConfigSynonym(name, overrides[name], ConfigSource.TOPIC))
        source = chain[0].source if chain else ConfigSource.DEFAULT
        entries.append(_entry(option, format_value(values[name]), source, chain, read_only=False))
    return entries


def describe_group_config(
    overrides: Mapping[str, str], broker: BrokerConfig, names: Iterable[str] | None = None
) -> list[ConfigEntry]:
    values = group_values(overrides, broker)
    entries = []
    for name in _known(names, GROUP_OPTIONS):
        chain = _broker_chain((broker_synonym(name),), broker)
        if name in overrides:
            chain.insert(0, ConfigSynonym(name, overrides[name], ConfigSource.GROUP))
        entries.append(_entry(GROUP_OPTIONS[name], format_value(values[name]), chain[0].source, chain, read_only=False))
    return entries


def describe_broker_config(broker: BrokerConfig, names: Iterable[str] | None = None) -> list[ConfigEntry]:
    entries = []
    for name in _known(names, BROKER_OPTIONS):
        option = BROKER_OPTIONS[name]
        chain = _broker_chain(SYNONYMS.get(name, (name,)), broker)
        while chain and chain[0].name != name:
            # What is in force may come from a synonym, but then it is that setting's value, not this one's.
            chain.pop(0)
        source = chain[0].source if chain else ConfigSource.DEFAULT
        read_only = option.update is Update.READ_ONLY
        entries.append(_entry(option, format_value(broker[name]), source, chain, read_only=read_only))
    return entries


def describe_cluster_defaults(broker: BrokerConfig, names: Iterable[str] | None = None) -> list[ConfigEntry]:
    """The dynamic settings of all brokers: what describing the broker with the empty name shows."""
    entries = []
    for name in _known(names, BROKER_OPTIONS):
        if name in broker.cluster_wide:
            option = BROKER_OPTIONS[name]
            synonym = _synonym(name, broker.cluster_wide[name], ConfigSource.DYNAMIC_DEFAULT_BROKER)
            entries.append(_entry(option, synonym.value, synonym.source, [synonym], read_only=False))
    return entries


def apply_alterations(
    current: Mapping[str, str], alterations: Iterable[Alteration], options: OptionSet
) -> dict[str, str]:
    """The settings after an incremental change (KIP-339). Values are parsed, but not checked against each other."""
    settings = dict(current)
    seen: set[str] = set()
    for name, operation, value in alterations:
        if name in seen:
            raise InvalidRequestError(f"{name} is changed twice in one request")
        seen.add(name)
        if operation is AlterOperation.DELETE:
            if not options.accepts_unseen(name):
                options.find(name)
            settings.pop(name, None)
            continue
        if value is None:
            raise InvalidRequestError(f"{name} needs a value to {operation.name.lower()}, but it was null")
        if operation is not AlterOperation.SET:
            value = _changed_list(options.find(name), settings.get(name), operation, value)
        if not options.accepts_unseen(name):
            options.find(name).parse(value)
        settings[name] = value
    return settings


def _changed_list(option: Option, current: str | None, operation: AlterOperation, value: str) -> str:
    if option.type is not Type.LIST:
        raise InvalidConfigError(option.name, f"{option.name} is not a list, so nothing can be added or taken away")
    before = option.parse(current) if current is not None else option.default
    change = [item.strip() for item in value.split(",") if item.strip()]
    items = list(before) if isinstance(before, tuple) else []
    if operation is AlterOperation.APPEND:
        items += [item for item in dict.fromkeys(change) if item not in items]
    else:
        items = [item for item in items if item not in change]
    return ",".join(items)


def _known(names: Iterable[str] | None, options: OptionSet) -> list[str]:
    return sorted(options) if names is None else [name for name in names if name in options]


def _broker_chain(names: tuple[str, ...], broker: BrokerConfig) -> list[ConfigSynonym]:
    """Who sets one of the synonymous `names`, layer by layer from the strongest to the default."""
    chain = [
        _synonym(name, layer[name], source)
        for layer, source in (
            (broker.per_broker, ConfigSource.DYNAMIC_BROKER),
            (broker.cluster_wide, ConfigSource.DYNAMIC_DEFAULT_BROKER),
            (broker.static, ConfigSource.STATIC_BROKER),
        )
        for name in names
        if name in layer
    ]
    for name in names:
        default = format_value(broker.default(name))
        if default is not None:
            chain.append(_synonym(name, default, ConfigSource.DEFAULT))
    return chain


def _synonym(name: str, value: str, source: ConfigSource) -> ConfigSynonym:
    return ConfigSynonym(name, None if BROKER_OPTIONS[name].sensitive else value, source)


def _entry(
    option: Option, value: str | None, source: ConfigSource, chain: list[ConfigSynonym], *, read_only: bool
) -> ConfigEntry:
    return ConfigEntry(
        option.name, value, source, option.sensitive, read_only, option.type, chain, option.documentation
    )
