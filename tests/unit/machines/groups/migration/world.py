"""Members of both protocols in one group of a shard. Each takes its next step when told to, as its client would."""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.machines.assignors import CLIENT_ASSIGNORS
from ottla.machines.assignors.types import AssignorMember
from ottla.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedTopicPartitions,
)
from ottla.wire.stored.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopic,
)
from tests.unit.machines.groups.runner import GROUP, Runner

Owned = frozenset[TopicPartition]
NOTHING: Owned = frozenset()
COOPERATIVE = "cooperative-sticky"
_TO_FORGET = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID)


def subscription(topics: list[str], owned: Owned = NOTHING, version: int = 2) -> bytes:
    listed = [ConsumerProtocolTopic(topic=topic, partitions=[index]) for topic, index in sorted(owned)]
    return ConsumerProtocolSubscription(topics=topics, owned_partitions=listed).encode_versioned(version)


def assignment(partitions: Owned, version: int = 2) -> bytes:
    listed = [ConsumerProtocolTopic(topic=topic, partitions=[index]) for topic, index in sorted(partitions)]
    return ConsumerProtocolAssignment(assigned_partitions=listed).encode_versioned(version)


def read_assignment(data: bytes) -> Owned:
    if not data:
        return NOTHING
    topics = ConsumerProtocolAssignment.decode_versioned(data).assigned_partitions
    return frozenset(TopicPartition(topic.topic, index) for topic in topics for index in topic.partitions)


class ClassicMember:
    """Of the classic protocol, with an assignor that takes everything away first, or a cooperative one."""

    def __init__(
        self,
        runner: Runner,
        name: str,
        topics: str = "orders",
        *,
        assignor: str = "range",
        instance_id: str | None = None,
    ) -> None:
        self.runner = runner
        self.name = name
        self.instance_id = instance_id
        self.topics = topics.split()
        self.assignor = assignor
        self.member_id = ""
        self.generation = -1
        self.owned: Owned = NOTHING
        self._must_join = True
        self._joining: object | None = None
        self._syncing: object | None = None

    @property
    def held(self) -> Owned:
        return self.owned

    @property
    def is_settled(self) -> bool:
        return not self._must_join and self._joining is None and self._syncing is None

    def expelled(self) -> None:
        """It finds out by itself that its time is over, before anybody else is given what it held.

        Replies that are still on their way come too late.
        """
        self.owned = NOTHING
        self.moved(self.runner)

    def moved(self, runner: Runner) -> None:
        """The coordinator is another one now; what waited at the old one failed."""
        self.runner = runner
        if self._joining is not None or self._syncing is not None:
            self._joining = self._syncing = None
            self._must_join = True

    def step(self) -> None:
        if self._joining is not None:
            self._take_join_reply()
        elif self._syncing is not None:
            self._take_sync_reply()
        elif self._must_join:
            self._join()
        else:
            error = self.runner.heartbeat(self.member_id, self.generation, instance_id=self.instance_id)
            self._failed_with(error)

    def _join(self) -> None:
        if self.assignor != COOPERATIVE:
            self.owned = NOTHING
        protocols = ((self.assignor, subscription(self.topics, self.owned)),)
        self._joining = self.runner.join(
            self.member_id, protocols=protocols, client_id=self.name, instance_id=self.instance_id
        )

    def _take_join_reply(self) -> None:
        reply = self.runner.reply(self._joining)
        if reply is None:
            return
        self._joining = None
        if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
        elif not self._failed_with(reply.error_code):
            self.member_id, self.generation = reply.member_id, reply.generation_id
            self._must_join = False
            assigned = self._assign(reply) if reply.leader == self.member_id else {}
            self._syncing = self.runner.sync(self.member_id, self.generation, assigned, instance_id=self.instance_id)

    def _assign(self, reply: Any) -> dict[str, bytes]:
        members = []
        for member in reply.members:
            said = ConsumerProtocolSubscription.decode_versioned(member.metadata)
            owned = frozenset(TopicPartition(t.topic, index) for t in said.owned_partitions for index in t.partitions)
            members.append(AssignorMember(member.member_id, frozenset(said.topics), owned))
        shares = CLIENT_ASSIGNORS[self.assignor].assign(members, self.runner.topics.counts)
        return {member_id: assignment(frozenset(share)) for member_id, share in shares.items()}

    def _take_sync_reply(self) -> None:
        reply = self.runner.reply(self._syncing)
        if reply is None:
            return
        self._syncing = None
        if not self._failed_with(reply.error_code):
            told = read_assignment(reply.assignment)
            self._must_join = bool(self.owned - told)  # a cooperative member joins again after it gave something up
            self.owned = told

    def _failed_with(self, error: int) -> bool:
        if error in _TO_FORGET:
            self.owned = NOTHING
            self.generation = -1
            if error != ErrorCode.ILLEGAL_GENERATION:
                self.member_id = ""
        self._must_join |= error != ErrorCode.NONE
        return error != ErrorCode.NONE

    def leave(self) -> None:
        self.owned = NOTHING
        if self.member_id:
            self.runner.leave(self.member_id)


class ConsumerMember:
    """Of the protocol of KIP-848."""

    def __init__(
        self,
        runner: Runner,
        name: str,
        topics: str = "orders",
        *,
        always_full: bool = False,
        instance_id: str | None = None,
    ) -> None:
        self.runner = runner
        self.instance_id = instance_id
        self.member_id = self.name = name
        self.topics = topics.split()
        self.always_full = always_full
        self.epoch = 0
        self.owned: Owned = NOTHING
        self.told: Owned = NOTHING
        self._reports = False

    @property
    def held(self) -> Owned:
        return self.owned | self.told

    @property
    def is_settled(self) -> bool:
        return self.epoch > 0 and self.owned == self.told and not self._reports

    def expelled(self) -> None:
        self.owned = self.told = NOTHING

    def moved(self, runner: Runner) -> None:
        self.runner = runner

    def step(self) -> None:
        """A heartbeat, or taking up what the last one brought."""
        if self.owned != self.told:
            self.owned = self.told
            self._reports = True
            return
        response = self.beat()
        if response.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self.owned = self.told = NOTHING
            self.epoch = 0
            return
        assert response.error_code == 0, response
        self.epoch = response.member_epoch
        self._reports = False
        if response.assignment is not None:
            names = self.runner.topics.name_of
            self.told = frozenset(
                TopicPartition(names(topic.topic_id) or "", index)
                for topic in response.assignment.topic_partitions
                for index in topic.partitions
            )

    def beat(self) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, member_epoch=self.epoch, instance_id=self.instance_id
        )
        is_full = self.always_full or self.epoch == 0
        if is_full:
            request.rebalance_timeout_ms = 60_000
            request.subscribed_topic_names = self.topics
        if is_full or self._reports:
            request.topic_partitions = [
                OwnedTopicPartitions(topic_id=topic_id, partitions=[index])
                for topic, index in sorted(self.owned)
                if (topic_id := self.runner.topics.topic_id(topic)) is not None
            ]
        return self._send(request)

    def leave(self) -> None:
        self.owned = self.told = NOTHING
        self._send(ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=self.member_id, member_epoch=-1))

    def _send(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        token = self.runner.token()
        decision = self.runner.shard.consumer_heartbeat(
            request,
            token,
            version=1,
            client_id=self.name,
            client_host="/127.0.0.1",
            new_member_id="unused",
            now_ms=self.runner.now_ms,
        )
        self.runner.perform(decision)
        response = self.runner.reply(token)
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        return response


AnyMember = ClassicMember | ConsumerMember


def settle(*members: AnyMember, rounds: int = 40) -> None:
    """Lets everybody act in turn until the group is at rest: heartbeats change nothing any more."""
    for _ in range(rounds):
        for member in members:
            member.step()
    assert all(member.is_settled for member in members), [(m.name, m.owned) for m in members if not m.is_settled]
