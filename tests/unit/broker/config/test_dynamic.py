"""Settings in the metadata store that this broker cannot use: they are named and left out, the others act."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ottla.base.errors import InvalidConfigError
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.config.dynamic import DynamicConfigs
from ottla.metadata import paths
from ottla.metadata.embedded import EmbeddedStore
from ottla.metadata.store import Create, CreateSequential, Operation, Set
from tests.waiting import run_async

UNKNOWN = "somebody.elses.setting"
THROTTLE = "leader.replication.throttled.rate"


def configured(
    tmp_path: Path, stored: dict[str, dict[str, str]], scenario: Callable[[DynamicConfigs], Awaitable[None]]
) -> None:
    async def run() -> None:
        store = await EmbeddedStore.open(tmp_path / "store")
        try:
            for path in ("/config", paths.CONFIG_TOPICS, paths.CONFIG_BROKERS, paths.CONFIG_CHANGES):
                await store.commit([Create(path)])
            for path, settings in stored.items():
                await store.commit([Create(path, paths.encode_config(settings))])
            configs = DynamicConfigs(store, 1, BrokerConfig({}))
            await configs.start()
            await scenario(configs)
        finally:
            await store.close()

    run_async(run())


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        (UNKNOWN, "true", f"unknown topic setting {UNKNOWN}"),
        ("retention.ms", "soon", "retention.ms must be a whole number, but was 'soon'"),
        ("segment.bytes", "1", "segment.bytes must be at least 14, but was '1'"),
        ("min.compaction.lag.ms", "9", "min.compaction.lag.ms (9) must not exceed max.compaction.lag.ms (5)"),
    ],
)
def test_a_setting_of_a_topic_that_cannot_be_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, value: str, problem: str
) -> None:
    good = {"max.message.bytes": "5000", "max.compaction.lag.ms": "5"}

    async def scenario(configs: DynamicConfigs) -> None:
        log = await configs.read_topic("t")
        assert (log.max_message_bytes, log.max_compaction_lag_ms) == (5000, 5)
        assert configs.topic_overrides_in_force("t") == good
        with pytest.raises(InvalidConfigError):
            await configs.change_topic("t", lambda before: {**before, "nonsense": "1"}, validate_only=False)
        await configs.change_topic("t", lambda before: {**before, "segment.ms": "7"}, validate_only=False)
        assert (await configs.read_topic("t")).segment_ms == 7
        assert configs.topic_overrides("t") == {**good, name: value, "segment.ms": "7"}, "others may know it"
        await configs.change_topic("t", lambda before: good, validate_only=False)
        assert configs.topic_overrides("t") == good, "whoever takes it away mends it"

    configured(tmp_path, {paths.topic_config("t"): {**good, name: value}}, scenario)
    said = [message for message in caplog.messages if "cannot be used" in message]
    assert set(said) == {f"settings of topic t are left out, for they cannot be used: {problem}"}


@pytest.mark.parametrize("broker_id", [None, 1])
def test_a_setting_of_brokers_that_cannot_be_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, broker_id: int | None
) -> None:
    stored = {UNKNOWN: "1", "message.max.bytes": "much", "log.cleaner.threads": "2"}
    if broker_id is not None:
        stored[THROTTLE] = "1000"

    async def scenario(configs: DynamicConfigs) -> None:
        assert configs.broker.integer("log.cleaner.threads") == 2
        if broker_id is not None:
            assert configs.broker.integer(THROTTLE) == 1000
        changed = {"log.cleaner.threads": "3", "message.max.bytes": "7000"}
        await configs.change_broker(broker_id, lambda before: {**before, **changed}, validate_only=False)
        assert configs.broker.integer("log.cleaner.threads") == 3
        assert configs.broker.integer("message.max.bytes") == 7000
        node = await configs._store.get(paths.broker_config(broker_id))
        assert node is not None and paths.decode_config(node.data)[UNKNOWN] == "1", "others may know it"

    configured(tmp_path, {paths.broker_config(broker_id): stored}, scenario)
    said = [message for message in caplog.messages if "cannot be used" in message]
    whose = "all brokers" if broker_id is None else "broker 1"
    assert sorted(said) == [
        f"a stored setting of {whose} is left out, for it cannot be used: message.max.bytes must be a whole number, "
        "but was 'much'",
        f"a stored setting of {whose} is left out, for it cannot be used: unknown broker setting {UNKNOWN}",
    ]


# Several brokers

NAMES = ("retention.ms", "segment.ms", "flush.ms", "max.message.bytes", "segment.bytes", "retention.bytes")


def test_settings_of_a_group_come_and_go(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(configs: DynamicConfigs) -> None:
        given = {"consumer.session.timeout.ms": "50000"}
        await configs.change_group("g", lambda before: given, validate_only=True)
        assert configs.group_overrides("g") == {} and "g" not in configs.consumer_timeouts
        await configs.change_group("g", lambda before: given, validate_only=False)
        assert configs.group_overrides("g") == given
        assert configs.consumer_timeouts["g"].session_timeout_ms == 50_000
        await configs.change_group("g", lambda before: {}, validate_only=False)
        assert configs.group_overrides("g") == {} and "g" not in configs.consumer_timeouts
        assert configs.group_overrides("h") == {} and "h" not in configs.consumer_timeouts, "it cannot be used"

    stored = {paths.CONFIG_GROUPS: {}, paths.group_config("h"): {"consumer.session.timeout.ms": "soon"}}
    configured(tmp_path, stored, scenario)
    assert [message for message in caplog.messages if "group 'h'" in message]


def test_what_two_brokers_change_at_once_is_all_kept(tmp_path: Path) -> None:
    """Whoever changes one setting has read the others before: they may be others by the time it writes."""

    async def scenario(configs: DynamicConfigs) -> None:
        other = DynamicConfigs(configs._store, 2, BrokerConfig({}))
        await other.start()
        for value in ("100001", "100002", "100003"):
            await asyncio.gather(
                *(
                    each.change_topic("t", lambda before, n=name, v=value: {**before, n: v}, validate_only=False)
                    for each, name in zip((configs, other) * 2, NAMES, strict=False)
                )
            )
            for each in (configs, other):
                await each.catch_up()
                assert each.topic_overrides("t") == dict.fromkeys(NAMES[:4], value)

    configured(tmp_path, {}, scenario)


def test_what_one_broker_was_told_another_one_shows(tmp_path: Path) -> None:
    async def scenario(configs: DynamicConfigs) -> None:
        other = DynamicConfigs(configs._store, 2, BrokerConfig({}))
        await other.start()
        for value in map(str, range(100_001, 100_020)):
            await configs.change_topic("t", lambda before, v=value: {"segment.ms": v}, validate_only=False)
            await configs.change_broker(None, lambda before, v=value: {"message.max.bytes": v}, validate_only=False)
            await other.catch_up()
            assert other.topic_overrides_in_force("t") == {"segment.ms": value}
            assert other.broker.cluster_wide == {"message.max.bytes": value}

    configured(tmp_path, {}, scenario)


@pytest.mark.parametrize("group", ["g", "a/b %"])
def test_a_cluster_gets_a_place_for_settings_of_groups_with_the_first_of_them(tmp_path: Path, group: str) -> None:
    """Kafka's have none."""

    async def scenario(configs: DynamicConfigs) -> None:
        for value in ("50000", "55000"):
            given = {"consumer.session.timeout.ms": value}
            await configs.change_group(group, lambda before, given=given: given, validate_only=False)
            others = [DynamicConfigs(configs._store, 2, BrokerConfig({})) for _ in range(2)]
            for other in (configs, *others):
                if other is not configs:
                    await other.start()
                await other.catch_up()
                assert other.group_overrides(group) == given and other.group_overrides("other") == {}
                assert {name: found.session_timeout_ms for name, found in other.consumer_timeouts.items()} == {
                    group: int(value)
                }
                (entry,) = other.describe_group(group, ["consumer.session.timeout.ms"])
                assert entry.value == value

    configured(tmp_path, {}, scenario)


def test_a_group_that_is_reconfigured_is_named_once_with_what_has_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(configs: DynamicConfigs) -> None:
        given = {"consumer.session.timeout.ms": "50000"}
        for _ in range(2):
            await configs.change_group("g", lambda before: given, validate_only=False)
            await configs.catch_up()

    with caplog.at_level(logging.INFO):
        configured(tmp_path, {paths.CONFIG_GROUPS: {}}, scenario)
    assert [message for message in caplog.messages if "group" in message] == [
        "group 'g' was reconfigured: consumer.session.timeout.ms=50000"
    ]


def test_settings_of_a_group_that_cannot_be_used_any_more_are_not_used(tmp_path: Path) -> None:
    async def scenario(configs: DynamicConfigs) -> None:
        assert configs.consumer_timeouts["g"].session_timeout_ms == 50_000
        node = await configs._store.get(paths.group_config("g"))
        assert node is not None
        bad = paths.encode_config({"consumer.session.timeout.ms": "soon"})
        notification = CreateSequential(
            f"{paths.CONFIG_CHANGES}/config_change_", paths.encode_config_change("groups/g")
        )
        await configs._store.commit([Set(paths.group_config("g"), bad, node.version), notification])
        await configs.catch_up()
        assert configs.group_overrides("g") == {} and configs.consumer_timeouts == {}

    stored = {paths.CONFIG_GROUPS: {}, paths.group_config("g"): {"consumer.session.timeout.ms": "50000"}}
    configured(tmp_path, stored, scenario)


@pytest.mark.parametrize(("count", "ending"), [(1, ""), (20, ""), (21, " …")])
def test_so_many_topics_with_idle_settings_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, count: int, ending: str
) -> None:
    async def nothing(configs: DynamicConfigs) -> None:
        await asyncio.sleep(0)

    idle = {"message.downconversion.enable": "false"}
    names = [f"t{number:02}" for number in range(count)]
    stored = {paths.topic_config(name): idle for name in (*names, "__consumer_offsets")}
    configured(tmp_path, stored, nothing)
    (said,) = [message for message in caplog.messages if "without effect" in message]
    assert said.partition("version: ")[2] == ", ".join(names[:20]) + ending


def test_a_mistake_is_named_again_when_it_comes_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(configs: DynamicConfigs) -> None:
        path = paths.broker_config(None)
        for settings in ({UNKNOWN: "1"}, {UNKNOWN: "1", THROTTLE: "5"}, {}, {UNKNOWN: "1"}):
            node = await configs._store.get(path)
            data = paths.encode_config(settings)
            write: Operation = Create(path, data) if node is None else Set(path, data, node.version)
            notification = CreateSequential(
                f"{paths.CONFIG_CHANGES}/config_change_", paths.encode_config_change(f"brokers/{paths.DEFAULT_ENTITY}")
            )
            await configs._store.commit([write, notification])
            await configs.catch_up()

    configured(tmp_path, {}, scenario)
    assert len([message for message in caplog.messages if UNKNOWN in message]) == 2
