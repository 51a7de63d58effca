"""Settings that change while the broker runs: of topics, of this broker, of all brokers.

They live in the metadata store under Kafka's paths. Every change leaves a notification there, so that each broker of
the cluster reads the changed settings again; the broker that made the change applies it before it replies.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import quote, unquote

from ottla.base.errors import ErrorCode, InvalidConfigError, KafkaError
from ottla.broker.config import BrokerConfig
from ottla.broker.config_describe import (
    ConfigEntry,
    describe_broker_config,
    describe_cluster_defaults,
    describe_topic_config,
)
from ottla.broker.config_topics import topic_config, validate_topic_overrides
from ottla.log.config import LogConfig
from ottla.metadata import paths
from ottla.metadata.store import Create, CreateSequential, Delete, MetadataStore, Operation, Set

log = logging.getLogger(__name__)


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
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Loads everything and follows every later change. Notifications of the past have nothing left to say."""
        self._store.watch(paths.CONFIG_CHANGES, self._notified)
        stale = [Delete(f"{paths.CONFIG_CHANGES}/{name}") for name in await self._store.children(paths.CONFIG_CHANGES)]
        if stale:
            await self._store.commit(stale)
        for path, node in (await self._store.tree(paths.CONFIG_TOPICS)).items():
            if path != paths.CONFIG_TOPICS:
                self._topics[unquote(path.rsplit("/", 1)[1])] = paths.decode_config(node.data)
        await self._read_broker()

    def topic_overrides(self, topic: str) -> dict[str, str]:
        return dict(self._topics.get(topic, {}))

    def log_config(self, topic: str) -> LogConfig:
        return topic_config(self._topics.get(topic, {}), self.broker)

    async def read_topic(self, topic: str) -> LogConfig:
        """Reads a topic's settings from the store: they may have been written by another broker just now."""
        node = await self._store.get(paths.topic_config(topic))
        self._topics[topic] = paths.decode_config(node.data) if node is not None else {}
        return self.log_config(topic)

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
        await self._store.commit([write, notification])
        await self._apply(entity_path)

    def _notified(self, path: str) -> None:
        if path != paths.CONFIG_CHANGES:
            task = asyncio.get_running_loop().create_task(self._follow(path))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _follow(self, path: str) -> None:
        node = await self._store.get(path)
        if node is not None:
            await self._apply(json.loads(node.data)["entity_path"])

    async def _apply(self, entity_path: str) -> None:
        kind, _, name = entity_path.partition("/")
        if kind == "topics":
            topic = unquote(name)
            await self.read_topic(topic)
            self.on_topic_changed(topic)
        elif kind == "brokers":
            await self._read_broker()
            self.on_broker_changed()

    async def _read_broker(self) -> None:
        found: dict[int | None, dict[str, str]] = {}
        for broker_id in (None, self._broker_id):
            node = await self._store.get(paths.broker_config(broker_id))
            found[broker_id] = paths.decode_config(node.data) if node is not None else {}
        try:
            self.broker = self._static.with_dynamic(cluster_wide=found[None], per_broker=found[self._broker_id])
        except InvalidConfigError as e:
            log.error("the stored settings of broker %d cannot be used: %s", self._broker_id, e.message)
