"""The group coordinator: the machines of all groups this broker coordinates, and what they need of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from ottla.base.clock import Clock
from ottla.base.errors import ErrorCode
from ottla.base.types import Uuid
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.coordinators.runtime import CoordinatorRuntime, Shard
from ottla.broker.parked import Parked
from ottla.broker.replicas import Replicas
from ottla.broker.tasks import Tasks
from ottla.machines.cluster.image import ClusterImage
from ottla.machines.cluster.topic_names import GROUP_METADATA_TOPIC
from ottla.machines.groups import record_types
from ottla.machines.groups.config import ConsumerTimeouts, GroupConfig, MigrationPolicy
from ottla.machines.groups.shard import GroupShard
from ottla.records.compression import Codec

log = logging.getLogger(__name__)

GroupRuntime = CoordinatorRuntime[GroupShard]


class ImageTopics:
    """The cluster's topics as group machines see them."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image

    def partition_count(self, name: str) -> int | None:
        topic = self._image.topics.get(name)
        return len(topic.partitions) if topic is not None else None

    def topic_id(self, name: str) -> Uuid | None:
        topic = self._image.topics.get(name)
        return topic.topic_id if topic is not None else None

    def name_of(self, topic_id: Uuid) -> str | None:
        return self._image.topic_name(topic_id)

    def names(self) -> list[str]:
        return list(self._image.topics)


class GroupCoordinator:
    def __init__(
        self,
        config: BrokerConfig,
        own_timeouts: Mapping[str, ConsumerTimeouts],
        image: ClusterImage,
        replicas: Replicas,
        parked: Parked,
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        self._broker_config = config
        self._clock = clock
        self._tasks = tasks
        self._config = group_config(config, own_timeouts)
        self.serves_consumer_protocol = "consumer" in config.items_of("group.coordinator.rebalance.protocols")
        """Whether there are groups of KIP-848."""
        self._topics = ImageTopics(image)
        self.runtime: GroupRuntime = CoordinatorRuntime(
            GROUP_METADATA_TOPIC,
            replicas,
            parked,
            clock,
            make_machine=lambda epoch: GroupShard(self._config, self._topics),
            parse=record_types.parse,
            end_transaction=GroupShard.end_transaction,
            perform=_no_other_effects,
            client_code=lambda code: _APPEND_ERRORS.get(code, ErrorCode.UNKNOWN_SERVER_ERROR),
            partition_count=self._partition_count,
            commit_timeout_ms=config.integer("offsets.commit.timeout.ms"),
            notes=log,
            load_buffer_bytes=config.integer("offsets.load.buffer.size"),
            codec=Codec(config.integer("offsets.topic.compression.codec")),
            waits_for_replicas=config.integer("offsets.commit.required.acks") == -1,
        )
        replicas.watch_topic(GROUP_METADATA_TOPIC, self.runtime)

    def _partition_count(self) -> int:
        existing = self._topics.partition_count(GROUP_METADATA_TOPIC)
        return existing or self._broker_config.integer("offsets.topic.num.partitions")

    def start(self) -> None:
        self._tasks.spawn(self._expire_now_and_then())

    async def _expire_now_and_then(self) -> None:
        interval_ms = self._broker_config.integer("offsets.retention.check.interval.ms")
        while True:
            await asyncio.sleep(interval_ms / 1000)
            for shard in self.runtime.active_shards():
                self.runtime.run(shard, shard.machine.expire_offsets(self._clock.wall_ms()))

    def cluster_changed(self, deleted_topics: set[str]) -> None:
        """Groups forget deleted topics; those this broker assigns learn of new topics and partitions, too."""
        now_ms = self._clock.wall_ms()
        for shard in self.runtime.active_shards():
            if deleted_topics:
                self.runtime.run(shard, shard.machine.topic_deleted(deleted_topics, now_ms))
            self.runtime.run(shard, shard.machine.topics_changed(now_ms))

    async def stop(self) -> None:
        await self.runtime.stop()


_APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_PRODUCER_EPOCH: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE: ErrorCode.INVALID_TXN_STATE,
}
"""What a member is told when the coordinator cannot write to its own log: never a word of a log it does not know."""


def _no_other_effects(shard: Shard[GroupShard], effect: Any) -> None:
    raise TypeError(f"a group cannot ask for {effect!r}")


def group_config(config: BrokerConfig, own_timeouts: Mapping[str, ConsumerTimeouts]) -> GroupConfig:
    return GroupConfig(
        min_session_timeout_ms=config.integer("group.min.session.timeout.ms"),
        max_session_timeout_ms=config.integer("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=config.integer("group.initial.rebalance.delay.ms"),
        max_size=config.integer("group.max.size"),
        offset_metadata_max_bytes=config.integer("offset.metadata.max.bytes"),
        offsets_retention_ms=config.integer("offsets.retention.minutes") * 60_000,
        consumer_session_timeout_ms=config.integer("group.consumer.session.timeout.ms"),
        consumer_heartbeat_interval_ms=config.integer("group.consumer.heartbeat.interval.ms"),
        consumer_max_size=config.integer("group.consumer.max.size"),
        own_consumer_timeouts=own_timeouts,
        migration_policy=MigrationPolicy(config.text("group.consumer.migration.policy").lower()),
        consumer_assignors=tuple(_assignor_name(name) for name in config.items_of("group.consumer.assignors")),
    )


def _assignor_name(name: str) -> str:
    """Kafka's default names its own classes; the part that counts is which assignor they are."""
    return name.rsplit(".", 1)[-1].removesuffix("Assignor").lower()
