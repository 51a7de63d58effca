"""What `ottla reassign` knows of a cluster: where replicas are, how large they are, and what limits their copying."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from ottla.base.errors import KafkaError
from ottla.base.types import TopicPartition
from ottla.client.aio.admin.admin import Admin
from ottla.client.core.admin.types import ConfigChange, ConfigOperation, ConfigResource

LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
LEADER_REPLICAS, FOLLOWER_REPLICAS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
DIRECTORY_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"

Replicas = dict[TopicPartition, tuple[int, ...]]


class ClusterView(NamedTuple):
    racks: dict[int, str | None]
    """Of all live brokers."""
    replicas: Replicas
    leaders: dict[TopicPartition, int]


async def look(admin: Admin) -> ClusterView:
    brokers = (await admin.describe_cluster()).brokers
    topics = (await admin.describe_topics()).results.values()
    partitions = [(TopicPartition(topic.name, info.partition), info) for topic in topics for info in topic.partitions]
    return ClusterView(
        {broker_id: address.rack for broker_id, address in brokers.items()},
        {tp: tuple(info.replicas) for tp, info in partitions},
        {tp: info.leader_id for tp, info in partitions},
    )


async def sizes(admin: Admin) -> dict[tuple[int, TopicPartition], int]:
    """Bytes of every replica, by its broker. Brokers that do not answer are left out."""
    found = (await admin.describe_log_dirs()).results
    return {
        (broker_id, tp): info.size_bytes
        for broker_id, directories in found.items()
        for directory in directories.values()
        for tp, info in directory.replicas.items()
        if not info.is_future
    }


def bytes_to_copy(
    view: ClusterView, wanted: Mapping[TopicPartition, Iterable[int]], size_of: Mapping[tuple[int, TopicPartition], int]
) -> int:
    return sum(
        size_of.get((view.leaders.get(tp, -1), tp), 0) * len(set(replicas) - set(view.replicas.get(tp, ())))
        for tp, replicas in wanted.items()
    )


# Throttles


async def set_throttles(
    admin: Admin,
    moves: Mapping[TopicPartition, tuple[Collection[int], Collection[int]]],
    bytes_per_second: int,
) -> None:
    """`moves` has the replicas that send and those that receive. Limits the brokers and names the replicas."""
    brokers = sorted({broker_id for senders, receivers in moves.values() for broker_id in (*senders, *receivers)})
    limit = [ConfigChange(LEADER_RATE, bytes_per_second), ConfigChange(FOLLOWER_RATE, bytes_per_second)]
    changes = {ConfigResource.broker(broker_id): limit for broker_id in brokers}
    for topic in sorted({tp.topic for tp in moves}):
        of_topic = [(tp.partition, *sides) for tp, sides in sorted(moves.items()) if tp.topic == topic]
        changes[ConfigResource.topic(topic)] = [
            ConfigChange(LEADER_REPLICAS, _pairs((index, senders) for index, senders, _ in of_topic)),
            ConfigChange(FOLLOWER_REPLICAS, _pairs((index, receivers) for index, _, receivers in of_topic)),
        ]
    (await admin.incremental_alter_configs(changes)).check()


def _pairs(replicas: Iterable[tuple[int, Collection[int]]]) -> str:
    return ",".join(f"{index}:{broker_id}" for index, brokers in replicas for broker_id in sorted(brokers))


async def set_directory_throttle(admin: Admin, brokers: Iterable[int], bytes_per_second: int) -> None:
    changes = {
        ConfigResource.broker(broker_id): [ConfigChange(DIRECTORY_RATE, bytes_per_second)] for broker_id in brokers
    }
    (await admin.incremental_alter_configs(changes)).check()


async def clear_throttles(admin: Admin, brokers: Collection[int], topics: Iterable[str]) -> None:
    def unset(*names: str) -> list[ConfigChange]:
        return [ConfigChange(name, None, ConfigOperation.DELETE) for name in names]

    changes = {ConfigResource.broker(b): unset(LEADER_RATE, FOLLOWER_RATE, DIRECTORY_RATE) for b in sorted(brokers)}
    changes |= {ConfigResource.topic(topic): unset(LEADER_REPLICAS, FOLLOWER_REPLICAS) for topic in topics}
    outcomes = await admin.incremental_alter_configs(changes)
    if outcomes.errors:
        raise KafkaError("; ".join(error.message for error in outcomes.errors.values()))
