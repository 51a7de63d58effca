"""What an admin client is asked with and answers with. Plain values, named as Kafka names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from ottla.base.types import NIL_UUID, TopicPartition, Uuid
from ottla.client.core.metadata import BrokerAddress
from ottla.client.core.topic_info import PartitionInfo
from ottla.client.errors import ClientError

BROKER_DEFAULT = -1
"""Asks the broker for its own number of partitions or replicas (KIP-464)."""

ConfigValue: TypeAlias = str | int | float | bool
"""Numbers and truth values are written as Kafka writes them."""

# Topics


class NewTopic(NamedTuple):
    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignments: Sequence[Sequence[int]] = ()
    """Replicas of each partition; if given, the two numbers above are not."""
    configs: Mapping[str, ConfigValue] = {}


class CreatedTopic(NamedTuple):
    name: str
    topic_id: Uuid = NIL_UUID
    partitions: int = -1
    """-1 if the broker is too old to say (as for the next)."""
    replication_factor: int = -1


class NewPartitions(NamedTuple):
    total: int
    """How many partitions the topic has afterwards."""
    assignments: Sequence[Sequence[int]] = ()
    """Replicas of each new partition; left out, the cluster chooses."""


class TopicListing(NamedTuple):
    name: str
    topic_id: Uuid
    is_internal: bool


class TopicDescription(NamedTuple):
    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]


# Cluster


class ClusterDescription(NamedTuple):
    cluster_id: str | None
    controller_id: int
    brokers: dict[int, BrokerAddress]


# Settings


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    type: ResourceType
    name: str
    """Of a broker its id, or nothing for the defaults of all brokers."""

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int | None = None) -> ConfigResource:
        return cls(ResourceType.BROKER, "" if node_id is None else str(node_id))

    @classmethod
    def group(cls, group_id: str) -> ConfigResource:
        return cls(ResourceType.GROUP, group_id)

    def __str__(self) -> str:
        return f"{self.type.name.lower()} {self.name or '(default)'}"


class ConfigSource(IntEnum):
    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    name: str
    value: str | None
    """None if it is not set, or secret."""
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None


class ConfigOperation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    name: str
    value: ConfigValue | None
    operation: ConfigOperation = ConfigOperation.SET


# Log directories


class TopicPartitionReplica(NamedTuple):
    topic: str
    partition: int
    node_id: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} on broker {self.node_id}"


class ReplicaInfo(NamedTuple):
    size_bytes: int
    offset_lag: int
    is_future: bool
    """Being copied here from another directory; it becomes the replica when it has caught up."""


class LogDirDescription(NamedTuple):
    path: str
    error: ClientError | None
    total_bytes: int | None
    usable_bytes: int | None
    replicas: dict[TopicPartition, ReplicaInfo]


# Replicas and leaders


class PartitionReassignment(NamedTuple):
    replicas: tuple[int, ...]
    """All there are while it is under way: those to come and those to go as well."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ElectionType(IntEnum):
    PREFERRED = 0
    """The first of a partition's replicas is to lead it, if it is in sync."""
    UNCLEAN = 1
    """Any replica is to lead a partition that has no leader; records that it does not have are lost."""


# Groups


class GroupListing(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    """Empty if the broker is too old to say (as for the next)."""
    type: str


class MemberDescription(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: frozenset[TopicPartition]
    target_assignment: frozenset[TopicPartition] | None = None
    """What the coordinator wants the member to have; only groups of the consumer protocol have this (KIP-848)."""
    member_epoch: int | None = None
    subscribed_topics: frozenset[str] = frozenset()


class GroupDescription(NamedTuple):
    group_id: str
    type: str
    """`consumer` (KIP-848) or `classic`."""
    state: str
    protocol_type: str
    assignor: str
    members: tuple[MemberDescription, ...]
    group_epoch: int | None = None
    assignment_epoch: int | None = None


# Offsets


class OffsetSpec(IntEnum):
    """Where in a partition; in its place a time in milliseconds stands for the first record that is not older."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


# Producers and transactions


class ProducerDescription(NamedTuple):
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int | None
    txn_start_offset: int | None
    """Where its open transaction begins in the partition."""


class TransactionListing(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: frozenset[TopicPartition]


class FencedProducer(NamedTuple):
    producer_id: int
    producer_epoch: int


class HangingTransaction(NamedTuple):
    """A transaction that is open in a partition and that no coordinator knows of; readers wait for it for ever."""

    partition: TopicPartition
    producer: ProducerDescription
