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
from ottla.broker.config.topics import (
    settings_without_effect,
    topic_config,
    usable_overrides,
    validate_topic_overrides,
)
from ottla.log.config import LogConfig
from ottla.machines.cluster.topic_names import INTERNAL_TOPICS
from ottla.machines.groups.config import ConsumerTimeouts
from ottla.metadata import paths
from ottla.metadata.store import (
    BadVersionError,
    Create,
    CreateSequential,
    Delete,
    MetadataStore,
    Node,
    NodeExistsError,
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


ATTEMPTS = 5
"""How often a change is made anew because another broker has changed the same settings meanwhile."""

Change = Callable[[Mapping[str, str]], Mapping[str, str]]
"""What settings are to be, by what they are."""
Layers = Mapping[int | None, Mapping[str, str]]
"""Settings of all brokers (None) and of this one."""


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
        """As they are stored."""
        self._in_force: dict[str, dict[str, str]] = {}
        """The part of them that can be used."""
        self._named_problems: set[str] = set()
        """What is wrong with stored settings of brokers, and was said."""
        self._groups: dict[str, dict[str, str]] = {}
        self.consumer_timeouts: dict[str, ConsumerTimeouts] = {}
        """Of the groups with settings of their own, as they are now."""
        self._noticed_s: dict[str, float] = {}
        """When each notification that is still there was first seen."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._following: set[asyncio.Task[None]] = set()
        """Those that read what others have changed."""

    async def start(self) -> None:
        """Loads everything and follows every later change. Notifications of the past have nothing left to say."""
        self._store.watch(paths.CONFIG_CHANGES, self._notified)
        for name in await self._store.children(paths.CONFIG_CHANGES):
            self._noticed_s[f"{paths.CONFIG_CHANGES}/{name}"] = asyncio.get_running_loop().time()
        await self._read_broker()
        for path, node in (await self._store.tree(paths.CONFIG_TOPICS)).items():
            if path != paths.CONFIG_TOPICS:
                self._put_topic(unquote(path.rsplit("/", 1)[1]), _settings(path, node))
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
        return settings_without_effect(self._in_force[topic]) is not None

    def topic_overrides(self, topic: str) -> dict[str, str]:
        """As they are stored, whether they can be used or not."""
        return dict(self._topics.get(topic, {}))

    def topic_overrides_in_force(self, topic: str) -> dict[str, str]:
        return dict(self._in_force.get(topic, {}))

    def log_config(self, topic: str) -> LogConfig:
        return topic_config(self._in_force.get(topic, {}), self.broker)

    def _put_topic(self, topic: str, stored: dict[str, str]) -> None:
        is_new = self._topics.get(topic) != stored
        self._topics[topic] = stored
        self._in_force[topic], problems = usable_overrides(stored, self.broker)
        if problems and is_new:
            log.error("settings of topic %s are left out, for they cannot be used: %s", topic, "; ".join(problems))

    async def read_topic(self, topic: str) -> LogConfig:
        """Reads a topic's settings from the store: they may have been written by another broker just now.

        If the store is out of reach, they are read as soon as it is not: a broker can take a role without them.
        """
        await self._reread_topic(topic)
        return self.log_config(topic)

    async def _reread_topic(self, topic: str) -> dict[str, str]:
        """Returns what was replaced. What was known before the store was asked may have been replaced meanwhile."""
        path = paths.topic_config(topic)
        try:
            stored = _settings(path, await self._store.get(path))
        except StoreUnreachableError as e:
            log.warning("the settings of topic %s cannot be read, and the last known apply: %s", topic, e.message)
            self._spawn(self._read_topic_later(topic))
            return self.topic_overrides(topic)
        before = self.topic_overrides(topic)
        self._put_topic(topic, stored)
        return before

    async def _read_topic_later(self, topic: str) -> None:
        await asyncio.sleep(_READ_AGAIN_S)
        await self.read_topic(topic)
        self.on_topic_changed(topic)

    def forget_topic(self, topic: str) -> None:
        self._topics.pop(topic, None)
        self._in_force.pop(topic, None)

    def validate_topic(self, overrides: Mapping[str, str]) -> None:
        validate_topic_overrides(overrides, self.broker)

    def describe_topic(self, overrides: Mapping[str, str], names: Iterable[str] | None = None) -> list[ConfigEntry]:
        return describe_topic_config(overrides, self.broker, names)

    def describe_broker(self, names: Iterable[str] | None = None) -> list[ConfigEntry]:
        return describe_broker_config(self.broker, names)

    def describe_cluster_defaults(self, names: Iterable[str] | None = None) -> list[ConfigEntry]:
        return describe_cluster_defaults(self.broker, names)

    async def change_topic(self, topic: str, change: Change, *, validate_only: bool) -> None:
        await self._change(
            paths.topic_config(topic),
            f"topics/{quote(topic, safe='')}",
            change,
            usable=lambda stored: usable_overrides(stored, self.broker)[0],
            check=self.validate_topic,
            validate_only=validate_only,
        )

    def group_overrides(self, group: str) -> dict[str, str]:
        return dict(self._groups.get(group, {}))

    def describe_group(self, group: str, names: Iterable[str] | None = None) -> list[ConfigEntry]:
        return describe_group_config(self._groups.get(group, {}), self.broker, names)

    async def change_group(self, group: str, change: Change, *, validate_only: bool) -> None:
        """The group need not exist yet. It follows from the next heartbeat of each member on."""
        await self._change(
            paths.group_config(group),
            f"groups/{quote(group, safe='')}",
            change,
            usable=lambda stored: stored,
            check=lambda overrides: validate_group_overrides(overrides, self.broker),
            validate_only=validate_only,
        )

    async def _read_group(self, group: str) -> None:
        path = paths.group_config(group)
        after = _settings(path, await self._store.get(path))
        before = self.group_overrides(group)
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

    async def change_broker(self, broker_id: int | None, change: Change, *, validate_only: bool) -> None:
        """Changes the settings of this broker, or with None those of all brokers."""
        if broker_id not in (None, self._broker_id):
            raise KafkaError(
                f"broker {self._broker_id} cannot change settings of broker {broker_id}; ask that broker",
                code=ErrorCode.INVALID_REQUEST,
            )
        name = paths.DEFAULT_ENTITY if broker_id is None else str(broker_id)
        await self._change(
            paths.broker_config(broker_id),
            f"brokers/{name}",
            change,
            usable=lambda stored: self._usable_of({**self._dynamic_now(), broker_id: stored})[0][broker_id],
            check=lambda overrides: self._check_broker({**self._dynamic_now(), broker_id: overrides}),
            validate_only=validate_only,
        )

    def _dynamic_now(self) -> Layers:
        return {None: self.broker.cluster_wide, self._broker_id: self.broker.per_broker}

    def _check_broker(self, layers: Layers) -> None:
        self._with_dynamic(layers)

    def _with_dynamic(self, layers: Layers) -> BrokerConfig:
        return self._static.with_dynamic(cluster_wide=layers[None], per_broker=layers[self._broker_id])

    async def _change(
        self,
        path: str,
        entity_path: str,
        change: Change,
        *,
        usable: Callable[[Mapping[str, str]], Mapping[str, str]],
        check: Callable[[Mapping[str, str]], None],
        validate_only: bool,
    ) -> None:
        """Changes what is stored, not what this broker has heard of last: another one may have changed it just now."""
        for _ in range(ATTEMPTS):
            node = await self._store.get(path)
            stored = _settings(path, node)
            after = dict(change(stored))
            # What this broker cannot use may be of use to others, and stays until somebody takes it away.
            kept = stored.items() - usable(stored).items()
            check({name: value for name, value in after.items() if (name, value) not in kept})
            if validate_only:
                return
            data = paths.encode_config(after)
            write: Operation = Create(path, data) if node is None else Set(path, data, node.version)
            try:
                await self._write(write, entity_path)
            except (BadVersionError, NodeExistsError, NoNodeError):
                continue
            await self._apply(entity_path)
            return
        raise KafkaError(
            f"the settings in {path} were changed {ATTEMPTS} times meanwhile", code=ErrorCode.UNKNOWN_SERVER_ERROR
        )

    async def _write(self, write: Operation, entity_path: str) -> None:
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

    async def catch_up(self) -> None:
        """Returns when all that was changed before is in force here, whichever broker was asked for it. If the store is
        out of reach, the last known has to do."""
        try:
            # Whoever reads hears first of all that has changed before.
            await self._store.children(paths.CONFIG_CHANGES)
        except StoreFailedError as e:
            log.warning("the last known settings are shown: %s", e.message)
            return
        while self._following:
            await asyncio.wait(self._following)

    def _notified(self, path: str) -> None:
        if path != paths.CONFIG_CHANGES:
            task = self._spawn(self._follow(path))
            self._following.add(task)
            task.add_done_callback(self._following.discard)

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

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
            before = await self._reread_topic(topic)
            self._log_topic_change(topic, before)
            self.on_topic_changed(topic)
        elif kind == "groups":
            await self._read_group(unquote(name))
        elif kind == "brokers":
            self._log_broker_change(await self._read_broker())
            self.on_broker_changed()

    def _log_topic_change(self, topic: str, before: Mapping[str, str]) -> None:
        after = self.topic_overrides(topic)
        if after == before:
            return  # the broker that made a change is notified of it, too
        log.info("topic %s was reconfigured: %s", topic, difference(before, after))
        idle = settings_without_effect(self._in_force[topic])
        if idle is not None and settings_without_effect(usable_overrides(before, self.broker)[0]) != idle:
            log.warning("topic %s has settings without effect in this version: %s", topic, idle)

    def _log_broker_change(self, before: BrokerConfig) -> None:
        for whose, old, new in (
            ("all brokers", before.cluster_wide, self.broker.cluster_wide),
            (f"broker {self._broker_id}", before.per_broker, self.broker.per_broker),
        ):
            if old != new:
                log.info("settings of %s were changed: %s", whose, difference(old, new, is_public))

    async def _read_broker(self) -> BrokerConfig:
        """Returns the configuration that was replaced."""
        found: dict[int | None, Mapping[str, str]] = {}
        for broker_id in (None, self._broker_id):
            path = paths.broker_config(broker_id)
            found[broker_id] = _settings(path, await self._store.get(path))
        usable, problems = self._usable_of(found)
        replaced, self.broker = self.broker, self._with_dynamic(usable)
        for problem in sorted(problems - self._named_problems):
            log.error("%s", problem)
        self._named_problems = problems
        return replaced

    def _usable_of(self, stored: Layers) -> tuple[Layers, set[str]]:
        """Others may have written into ZooKeeper, too: what cannot be used does not void a throttle beside it."""
        try:
            self._with_dynamic(stored)
            return stored, set()
        except InvalidConfigError:
            pass  # Which of them it is shows when they are taken one after the other.
        usable: Layers = {broker_id: {} for broker_id in stored}
        problems: set[str] = set()
        for broker_id, name in ((broker_id, name) for broker_id, settings in stored.items() for name in settings):
            trial = {**usable, broker_id: {**usable[broker_id], name: stored[broker_id][name]}}
            try:
                self._with_dynamic(trial)
            except InvalidConfigError as e:
                whose = "all brokers" if broker_id is None else f"broker {broker_id}"
                problems.add(f"a stored setting of {whose} is left out, for it cannot be used: {e.message}")
            else:
                usable = trial
        return usable, problems


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
