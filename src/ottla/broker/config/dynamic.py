"""Settings that change while the broker runs: of topics, of groups, of this broker, of all brokers.

They live in the metadata store under Kafka's paths (those of groups beside them: Kafka keeps none in ZooKeeper). Every
change leaves a notification there, so that each broker of the cluster reads the changed settings again; the broker that
made the change applies it before it replies.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from urllib.parse import quote, unquote

from ottla.base.errors import ErrorCode, InvalidConfigError, KafkaError
from ottla.broker.config.broker_config import BROKER_OPTIONS, BrokerConfig
from ottla.broker.config.describe import (
    ConfigEntry,
    describe_broker_config,
    describe_cluster_defaults,
    describe_group_config,
    describe_topic_config,
)
from ottla.broker.config.groups import consumer_timeouts, validate_group_overrides
from ottla.broker.config.topics import settings_without_effect, topic_config, validate_topic_overrides
from ottla.log.config import LogConfig
from ottla.machines.cluster.topic_names import INTERNAL_TOPICS
from ottla.machines.groups.config import ConsumerTimeouts
from ottla.metadata import paths
from ottla.metadata.store import (
    Create,
    CreateSequential,
    Delete,
    MetadataStore,
    Node,
    NoNodeError,
    Operation,
    Set,
    StoreError,
    StoreFailedError,
    StoreUnreachableError,
)

log = logging.getLogger(__name__)

_TOPICS_SHOWN = 20
_READ_AGAIN_S = 1.0
_NOTIFICATION_LASTS_S = 900
"""As with Kafka: long enough for a broker that is slow, or cut off for a while."""


class DynamicConfigs:
    def __init__(self, store: MetadataStore, broker_id: int, static: BrokerConfig) -> None:
        self.broker = static
        """The configuration in force."""
        self.on_topic_changed: Callable[[str], None] = lambda topic: None
        self.on_broker_changed: Callable[[], None] = lambda: None
        self._store = store
        self._broker_id = broker_id
        self._static = static
        self._topics: dict[str, dict[str, str]] = {}
        self._groups: dict[str, dict[str, str]] = {}
        self.consumer_timeouts: dict[str, ConsumerTimeouts] = {}
        """Of the groups with settings of their own, as they are now."""
        self._noticed_s: dict[str, float] = {}
        """When each notification that is still there was first seen."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Loads everything and follows every later change. Notifications of the past have nothing left to say."""
        self._store.watch(paths.CONFIG_CHANGES, self._notified)
        for name in await self._store.children(paths.CONFIG_CHANGES):
            self._noticed_s[f"{paths.CONFIG_CHANGES}/{name}"] = asyncio.get_running_loop().time()
        for path, node in (await self._store.tree(paths.CONFIG_TOPICS)).items():
            if path != paths.CONFIG_TOPICS:
                self._topics[unquote(path.rsplit("/", 1)[1])] = _settings(path, node)
        await self._read_broker()
        for path, node in (await self._store.tree(paths.CONFIG_GROUPS)).items():
            if path != paths.CONFIG_GROUPS:
                self._put_group(unquote(path.rsplit("/", 1)[1]), _settings(path, node))
        self._log_idle_settings()

    def _log_idle_settings(self) -> None:
        """Once at the start, for all topics together: what was said when they were made may have been overlooked."""
        topics = sorted(topic for topic in self._topics.keys() - INTERNAL_TOPICS if self._is_idle(topic))
        if topics:
            shown = ", ".join(topics[:_TOPICS_SHOWN]) + (" …" if len(topics) > _TOPICS_SHOWN else "")
            log.warning("topics with settings without effect in this version: %s", shown)

    def _is_idle(self, topic: str) -> bool:
        return settings_without_effect(self._topics[topic]) is not None

    def topic_overrides(self, topic: str) -> dict[str, str]:
        return dict(self._topics.get(topic, {}))

    def log_config(self, topic: str) -> LogConfig:
        return topic_config(self._topics.get(topic, {}), self.broker)

    async def read_topic(self, topic: str) -> LogConfig:
        """Reads a topic's settings from the store: they may have been written by another broker just now.

        If the store is out of reach, they are read as soon as it is not: a broker can take a role without them.
        """
        path = paths.topic_config(topic)
        try:
            self._topics[topic] = _settings(path, await self._store.get(path))
        except StoreUnreachableError as e:
            log.warning("the settings of topic %s cannot be read, and the last known apply: %s", topic, e.message)
            self._spawn(self._read_topic_later(topic))
        return self.log_config(topic)

    async def _read_topic_later(self, topic: str) -> None:
        await asyncio.sleep(_READ_AGAIN_S)
        await self.read_topic(topic)
        self.on_topic_changed(topic)

    def forget_topic(self, topic: str) -> None:
        self._topics.pop(topic, None)

    def validate_topic(self, overrides: Mapping[str, str]) -> None:
        validate_topic_overrides(overrides, self.broker)

    def describe_topic(self, overrides: Mapping[str, str], names: Iterable[str] | None = None) -> list[ConfigEntry]:
        return describe_topic_config(overrides, self.broker, names)

    def describe_broker(self, names: Iterable[str] | None = None) -> list[ConfigEntry]:
        return describe_broker_config(self.broker, names)

    def describe_cluster_defaults(self, names: Iterable[str] | None = None) -> list[ConfigEntry]:
        return describe_cluster_defaults(self.broker, names)

    def broker_overrides(self, broker_id: int | None) -> dict[str, str]:
        return dict(self.broker.cluster_wide if broker_id is None else self.broker.per_broker)

    async def set_topic(self, topic: str, overrides: Mapping[str, str], *, validate_only: bool) -> None:
        self.validate_topic(overrides)
        if not validate_only:
            await self._write(paths.topic_config(topic), f"topics/{quote(topic, safe='')}", overrides)

    def group_overrides(self, group: str) -> dict[str, str]:
        return dict(self._groups.get(group, {}))

    def describe_group(self, group: str, names: Iterable[str] | None = None) -> list[ConfigEntry]:
        return describe_group_config(self._groups.get(group, {}), self.broker, names)

    async def set_group(self, group: str, overrides: Mapping[str, str], *, validate_only: bool) -> None:
        """The group need not exist yet. It follows from the next heartbeat of each member on."""
        validate_group_overrides(overrides, self.broker)
        if not validate_only:
            await self._write(paths.group_config(group), f"groups/{quote(group, safe='')}", overrides)

    async def _read_group(self, group: str) -> None:
        before = self.group_overrides(group)
        path = paths.group_config(group)
        after = _settings(path, await self._store.get(path))
        self._put_group(group, after)
        if after != before:
            log.info("group %r was reconfigured: %s", group, difference(before, after))

    def _put_group(self, group: str, overrides: dict[str, str]) -> None:
        self._groups.pop(group, None)
        self.consumer_timeouts.pop(group, None)
        try:
            if overrides:
                self.consumer_timeouts[group] = consumer_timeouts(overrides, self.broker)
                self._groups[group] = overrides
        except InvalidConfigError as e:
            log.error("the stored settings of group %r cannot be used: %s", group, e.message)

    async def set_broker(self, broker_id: int | None, overrides: Mapping[str, str], *, validate_only: bool) -> None:
        """Changes the settings of this broker, or with None those of all brokers."""
        if broker_id not in (None, self._broker_id):
            raise KafkaError(
                f"broker {self._broker_id} cannot change settings of broker {broker_id}; ask that broker",
                code=ErrorCode.INVALID_REQUEST,
            )
        self._with_dynamic({broker_id: overrides})
        if not validate_only:
            name = paths.DEFAULT_ENTITY if broker_id is None else str(broker_id)
            await self._write(paths.broker_config(broker_id), f"brokers/{name}", overrides)

    def _with_dynamic(self, changed: Mapping[int | None, Mapping[str, str]]) -> BrokerConfig:
        current = {None: self.broker.cluster_wide, self._broker_id: self.broker.per_broker, **changed}
        return self._static.with_dynamic(cluster_wide=current[None], per_broker=current[self._broker_id])

    async def _write(self, path: str, entity_path: str, overrides: Mapping[str, str]) -> None:
        data = paths.encode_config(dict(overrides))
        exists = await self._store.get(path) is not None
        write: Operation = Set(path, data) if exists else Create(path, data)
        notification = CreateSequential(
            f"{paths.CONFIG_CHANGES}/config_change_", paths.encode_config_change(entity_path)
        )
        try:
            await self._store.commit([write, notification])
        except NoNodeError as missing:
            if missing.path != paths.CONFIG_GROUPS:
                raise
            # A cluster has it from the first settings of a group on: Kafka's have none.
            await self._store.commit([Create(paths.CONFIG_GROUPS), write, notification])
        await self._apply(entity_path)

    def _notified(self, path: str) -> None:
        if path != paths.CONFIG_CHANGES:
            self._spawn(self._follow(path))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow(self, path: str) -> None:
        try:
            node = await self._store.get(path)
            if node is None:
                self._noticed_s.pop(path, None)
            elif path not in self._noticed_s:
                self._noticed_s[path] = asyncio.get_running_loop().time()
                await self._apply(paths.decode_config_change(node.data))
                await self._forget_old_notifications(self._noticed_s[path])
        except paths.MalformedNodeError as e:
            log.error("the notification %s cannot be understood: %s", path, e)
        except StoreFailedError as e:
            log.error("changed settings cannot be read: %s", e.message)

    async def _forget_old_notifications(self, now_s: float) -> None:
        """Not at once: other brokers may have to read them yet."""
        for path in [path for path, at_s in self._noticed_s.items() if now_s - at_s > _NOTIFICATION_LASTS_S]:
            del self._noticed_s[path]
            with suppress(StoreError):  # another broker was faster
                await self._store.commit([Delete(path)])

    async def _apply(self, entity_path: str) -> None:
        kind, _, name = entity_path.partition("/")
        if kind == "topics":
            topic = unquote(name)
            before = self.topic_overrides(topic)
            await self.read_topic(topic)
            self._log_topic_change(topic, before)
            self.on_topic_changed(topic)
        elif kind == "groups":
            await self._read_group(unquote(name))
        elif kind == "brokers":
            replaced = self.broker
            await self._read_broker()
            self._log_broker_change(replaced)
            self.on_broker_changed()

    def _log_topic_change(self, topic: str, before: Mapping[str, str]) -> None:
        after = self._topics[topic]
        if after == before:
            return  # the broker that made a change is notified of it, too
        log.info("topic %s was reconfigured: %s", topic, difference(before, after))
        idle = settings_without_effect(after)
        if idle is not None and settings_without_effect(before) != idle:
            log.warning("topic %s has settings without effect in this version: %s", topic, idle)

    def _log_broker_change(self, before: BrokerConfig) -> None:
        for whose, old, new in (
            ("all brokers", before.cluster_wide, self.broker.cluster_wide),
            (f"broker {self._broker_id}", before.per_broker, self.broker.per_broker),
        ):
            if old != new:
                log.info("settings of %s were changed: %s", whose, difference(old, new, is_public))

    async def _read_broker(self) -> None:
        found: dict[int | None, dict[str, str]] = {}
        for broker_id in (None, self._broker_id):
            path = paths.broker_config(broker_id)
            found[broker_id] = _settings(path, await self._store.get(path))
        try:
            self.broker = self._static.with_dynamic(cluster_wide=found[None], per_broker=found[self._broker_id])
        except InvalidConfigError as e:
            log.error("the stored settings of broker %d cannot be used: %s", self._broker_id, e.message)


def _settings(path: str, node: Node | None) -> dict[str, str]:
    """None if the node cannot be understood, which is said: the defaults are better than no broker."""
    try:
        return paths.decode_config(node.data) if node is not None else {}
    except paths.MalformedNodeError as e:
        log.error("the settings in %s are left out, for they cannot be used: %s", path, e)
        return {}


def is_public(name: str) -> bool:
    """Whether a broker setting may be shown with its value. What is accepted unseen may be a secret."""
    option = BROKER_OPTIONS.get(name)
    return option is not None and not option.sensitive


def difference(
    before: Mapping[str, str], after: Mapping[str, str], is_public: Callable[[str], bool] = lambda name: True
) -> str:
    """The settings that changed, as `name=value`, and those that went back to their default."""
    changed = [
        f"{name}={value if is_public(name) else '[hidden]'}"
        for name, value in sorted(after.items())
        if before.get(name) != value
    ]
    removed = [f"{name} is back at its default" for name in sorted(before.keys() - after.keys())]
    return ", ".join(changed + removed)
