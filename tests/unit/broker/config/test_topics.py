"""Topic settings: defaults from the broker, the log's configuration, DescribeConfigs and AlterConfigs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ErrorCode, InvalidConfigError, InvalidRequestError
from ottla.base.options import Type, no_effect_in
from ottla.broker.config.broker_config import BROKER_OPTIONS, BrokerConfig
from ottla.broker.config.describe import (
    Alteration,
    AlterOperation,
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    apply_alterations,
    describe_broker_config,
    describe_cluster_defaults,
    describe_topic_config,
)
from ottla.broker.config.dynamic import difference, is_public
from ottla.broker.config.topics import (
    BROKER_SYNONYMS,
    TOPIC_OPTIONS,
    broker_default,
    settings_without_effect,
    topic_config,
    validate_topic_overrides,
)
from ottla.log.config import LogConfig

DEFAULTS = BrokerConfig({})


def test_a_topic_without_overrides_is_the_default_log() -> None:
    assert topic_config({}, DEFAULTS) == LogConfig()


@pytest.mark.parametrize("name", sorted(TOPIC_OPTIONS))
def test_topic_and_broker_defaults_agree(name: str) -> None:
    assert broker_default(name, DEFAULTS) == TOPIC_OPTIONS[name].default


def test_every_synonym_is_declared() -> None:
    assert set(BROKER_SYNONYMS) <= set(TOPIC_OPTIONS)
    assert {name for names in BROKER_SYNONYMS.values() for name in names} <= set(BROKER_OPTIONS)


def test_overrides_beat_the_broker_and_the_broker_beats_the_default() -> None:
    broker = BrokerConfig({"log.segment.bytes": "1000", "log.retention.minutes": "1", "log.cleanup.policy": "compact"})
    log = topic_config({"segment.bytes": "2000"}, broker)
    assert (log.segment_bytes, log.retention_ms, log.cleanup_policy) == (2000, 60_000, frozenset({"compact"}))


@pytest.mark.parametrize(
    ("overrides", "static", "expected"),
    [
        ({}, {"log.message.timestamp.difference.max.ms": "5"}, 5),
        (
            {},
            {"log.message.timestamp.difference.max.ms": "5", "log.message.timestamp.before.max.ms": "6"},
            6,
        ),
        ({"message.timestamp.difference.max.ms": "7"}, {"log.message.timestamp.before.max.ms": "6"}, 7),
        ({"message.timestamp.difference.max.ms": "7", "message.timestamp.before.max.ms": "8"}, {}, 8),
    ],
)
def test_the_older_timestamp_limit_counts_where_the_newer_is_not_set(
    overrides: dict[str, str], static: dict[str, str], expected: int
) -> None:
    assert topic_config(overrides, BrokerConfig(static)).message_timestamp_before_max_ms == expected


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"segment.byte": "1"}, "unknown topic setting segment.byte; did you mean segment.bytes?"),
        ({"segment.bytes": "13"}, "at least 14"),
        ({"segment.bytes": None}, "needs a value, but was null"),
        ({"cleanup.policy": "shred"}, "may only name compact, delete"),
        ({"leader.replication.throttled.replicas": "0:1,x"}, "partition:broker"),
        ({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"}, "must not exceed"),
        ({"remote.storage.enable": "true"}, "remote.storage.enable is set, but nothing is tiered here"),
    ],
)
def test_bad_overrides_are_refused(overrides: dict[str, str | None], words: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        validate_topic_overrides(overrides, DEFAULTS)
    assert words in caught.value.message
    assert caught.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("name", sorted(BROKER_SYNONYMS))
def test_a_topic_setting_has_an_effect_where_the_brokers_default_has(name: str) -> None:
    effects = {not BROKER_OPTIONS[synonym].no_effect for synonym in BROKER_SYNONYMS[name]}
    assert effects == {not TOPIC_OPTIONS[name].no_effect}


def test_settings_without_effect_are_named_with_the_reason() -> None:
    assert settings_without_effect({"segment.bytes": "1000", "max.message.bytes": "5"}) is None
    assert settings_without_effect(
        {"segment.bytes": "1000", "message.format.version": "3.0", "local.retention.ms": "1"}
    ) == (
        "local.retention.ms (nothing is tiered here), "
        "message.format.version (only message format 2 is stored and served)"
    )


def test_the_reason_is_found_again_in_what_describe_configs_says() -> None:
    described = describe_topic_config({}, DEFAULTS, ["local.retention.ms", "segment.bytes"])
    reasons = {entry.name: no_effect_in(entry.documentation) for entry in described}
    assert reasons == {"local.retention.ms": "nothing is tiered here", "segment.bytes": None}


def one(entries: list[ConfigEntry]) -> ConfigEntry:
    (entry,) = entries
    return entry


def test_a_topic_entry_shows_the_chain_of_its_value() -> None:
    broker = BrokerConfig({"log.retention.hours": "2"}).with_dynamic(
        cluster_wide={"log.retention.ms": "500"}, per_broker={"log.retention.ms": "400"}
    )
    entry = one(describe_topic_config({"retention.ms": "300"}, broker, ["retention.ms", "no.such"]))
    assert (entry.value, entry.source, entry.is_default, entry.read_only) == ("300", ConfigSource.TOPIC, False, False)
    assert entry.type is Type.LONG
    assert entry.synonyms == [
        ConfigSynonym("retention.ms", "300", ConfigSource.TOPIC),
        ConfigSynonym("log.retention.ms", "400", ConfigSource.DYNAMIC_BROKER),
        ConfigSynonym("log.retention.ms", "500", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ConfigSynonym("log.retention.hours", "2", ConfigSource.STATIC_BROKER),
        ConfigSynonym("log.retention.hours", "168", ConfigSource.DEFAULT),
    ]


def test_a_topic_entry_that_nobody_sets_is_a_default() -> None:
    entry = one(describe_topic_config({}, DEFAULTS, ["retention.ms"]))
    assert (entry.value, entry.source, entry.is_default) == ("604800000", ConfigSource.DEFAULT, True)
    assert len(describe_topic_config({}, DEFAULTS)) == len(TOPIC_OPTIONS)


def test_broker_entries() -> None:
    broker = BrokerConfig({"num.partitions": "3", "ssl.key.password": "hunter2", "log.retention.ms": "5"})
    entries = {entry.name: entry for entry in describe_broker_config(broker)}
    assert set(entries) == set(BROKER_OPTIONS)
    assert (entries["num.partitions"].value, entries["num.partitions"].read_only) == ("3", True)
    assert entries["num.partitions"].source is ConfigSource.STATIC_BROKER
    password = entries["ssl.key.password"]
    assert (password.sensitive, password.value) == (True, None)
    assert "hunter2" not in repr(entries)
    assert entries["log.retention.hours"].source is ConfigSource.DEFAULT
    assert not entries["log.retention.ms"].read_only
    assert entries["background.threads"].is_default


def test_cluster_defaults_show_only_what_was_set() -> None:
    broker = DEFAULTS.with_dynamic(cluster_wide={"message.max.bytes": "9"}, per_broker={})
    entry = one(describe_cluster_defaults(broker))
    assert (entry.name, entry.value, entry.source) == ("message.max.bytes", "9", ConfigSource.DYNAMIC_DEFAULT_BROKER)


SET, DELETE, APPEND, SUBTRACT = AlterOperation


def test_alterations() -> None:
    after = apply_alterations(
        {"segment.bytes": "1000", "retention.ms": "5"},
        [
            Alteration("segment.bytes", DELETE, None),
            Alteration("retention.ms", SET, "6"),
            Alteration("cleanup.policy", APPEND, "compact,delete"),
        ],
        TOPIC_OPTIONS,
    )
    assert after == {"retention.ms": "6", "cleanup.policy": "delete,compact"}
    after = apply_alterations(after, [Alteration("cleanup.policy", SUBTRACT, "delete")], TOPIC_OPTIONS)
    assert after["cleanup.policy"] == "compact"


@pytest.mark.parametrize(
    ("alterations", "error"),
    [
        ([Alteration("segment.bytes", APPEND, "1")], InvalidConfigError),
        ([Alteration("segment.bytes", SET, None)], InvalidRequestError),
        ([Alteration("segment.bytes", SET, "x")], InvalidConfigError),
        ([Alteration("no.such", DELETE, None)], InvalidConfigError),
        ([Alteration("segment.bytes", SET, "20"), Alteration("segment.bytes", DELETE, None)], InvalidRequestError),
        ([Alteration("cleanup.policy", APPEND, "shred")], InvalidConfigError),
    ],
)
def test_bad_alterations_are_refused(alterations: list[Alteration], error: type[Exception]) -> None:
    with pytest.raises(error):
        apply_alterations({}, alterations, TOPIC_OPTIONS)


_PAIRS = st.lists(st.sampled_from(["0:1", "0:2", "1:1", "2:3"]), min_size=1, max_size=4, unique=True)


@given(before=_PAIRS, change=_PAIRS)
def test_append_then_subtract_leaves_what_was_not_named(before: list[str], change: list[str]) -> None:
    name = "leader.replication.throttled.replicas"
    text = ",".join(change)
    current = {name: ",".join(before)}
    appended = apply_alterations(current, [Alteration(name, APPEND, text)], TOPIC_OPTIONS)
    assert set(appended[name].split(",")) == {*before, *change}
    subtracted = apply_alterations(appended, [Alteration(name, SUBTRACT, text)], TOPIC_OPTIONS)
    assert list(filter(None, subtracted[name].split(","))) == [pair for pair in before if pair not in change]


def test_a_secret_that_changes_is_not_shown() -> None:
    before, after = {"num.io.threads": "1", "ssl.key.password": "old"}, {"ssl.key.password": "hunter2"}
    assert difference(before, after, is_public) == "ssl.key.password=[hidden], num.io.threads is back at its default"
    assert difference({}, {"listener.name.x.y": "hunter2"}, is_public) == "listener.name.x.y=[hidden]"
