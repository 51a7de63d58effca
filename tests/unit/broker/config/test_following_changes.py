"""Changed settings: what is said of them, notifications that come and go, and a store that is away or too busy."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.config import dynamic
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.config.dynamic import ATTEMPTS, DynamicConfigs, difference, is_public
from ottla.metadata import paths
from ottla.metadata.embedded import EmbeddedStore
from ottla.metadata.store import (
    BadVersionError,
    Create,
    CreateSequential,
    NoNodeError,
    Operation,
    StoreUnreachableError,
)
from tests.waiting import run_async, until

OTHER = 2


class Store:
    """The embedded one; what fails is the test's choice."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self.is_away = False
        self.conflicts = 0
        """So many commits are refused, because somebody else was faster."""
        self.commits = 0
        self.missing = ""
        """The parent without which nothing can be made, until it is made."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get(self, path: str) -> Any:
        self._check()
        return await self._store.get(path)

    async def children(self, path: str) -> Any:
        self._check()
        return await self._store.children(path)

    async def commit(self, operations: Sequence[Operation]) -> Any:
        self.commits += 1
        if self.conflicts:
            self.conflicts -= 1
            raise BadVersionError(paths.topic_config("t"))
        if self.missing and Create(self.missing) not in operations:
            raise NoNodeError(self.missing)
        return await self._store.commit(operations)

    def _check(self) -> None:
        if self.is_away:
            raise StoreUnreachableError("nobody there")

    async def notify(self, entity_path: str) -> None:
        await self.write_notification(paths.encode_config_change(entity_path))

    async def write_notification(self, data: bytes) -> None:
        await self._store.commit([CreateSequential(f"{paths.CONFIG_CHANGES}/config_change_", data)])

    async def notifications(self) -> list[str]:
        return list(await self._store.children(paths.CONFIG_CHANGES))


def configured(
    tmp_path: Path, scenario: Callable[[DynamicConfigs, Store], Awaitable[None]], **stored: dict[str, str]
) -> None:
    """`stored` are settings of topics."""

    async def run() -> None:
        embedded = await EmbeddedStore.open(tmp_path / "store")
        store = Store(embedded)
        try:
            for path in ("/config", paths.CONFIG_TOPICS, paths.CONFIG_BROKERS, paths.CONFIG_CHANGES):
                await store.commit([Create(path)])
            for topic, settings in stored.items():
                await store.commit([Create(paths.topic_config(topic), paths.encode_config(settings))])
            await store.notify("topics/t")
            configs = DynamicConfigs(store, 1, BrokerConfig({}))
            await configs.start()
            store.commits = 0
            await scenario(configs, store)
        finally:
            await embedded.close()

    run_async(run())


def _instead(after: dict[str, str], before: Any) -> dict[str, str]:
    return after


def as_now(before: Any) -> dict[str, str]:
    return {**before, "segment.ms": "7"}


@pytest.mark.parametrize(("conflicts", "works"), [(0, True), (ATTEMPTS - 1, True), (ATTEMPTS, False)])
def test_a_change_is_made_anew_when_somebody_else_was_faster_but_not_for_ever(
    tmp_path: Path, conflicts: int, works: bool
) -> None:
    async def scenario(configs: DynamicConfigs, store: Store) -> None:
        store.conflicts = conflicts
        if works:
            await configs.change_topic("t", as_now, validate_only=False)
            assert configs.topic_overrides("t") == {"segment.ms": "7"}
        else:
            with pytest.raises(KafkaError, match=r"were changed 5 times meanwhile") as refused:
                await configs.change_topic("t", as_now, validate_only=False)
            assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
            assert configs.topic_overrides("t") == {}
        assert store.commits == min(conflicts + 1, ATTEMPTS)

    configured(tmp_path, scenario)


def test_a_change_that_is_only_tried_changes_nothing(tmp_path: Path) -> None:
    async def scenario(configs: DynamicConfigs, store: Store) -> None:
        await configs.change_topic("t", as_now, validate_only=True)
        assert (store.commits, configs.topic_overrides("t"), await store.notifications()) == (
            0,
            {},
            ["config_change_0000000000"],
        )

    configured(tmp_path, scenario)


def test_settings_of_another_broker_are_for_that_broker(tmp_path: Path) -> None:
    async def scenario(configs: DynamicConfigs, store: Store) -> None:
        with pytest.raises(KafkaError, match="broker 1 cannot change settings of broker 2; ask that broker") as refused:
            await configs.change_broker(OTHER, lambda before: {}, validate_only=False)
        assert refused.value.code is ErrorCode.INVALID_REQUEST and store.commits == 0

    configured(tmp_path, scenario)


def test_who_is_to_hear_of_a_change_hears_of_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(configs: DynamicConfigs, store: Store) -> None:
        heard: list[str] = []
        configs.on_topic_changed = heard.append
        configs.on_broker_changed = lambda: heard.append("broker")
        await configs.change_topic("t", as_now, validate_only=False)
        await configs.catch_up()
        assert set(heard) == {"t"}
        heard.clear()
        await configs.change_broker(None, lambda before: {"log.cleaner.threads": "2"}, validate_only=False)
        await configs.change_broker(1, lambda before: {"log.cleaner.threads": "3"}, validate_only=False)
        await configs.catch_up()
        assert set(heard) == {"broker"}
        heard.clear()
        await store.notify("users/somebody")
        await store.notify("brokers/2")
        await configs.catch_up()
        assert set(heard) <= {"broker"}

    with caplog.at_level(logging.INFO):
        configured(tmp_path, scenario)
    said = [message for message in caplog.messages if "reconfigured" in message or "were changed" in message]
    assert said == [
        "topic t was reconfigured: segment.ms=7",
        "settings of all brokers were changed: log.cleaner.threads=2",
        "settings of broker 1 were changed: log.cleaner.threads=3",
    ], "once each"


def test_what_nobody_understands_is_named_and_the_rest_is_followed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(configs: DynamicConfigs, store: Store) -> None:
        await store.write_notification(b"nonsense")
        await store._store.commit([Create(paths.topic_config("t"), paths.encode_config({"segment.ms": "9"}))])
        await store.notify("topics/t")
        await configs.catch_up()
        assert configs.topic_overrides("t") == {"segment.ms": "9"}

    configured(tmp_path, scenario)
    assert [m for m in caplog.messages if "/config/changes/config_change_0000000001 cannot be understood" in m]


def test_old_notifications_are_removed_and_young_ones_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert dynamic._NOTIFICATION_LASTS_S == 900

    async def scenario(configs: DynamicConfigs, store: Store) -> None:
        await configs.change_topic("t", as_now, validate_only=False)
        await configs.catch_up()
        assert len(await store.notifications()) == 2
        monkeypatch.setattr(dynamic, "_NOTIFICATION_LASTS_S", 0)
        await configs.change_topic("t", lambda before: {}, validate_only=False)
        await configs.catch_up()
        left = await store.notifications()
        assert left == ["config_change_0000000002"], "the one that was noticed just now"

    configured(tmp_path, scenario)


def test_without_the_store_the_last_known_settings_apply_until_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dynamic, "_READ_AGAIN_S", 0.001)

    async def scenario(configs: DynamicConfigs, store: Store) -> None:
        heard: list[str] = []
        configs.on_topic_changed = heard.append
        await store._store.commit([Create(paths.topic_config("u"), paths.encode_config({"segment.ms": "9"}))])
        store.is_away = True
        assert (await configs.read_topic("t")).segment_ms == 7
        await configs.read_topic("u")
        await configs.catch_up()
        store.is_away = False
        await until(lambda: configs.topic_overrides("u") == {"segment.ms": "9"} and "u" in heard)
        assert configs.log_config("u").segment_ms == 9

    configured(tmp_path, scenario, t={"segment.ms": "7"})
    assert "the settings of topic t cannot be read, and the last known apply: nobody there" in caplog.messages
    assert "the last known settings are shown: nobody there" in caplog.messages


def test_topics_whose_settings_do_nothing_are_named_together(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def nothing(configs: DynamicConfigs, store: Store) -> None:
        await asyncio.sleep(0)

    idle = {"message.downconversion.enable": "false"}
    configured(tmp_path, nothing, **{f"t{number:02}": idle for number in range(21)}, fine={"segment.ms": "7"})
    (said,) = [m for m in caplog.messages if "topics with settings without effect" in m]
    shown = ", ".join(f"t{number:02}" for number in range(20))
    assert said == f"topics with settings without effect in this version: {shown} …"


def test_a_setting_that_does_nothing_is_named_when_it_is_set_and_not_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(configs: DynamicConfigs, store: Store) -> None:
        for settings in (
            {"segment.ms": "7"},
            {"message.downconversion.enable": "false"},
            {"message.downconversion.enable": "false", "segment.ms": "7"},
            {"message.downconversion.enable": "false", "remote.log.copy.disable": "true"},
        ):
            await configs.change_topic("t", partial(_instead, settings), validate_only=False)
            await configs.catch_up()

    configured(tmp_path, scenario)
    said = [m.partition("version: ")[2] for m in caplog.messages if "topic t has settings without effect" in m]
    assert [text.count("(") for text in said] == [1, 2]
    assert all("message.downconversion.enable (" in text for text in said)
    assert "remote.log.copy.disable (" in said[1]


def test_a_forgotten_topic_has_no_settings(tmp_path: Path) -> None:
    async def scenario(configs: DynamicConfigs, store: Store) -> None:
        assert configs.topic_overrides("t") == configs.topic_overrides_in_force("t") == {"segment.ms": "7"}
        configs.forget_topic("t")
        configs.forget_topic("t")
        assert configs.topic_overrides("t") == configs.topic_overrides_in_force("t") == {}

    configured(tmp_path, scenario, t={"segment.ms": "7"})


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({}, {}, ""),
        ({"a": "1"}, {"a": "1"}, ""),
        ({"a": "1"}, {"a": "2"}, "a=2"),
        ({"b": "1", "a": "1"}, {}, "a is back at its default, b is back at its default"),
        ({"c": "1"}, {"b": "2", "a": "3"}, "a=3, b=2, c is back at its default"),
    ],
)
def test_a_difference_is_told_by_name(before: dict[str, str], after: dict[str, str], said: str) -> None:
    assert difference(before, after) == said


def test_secrets_are_not_told() -> None:
    after = {"ssl.key.password": "secret", "log.cleaner.threads": "2", "unheard.of": "x"}
    assert [is_public(name) for name in after] == [False, True, False]
    assert difference({}, after, is_public) == ("log.cleaner.threads=2, ssl.key.password=[hidden], unheard.of=[hidden]")


def test_settings_nobody_can_read_are_named_and_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(configs: DynamicConfigs, store: Store) -> None:
        for path in (paths.topic_config("bad"), paths.broker_config(None)):
            await store.commit([Create(path, b"nonsense")])
        await store.notify("topics/bad")
        await store.notify(f"brokers/{paths.DEFAULT_ENTITY}")
        await configs.catch_up()
        assert configs.topic_overrides("bad") == {} and configs.broker.cluster_wide == {}
        await configs.change_topic("bad", as_now, validate_only=False)
        assert configs.topic_overrides("bad") == {"segment.ms": "7"}, "a change mends it"

    configured(tmp_path, scenario)
    said = {line.partition(" are left out, for they cannot be used: ")[0] for line in caplog.messages}
    assert {"the settings in /config/topics/bad", "the settings in /config/brokers/<default>"} <= said


def test_a_notification_that_cannot_be_followed_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(configs: DynamicConfigs, store: Store) -> None:
        configs.on_topic_changed = lambda topic: None
        store.is_away = True
        await store._store.commit(
            [CreateSequential(f"{paths.CONFIG_CHANGES}/config_change_", paths.encode_config_change("topics/t"))]
        )
        await until(lambda: "changed settings cannot be read: nobody there" in caplog.messages)
        assert configs._following == set()

    configured(tmp_path, scenario)


@pytest.mark.parametrize(("missing", "commits"), [(paths.CONFIG_GROUPS, 2), ("/elsewhere", ATTEMPTS)])
def test_only_the_place_of_groups_is_made_when_it_is_missing(tmp_path: Path, missing: str, commits: int) -> None:
    async def scenario(configs: DynamicConfigs, store: Store) -> None:
        store.missing = missing
        change = configs.change_group("g", lambda before: {"consumer.session.timeout.ms": "50000"}, validate_only=False)
        if missing == paths.CONFIG_GROUPS:
            await change
            assert configs.group_overrides("g") == {"consumer.session.timeout.ms": "50000"}
        else:
            with pytest.raises(KafkaError, match="were changed 5 times meanwhile"):
                await change
        assert store.commits == commits

    configured(tmp_path, scenario)


def test_a_notification_is_kept_for_a_quarter_of_an_hour(tmp_path: Path) -> None:
    async def scenario(configs: DynamicConfigs, store: Store) -> None:
        first, second = await _two_notifications(configs, store)
        await configs._forget_old_notifications(configs._noticed_s[first] + 900)
        assert len(await store.notifications()) == 2
        configs._noticed_s[second] = configs._noticed_s[first] + 1
        await store._store.commit([CreateSequential(f"{paths.CONFIG_CHANGES}/config_change_", b"{}")])
        await configs._forget_old_notifications(configs._noticed_s[first] + 901)
        assert f"{paths.CONFIG_CHANGES}/{(await store.notifications())[0]}" == second
        assert first not in configs._noticed_s and second in configs._noticed_s

    configured(tmp_path, scenario)


async def _two_notifications(configs: DynamicConfigs, store: Store) -> list[str]:
    await store.notify("topics/t")
    await configs.catch_up()
    return [f"{paths.CONFIG_CHANGES}/{name}" for name in await store.notifications()]
