"""Creating, growing and deleting topics: asks the controller, and waits until the change can be used."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

from ottla.base.ids import Ids
from ottla.base.types import NIL_UUID
from ottla.broker.config.topics import settings_without_effect
from ottla.broker.controller.controller import Controller
from ottla.machines.cluster.topic_names import INTERNAL_TOPICS
from ottla.machines.cluster.topics import (
    CreatedTopic,
    DeletionWanted,
    NewTopic,
    PartitionsWanted,
    TopicWanted,
    check_name_is_free,
)

log = logging.getLogger(__name__)

_SPREAD = 2**31


class TopicAdmin:
    def __init__(
        self,
        controller: Controller,
        *,
        validate_configs: Callable[[Mapping[str, str]], None],
        ids: Ids,
        ask_controller: Callable[[NewTopic], Awaitable[None]],
    ) -> None:
        """`ask_controller` has another broker create a topic."""
        self._controller = controller
        self._ask_controller = ask_controller
        self._validate_configs = validate_configs
        self._ids = ids

    async def create_here_or_there(self, new: NewTopic) -> None:
        """For topics that a broker needs by itself: the controller creates it, whoever that is."""
        if self._controller.is_active:
            await self.create(new)
        else:
            await self._ask_controller(new)

    async def create(self, new: NewTopic, *, validate_only: bool = False) -> CreatedTopic:
        """Returns when the topic's leaders lead and this broker knows them."""
        controller = self._controller
        controller.require_active()
        check_name_is_free(controller.state, new.name)
        self._validate_configs(new.configs)
        topic_id = NIL_UUID if validate_only else self._ids.uuid()
        start, shift = self._ids.below(_SPREAD), self._ids.below(_SPREAD)
        created: CreatedTopic = await controller.submit(TopicWanted(new, topic_id, start, shift, validate_only))
        if not validate_only:
            _log_created(new, created)
            await self._until_usable(new.name)
        return created

    async def add_partitions(
        self, name: str, count: int, assignment: list[list[int]] | None, *, validate_only: bool = False
    ) -> None:
        """Grows the topic to `count` partitions; `assignment` holds the new ones' replicas if the caller chose them."""
        before = await self._controller.submit(PartitionsWanted(name, count, assignment, validate_only))
        if not validate_only:
            log.info("topic %s grew from %d to %d partitions", name, before, count)
            await self._until_usable(name)

    async def delete(self, name: str) -> None:
        """Returns when the topic is gone; if a broker that has a replica is not alive, when it is going to go."""
        if await self._controller.submit(DeletionWanted(name)):
            await self._controller.deleted(name)

    async def _until_usable(self, name: str) -> None:
        topic = self._controller.state.topics.get(name)
        leaders = () if topic is None else {partition.leader for partition in topic.partitions.values()}
        await self._controller.delivered({self._controller.broker_id, *leaders})


def _log_created(new: NewTopic, created: CreatedTopic) -> None:
    settings = "".join(f", {name}={value}" for name, value in sorted(new.configs.items()))
    log.info(
        "topic %s was created: %d partitions, replication factor %d%s",
        new.name,
        created.partitions,
        created.replication_factor,
        settings,
    )
    wanted = new.configs.get("min.insync.replicas")
    if wanted is not None and int(wanted) > created.replication_factor:
        log.warning(
            "topic %s has min.insync.replicas=%s, but only %d replicas: acks=all waits for that many",
            new.name,
            wanted,
            created.replication_factor,
        )
    idle = settings_without_effect(new.configs)
    # Nobody has chosen the settings of internal topics.
    if idle is not None and new.name not in INTERNAL_TOPICS:
        log.warning("topic %s has settings without effect in this version: %s", new.name, idle)
