"""A KIP-848 group under test: a cluster of topics, the group, a log of its records, and members that speak to it.

Every decision goes through encoded records, as it would through a log.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ottla.base.errors import ErrorCode
from ottla.base.types import Uuid
from ottla.machines.coordinator import CancelTimer, Decision, Reply, SetTimer, TimerKey
from ottla.machines.groups.config import GroupConfig
from ottla.machines.groups.consumer.group import ConsumerGroup
from ottla.machines.groups.consumer.member import IdPartition
from ottla.machines.groups.consumer.state import ConsumerGroupState
from ottla.machines.groups.record_types import parse
from ottla.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedTopicPartitions,
)

GROUP = "readers"
_FATAL = (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED)


class Cluster:
    """The topics there are. A topic that is made again under its old name gets another id."""

    def __init__(self, **partition_counts: int) -> None:
        self._topics: dict[str, tuple[Uuid, int]] = {}
        self._ids_made = 0
        for name, count in partition_counts.items():
            self.put(name, count)

    def put(self, name: str, partition_count: int) -> None:
        if name in self._topics:
            self._topics[name] = (self._topics[name][0], partition_count)
        else:
            self._ids_made += 1
            self._topics[name] = (Uuid(self._ids_made.to_bytes(16, "big")), partition_count)

    def delete(self, name: str) -> None:
        self._topics.pop(name, None)

    def names(self) -> Iterable[str]:
        return self._topics

    def partition_count(self, name: str) -> int | None:
        return self._topics[name][1] if name in self._topics else None

    def topic_id(self, name: str) -> Uuid | None:
        return self._topics[name][0] if name in self._topics else None

    def name_of(self, topic_id: Uuid) -> str | None:
        return next((name for name, (known, _) in self._topics.items() if known == topic_id), None)

    def partitions(self, *names: str) -> frozenset[IdPartition]:
        return frozenset((self._topics[name][0], index) for name in names for index in range(self._topics[name][1]))


@dataclass
class World:
    cluster: Cluster
    config: GroupConfig = field(default_factory=GroupConfig)

    def __post_init__(self) -> None:
        self.group = ConsumerGroup(GROUP, self.config, self.cluster)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.timers: dict[TimerKey, int] = {}
        self.notes: list[str] = []
        self._tokens = 0

    def perform(self, decision: Decision) -> dict[object, ConsumerGroupHeartbeatResponse]:
        """Appends, replays, sets timers; the replies by token."""
        for record in decision.records:
            self.append(*record.encode())
        for timer in decision.timers:
            if isinstance(timer, SetTimer):
                self.timers[timer.key] = timer.delay_ms
            else:
                assert isinstance(timer, CancelTimer)
                self.timers.pop(timer.key, None)
        self.notes += decision.notes
        replies: dict[object, ConsumerGroupHeartbeatResponse] = {}
        for effect in decision.effects:
            assert isinstance(effect, Reply)
            assert effect.token not in replies, "a request was answered twice"
            replies[effect.token] = effect.response
        return replies

    def append(self, key: bytes, value: bytes | None) -> None:
        self.log.append((key, value))
        record = parse(key, value)
        assert record is not None
        self.group.replay(*record)

    def send(
        self,
        request: ConsumerGroupHeartbeatRequest,
        *,
        version: int = 1,
        client_id: str = "client",
        connection: object = None,
    ) -> ConsumerGroupHeartbeatResponse:
        self._tokens += 1
        token = ("request", self._tokens)
        before = self.group.durable.copy()
        decision = self.group.heartbeat(
            request,
            token,
            version=version,
            client_id=client_id,
            client_host="/127.0.0.1",
            new_member_id=f"made-{self._tokens}",
            now_ms=0,
            connection=connection,
        )
        assert self.group.durable == before, "deciding must not change durable state"
        response = self.perform(decision)[token]
        response.encode(version)
        return response

    def fire(self, kind: str, member_id: str) -> None:
        key = (kind, GROUP, member_id)
        del self.timers[key]
        assert not self.perform(self.group.timer_fired(key, 0))

    def topics_changed(self) -> None:
        assert not self.perform(self.group.topics_changed(0))

    def reloaded(self, *, compacted: bool = False) -> ConsumerGroupState:
        records = self.log
        if compacted:
            last = {key: offset for offset, (key, _) in enumerate(records)}
            records = [records[offset] for offset in sorted(last.values())]
        group = ConsumerGroup(GROUP, self.config, self.cluster)
        for key, value in records:
            record = parse(key, value)
            assert record is not None
            group.replay(*record)
        return group.durable


class Member:
    """A member that follows the protocol. It acts on an assignment, and reports that, when `apply` is called."""

    def __init__(
        self,
        world: World,
        member_id: str,
        topics: str | None = None,
        *,
        regex: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
        always_full: bool = False,
    ) -> None:
        self.world = world
        self.member_id = member_id
        self.topics = None if topics is None else topics.split()
        self.regex = regex
        self.instance_id = instance_id
        self.assignor = assignor
        self.always_full = always_full
        self.gave_up = False
        self.connection = object()
        self.restart()

    def restart(self) -> None:
        """Drops everything; the next heartbeat joins."""
        self.epoch = 0
        self.owned: frozenset[IdPartition] = frozenset()
        self.told: frozenset[IdPartition] = frozenset()
        self._has_applied = True
        self._reports_owned = False
        self._missed_a_reply = False

    @property
    def held(self) -> frozenset[IdPartition]:
        """What it may be reading: what it has not given up yet, and what it may take up any moment."""
        return self.owned | self.told

    def request(self, *, full: bool = False) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, member_epoch=self.epoch, instance_id=self.instance_id
        )
        full = full or self.always_full or self.epoch == 0 or self._missed_a_reply
        if full:
            request.rebalance_timeout_ms = 1000
            request.subscribed_topic_names = self.topics
            request.subscribed_topic_regex = self.regex
            request.server_assignor = self.assignor
        if full or self._reports_owned:
            request.topic_partitions = listed(self.owned)
        return request

    def beat(self, *, full: bool = False, lose_reply: bool = False) -> ConsumerGroupHeartbeatResponse:
        response = self.world.send(self.request(full=full), connection=self.connection)
        if lose_reply:
            self._missed_a_reply = True
            self.connection = object()  # a reply is lost only with its connection
        else:
            self.receive(response)
        return response

    def receive(self, response: ConsumerGroupHeartbeatResponse) -> None:
        if response.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.restart()
            return
        if response.error_code in _FATAL:
            self.restart()
            self.gave_up = True
            return
        assert response.error_code == 0, response
        assert response.member_epoch >= self.epoch, "a member's epoch went back"
        self.epoch = response.member_epoch
        self._missed_a_reply = self._reports_owned = False
        if response.assignment is not None:
            self.told = assigned(response)
            self._has_applied = False

    def apply(self) -> None:
        if not self._has_applied:
            self.owned = self.told
            self._has_applied = self._reports_owned = True

    def settle(self) -> ConsumerGroupHeartbeatResponse:
        response = self.beat()
        self.apply()
        return response

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        response = self.world.send(
            ConsumerGroupHeartbeatRequest(
                group_id=GROUP, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
            )
        )
        self.restart()
        return response


def assigned(response: ConsumerGroupHeartbeatResponse) -> frozenset[IdPartition]:
    assert response.assignment is not None, "the reply carries no assignment"
    return frozenset((t.topic_id, index) for t in response.assignment.topic_partitions for index in t.partitions)


def listed(partitions: frozenset[IdPartition]) -> list[OwnedTopicPartitions]:
    return [OwnedTopicPartitions(topic_id=topic_id, partitions=[index]) for topic_id, index in sorted(partitions)]


def settle_all(members: Iterable[Member], rounds: int = 8) -> None:
    everybody = list(members)
    for _ in range(rounds):
        for member in everybody:
            member.settle()
