"""Apache Kafka 3.9 as an oracle: members of both protocols in one group hear the same of Ottla, which writes the same.

A scene is played on both brokers. What members hear is written down with member ids replaced by their names and
partitions by their number, for the two may share out differently; so is what `__consumer_offsets` holds afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from ottla.base.errors import ErrorCode
from ottla.base.types import Uuid
from ottla.machines.groups.record_types import parse
from ottla.wire.apis.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedTopicPartitions,
)
from ottla.wire.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.stored.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopic,
)
from tests.broker_process import BrokerProcess
from tests.interop.groups.raw_member import RawMember
from tests.interop.groups.scene import describe, wait_until
from tests.interop.kafka_tools import fetch_kafka_libs
from tests.interop.peers.confluent import consumer, make_topic
from tests.kafka_process import KafkaProcess
from tests.raw_client import RawClient

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("apache-kafka")]

PARTITIONS = 6
"""Two members and three share them evenly: the two brokers need not agree on who gets one more."""
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "1",
    "group.consumer.migration.policy": "bidirectional",
}
CONSUMER_PROTOCOL = {"group.coordinator.rebalance.protocols": "classic,consumer"}
LOG_END_PATIENCE_S = 3.0

NEW_CLASSIC_GROUP = ("GroupMetadataKey", "", ("", 0, None, []))
"""Kafka stores a classic group when somebody is about to join it; ours, when it has a first generation."""

Broker = BrokerProcess | KafkaProcess
Heard = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Broker]]:
    kafka = KafkaProcess(fetch_kafka_libs(), tmp_path_factory.mktemp("kafka"), SETTINGS | CONSUMER_PROTOCOL).start()
    try:
        ours = BrokerProcess(tmp_path_factory.mktemp("ottla"), dict(SETTINGS)).start()
        yield ours, kafka
        assert ours.stop() == 0
    finally:
        kafka.stop()


class Classic(RawMember):
    """A consumer of the classic protocol; with each join it says what it holds, which is nothing at first."""

    def __init__(self, scene: Scene, name: str, assignor: str = "range") -> None:
        super().__init__(
            scene.broker.port,
            scene.group,
            protocol_type="consumer",
            protocols=(assignor,),
            client_id=name,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
        )
        self.scene = scene
        self.name = name
        self.owned: list[int] = []
        self.told: list[int] = []

    def says(self, what: str, *content: Any) -> None:
        self.scene.heard.append((self.name, what, *content))

    def send_join(self) -> None:
        listed = [ConsumerProtocolTopic(topic=self.scene.topic, partitions=self.owned)] if self.owned else []
        subscription = ConsumerProtocolSubscription(topics=[self.scene.topic], owned_partitions=listed)
        self.metadata = subscription.encode_versioned(1)
        super().send_join()

    def joins(self) -> None:
        if not self.id:
            self.introduce()
            self.scene.names[self.id] = self.name
        self.send_join()
        self.hears_join()

    def hears_join(self) -> None:
        """Of several members, which Kafka keeps by hash, any may lead; who does is told of all."""
        reply = self.receive_join()
        names = sorted(self.scene.names[member.member_id] for member in reply.members)
        leads = reply.leader == self.id
        assert leads == bool(names)
        who = (leads, names) if len(self.scene.names) == 1 else bool(reply.leader)
        self.says("joins", reply.error_code, reply.generation_id, reply.protocol_type, reply.protocol_name, who)

    def syncs(self, shares: dict[str, list[int]] | None = None) -> None:
        assigned = {
            member_id: ConsumerProtocolAssignment(
                assigned_partitions=[ConsumerProtocolTopic(topic=self.scene.topic, partitions=share)]
            ).encode_versioned(1)
            for member_id, share in (shares or {}).items()
        }
        reply = self.sync(assigned)
        self.told = []
        version = None
        if reply.assignment:
            version = reply.assignment[:2]
            read = ConsumerProtocolAssignment.decode_versioned(reply.assignment)
            self.told = [index for topic in read.assigned_partitions for index in topic.partitions]
        self.says("syncs", reply.error_code, version, len(self.told))

    def beats(self) -> int:
        error = self.heartbeat()
        self.says("beats", error)
        return error

    def commits(self, offset: int, version: int = 8) -> None:
        self.says("commits", self.commit(self.scene.topic, offset, version=version))

    def leaves(self) -> None:
        self.says("leaves", self.leave())


class Consumer:
    """A member of KIP-848's protocol in version 0, whose id the broker makes; it says all each time."""

    def __init__(self, scene: Scene, name: str) -> None:
        self.client = RawClient(scene.broker.port, client_id=name)
        self.scene = scene
        self.name = name
        self.id = ""
        self.epoch = 0
        self.owned: list[tuple[Uuid, int]] = []

    def beats(self, *, leaves: bool = False) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.scene.group, member_id=self.id, member_epoch=-1 if leaves else self.epoch
        )
        if not leaves:
            request.rebalance_timeout_ms = 60_000
            request.subscribed_topic_names = [self.scene.topic]
            request.topic_partitions = [
                OwnedTopicPartitions(topic_id=topic_id, partitions=[index]) for topic_id, index in self.owned
            ]
        reply = self.client.call(request, 0)
        assert isinstance(reply, ConsumerGroupHeartbeatResponse)
        if reply.assignment is not None:
            self.owned = [(topic.topic_id, i) for topic in reply.assignment.topic_partitions for i in topic.partitions]
        if reply.error_code == ErrorCode.NONE and not leaves:
            self.id, self.epoch = reply.member_id or "", reply.member_epoch
            self.scene.names[self.id] = self.name
        self.scene.heard.append((self.name, "beats", reply.error_code, reply.member_epoch, len(self.owned)))


class Scene:
    def __init__(self, broker: Broker, topic: str) -> None:
        self.broker = broker
        self.topic = topic
        self.group = f"{topic}-group"
        self.names: dict[str, str] = {}
        self.heard: Heard = []
        make_topic(broker.bootstrap, topic, PARTITIONS)
        with RawClient(broker.port) as client:
            wait_until(lambda: self._has_coordinator(client), lambda: "no coordinator")
        wait_until(self._coordinator_knows_topic, lambda: f"the coordinator does not learn of {topic}")

    def _has_coordinator(self, client: RawClient) -> bool:
        reply = client.call(FindCoordinatorRequest(key=self.group), 3)
        assert isinstance(reply, FindCoordinatorResponse)
        return reply.error_code == ErrorCode.NONE

    def _coordinator_knows_topic(self) -> bool:
        """Kafka's coordinator learns of topics later than others of the broker: another group finds out."""
        group, self.group = self.group, f"{self.topic}-probe"
        probe = Consumer(self, "probe")
        probe.beats()
        assigned = len(probe.owned)
        probe.beats(leaves=True)
        self.group = group
        self.heard.clear()
        self.names.clear()
        return assigned == PARTITIONS

    def shown(self) -> None:
        with RawClient(self.broker.port) as client:
            reply = client.call(ConsumerGroupDescribeRequest(group_ids=[self.group]), 0)
        assert isinstance(reply, ConsumerGroupDescribeResponse)
        (found,) = reply.groups
        members = sorted((member.client_id, member.member_epoch) for member in found.members)
        self.heard.append(
            ("shown", found.error_code, found.group_state, found.group_epoch, found.assignment_epoch, members)
        )
        self.heard.append(("shown", describe(self.broker, self.group)[:2]))  # type: ignore[arg-type]

    def written(self) -> list[tuple[Any, ...]]:
        """The group's records without its offsets: kind, member, and what the value says besides ids."""
        reader = consumer(self.broker.bootstrap, isolation_level="read_uncommitted")
        reader.assign([TopicPartition("__consumer_offsets", 0, OFFSET_BEGINNING)])
        _, end_offset = reader.get_watermark_offsets(TopicPartition("__consumer_offsets", 0))
        found = []
        # Kafka repeats a member's state if only its previous epoch differs, which ours keeps.
        last: dict[str, tuple[Any, ...]] = {}
        position = 0
        while position < end_offset:
            (message,) = reader.consume(1, timeout=LOG_END_PATIENCE_S) or (None,)
            assert message is not None and message.error() is None, f"nothing at {position} of {end_offset}"
            position = message.offset() + 1
            parsed = parse(message.key(), message.value())
            assert parsed is not None
            key, value = parsed
            if getattr(key, "group", None) == self.group and hasattr(key, "topic"):
                continue
            if self.group in (getattr(key, "group", None), getattr(key, "group_id", None)):
                member = self.names.get(getattr(key, "member_id", ""), "")
                record = (type(key).__name__, member, None if value is None else self._gist(value))
                if record != NEW_CLASSIC_GROUP and record != last.get(str(key)):
                    found.append(record)
                last[str(key)] = record
        reader.close()
        # Kafka keeps members by hash, so they may come in another order where all are written at once.
        return [record for _, run in groupby(found, key=lambda record: record[0]) for record in sorted(run, key=repr)]

    def _gist(self, value: Any) -> tuple[Any, ...]:
        match type(value).__name__:
            case "GroupMetadataValue":
                members = sorted(
                    (self.names[m.member_id], m.session_timeout, m.rebalance_timeout, m.subscription[:2], m.client_id)
                    for m in value.members
                )
                # Any of several may lead. After a downgrade ours leaves no leader, and Kafka one that does not know.
                return value.protocol_type, value.generation, value.protocol, members
            case "ConsumerGroupMemberMetadataValue":
                classic = value.classic_member_metadata
                protocols = classic and [(p.name, p.metadata) for p in classic.supported_protocols]
                return (
                    value.client_id, value.subscribed_topic_names == [self.topic], value.rebalance_timeout_ms,
                    value.server_assignor, classic and classic.session_timeout_ms,
                    protocols and [(name, len(metadata) > 0) for name, metadata in protocols],
                )  # fmt: skip
            case "ConsumerGroupCurrentMemberAssignmentValue":
                counts = [
                    sum(len(topic.partitions) for topic in topics)
                    for topics in (value.assigned_partitions, value.partitions_pending_revocation)
                ]
                return value.member_epoch, value.state, *counts
            case "ConsumerGroupTargetAssignmentMemberValue":
                return (sum(len(topic.partitions) for topic in value.topic_partitions),)
            case "ConsumerGroupPartitionMetadataValue":
                return tuple((topic.topic_name == self.topic, topic.num_partitions) for topic in value.topics)
            case "ConsumerGroupMetadataValue":
                return (value.epoch,)
        return (value.assignment_epoch,)


def there_and_back(scene: Scene) -> None:
    """One classic member alone, a consumer comes, another classic one comes, the consumer goes."""
    a, b, c = Classic(scene, "a"), Classic(scene, "b"), Consumer(scene, "c")
    a.joins()
    a.syncs({a.id: list(range(PARTITIONS))})
    a.commits(5)
    c.beats()
    scene.shown()
    a.beats()
    a.commits(6)
    a.joins()
    a.beats()
    a.syncs()
    a.beats()
    c.beats()
    c.beats()
    scene.shown()
    generation, a.generation = a.generation, 77
    a.beats()
    a.commits(7)
    a.syncs()
    a.generation = generation
    b.joins()
    a.beats()
    b.syncs()
    b.beats()
    a.joins()
    a.syncs()
    c.beats()
    c.beats()
    c.beats()
    for member in (a, b, a, b):
        if member.beats():
            member.joins()
            member.syncs()
    scene.shown()
    c.beats(leaves=True)
    scene.shown()
    a.beats()
    a.send_join()
    b.beats()
    b.send_join()
    a.hears_join()
    b.hears_join()
    a.commits(8)
    for member in (a, b):
        member.leaves()
    scene.shown()


def cooperatively(scene: Scene) -> None:
    """A classic member that keeps what it can: it is told what to give up, and confirms with its next join."""
    a, c = Classic(scene, "a", "cooperative-sticky"), Consumer(scene, "c")
    a.joins()
    a.syncs({a.id: list(range(PARTITIONS))})
    a.owned = a.told
    c.beats()
    a.beats()
    a.joins()
    a.syncs()
    scene.shown()
    a.beats()
    a.commits(3)
    c.beats()
    a.owned = a.told
    a.joins()
    a.syncs()
    a.beats()
    c.beats()
    c.beats()
    a.leaves()
    c.beats()
    scene.shown()
    c.beats(leaves=True)
    scene.shown()


def classic_members_join_consumers(scene: Scene) -> None:
    c, d, a = Consumer(scene, "c"), Consumer(scene, "d"), Classic(scene, "a")
    c.beats()
    d.beats()
    a.joins()
    for _ in range(2):
        for member in (c, d):
            member.beats()
    a.syncs()
    a.beats()
    a.joins()
    a.syncs()
    scene.shown()
    d.beats(leaves=True)
    a.beats()
    c.beats(leaves=True)
    scene.shown()


@pytest.mark.parametrize("play", [there_and_back, cooperatively, classic_members_join_consumers])
def test_kafka_and_ottla_agree(brokers: tuple[Broker, Broker], new_topic: str, play: Callable[[Scene], None]) -> None:
    scenes = [Scene(broker, new_topic) for broker in brokers]
    for scene in scenes:
        play(scene)
    ours, kafkas = scenes
    assert ours.heard == kafkas.heard
    assert ours.written() == kafkas.written()
