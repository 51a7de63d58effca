"""What a client knows of the cluster: brokers, topics and leaders, how old that is, and when to ask again.

It takes answers and hints and says what to ask for; asking is the shell's business.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition, Uuid
from ottla.client.core.settings import backoff_ms
from ottla.client.errors import SerializationError, client_error
from ottla.machines.cluster.topic_names import why_illegal
from ottla.wire.apis.metadata import MetadataResponse, MetadataResponseTopic

NO_LEADER = -1


class BrokerAddress(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None = None


class PartitionLeader(NamedTuple):
    leader_id: int
    leader_epoch: int


class TopicMetadata(NamedTuple):
    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: dict[int, PartitionLeader]
    available: tuple[int, ...]
    """The partitions that have a leader, in order."""
    error_code: int

    @property
    def partition_count(self) -> int:
        return len(self.partitions)


class MetadataCache:
    def __init__(
        self,
        *,
        max_age_ms: int = 300_000,
        max_idle_ms: int = 300_000,
        backoff_ms: int = 100,
        backoff_max_ms: int = 1000,
    ) -> None:
        self.brokers: dict[int, BrokerAddress] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.cluster_id: str | None = None
        self.controller_id = -1
        self._max_age_ms = max_age_ms
        self._max_idle_ms = max_idle_ms
        self._backoff_ms = backoff_ms
        self._backoff_max_ms = backoff_max_ms
        self._used_at_ms: dict[str, int] = {}
        self._updated_at_ms: int | None = None
        self._failures = 0
        self._not_before_ms = 0
        self._update_wanted = True

    # What to ask for, and when

    def use(self, topic: str, now_ms: int) -> TopicMetadata | None:
        """What is known of a topic, which from now on is asked about; None if nothing is known yet."""
        if topic not in self._used_at_ms:
            self._update_wanted = True
            self._not_before_ms = now_ms
        self._used_at_ms[topic] = now_ms
        found = self.topics.get(topic)
        return found if found is not None and not found.error_code else None

    def find(self, topic: str, now_ms: int, partition: int | None = None) -> TopicMetadata | None:
        """`use` for what a user has asked for: None also if the topic is not known to have the partition.

        A name that no topic can have is an error. In a request it might keep the others from being asked about.
        """
        if topic.__class__ is not str or topic not in self._used_at_ms:
            _check_name(topic)
        found = self.use(topic, now_ms)
        if partition is not None and found is not None and partition not in found.partitions:
            self._update_wanted = True
            return None
        return found

    def request_update(self) -> None:
        """Something known has turned out to be wrong."""
        self._update_wanted = True

    def next_refresh_ms(self) -> int:
        """When metadata should be asked for: at once, after a pause, or when it has become old."""
        if self._update_wanted or self._updated_at_ms is None:
            return self._not_before_ms
        return max(self._not_before_ms, self._updated_at_ms + self._max_age_ms)

    def topics_to_ask(self, now_ms: int) -> list[str]:
        """The topics in use. Those not used for long are forgotten here."""
        for topic, used_at_ms in list(self._used_at_ms.items()):
            if now_ms - used_at_ms > self._max_idle_ms:
                del self._used_at_ms[topic]
                self.topics.pop(topic, None)
        return sorted(self._used_at_ms)

    # What was learnt

    def update(self, response: MetadataResponse, now_ms: int, *, is_about_all: bool = False) -> None:
        """If it was asked about all topics, there are no others."""
        self.brokers = {
            broker.node_id: BrokerAddress(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        }
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        incomplete = False
        for topic in response.topics:
            if topic.name is not None:
                known = self._merged(topic, topic.name)
                self.topics[topic.name] = known
                # No other answer will come for a name that is not legal, however often it is asked about.
                if known.error_code != ErrorCode.INVALID_TOPIC_EXCEPTION:
                    incomplete |= bool(known.error_code) or len(known.available) < known.partition_count
        if is_about_all:
            existing = {topic.name for topic in response.topics}
            self.topics = {name: known for name, known in self.topics.items() if name in existing}
        else:
            incomplete |= any(topic not in self.topics for topic in self._used_at_ms)
        self._updated_at_ms = now_ms
        self._update_wanted = incomplete
        self._pause(now_ms, failed=incomplete)

    def _merged(self, topic: MetadataResponseTopic, name: str) -> TopicMetadata:
        before = self.topics.get(name)
        same_topic = before is not None and before.topic_id == topic.topic_id
        partitions: dict[int, PartitionLeader] = {}
        for partition in sorted(topic.partitions, key=lambda entry: entry.partition_index):
            found = PartitionLeader(partition.leader_id, partition.leader_epoch)
            known = before.partitions.get(partition.partition_index) if before is not None and same_topic else None
            # A broker that lags behind may still tell of an older leader; its epoch gives it away (KIP-320).
            partitions[partition.partition_index] = (
                known if known is not None and known.leader_epoch > found.leader_epoch else found
            )
        if not partitions and before is not None and topic.error_code == ErrorCode.LEADER_NOT_AVAILABLE:
            partitions = before.partitions
        return _topic(name, topic.topic_id, topic.is_internal, partitions, topic.error_code)

    def update_failed(self, now_ms: int) -> None:
        self._update_wanted = True
        self._pause(now_ms, failed=True)

    def _pause(self, now_ms: int, *, failed: bool) -> None:
        self._failures = self._failures + 1 if failed else 0
        # Also a success is not followed by the next question at once: errors of many partitions come together.
        self._not_before_ms = now_ms + backoff_ms(max(1, self._failures), self._backoff_ms, self._backoff_max_ms)

    def learn_leader(
        self, topic: str, partition: int, leader: PartitionLeader, brokers: Iterable[BrokerAddress] = ()
    ) -> bool:
        """Takes a reply's word on who leads now (KIP-951); True if that was news."""
        known = self.topics.get(topic)
        before = known.partitions.get(partition) if known is not None else None
        if known is None or before is None or leader.leader_epoch <= before.leader_epoch:
            return False
        for broker in brokers:
            self.brokers[broker.node_id] = broker
        if leader.leader_id not in self.brokers:
            return False
        partitions = {**known.partitions, partition: leader}
        self.topics[topic] = _topic(topic, known.topic_id, known.is_internal, partitions, known.error_code)
        return True

    def why_unknown(self, topic: str, partition: int | None, timeout_ms: int, *, otherwise: str) -> str:
        """What to say if a topic, or a partition, was waited for in vain; `otherwise` if brokers say nothing of it."""
        known = self.topics.get(topic)
        if partition is not None and known is not None and known.partitions and not known.error_code:
            return (
                f"topic {topic} has the partitions 0 to {known.partition_count - 1}, and no partition {partition} "
                f"has been added within {timeout_ms} ms"
            )
        reason = client_error(known.error_code).message if known is not None and known.error_code else otherwise
        return (
            f"topic {topic}: nothing could be learnt within {timeout_ms} ms: {reason}. "
            "Does the topic exist, and may this client see it?"
        )

    def leader_of(self, topic: str, partition: int) -> int:
        """The leader's node id, or NO_LEADER if there is none or its address is not known."""
        known = self.topics.get(topic)
        leader = known.partitions.get(partition) if known is not None else None
        return leader.leader_id if leader is not None and leader.leader_id in self.brokers else NO_LEADER

    def knows(self, topic_partition: TopicPartition) -> bool:
        known = self.topics.get(topic_partition.topic)
        return known is not None and topic_partition.partition in known.partitions


def _check_name(topic: object) -> None:
    if not isinstance(topic, str):
        raise SerializationError(f"the topic must be a name, but was {topic!r}")
    reason = why_illegal(topic)
    if reason is not None:
        raise client_error(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def _topic(
    name: str, topic_id: Uuid, is_internal: bool, partitions: dict[int, PartitionLeader], error_code: int
) -> TopicMetadata:
    available = tuple(number for number, leader in partitions.items() if leader.leader_id >= 0)
    return TopicMetadata(name, topic_id, is_internal, partitions, available, error_code)


def least_loaded(nodes: Collection[int], in_flight: Mapping[int, int], connected: Collection[int]) -> int | None:
    """The node to ask when any will do: one with an open connection and few requests under way."""
    return min(nodes, key=lambda node: (in_flight.get(node, 0), node not in connected, node), default=None)
